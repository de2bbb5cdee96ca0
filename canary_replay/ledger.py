"""Who accepted what: the append-only ledger of approvals, and the scorecard of accepted outcomes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from canary_replay.cassette import target_folder, write_atomically
from canary_replay.errors import DamagedFileError
from canary_replay.outcome import AcceptedOutcome

FORMAT = 1
T = TypeVar("T")


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``approvals.jsonl``.

    :ivar action: ``first`` (a case that was never approved before).
    :ivar old: digest of the recordings that were replaced; None when there were none. The chain old -> new runs per case.
    :ivar new: digest of the approved recordings (`Cassette.digest`).
    :ivar key: the key of the request that they answer.
    :ivar run: the run that they came from.
    """

    format: int = FORMAT
    case: str
    action: str
    at: str
    who: str
    reason: str
    old: str | None = None
    new: str
    key: str
    run: str = ""


_approval = msgspec.json.Decoder(Approval).decode
_outcome = msgspec.json.Decoder(AcceptedOutcome).decode


# ------------------------------------------------------------------------------------------------ the ledger
def ledger_path(root: Path, suite: str, target: str) -> Path:
    """Where a target's approvals stand."""
    return target_folder(root, suite, target) / "approvals.jsonl"


def approvals(path: Path, *, shown: str) -> list[Approval]:
    """The approvals of a target, in the order of the file; none when there is no file.

    :raises DamagedFileError: a line cannot be read, the last one too: a ledger is only ever appended to.
    """
    found = []
    for number, approval in _read_lines(path, shown, _approval):
        if approval.format > FORMAT:
            problem = f"has format {approval.format}, this canary-replay reads up to {FORMAT}; upgrade canary-replay"
            raise DamagedFileError(shown, f"line {number}", problem)
        found.append(approval)
    return found


def append(path: Path, new: Iterable[Approval]) -> None:
    """Add approvals to the end of the ledger and sync it."""
    lines = b"".join(msgspec.json.encode(approval) + b"\n" for approval in new)
    if not lines:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        if file.tell() and not _ends_a_line(file):  # an editor stripped the last line end
            lines = b"\n" + lines
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def _ends_a_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


# ------------------------------------------------------------------------------------------------ the scorecard
def scorecard_path(root: Path, suite: str, target: str) -> Path:
    """Where a target's accepted outcomes stand."""
    return target_folder(root, suite, target) / "scorecard.jsonl"


def place_of(outcome: AcceptedOutcome) -> tuple[str, str, int]:
    """The order of a scorecard: by case, then probe, then trial."""
    return (outcome.case, outcome.probe, outcome.trial)


def write_scorecard(path: Path, outcomes: Iterable[AcceptedOutcome]) -> None:
    """Write the accepted outcomes, sorted, so that a crash leaves either the old file or the new one."""
    ordered = sorted(outcomes, key=place_of)
    write_atomically(path, b"".join(msgspec.json.encode(outcome) + b"\n" for outcome in ordered))


def read_scorecard(path: Path, *, shown: str, start: int = 0) -> Iterator[AcceptedOutcome]:
    """The accepted outcomes from a byte offset on, in the order of the file; none when there is no file.

    :raises DamagedFileError: a line cannot be read, or the lines are not sorted.
    """
    previous: tuple[str, str, int] | None = None
    for number, outcome in _read_lines(path, shown, _outcome, start=start):
        place = place_of(outcome)
        if previous is not None and place <= previous:
            problem = f"stands twice or out of order ({outcome.case!r}, {outcome.probe!r}, trial {outcome.trial})"
            raise DamagedFileError(shown, f"line {number}", f"{problem}; restore the file")
        previous = place
        yield outcome


class Scorecard:
    """Accepted outcomes case by case, read once from top to bottom, so that memory does not grow with the suite.

    Cases must be asked for in sorted order. Those that lie between two questions are handed to ``skipped``.

    :param after: begin behind this case, found by bisection; a slice of a large suite starts where the one before it ended.
    """

    def __init__(self, path: Path, *, shown: str, after: str | None = None) -> None:
        self._lines = read_scorecard(path, shown=shown, start=0 if after is None else _behind(path, after, shown))
        self._next: AcceptedOutcome | None = next(self._lines, None)

    def of(self, case: str, *, skipped: Callable[[AcceptedOutcome], None]) -> list[AcceptedOutcome]:
        """The accepted outcomes of a case, sorted by probe and trial; empty when it has none."""
        found: list[AcceptedOutcome] = []
        while self._next is not None and self._next.case <= case:
            if self._next.case == case:
                found.append(self._next)
            else:
                skipped(self._next)
            self._next = next(self._lines, None)
        return found

    def rest(self, *, skipped: Callable[[AcceptedOutcome], None]) -> None:
        """Hand over what no case asked for."""
        while self._next is not None:
            skipped(self._next)
            self._next = next(self._lines, None)


def _behind(path: Path, case: str, shown: str) -> int:
    """The byte offset of the first line of a case that sorts behind ``case``."""
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        low, high = 0, path.stat().st_size
        while low < high:
            middle = (low + high) // 2
            file.seek(max(middle - 1, 0))
            if middle:
                file.readline()
            start, line = file.tell(), file.readline()
            while line.isspace():  # a line that says nothing sorts with the one behind it
                start, line = file.tell(), file.readline()
            if start >= high or not line or _decoded(line, shown, f"byte {start}", _outcome).case > case:
                high = middle
            else:
                low = start + len(line)
        return low


def _read_lines(path: Path, shown: str, decode: Callable[[bytes], T], *, start: int = 0) -> Iterator[tuple[int, T]]:
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return
    with file:
        file.seek(start)
        behind = f" behind byte {start}" if start else ""
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _decoded(line, shown, f"line {number}{behind}", decode)


def _decoded(line: bytes, shown: str, place: str, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(line)
    except (ValueError, RecursionError) as error:  # not JSON, another shape, not UTF-8; nested too deeply
        what = re.sub(r" - at `\$?(.*)`", r" (at \1)", str(error))
        raise DamagedFileError(shown, place, f"is damaged: {what}; restore the file") from None
