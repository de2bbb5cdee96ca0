"""Check what is stored against itself: bytes, decoding, keys, chunk tables, the ledger and the scorecard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

import canary_replay.decoders  # noqa: F401 - registers the decoders
from canary_replay import cassette as cassettes
from canary_replay import ledger
from canary_replay.cassette import Cassette
from canary_replay.decoding import UndecodableError, decode
from canary_replay.errors import DamagedFileError, UsageError
from canary_replay.outcome import AcceptedOutcome
from canary_replay.recording import Recording, bytes_digest
from canary_replay.request import request_key
from canary_replay.response import Response

_MASK = b"RED"  # a mask is as long as what it hides: REDACT for six digits, REDACTEDxxxx for twelve


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that does not agree: where, and what."""

    path: str
    text: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked and what does not agree."""

    cassettes: int
    recordings: int
    findings: tuple[Finding, ...]


def verify(root: Path, paths: Sequence[Path] = ()) -> Verification:
    """Verify cassettes, and for whole target folders their ledger and scorecard.

    :param paths: cassette files or folders; everything under ``cassettes/`` by default.
    :raises UsageError: a path does not exist, or there is nothing to verify.
    """
    files = list(_files(root, paths))
    if not files:
        raise UsageError(f"there is no cassette under {root.name}/cassettes; record one with: nox -s record")
    found: list[Finding] = []
    recordings = 0
    whole: dict[Path, list[Cassette]] = {}
    for path in files:
        shown = _shown(root, path)
        try:
            read = cassettes.read_whole(path, shown=shown)
        except DamagedFileError as error:
            found.append(Finding(path=shown, text=str(error).removeprefix(f"{shown}: ")))
            continue
        if read is None:
            raise UsageError(f"{shown} does not exist")
        recordings += len(read.recordings)
        found += [Finding(path=shown, text=text) for text in check_cassette(read, file_stem=path.stem)]
        whole.setdefault(path.parent.parent, []).append(read)
    if not paths:
        for folder in sorted({*whole, *_ledger_folders(root)}):
            found += _check_folder(root, folder, whole.get(folder, []))
    return Verification(cassettes=len(files), recordings=recordings, findings=tuple(found))


def _files(root: Path, paths: Sequence[Path]) -> Iterable[Path]:
    if not paths:
        return cassettes.cassette_files(root)
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist")
        found += sorted(path.rglob("*.json")) if path.is_dir() else [path]
    return found


def _ledger_folders(root: Path) -> set[Path]:
    names = ("approvals.jsonl", "scorecard.jsonl")
    return {path.parent for name in names for path in root.glob(f"cassettes/*/*/{name}")}


def _shown(root: Path, path: Path) -> str:
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return str(path)


# ------------------------------------------------------------------------------------------------ one cassette
def check_cassette(cassette: Cassette, *, file_stem: str) -> Iterator[str]:
    """What does not agree inside one cassette, one sentence each."""
    if cassettes.file_name(cassette.case) != file_stem:
        yield f"its name does not fit its case {cassette.case!r}; it belongs in {cassettes.file_name(cassette.case)}.json"
    redacted = _MASK in msgspec.json.encode(cassette.request)
    if not redacted and request_key(cassette.request) != cassette.key:
        yield "its key is not the key of its request: one of them was edited"
    for recording in cassette.recordings:
        for text in _check_recording(recording):
            yield f"trial {recording.trial}: {text}"


def _check_recording(recording: Recording) -> Iterator[str]:
    if not recording.interactions:
        if not recording.wire and recording.response is None:
            yield "holds neither interactions nor a response"
        return
    if bytes_digest(recording.interactions) != recording.digest:
        yield "its digest is not the digest of its bytes: the interactions were edited"
    for number, interaction in enumerate(recording.interactions):
        timing = interaction.response.timing
        if timing is not None and sum(size for _at, size in timing.chunks) != len(interaction.response.body):
            yield f"the chunk table of interaction {number} does not add up to its body"
        if timing is not None and list(timing.chunks) != sorted(timing.chunks, key=lambda chunk: chunk[0]):
            yield f"the chunks of interaction {number} are not in the order of their times"
    yield from _check_decoding(recording)


def _check_decoding(recording: Recording) -> Iterator[str]:
    try:
        decoded = decode(recording.interactions)
    except UndecodableError:
        if recording.response is not None and recording.decoder:
            yield f"no decoder reads it today; it was read by {recording.decoder}"
        return
    if recording.response is None:
        yield f"it was kept undecoded, {decoded.decoder} reads it today"
        return
    differ = differing_fields(recording.response, decoded.response)
    if not differ:
        return
    fields = ", ".join(differ)
    if decoded.decoder != recording.decoder:
        yield f"{decoded.decoder} reads another {fields} than {recording.decoder} did"
    else:
        yield f"the stored {fields} is not what its bytes say: the response was edited"


def differing_fields(stored: Response, derived: Response) -> list[str]:
    """The fields in which a stored response differs from one derived from its bytes; the cost is not in the bytes."""
    names = [name for name in Response.__struct_fields__ if name != "cost"]
    return [name for name in names if getattr(stored, name) != getattr(derived, name)]


# ------------------------------------------------------------------------------------------------ ledger and scorecard
def _check_folder(root: Path, folder: Path, found: Sequence[Cassette]) -> Iterator[Finding]:
    approvals_path, scorecard_path = folder / "approvals.jsonl", folder / "scorecard.jsonl"
    if not approvals_path.exists() and not scorecard_path.exists():
        return  # a candidate's cassettes are compared, not approved
    stored = {cassette.case: cassette for cassette in found}
    shown = _shown(root, approvals_path)
    try:
        for text in check_ledger(ledger.approvals(approvals_path, shown=shown), stored):
            yield Finding(path=shown, text=text)
    except DamagedFileError as error:
        yield Finding(path=shown, text=str(error).removeprefix(f"{shown}: "))
    shown = _shown(root, scorecard_path)
    try:
        for text in check_scorecard(ledger.read_scorecard(scorecard_path, shown=shown), stored):
            yield Finding(path=shown, text=text)
    except DamagedFileError as error:
        yield Finding(path=shown, text=str(error).removeprefix(f"{shown}: "))


def check_ledger(approvals: Iterable[ledger.Approval], stored: dict[str, Cassette]) -> Iterator[str]:
    """Broken chains, cassettes that nobody approved, approvals of cassettes that are gone."""
    latest: dict[str, ledger.Approval] = {}
    for approval in approvals:
        before = latest.get(approval.case)
        if approval.old != (before.new if before else None):
            broken = "a line is missing, edited or moved"
            yield f"the chain of case {approval.case!r} breaks at its approval of {approval.at}: {broken}"
        latest[approval.case] = approval
    for case, cassette in sorted(stored.items()):
        if case not in latest:
            yield f"case {case!r} has a cassette that nobody approved; approve it with: nox -s record"
        elif latest[case].new != cassette.digest:
            yield f"the cassette of case {case!r} is not the one that was approved on {latest[case].at}"
    for case in sorted(latest.keys() - stored.keys()):
        yield f"case {case!r} was approved, but its cassette is gone; restore it"


def check_scorecard(outcomes: Iterable[AcceptedOutcome], stored: dict[str, Cassette]) -> Iterator[str]:
    """Accepted outcomes of responses that are not the stored ones, once per case."""
    seen: set[str] = set()
    told: set[str] = set()
    for outcome in outcomes:
        seen.add(outcome.case)
        if outcome.case in told:
            continue
        cassette = stored.get(outcome.case)
        if cassette is None:
            told.add(outcome.case)
            yield f"case {outcome.case!r} has accepted outcomes, but no cassette"
        elif outcome.response not in {one.digest for one in cassette.recordings if one.trial == outcome.trial}:
            told.add(outcome.case)
            yield f"case {outcome.case!r}: trial {outcome.trial} was accepted for another response than the stored one"
