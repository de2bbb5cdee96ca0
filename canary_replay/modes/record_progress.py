"""What a person sees while recordings are made: a bar with the running cost, or plain lines where no terminal is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from canary_replay.modes.record import Progress
from canary_replay.recording import Recording


def progress_for(stream: TextIO) -> Progress:
    """A bar for a terminal that can show one, plain lines for everything else."""
    return _Bar() if stream.isatty() else _Lines(stream)


class _Lines(Progress):
    """One line each time another tenth is done, so that a log stays readable."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = self._done = self._errors = 0

    def start(self, total: int, answered_by: Sequence[str]) -> None:
        self._total = total
        self._write(f"asking for {total} {'recording' if total == 1 else 'recordings'}: {', '.join(answered_by)}")

    def step(self, recording: Recording, *, cost: float) -> None:
        self._done += 1
        self._errors += recording.failed
        if self._done * 10 // self._total > (self._done - 1) * 10 // self._total:
            errors = f", {self._errors} errors" if self._errors else ""
            self._write(f"{self._done} of {self._total} on disk, ${cost:.4f}{errors}")

    def _write(self, line: str) -> None:
        self._stream.write(line.encode("ascii", "backslashreplace").decode() + "\n")
        self._stream.flush()


class _Bar(Progress):
    """A progress bar."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns: list[Any] = [
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("${task.fields[cost]:.4f}", markup=False),
            TimeRemainingColumn(),
        ]
        self._bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
        self._task: Any = None

    def start(self, total: int, answered_by: Sequence[str]) -> None:
        self._bar.start()
        self._task = self._bar.add_task(f"asking {', '.join(answered_by)}", total=total, cost=0.0)

    def step(self, recording: Recording, *, cost: float) -> None:  # noqa: ARG002 - the bar shows numbers only
        self._bar.update(self._task, advance=1, cost=cost)

    def end(self) -> None:
        self._bar.stop()
