"""Keys never get through, and prose always does."""

from __future__ import annotations

import base64
import json
import re
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary_replay import cassette
from canary_replay.errors import UsageError
from canary_replay.interaction import HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.recording import Recording
from canary_replay.redact import Redactor, identifiers_from, secrets_from
from canary_replay.request import Request
from canary_replay.response import Response, ToolCall

KEY = "canary/Key+0123456789=äß"  # every sign that some encoding changes
REDACTOR = Redactor([KEY])

PROSE = [
    "a basic understanding of risk-assessment and desk-side work",
    "basic authentication is explained in the chapter on HTTP; bearer tokens come next, with OAuth2AuthenticationFilter",
    "Send the header 'Authorization: Basic Base64EncodedCredentials', then the bearer TokenAuthenticationFilterFactory",
    "The sk-learn-based-classification-pipeline-for-everyone runs on task-oriented desk-side-support-infrastructure.",
    "hf_transformers_pipeline_configuration_for_everyone and proj_management_for_distributed_organisations",
    "org-wide-organisational-restructuring-programme, cyborg-aaaaaaaaaaaaaaaaaaaaaaaa, gsk_",
    "Order EXAMPLE-42 / A-10293 / SK-2024-000123456789 is on its way; invoice INV-20260101-000000000042.",
    "id 123e4567-e89b-12d3-a456-426614174000, commit 2eadaa1f0c9b8d7e6f5a4b3c2d1e0f9a8b7c6d5e",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, chatcmpl-AbC123xYz456DeF789gHi012jKl",
    "call_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2, toolu_01A09q90qw90lq917835lq9, msg_01XFDUDYJgAACzvnptvVoYEL",
    "Write to support@example.com, or see https://user.example.com/a?page=2&key=value&token=next#top",
    "ASIAPACIFICREGIONALHQ is one word, AKIA is none; arn:aws:s3:::my-bucket/key has no account",
    "Ein grundlegendes Verständnis der Risiko-Einschätzung; Donaudampfschifffahrtsgesellschaftskapitänsmütze",
    "El riesgo-país, la ex-ministra y el desk-side-support; 日本語の文章です 🎉。 कुंजी यहाँ नहीं है",
    "Ключ здесь не хранится: базовая-аутентификация. مفتاح سري غير موجود هنا. 열쇠는 여기에 없습니다",
    "public class RiskAssessmentService implements BasicAuthenticationEntryPointFactoryBean<Bearer> {}",
    '{"basic": "understanding", "bearer": ["a", "b"], "text": "line\\nsk-ip this\\tsk-ill"}',
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
]
KEYS = [
    "sk-" + "aB3dE6gH9jK2mN5pQ8rT1vX4zC7fG0iL",
    "sk-abcdefghijklmnopqrstuvwxyz123456",
    "sk-proj-Ab1_Cd2-Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2",
    "sk-ant-api03-Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8-Qr9St0Uv1Wx2Yz3",
    "sk-or-v1-0123456789abcdef0123456789abcdef",
    "AIza" + "SyA1bC2dE3fG4hI5jK6lM7nO8pQ9rS0tU1v",
    "gsk_Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0",
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
    "xai-Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0",
    "r8_Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "ghp_Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8Qr9St0Uv1Wx2",
    "xoxb-1234567890-Ab1Cd2Ef3Gh4Ij5Kl6",
    "ya29.a0Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8",
    "org-Ab1Cd2Ef3Gh4Ij5Kl6Mn7Op8",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
]


@pytest.mark.parametrize("prose", PROSE)
def test_prose(prose: str) -> None:
    """Prose, code, ids and addresses come out as they went in."""
    assert Redactor().text(prose) == prose
    assert Redactor().leaks(json.dumps(prose).encode()) == ()


words = st.text(alphabet=st.characters(categories=["Ll", "Lu", "Lo", "Lt", "Lm", "Mn"]), min_size=1, max_size=12)
spaces = st.sampled_from([" ", ", ", ". ", "-", "\n", " – ", ": ", "? ", " (", ") ", "…"])  # noqa: RUF001 - real punctuation


@given(st.lists(st.tuples(words, spaces), max_size=60))
def test_words_of_any_language(pieces: list[tuple[str, str]]) -> None:
    """Words of letters, in any script and joined by any punctuation, are never masked."""
    text = "".join(word + space for word, space in pieces)

    assert Redactor([KEY]).text(text) == text


english = st.sampled_from(
    "a the basic bearer risk desk sk key token org proj hf gsk understanding assessment Base64 OAuth2 2024 v2".split(),
)


@given(st.lists(st.tuples(english, st.sampled_from([" ", "-", "_", ": ", ".", "/"])), max_size=40))
def test_words_near_a_prefix(pieces: list[tuple[str, str]]) -> None:
    """Words that begin like keys, however they are joined, are no keys."""
    text = "".join(word + sign for word, sign in pieces)

    assert Redactor().text(text) == text


@pytest.mark.parametrize("around", ["{}", "key {} end", "x\n{}\n", "=({}),", 'said \\n{}"', "a%3D{}&b", "日本{}語"])
@pytest.mark.parametrize("key", KEYS)
def test_shapes(key: str, around: str) -> None:
    """What has the shape of a provider's key is masked wherever it stands, and nothing around it."""
    masked = Redactor().text(around.format(key))

    assert key not in masked
    before, _, after = around.partition("{}")
    assert masked.startswith(before)
    assert masked.endswith(after)
    assert len(masked) == len(around.format(key))


generated = st.text(alphabet=string.ascii_letters + string.digits, min_size=32, max_size=64).filter(
    lambda text: any(c.isdigit() for c in text) and any(c.isalpha() for c in text)
)


@given(generated, st.sampled_from(["sk-", "sk-proj-", "sk-ant-api03-", "gsk_", "xai-"]))
def test_generated_keys(token: str, prefix: str) -> None:
    """A prefix and 32 or more letters and digits are masked, whatever they are."""
    assert token not in Redactor().text(f"your key is {prefix}{token}.")


FORMS = {
    "raw": KEY,
    "quoted for a query": quote(KEY, safe=""),
    "quoted for a path": quote(KEY),
    "quoted in small letters": re.sub("%..", lambda escape: escape.group().lower(), quote(KEY, safe="")),
    "in JSON": json.dumps(KEY)[1:-1],
    "in JSON, with escaped slashes": json.dumps(KEY)[1:-1].replace("/", "\\/"),
    "in base64": base64.b64encode(KEY.encode()).decode(),
    "in base64 for URLs": base64.urlsafe_b64encode(KEY.encode()).decode(),
    "in base64 after a user": base64.b64encode(b"me:" + KEY.encode()).decode(),
    "in base64 after a longer user": base64.b64encode(b"user:" + KEY.encode()).decode(),
    "in base64 between": base64.b64encode(b"user1:" + KEY.encode() + b":rest").decode(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_known_key(form: str) -> None:
    """A key that is known is found in whatever form it stands; the bytes stay as many."""
    data = b'{"message": "' + form.encode() + b' was refused"}'

    masked = REDACTOR.body(data)

    assert REDACTOR.leaks(data)
    assert len(masked) == len(data)
    assert b"REDACTED" in masked
    assert form.encode()[4:-4] not in masked
    assert masked.endswith(b' was refused"}')
    assert REDACTOR.leaks(masked) == ()


any_bytes = st.one_of(st.binary(max_size=60), st.sampled_from([form.encode() for form in [*FORMS.values(), *KEYS, *PROSE]]))


@given(st.lists(any_bytes, max_size=6), st.booleans())
def test_twice_is_once(parts: list[bytes], emails: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    """Redacting keeps the number of bytes, leaves nothing to find, and again changes nothing."""
    redactor = Redactor([KEY], emails=emails, patterns=["[A-Z]{8,}", "x+", r"INV-(\d+)"])
    data = b" ".join(parts)

    once = redactor.body(data)

    assert len(once) == len(data)
    assert redactor.leaks(once) == ()
    assert redactor.body(once) == once


@given(st.lists(st.tuples(any_bytes, st.sampled_from([b" ", b"\n", b"\\n", b'"', b"\\u00e9", b"%3D", b"\xff"])), max_size=6))
def test_nothing_to_find_in_the_file(parts: list[tuple[bytes, bytes]]) -> None:
    """What is masked stays masked in the cassette's file, whatever JSON makes of the bytes: the guard stops no honest file."""
    body = b"".join(sign + part for part, sign in parts)
    request = HttpRequest(method="POST", uri="http://h/", body=body)
    interaction = REDACTOR.interaction(Interaction(request=request, response=HttpResponse(status=200, body=body)))
    said = REDACTOR.answer(Response(text=body.decode("utf-8", "replace")))
    asked = REDACTOR.neutral(Request(model="m", messages=({"role": "user", "content": body.decode("utf-8", "replace")},)))
    recording = Recording(
        suite="s", target="t", case="c", trial=0, key="k", request=asked, response=said, interactions=(interaction,)
    )

    assert REDACTOR.leaks(cassette.encode([recording])) == ()


def test_which_values_of_the_environment() -> None:
    """Only values of variables that are named like a provider's key, and as long as one, count."""
    environ = {
        "OPENAI_API_KEY": "0123456789abcdef",
        "MISTRAL_API_KEY": "short",
        "AWS_SECRET_ACCESS_KEY": "secret/of/amazon/1234",
        "HF_TOKEN": "hugging-token-42-42",
        "GCP_PROJECT": "support-of-customers",
        "KEYBOARD": "a-mechanical-keyboard",
        "MONKEY": "see-and-do-like-others",
    }

    assert set(secrets_from(environ)) == {"0123456789abcdef", "secret/of/amazon/1234", "hugging-token-42-42"}


def test_given_keys() -> None:
    """A key that is given may be shorter, but a word is none: the embedded model's key is 'embedded'."""
    assert secrets_from({}, ["embedded", "", "k-12345", "local-key-1"]) == ("local-key-1",)


def test_knowing_more() -> None:
    """A redactor that learns a key still knows the others and does not take words."""
    redactor = Redactor(["firstkeyfirstkeyfirst"]).knowing(["second-key-2", "support"])

    assert redactor.text("firstkeyfirstkeyfirst second-key-2 support") == "REDACTEDxxxxxxxxxxxxx REDACTEDxxxx support"


def test_identifiers() -> None:
    """Names of projects are masked in URLs and headers, where they stand alone, and never in bodies."""
    redactor = Redactor(identifiers=identifiers_from({"GCP_PROJECT": "support", "OPENAI_ORG_ID": "acme"}))
    request = HttpRequest(
        method="POST", uri="https://h/v1/support/supporters?p=acme", headers={"accept": ["acme"]}, body=b"ask support at acme"
    )

    masked = redactor.request(request)

    assert masked.uri == "https://h/v1/REDACTED/supporters?p=REDACTED"
    assert masked.headers == {"accept": ["REDACTED"]}
    assert masked.body == b"ask support at acme"


@pytest.mark.parametrize(
    "uri, expected",
    [
        ("https://h/p?key=abc&alt=sse", "https://h/p?key=REDACTED&alt=sse"),
        ("https://h/p?alt=sse&API_KEY=&X-Amz-Signature=f00&b", "https://h/p?alt=sse&API_KEY=REDACTED&X-Amz-Signature=REDACTED&b"),
        ("https://me:pass@h:8080/p", "https://h:8080/p"),
        ("https://acme.openai.azure.com/openai/x", "https://redacted.openai.azure.com/openai/x"),
        ("https://h/v1/projects/acme/locations/eu", "https://h/v1/projects/REDACTED/locations/eu"),
        ("http://127.0.0.1:8000/v1/chat/completions", "http://127.0.0.1:8000/v1/chat/completions"),
        ("https://h/model/arn%3Aaws%3Abedrock%3Aeu%3A123456789012%3Amodel/x", "https://h/model/arn%3Aaws%3Abedrock%3Aeu%3AREDACTEDxxxx%3Amodel/x"),
        (f"https://h/{quote(KEY, safe='')}/x", f"https://h/{'REDACTED'.ljust(len(quote(KEY, safe='')), 'x')}/x"),
    ],
)  # fmt: skip
def test_uri(uri: str, expected: str) -> None:
    """A URL loses its user, keys in its query, and names of accounts, projects and resources; twice is once."""
    assert REDACTOR.uri(uri) == expected
    assert REDACTOR.uri(expected) == expected


def test_headers_and_faults() -> None:
    """Only headers that are known to be harmless stay, and what the end of a response says is masked too."""
    interaction = Interaction(
        request=HttpRequest(
            method="POST",
            uri="http://h/",
            headers={"Authorization": [f"Bearer {KEY}"], "Content-Type": ["application/json"], "cookie": ["a=b"]},
            body=KEY.encode(),
        ),
        response=HttpResponse(
            status=200,
            headers={"content-type": ["text/plain"], "set-cookie": ["a=b"], "x-request-id": ["1"], "retry-after": ["2"]},
            body=b"fine",
            timing=Timing(end=f"error:ReadError:refused {KEY}", chunks=((1.0, 4),)),
        ),
    )

    masked = REDACTOR.interaction(interaction)

    assert masked.request.headers == {"Content-Type": ["application/json"]}
    assert masked.response.headers == {"content-type": ["text/plain"], "retry-after": ["2"]}
    assert masked.response.timing is not None
    assert masked.response.timing.end.startswith("error:ReadError:refused REDACTED")
    assert masked.response.timing.chunks == ((1.0, 4),)
    assert KEY not in repr(masked)


def test_neutral_request() -> None:
    """Every string of a request is masked, however deep it stands; everything else stays."""
    request = Request(
        model="openai/gpt",
        messages=({"role": "user", "content": [{"type": "text", "text": f"my key is {KEY}"}]},),
        parameters={"temperature": 0, "user": KEY},
    )

    masked = REDACTOR.neutral(request)

    assert KEY not in repr(masked)
    assert masked.parameters["temperature"] == 0
    assert REDACTOR.neutral(Request(model="m", messages=())) == Request(model="m", messages=())


def test_cut_over_events() -> None:
    """A key that no byte search finds, because it was streamed in pieces, is found in what the pieces mean."""
    events = b"".join(b'data: {"delta": "%b"}\n\n' % KEY[start : start + 4].encode() for start in range(0, len(KEY), 4))
    told = Response(text=f"it is {KEY}", tool_calls=(ToolCall(name="f", arguments='{"a": 1}'),))

    assert REDACTOR.leaks(events) == ()
    assert REDACTOR.holds_secret(told)
    assert not REDACTOR.holds_secret(REDACTOR.answer(told))
    assert REDACTOR.answer(told).tool_calls == told.tool_calls


def test_emails() -> None:
    """Addresses are masked when asked for, an escape before one stays an escape, and the JSON stays JSON."""
    body = json.dumps({"text": "line\nmax.muster+x@mail.example.co and a@b"}).encode()

    masked = Redactor(emails=True).body(body)

    assert json.loads(masked)["text"] == "line\nREDACTEDxxxxxxxxxxxxxxxxxxxx and a@b"
    assert Redactor().body(body) == body


def test_patterns() -> None:
    """A pattern of the user's masks its first group, or its whole match; characters are never cut."""
    redactor = Redactor(patterns=[r"customer (\d+)", "[äöü]+"])

    assert redactor.text("customer 123456 or 99 is schön") == "customer REDACT or 99 is schREn"


def test_pattern_that_is_not_re2() -> None:
    """A pattern that RE2 cannot read is the user's mistake, said in one line before anything is recorded."""
    with pytest.raises(UsageError, match=r"redact\.patterns: '\(\?=a\)' is not an RE2 pattern: invalid perl operator"):
        Redactor(patterns=["(?=a)"])


def test_lone_surrogates() -> None:
    """Text that is not Unicode passes unchanged."""
    assert REDACTOR.text("a\ud800b") == "a\ud800b"
