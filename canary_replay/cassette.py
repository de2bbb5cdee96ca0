"""The approved recordings of one case of one target: one readable JSON file that is also a VCR.py cassette."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from canary_replay.digest import digest
from canary_replay.errors import DamagedFileError
from canary_replay.interaction import Headers, HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.recording import Recording
from canary_replay.request import Request
from canary_replay.response import ErrorInfo, Response, ToolCall, Usage

FORMAT = 1
_BASE64 = "$base64"
# Over three lines, as json.dumps writes it; no string can look like that, because a string has no line end of its own.
_PAIR_OF_NUMBERS = re.compile(r"\[\n +([-0-9.e+]+),\n +([0-9]+)\n +\]")
T = TypeVar("T")
NEWLINE = b"\n"
_WINDOWS_RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}


class Cassette(msgspec.Struct, frozen=True, kw_only=True):
    """What a cassette file holds; ``recordings`` carry interactions only when it was read whole.

    :ivar request: what every trial asked, after redaction, with the base seed.
    """

    suite: str
    target: str
    case: str
    key: str
    request: Request
    recordings: tuple[Recording, ...]

    @property
    def digest(self) -> str:
        """The digest of the approved facts."""
        return digest_of_recordings(self.key, self.recordings)


def digest_of_recordings(key: str, recordings: Iterable[Recording]) -> str:
    """The digest of what an approval approves: what was asked for, and the bytes received, trial by trial."""
    return digest(key.encode(), *(f"{recording.trial}:{recording.digest}".encode() for recording in recordings))


# ------------------------------------------------------------------------------------------------ where it stands
_is_safe = re.compile(r"[a-z0-9_-]{1,80}").fullmatch


def file_name(name: str) -> str:
    """A file name, without its ending, for any text: itself where it is safe everywhere, else a slug and a digest.

    Safe is ``[a-z0-9_-]``, at most 80 characters, and no name that Windows reserves.
    """
    if _is_safe(name) and name not in _WINDOWS_RESERVED:
        return name
    slug = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")[:60]
    return f"{slug or 'case'}-{digest(name.encode())[:12]}"


def target_folder(root: Path, suite: str, target: str) -> Path:
    """The folder of a target's cassettes, scorecard and ledger."""
    return root / "cassettes" / file_name(suite) / file_name(target)


def cassette_folder(root: Path, suite: str, target: str) -> Path:
    """The folder of a target's cassette files."""
    return target_folder(root, suite, target) / "cases"


def cassette_path(root: Path, suite: str, target: str, case: str) -> Path:
    """The cassette file of a case."""
    return cassette_folder(root, suite, target) / f"{file_name(case)}.json"


# ------------------------------------------------------------------------------------------------ the stored shapes
class StoredResponse(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A `Response` as it is written: long texts as lists of lines, so that a pull request shows which line changed."""

    text: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str | None = None
    refusal: str | None = None
    usage: Usage | None = None
    model: str | None = None
    cost: float | None = None
    streamed: bool = False
    ttft_ms: float | None = None
    total_ms: float | None = None
    error: ErrorInfo | None = None


class _StoredRecording(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    trial: int
    seed: int | None = None
    interactions: tuple[int, ...] = ()
    response: StoredResponse | None = None
    decoder: str = ""
    digest: str
    recorded_at: str = ""
    by: dict[str, str] = {}
    client_drift: tuple[str, ...] = ()
    wire: str = ""


class _StoredRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    model: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    parameters: dict[str, Any] = {}
    dropped: tuple[str, ...] = ()


class _Canary(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    suite: str
    target: str
    case: str
    key: str
    request: _StoredRequest
    recordings: tuple[_StoredRecording, ...]


class _Metadata(msgspec.Struct, frozen=True):
    canary: _Canary


class _Head(msgspec.Struct, frozen=True):
    """Everything but the interactions, which msgspec skips without building them."""

    metadata: _Metadata


class _Binary(msgspec.Struct, frozen=True, rename={"encoded": _BASE64}):
    encoded: str


class _StoredBody(msgspec.Struct, frozen=True):
    string: str | _Binary


class _StoredStatus(msgspec.Struct, frozen=True):
    code: int
    message: str | None = None


class _StoredHttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    uri: str
    body: str | _Binary | None = None
    headers: Headers = {}


class _StoredHttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    status: _StoredStatus
    headers: Headers = {}
    body: _StoredBody
    canary: Timing | None = None


class StoredInteraction(msgspec.Struct, frozen=True, kw_only=True):
    """An interaction in VCR.py's own shape; what only we know stands under ``response.canary``, which VCR.py carries along."""

    request: _StoredHttpRequest
    response: _StoredHttpResponse


class _Whole(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Metadata
    version: int
    interactions: tuple[StoredInteraction, ...]


class _FormatCanary(msgspec.Struct, frozen=True):
    format: int | None = None


class _FormatMetadata(msgspec.Struct, frozen=True):
    canary: _FormatCanary | None = None


class _FormatOnly(msgspec.Struct, frozen=True):
    """Just enough of any JSON object to tell a future format, a foreign cassette and a damaged one apart."""

    metadata: _FormatMetadata | None = None
    interactions: msgspec.Raw = msgspec.Raw()


_read_head = msgspec.json.Decoder(_Head).decode
_read_whole = msgspec.json.Decoder(_Whole).decode


# ------------------------------------------------------------------------------------------------ values <-> stored shapes
def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n")) if text else ()


def store_response(response: Response) -> StoredResponse:
    """A response as it is written to disk."""
    fields = {name: getattr(response, name) for name in Response.__struct_fields__}
    fields["text"], fields["reasoning"] = _lines(response.text), _lines(response.reasoning)
    return StoredResponse(**fields)


def load_response(stored: StoredResponse) -> Response:
    """The response that `store_response` stored."""
    return Response(
        text="\n".join(stored.text),
        reasoning="\n".join(stored.reasoning),
        tool_calls=stored.tool_calls,
        stop_reason=stored.stop_reason,
        refusal=stored.refusal,
        usage=stored.usage,
        model=stored.model,
        cost=stored.cost,
        streamed=stored.streamed,
        ttft_ms=stored.ttft_ms,
        total_ms=stored.total_ms,
        error=stored.error,
    )


def _store_bytes(data: bytes) -> str | _Binary:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _Binary(base64.b64encode(data).decode("ascii"))


def _load_bytes(stored: str | _Binary | None) -> bytes:
    if stored is None:
        return b""
    return stored.encode("utf-8") if isinstance(stored, str) else base64.b64decode(stored.encoded, validate=True)


def store_interaction(interaction: Interaction) -> StoredInteraction:
    """An interaction in the shape that VCR.py reads."""
    request, response = interaction.request, interaction.response
    return StoredInteraction(
        request=_StoredHttpRequest(
            method=request.method,
            uri=request.uri,
            body=_store_bytes(request.body) if request.body else None,
            headers=request.headers,
        ),
        response=_StoredHttpResponse(
            status=_StoredStatus(response.status, response.reason),
            headers=response.headers,
            body=_StoredBody(_store_bytes(response.body)),
            canary=response.timing,
        ),
    )


def load_interaction(stored: StoredInteraction) -> Interaction:
    """The interaction that `store_interaction` stored."""
    request, response = stored.request, stored.response
    return Interaction(
        request=HttpRequest(method=request.method, uri=request.uri, headers=request.headers, body=_load_bytes(request.body)),
        response=HttpResponse(
            status=response.status.code,
            reason=response.status.message or "",
            headers=response.headers,
            body=_load_bytes(response.body.string),
            timing=response.canary,
        ),
    )


def _load(head: _Canary, interactions: Sequence[Interaction] | None) -> Cassette:
    request = head.request
    asked = Request(model=request.model, messages=request.messages, tools=request.tools, parameters=request.parameters)
    return Cassette(
        suite=head.suite,
        target=head.target,
        case=head.case,
        key=head.key,
        request=asked,
        recordings=tuple(
            Recording(
                suite=head.suite,
                target=head.target,
                case=head.case,
                trial=stored.trial,
                key=head.key,
                request=asked,
                dropped=request.dropped,
                seed=stored.seed,
                response=None if stored.response is None else load_response(stored.response),
                decoder=stored.decoder,
                digest=stored.digest,
                recorded_at=stored.recorded_at,
                by=stored.by,
                client_drift=stored.client_drift,
                wire=stored.wire,
                interactions=() if interactions is None else tuple(interactions[i] for i in stored.interactions),
            )
            for stored in head.recordings
        ),
    )


# ------------------------------------------------------------------------------------------------ writing
def encode(recordings: Sequence[Recording], *, keep_wire: str = "all") -> bytes:
    """The bytes of a cassette: metadata first, interactions last, keys in a fixed order.

    :param recordings: all trials of one case of one target, of one key; written in the order of their trials.
    :param keep_wire: whose interactions to keep: ``all``, ``first`` (trial 0 only) or ``none``.
    """
    ordered = sorted(recordings, key=lambda recording: recording.trial)
    first = ordered[0]
    kept: list[Interaction] = []
    stored: list[_StoredRecording] = []
    for recording in ordered:
        keep = keep_wire == "all" or (keep_wire == "first" and recording.trial == first.trial)
        places = range(len(kept), len(kept) + len(recording.interactions)) if keep else range(0)
        if keep:
            kept += recording.interactions
        left_out = not keep and recording.interactions
        stored.append(
            _StoredRecording(
                trial=recording.trial,
                seed=recording.seed,
                interactions=tuple(places),
                response=None if recording.response is None else store_response(recording.response),
                decoder=recording.decoder,
                digest=recording.digest,
                recorded_at=recording.recorded_at,
                by=recording.by,
                client_drift=recording.client_drift,
                wire="left out by keep_wire" if left_out else recording.wire,
            )
        )
    request = first.request
    canary = _Canary(
        format=FORMAT,
        suite=first.suite,
        target=first.target,
        case=first.case,
        key=first.key,
        request=_StoredRequest(
            model=request.model,
            messages=request.messages,
            tools=request.tools,
            parameters=request.parameters,
            dropped=tuple(sorted({name for recording in ordered for name in recording.dropped})),
        ),
        recordings=tuple(stored),
    )
    document = {
        "metadata": {"canary": msgspec.to_builtins(canary)},
        "version": 1,
        "interactions": [msgspec.to_builtins(store_interaction(interaction)) for interaction in kept],
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    return (_PAIR_OF_NUMBERS.sub(r"[\1, \2]", text) + "\n").encode("utf-8")


def write(path: Path, recordings: Sequence[Recording], *, keep_wire: str = "all", guard: Callable[[bytes], None]) -> None:
    """Write a cassette so that a crash leaves either the old file or the new one.

    :param guard: raises when the bytes hold a secret; nothing is written then.
    """
    data = encode(recordings, keep_wire=keep_wire)
    guard(data)
    write_atomically(path, data)


def write_atomically(path: Path, data: bytes) -> None:
    """Write aside, sync, rename, sync the folder."""
    import tempfile  # a replay writes nothing and need not load it

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# ------------------------------------------------------------------------------------------------ reading
def read(path: Path | str, *, shown: str | None = None) -> Cassette | None:
    """A cassette without its interactions; None when there is no such file (missing is not damaged).

    :param shown: how messages call the file; its path by default.
    :raises DamagedFileError: the file cannot be read; the message names file and place.
    """
    data = _bytes_of(path, shown or str(path))
    if data is None:
        return None
    head = _parse(data, shown or str(path), _read_head)
    return _load(_checked(head.metadata.canary, shown or str(path)), None)


def read_whole(path: Path | str, *, shown: str | None = None) -> Cassette | None:
    """A cassette with its interactions; None when there is no such file.

    :raises DamagedFileError: the file cannot be read; the message names file and place.
    """
    name = shown or str(path)
    data = _bytes_of(path, name)
    if data is None:
        return None
    whole = _parse(data, name, _read_whole)
    head = _checked(whole.metadata.canary, name)
    for place, stored in enumerate(head.recordings):
        if any(not 0 <= index < len(whole.interactions) for index in stored.interactions):
            problem = f"names an interaction that the file does not hold (it holds {len(whole.interactions)})"
            raise DamagedFileError(name, f"$.metadata.canary.recordings[{place}].interactions", problem)
    try:
        interactions = [load_interaction(stored) for stored in whole.interactions]
    except ValueError as error:
        raise DamagedFileError(name, "$.interactions", f"a body is not base64: {error}") from None
    return _load(head, interactions)


def _bytes_of(path: Path | str, shown: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedFileError(shown, "", f"cannot be read: {error.strerror or error}") from None


def _parse(data: bytes, shown: str, parser: Callable[[bytes], T]) -> T:
    if not data or data.isspace():
        raise DamagedFileError(shown, "", "is empty; restore it from version control or record the case again")
    try:
        if not data.isascii():
            data.decode("utf-8")  # msgspec does not look inside the strings that it skips
        return parser(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DamagedFileError(shown, f"line {line}", f"is not UTF-8 (byte {error.start}); restore it") from None
    except msgspec.ValidationError as error:
        raise _misshapen(data, shown, str(error)) from None
    except msgspec.DecodeError as error:
        place = _line_of(data, str(error))
        raise DamagedFileError(shown, place, f"is damaged: {error}; restore it or record the case again") from None
    except RecursionError:
        raise DamagedFileError(shown, "", "is nested too deeply to be a cassette") from None


def _line_of(data: bytes, message: str) -> str:
    """``line N`` of the byte that msgspec's message names; of the end when it names none (a truncated file)."""
    found = re.search(r"\(byte (\d+)\)", message)
    end = int(found.group(1)) if found else len(data.rstrip())
    return f"line {data.count(NEWLINE, 0, end) + 1}"


def _misshapen(data: bytes, shown: str, message: str) -> DamagedFileError:
    """The error for JSON of another shape: a future format and a foreign cassette are told apart from damage."""
    try:
        known = msgspec.json.decode(data, type=_FormatOnly)
    except msgspec.DecodeError:
        known = _FormatOnly()
    if known.metadata is None or known.metadata.canary is None:
        problem = "is not a cassette of canary-replay (it has no metadata.canary)"
        if bytes(known.interactions):
            problem += "; it looks like one of plain VCR.py"
        return DamagedFileError(shown, "", problem)
    if known.metadata.canary.format is not None and known.metadata.canary.format > FORMAT:
        return _future(shown, known.metadata.canary.format)
    what, _, place = message.partition(" - at `")
    return DamagedFileError(shown, place.rstrip("`"), f"is damaged: {what}; restore it or record the case again")


def _future(shown: str, found: int) -> DamagedFileError:
    problem = f"has format {found}, this canary-replay reads up to {FORMAT}; upgrade canary-replay"
    return DamagedFileError(shown, "$.metadata.canary.format", problem)


def _checked(head: _Canary, shown: str) -> _Canary:
    if head.format > FORMAT:
        raise _future(shown, head.format)
    trials = [stored.trial for stored in head.recordings]
    if not trials:
        raise DamagedFileError(shown, "$.metadata.canary.recordings", "holds no recording; record the case again")
    if trials != sorted(set(trials)):
        raise DamagedFileError(shown, "$.metadata.canary.recordings", f"has trials out of order or twice: {trials}")
    return head


def same_identity(cassette: Cassette, *, suite: str, target: str, case: str, shown: str) -> None:
    """Check that a file holds what its place says.

    :raises DamagedFileError: it is a copy of another case's cassette.
    """
    found, wanted = (cassette.suite, cassette.target, cassette.case), (suite, target, case)
    if found != wanted:
        problem = f"holds suite, target, case {found!r}, its place says {wanted!r}; restore it or record the case again"
        raise DamagedFileError(shown, "$.metadata.canary", problem)


def cassette_files(root: Path) -> Iterable[Path]:
    """Every cassette file under ``cassettes/``, in a fixed order."""
    return sorted(root.glob("cassettes/*/*/cases/*.json"))
