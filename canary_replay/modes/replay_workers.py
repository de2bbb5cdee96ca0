"""Spread a large replay over processes: results come back in order, and only a few slices are under way at a time."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from canary_replay.modes.rescoring import Scorer
from canary_replay.modes.selecting import Selection, selected
from canary_replay.project import CaseRef, LoadedSuite, load_project
from canary_replay.reporting import CaseResult

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
        with ProcessPoolExecutor(min(workers, len(slices)), mp_context=context, initializer=_begin, initargs=start) as pool:
            waiting: deque[Future[list[CaseResult]]] = deque()
            begin = 0
            for part in slices:
                end = begin + len(part)
                waiting.append(pool.submit(_score_slice, begin, end, last=part is slices[-1]))
                begin = end
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
    finally:
        _inherited.clear()


def _begin(root: Path, path: str, selection: Selection, targets: Sequence[str]) -> None:
    """Load the suite in a process that did not inherit it."""
    if "suite" not in _inherited:
        _inherited["suite"] = (load_project(root, suites=[path]).suites[0], selection, targets)


def _score_slice(begin: int, end: int, *, last: bool) -> list[CaseResult]:
    suite, selection, targets = _inherited["suite"]
    refs = selected(suite, selection)
    after = refs[begin - 1].id if begin else None
    return list(Scorer(suite, selection, targets).results(refs[begin:end], after=after, to_the_end=last))
