"""The run store: every recording of a ``record`` or ``live``, one line each, on disk before the next is reported."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from canary_replay.cassette import (
    StoredInteraction,
    StoredResponse,
    load_interaction,
    load_response,
    store_interaction,
    store_response,
    write_atomically,
)
from canary_replay.errors import DamagedFileError, UsageError, unknown
from canary_replay.recording import Recording
from canary_replay.request import Request

FORMAT = 1
T = TypeVar("T")


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was: ``run.json`` beside its recordings."""

    format: int = FORMAT
    id: str
    command: str
    started: str
    by: dict[str, str] = {}


class StoredRecording(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A line of ``recordings.jsonl``: a whole recording."""

    format: int = FORMAT
    suite: str
    target: str
    case: str
    trial: int
    key: str
    request: Request
    dropped: tuple[str, ...] = ()
    seed: int | None = None
    response: StoredResponse | None = None
    decoder: str = ""
    digest: str = ""
    recorded_at: str = ""
    by: dict[str, str] = {}
    client_drift: tuple[str, ...] = ()
    wire: str = ""
    interactions: tuple[StoredInteraction, ...] = ()


class _Error(msgspec.Struct, frozen=True):
    """Whether there is an error at all; what it says does not matter here."""


class _ResponseHead(msgspec.Struct, frozen=True):
    error: _Error | None = None


class RecordingHead(msgspec.Struct, frozen=True):
    """The part of a line that says which recording it is; the rest is skipped, not built."""

    suite: str
    target: str
    case: str
    trial: int
    key: str
    response: _ResponseHead | None = None
    by: dict[str, str] = {}

    @property
    def failed(self) -> bool:
        """Whether the provider gave an error instead of an answer."""
        return self.response is not None and self.response.error is not None


class Place(msgspec.Struct, frozen=True):
    """Where a recording stands: the run's recordings file, and the byte offset of its line."""

    path: Path
    offset: int


_decode = msgspec.json.Decoder(StoredRecording).decode
_decode_head = msgspec.json.Decoder(RecordingHead).decode


def runs_folder(root: Path) -> Path:
    """Where a project keeps its runs."""
    return root / ".canary" / "runs"


class RunWriter:
    """A run that is being recorded; each recording is synced to disk before `append` returns. Safe for threads."""

    def __init__(self, root: Path, command: str, *, guard: Callable[[bytes], None], by: dict[str, str]) -> None:
        now = datetime.now(UTC)
        self.id = f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        self.folder = runs_folder(root) / self.id
        self._guard = guard
        self._lock = threading.Lock()
        info = RunInfo(id=self.id, command=command, started=now.isoformat(timespec="seconds"), by=by)
        self.folder.mkdir(parents=True)
        _keep_out_of_git(root / ".canary")
        write_atomically(self.folder / "run.json", json.dumps(msgspec.to_builtins(info), indent=1).encode() + b"\n")
        self._file = open(self.folder / "recordings.jsonl", "ab", buffering=0)  # noqa: SIM115 - closed by close()

    def append(self, recording: Recording) -> None:
        """Write one recording as one line and sync it.

        :raises CanaryError: the line would put a secret on disk; nothing is written.
        """
        line = encode_line(recording)
        self._guard(line)
        with self._lock:
            end = self._file.tell()
            try:
                self._write(line)
            except OSError:
                self._file.truncate(end)  # half a line would spoil the one that is written next
                raise

    def _write(self, line: bytes) -> None:
        left = memoryview(line)
        while left:  # a disk that is nearly full takes a part and says so
            left = left[self._file.write(left) :]
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; everything is on disk already."""
        self._file.close()


@contextlib.contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Hold a project for one ``record`` at a time; the operating system lets go when the process ends, however it ends.

    :raises UsageError: another process holds it; two would ask everything twice and approve it twice.
    """
    folder = root / ".canary"
    folder.mkdir(parents=True, exist_ok=True)
    _keep_out_of_git(folder)
    with open(folder / "lock", "ab") as file:
        try:
            _lock(file.fileno())
        except OSError:
            raise UsageError("another 'record' is at work in this project (it holds .canary/lock); wait for it to end") from None
        yield


def _lock(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _keep_out_of_git(folder: Path) -> None:
    """Runs are for this machine; what is to be committed stands in ``cassettes/``."""
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_bytes(b"*\n")


def encode_line(recording: Recording) -> bytes:
    """A recording as one line of ``recordings.jsonl``."""
    fields = {name: getattr(recording, name) for name in Recording.__struct_fields__}
    fields["response"] = None if recording.response is None else store_response(recording.response)
    fields["interactions"] = tuple(store_interaction(interaction) for interaction in recording.interactions)
    return msgspec.json.encode(StoredRecording(**fields)) + b"\n"


def _load(stored: StoredRecording) -> Recording:
    fields: dict[str, Any] = {name: getattr(stored, name) for name in Recording.__struct_fields__}
    fields["response"] = None if stored.response is None else load_response(stored.response)
    fields["interactions"] = tuple(load_interaction(interaction) for interaction in stored.interactions)
    return Recording(**fields)


def list_runs(root: Path) -> list[RunInfo]:
    """Every run of a project, oldest first; a folder without a readable ``run.json`` is a run that never began."""
    found = []
    for path in sorted(runs_folder(root).glob("*/run.json")):
        try:
            info = msgspec.json.decode(path.read_bytes(), type=RunInfo)
        except msgspec.DecodeError as error:
            raise DamagedFileError(_shown(path), "", f"is damaged: {error}; delete the run or restore it") from None
        if info.format > FORMAT:
            problem = f"has format {info.format}, this canary-replay reads up to {FORMAT}; upgrade canary-replay"
            raise DamagedFileError(_shown(path), "$.format", problem)
        found.append(info)
    return sorted(found, key=lambda run: (run.started, run.id))


def recordings(root: Path, run_id: str) -> Iterator[Recording]:
    """The recordings of a run, in the order they ended. A last line that a crash cut short is left out.

    :raises UsageError: there is no such run.
    :raises DamagedFileError: a line cannot be read.
    """
    folder = runs_folder(root) / run_id
    if run_id in {"", ".", ".."} or "/" in run_id or not folder.is_dir():
        raise UsageError(unknown("run", run_id, [run.id for run in list_runs(root)]))
    path = folder / "recordings.jsonl"
    for number, _offset, line in _lines(path):
        yield _decoded(line, path, f"line {number}", _recording)


def heads(root: Path, *, command: str) -> Iterator[tuple[RecordingHead, Place]]:
    """Which recordings the runs of a command hold, oldest first, without reading what was answered."""
    for run in list_runs(root):
        if run.command != command:
            continue
        path = runs_folder(root) / run.id / "recordings.jsonl"
        for number, offset, line in _lines(path):
            yield _decoded(line, path, f"line {number}", _decode_head), Place(path, offset)


def read_at(place: Place) -> Recording:
    """The recording that stands at a place.

    :raises DamagedFileError: the line cannot be read.
    """
    with open(place.path, "rb") as file:
        file.seek(place.offset)
        line = file.readline()
    return _decoded(line, place.path, f"byte {place.offset}", _recording)


def _recording(line: bytes) -> Recording:
    return _load(_decode(line))


def _decoded(line: bytes, path: Path, place: str, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(line)
    except (ValueError, RecursionError) as error:  # not JSON, another shape, not UTF-8, not base64; nested too deeply
        raise DamagedFileError(_shown(path), place, f"is damaged: {error}; delete the run or restore it") from None


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """``(line number, byte offset, line)`` of each finished line; what a crash cut short has no line end and is skipped."""
    if not path.exists():
        return
    offset = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                yield number, offset, line
            offset += len(line)


def _shown(path: Path) -> str:
    """A run's file as the project sees it: from ``.canary`` on."""
    return Path(*path.parts[-4:]).as_posix()
