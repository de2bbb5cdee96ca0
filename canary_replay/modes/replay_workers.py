"""Spread a large replay over processes: results come back in order, and only a few slices are under way at a time."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from canary_replay.project import CaseRef, LoadedSuite, load_project
from canary_replay.reporting import CaseResult

if TYPE_CHECKING:
    from canary_replay.modes.replay import Selection

_inherited: dict[str, tuple[LoadedSuite, Selection, Sequence[str]]] = {}  # what a forked child need not load again


def spread(
    suite: LoadedSuite, selection: Selection, targets: Sequence[str], slices: Sequence[Sequence[CaseRef]], workers: int
) -> Iterator[CaseResult]:
    """The results of all slices, in their order."""
    forks = "fork" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if forks else "spawn")
    _inherited["suite"] = (suite, selection, targets)
    try:
        start = (suite.root, suite.path, selection, tuple(targets))
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=start) as pool:
            waiting: deque[Future[list[CaseResult]]] = deque()
            jobs = iter(range(len(slices)))
            for index in jobs:
                waiting.append(pool.submit(_score_slice, _bounds(slices, index)))
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
    finally:
        _inherited.clear()


def _bounds(slices: Sequence[Sequence[CaseRef]], index: int) -> tuple[int, int, bool]:
    start = sum(len(part) for part in slices[:index]) if index < 2 else index * len(slices[0])
    return start, start + len(slices[index]), index == len(slices) - 1


def _begin(root: Path, path: str, selection: Selection, targets: Sequence[str]) -> None:
    """Load the suite in a process that did not inherit it."""
    if "suite" not in _inherited:
        _inherited["suite"] = (load_project(root, suites=[path]).suites[0], selection, targets)


def _score_slice(bounds: tuple[int, int, bool]) -> list[CaseResult]:
    from canary_replay.modes.replay import Scorer, selected

    start, end, last = bounds
    suite, selection, targets = _inherited["suite"]
    refs = selected(suite, selection)
    after = refs[start - 1].id if start else None
    return list(Scorer(suite, selection, targets).results(refs[start:end], after=after, to_the_end=last))
