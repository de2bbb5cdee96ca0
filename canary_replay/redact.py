"""Masks keys before anything reaches the disk: what is known, what has a key's shape, and nothing of ordinary prose."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
import re2

from canary_replay.errors import UsageError
from canary_replay.interaction import Headers, HttpRequest, HttpResponse, Interaction
from canary_replay.request import Request
from canary_replay.response import Response

KEPT_REQUEST_HEADERS = frozenset(
    {"content-type", "accept", "anthropic-version", "anthropic-beta", "openai-beta", "x-goog-api-client"},
)
KEPT_RESPONSE_HEADERS = frozenset(
    {
        "content-type",
        "content-encoding",  # stands only where the bytes are still compressed
        "transfer-encoding",
        "retry-after",
        "retry-after-ms",
        "x-should-retry",
        "openai-version",
        "openai-model",
        "openai-processing-ms",
        "x-amzn-bedrock-invocation-latency",
    }
)
SECRET_PARAMETERS = frozenset(
    {
        "key",
        "api_key",
        "api-key",
        "apikey",
        "access_token",
        "token",
        "sig",
        "signature",
        "subscription-key",
        "x-amz-credential",
        "x-amz-signature",
        "x-amz-security-token",
    }
)
_SHORTEST_KEY = 16  # a shorter value of the environment may be a word: GCP_PROJECT=support
_SHORTEST_GIVEN_KEY = 8
_KEY_NAME = re.compile(r"(^|_)API_?(KEY|TOKEN)(_\w+)?$", re.IGNORECASE)
_KEY_NAMES = frozenset(
    {
        "ANTHROPIC_AUTH_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_AD_TOKEN",
        "AZURE_CLIENT_SECRET",
        "DATABRICKS_TOKEN",
        "GITHUB_TOKEN",
        "HF_TOKEN",
        "HUGGINGFACE_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "OPENAI_ADMIN_KEY",
        "WATSONX_TOKEN",
        "WATSONX_ZENAPIKEY",
    }
)
_IDENTIFIER_NAME = re.compile(
    r"(^|_)(ORG|ORG_ID|ORGANIZATION|ORGANIZATION_ID|PROJECT|PROJECT_ID|ACCOUNT|ACCOUNT_ID)$", re.IGNORECASE
)


class Leak(msgspec.Struct, frozen=True):
    """Something that must not be written: what kind of thing it is, and its bytes' place; never the thing itself."""

    kind: str
    start: int
    end: int


def secrets_from(environ: Mapping[str, str], extra: Iterable[str] = ()) -> tuple[str, ...]:
    """The keys that this process knows, longest first.

    :param environ: of these, variables named ``..._API_KEY`` or like one of the providers' own count, from 16 characters.
    :param extra: keys from elsewhere; they count from 8 characters unless they are letters alone, as a word is.
    """
    found = {
        value
        for name, value in environ.items()
        if len(value) >= _SHORTEST_KEY and (_KEY_NAME.search(name) or name.upper() in _KEY_NAMES)
    }
    found |= {value for value in extra if len(value) >= _SHORTEST_GIVEN_KEY and not value.isalpha()}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


def identifiers_from(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of variables named ``..._ORG``, ``..._PROJECT`` or ``..._ACCOUNT``.

    They may be words, so only URLs and headers lose them.
    """
    found = {value for name, value in environ.items() if value and _IDENTIFIER_NAME.search(name)}
    return tuple(sorted(found, key=lambda value: (-len(value), value)))


# ------------------------------------------------------------------------------------------------ shapes
# What may stand before a key besides the beginning and any sign: an escape of JSON (\n) or of a URL (%3D), whose last
# character is a letter and would otherwise look like the key's own. Escapes come first because RE2 takes the first that fits.
_BEFORE = rb"(?:\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2}|^|[^A-Za-z0-9])"
_TOKEN = rb"[A-Za-z0-9_-]"
_PREFIXED = (
    rb"sk-" + _TOKEN + rb"{20,}",
    rb"AIza" + _TOKEN + rb"{30,}",
    rb"AQ\.Ab" + _TOKEN + rb"{30,}",
    rb"gsk_[A-Za-z0-9]{20,}",
    rb"hf_[A-Za-z0-9]{30,}",
    rb"xai-[A-Za-z0-9]{20,}",
    rb"r8_[A-Za-z0-9]{30,}",
    rb"pplx-[A-Za-z0-9]{30,}",
    rb"nvapi-" + _TOKEN + rb"{30,}",
    rb"gh[pousr]_[A-Za-z0-9]{36,}",
    rb"github_pat_[A-Za-z0-9_]{40,}",
    rb"glpat-" + _TOKEN + rb"{20,}",
    rb"xox[abeprs]-[A-Za-z0-9-]{20,}",
    rb"ya29\." + _TOKEN + rb"{20,}",
    rb"org-[A-Za-z0-9]{20,}",
    rb"proj_[A-Za-z0-9]{20,}",
)


class _Shape(msgspec.Struct, frozen=True):
    """What a kind of key looks like.

    :ivar pattern: RE2; its first group is what gets masked.
    :ivar confirm: whether a masked part is generated rather than written by a person.
    """

    kind: str
    pattern: bytes
    confirm: Any = None


def _alternation(token: bytes) -> float:
    """How often letters and digits, and small letters and capitals, follow one another, per pair of neighbours.

    Written words give less than 0.2, CamelCase too (a small letter after a capital does not count); generated base62 gives
    0.45 on average, hexadecimal 0.47, and letters alone 0.25.
    """
    text = token.decode("ascii", "replace")
    turns = sum(
        one.isdigit() != other.isdigit() or (one.islower() and other.isupper())
        for one, other in pairwise(text)
        if one.isalnum() and other.isalnum()
    )
    return turns / max(1, len(text) - 1)


def _one_run(token: bytes, *, digits: int) -> bool:
    """Whether 20 letters and digits stand together, with so many digits among them: no word does that."""
    runs = re.findall(rb"[A-Za-z0-9]{20,}", token)
    return any(len(re.findall(rb"[0-9]", run)) >= digits and not run.isdigit() for run in runs)


def _is_key(token: bytes) -> bool:
    prefix, rest = re.split(rb"[-_.]|(?<=AIza)", token, maxsplit=1)
    letters_alone = 0.1 if prefix in {b"hf", b"r8"} else 0.2
    return _one_run(rest, digits=1) or _alternation(rest) >= letters_alone


def _is_credential(token: bytes) -> bool:
    return _one_run(token, digits=4) or _alternation(token) >= 0.2


def _has_digit(token: bytes) -> bool:
    return any(48 <= byte <= 57 for byte in token)


_SHAPES = (
    _Shape("a key", _BEFORE + rb"(" + rb"|".join(_PREFIXED) + rb")", _is_key),
    _Shape("an AWS access key id", _BEFORE + rb"((?:AKIA|ASIA)[A-Z0-9]{16})\b", _has_digit),
    _Shape("a JSON web token", _BEFORE + rb"(eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"),
    _Shape("a credential", rb"(?i:\b(?:bearer|basic)(?: +|%20|\\t))([A-Za-z0-9._~+/=-]{16,})", _is_credential),
    _Shape("a signature", rb"\bSignature=([0-9a-f]{64})\b"),
    _Shape("a private key", rb"-----BEGIN [A-Z ]*PRIVATE KEY-----([A-Za-z0-9+/=\\\s]{40,})-----END"),
    _Shape(
        "an account's number",
        rb"\barn(?::|%3[Aa])aws[a-z-]*(?::|%3[Aa])[a-z0-9-]+(?::|%3[Aa])[a-z0-9-]*(?::|%3[Aa])([0-9]{12})(?::|%3[Aa])",
    ),
)
_EMAIL = _Shape(
    "an e-mail address",
    rb"(?:\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2}|^|[^A-Za-z0-9._%+-])"
    rb"([A-Za-z0-9][A-Za-z0-9._%+-]*(?:@|%40)[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})",
)
_IDENTIFYING_PATH = re.compile(r"(?<=/)(projects|accounts|organizations|subscriptions|resourceGroups)/([^/?#:]+)")
_IDENTIFYING_HOST = re.compile(
    r"^[a-z0-9-]+(?=\.(?:openai\.azure\.com|cognitiveservices\.azure\.com|services\.ai\.azure\.com|azure-api\.net"
    r"|(?:cloud\.)?databricks\.com|snowflakecomputing\.com)(?::\d+)?$)",
    re.IGNORECASE,
)


# ------------------------------------------------------------------------------------------------ the forms of a value
def _forms(value: str) -> Iterator[bytes]:
    """Every way in which a value may stand in a URL, a body or a header."""
    raw = value.encode("utf-8", "surrogatepass")
    yield raw
    for quoted in (quote(raw, safe=""), quote(raw, safe="/")):
        yield quoted.encode()
        yield re.sub("%[0-9A-F]{2}", lambda escape: escape.group().lower(), quoted).encode()
    for escaped in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield escaped.encode("utf-8", "surrogatepass")
        yield escaped.replace("/", "\\/").encode("utf-8", "surrogatepass")
    yield from _base64_forms(raw)


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """The base64 of a value wherever it begins: `Basic` encodes ``user:key``, so a key may start at any of three places.

    Only the characters that depend on the value alone are looked for.
    """
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw)
        skipped = (0, 2, 3)[before]
        whole = (before + len(raw)) * 8 // 6
        core = encoded[skipped:whole]
        yield core
        yield core.translate(bytes.maketrans(b"+/", b"-_"))


@lru_cache(maxsize=256)
def _compiled(pattern: bytes) -> Any:  # noqa: ANN401 - re2 has no types
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
        raise UsageError(f"redact.patterns: {pattern.decode()!r} is not an RE2 pattern: {reason}") from None


def _fill(size: int) -> bytes:
    return (b"REDACTED" + b"x" * size)[:size]


# ------------------------------------------------------------------------------------------------ the redactor
@dataclass(frozen=True)
class Redactor:
    """Replaces what must not be stored by as many bytes of ``REDACTEDxxx``, so that tables of chunks stay true.

    Redacting twice is redacting once, and prose in any language comes out as it went in.

    :ivar secrets: key values, from `secrets_from`; masked everywhere, in all their forms.
    :ivar emails: whether e-mail addresses are masked too.
    :ivar patterns: RE2 patterns of whatever else is to be masked; the first group if there is one, else the whole match.
    :ivar identifiers: names of organisations, projects and accounts, from `identifiers_from`; masked in URLs and headers alone.
    :raises UsageError: a pattern is not RE2.
    """

    secrets: Sequence[str] = ()
    emails: bool = False
    patterns: Sequence[str] = ()
    identifiers: Sequence[str] = ()

    def __post_init__(self) -> None:
        _ = self._searches  # a pattern that is not RE2 is reported here, not in the middle of a recording

    def knowing(self, secrets: Iterable[str]) -> Redactor:
        """This redactor, knowing more keys; of the new ones, those that `secrets_from` takes."""
        known = {*self.secrets, *secrets_from({}, secrets)}
        return replace(self, secrets=tuple(sorted(known, key=lambda value: (-len(value), value))))

    # -------------------------------------------------------------------------------------------- text and bytes
    def text(self, text: str) -> str:
        """The text with keys masked; the number of its UTF-8 bytes stays."""
        data = text.encode("utf-8", "surrogatepass")
        masked = self.body(data)
        return text if masked is data else masked.decode("utf-8", "surrogatepass")

    def body(self, data: bytes) -> bytes:
        """The bytes with keys masked; as many as before."""
        for _ in range(4):  # masking may join what a pattern of the user's then matches as one; it only ever grows
            found = self.leaks(data)
            if not found:
                break
            data = _masked(data, found)
        return data

    def leaks(self, data: bytes) -> tuple[Leak, ...]:
        """What `body` would mask, in order of place."""
        found = [leak for leak in self._search(data) if data[leak.start : leak.end] != _fill(leak.end - leak.start)]
        if found and self.patterns:  # a pattern of the user's may match what masking wrote
            masks = [match.span() for match in re.finditer(rb"REDACTEDx*", data)]
            found = [leak for leak in found if not any(start <= leak.start and leak.end <= end for start, end in masks)]
        return tuple(sorted(found, key=lambda leak: (leak.start, leak.end)))

    def _search(self, data: bytes) -> Iterator[Leak]:
        for form in self._known:
            start = data.find(form)
            while start >= 0:
                yield Leak("a known key", start, start + len(form))
                start = data.find(form, start + len(form))
        for shape, pattern in self._searches:
            for match in pattern.finditer(data):
                start, end = match.span(1 if pattern.groups else 0)
                if 0 <= start < end and (shape.confirm is None or shape.confirm(data[start:end])):
                    yield Leak(shape.kind, start, end)

    @cached_property
    def _known(self) -> tuple[bytes, ...]:
        return tuple(
            sorted({form for secret in self.secrets for form in _forms(secret) if form}, key=lambda form: (-len(form), form))
        )

    @cached_property
    def _searches(self) -> tuple[tuple[_Shape, Any], ...]:
        shapes = (*_SHAPES, *([_EMAIL] if self.emails else []))
        asked_for = [_Shape("a masked pattern", pattern.encode()) for pattern in self.patterns]
        return tuple((shape, _compiled(shape.pattern)) for shape in (*shapes, *asked_for))

    # -------------------------------------------------------------------------------------------- HTTP
    def interaction(self, interaction: Interaction) -> Interaction:
        """An exchange as it may be stored."""
        return Interaction(request=self.request(interaction.request), response=self.response(interaction.response))

    def request(self, request: HttpRequest) -> HttpRequest:
        """A request as it may be stored: known-harmless headers alone, no key in its URL or body."""
        return HttpRequest(
            method=request.method,
            uri=self.uri(request.uri),
            headers=self._headers(request.headers, KEPT_REQUEST_HEADERS),
            body=self.body(request.body),
        )

    def response(self, response: HttpResponse) -> HttpResponse:
        """A response as it may be stored: known-harmless headers alone, no key in its body or in what its end says."""
        timing = response.timing
        if timing is not None and timing.end != "eof":
            timing = msgspec.structs.replace(timing, end=self.text(timing.end))
        return HttpResponse(
            status=response.status,
            reason=self.text(response.reason),
            headers=self._headers(response.headers, KEPT_RESPONSE_HEADERS),
            body=self.body(response.body),
            timing=timing,
        )

    def uri(self, uri: str) -> str:
        """A URL without its user, the values of parameters that carry keys, and names of projects, accounts and resources."""
        parts = urlsplit(uri)
        host = _IDENTIFYING_HOST.sub("redacted", parts.netloc.rpartition("@")[2])
        path = _IDENTIFYING_PATH.sub(lambda found: f"{found[1]}/REDACTED", parts.path)
        query = "&".join(map(_without_key, parts.query.split("&"))) if parts.query else ""
        return self._named(urlunsplit((parts.scheme, host, path, query, "")))

    def _headers(self, headers: Headers, kept: frozenset[str]) -> Headers:
        return {name: [self._named(value) for value in values] for name, values in headers.items() if name.lower() in kept}

    def _named(self, text: str) -> str:
        """A URL or header value without keys and without identifiers, which count only as whole words."""
        for identifier in self.identifiers:
            for form in dict.fromkeys((identifier, quote(identifier, safe=""))):
                text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9])", "REDACTED", text)
        return self.text(text)

    # -------------------------------------------------------------------------------------------- our own values
    def neutral(self, request: Request) -> Request:
        """A provider-neutral request with every string in it masked."""
        return Request(
            model=self.text(request.model),
            messages=tuple(self._walk(message) for message in request.messages),
            tools=tuple(self._walk(tool) for tool in request.tools),
            parameters=self._walk(request.parameters),
        )

    def answer(self, response: Response) -> Response:
        """A decoded response with every string in it masked."""
        return msgspec.convert(self._walk(msgspec.to_builtins(response)), Response)

    def holds_secret(self, response: Response) -> bool:
        """Whether a decoded response holds something to mask.

        If the bytes it was decoded from are masked already, the secret was cut over events: no byte search can find its
        pieces, so those bytes must not be stored.
        """
        return self.answer(response) != response

    def _walk(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._walk(name): self._walk(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._walk(item) for item in value]
        return value


def _masked(data: bytes, leaks: Sequence[Leak]) -> bytes:
    """The bytes with these places filled; places that overlap are filled as one."""
    masked = bytearray(data)
    start, end = leaks[0].start, leaks[0].end
    for leak in leaks[1:]:
        if leak.start < end:
            end = max(end, leak.end)
            continue
        masked[start:end] = _fill(end - start)
        start, end = leak.start, leak.end
    masked[start:end] = _fill(end - start)
    return bytes(masked)


def _without_key(parameter: str) -> str:
    name, equals, _value = parameter.partition("=")
    return f"{name}{equals}REDACTED" if equals and name.lower() in SECRET_PARAMETERS else parameter
