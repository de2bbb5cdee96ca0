"""Score the stored responses with today's rules, compare with the scorecard, and judge: free, offline, the same every time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from canary_replay.gating import CANNOT_JUDGE, REVIEW, USAGE, Judge, Reason, Rule, decide
from canary_replay.modes.rescoring import Scorer
from canary_replay.modes.selecting import EVERYTHING, Selection, concerned, selected
from canary_replay.project import (
    CaseRef,
    LoadedSuite,
    Project,
    dead_scopes,
    unmatched_cases,
)
from canary_replay.reporting import CaseResult, ProbeLine, Report, SuiteReport, TargetReport

WORTH_A_PROCESS = 2000  # cases; fewer are scored faster than a second process starts (measured: benchmarks/replay.py)
_SLICE = 500  # cases that travel together, so that results come back in order and memory stays flat


def replay_project(
    project: Project,
    *,
    selection: Selection = EVERYTHING,
    workers: int | None = None,
    see: Callable[[CaseResult], None] = lambda _result: None,
) -> Report:
    """Replay every suite of a project that the selection is about.

    :param workers: processes; by default as many as there are processors, for suites that are worth it.
    :param see: gets each result as it is found, suites and cases in a fixed order, whatever the number of workers.
    :returns: the report; its verdict's exit code is the command's.
    """
    suites = [_replay_suite(suite, selection, workers, see) for suite in concerned(project, selection)]
    reasons = [
        Reason(reason.code, reason.text if len(suites) == 1 else f"{suite.suite}: {reason.text}")
        for suite in suites
        for reason in suite.verdict.reasons
    ]
    return Report(command="replay", suites=suites, verdict=decide(reasons))


def _replay_suite(
    suite: LoadedSuite, selection: Selection, workers: int | None, see: Callable[[CaseResult], None]
) -> SuiteReport:
    refs = selected(suite, selection)
    targets = [name for name in suite.targets if name == suite.reference or not selection.targets or name in selection.targets]
    reports = {name: TargetReport(target=name) for name in targets}
    judge = Judge(required_cases_pass=suite.suite.policy.required_cases_pass)
    judging = _Rules(suite, selection)
    for result in _results(suite, selection, refs, targets, workers):
        reports[result.target].add(result)
        if result.target == suite.reference:
            for comparison in result.comparisons:
                judge.see(comparison, judging.rule(result.case, comparison.probe))
        see(result)
    for report in reports.values():
        for name, line in report.probes.items():
            judging.describe(name, line)
    return _summed_up(suite, selection, reports, judge)


def _summed_up(suite: LoadedSuite, selection: Selection, reports: dict[str, TargetReport], judge: Judge) -> SuiteReport:
    dead = list(dead_scopes(suite)) if selection == EVERYTHING else []
    unjudged = [f"{ref.id} ({ref.origin})" for ref in unmatched_cases(suite)] if selection == EVERYTHING else []
    reference = reports.pop(suite.reference)
    verdict = decide([*judge.reasons(), *_other_reasons(reference, judge, dead, unjudged)])
    return SuiteReport(
        suite=suite.name,
        path=suite.path,
        reference=reference,
        candidates=list(reports.values()),
        dead_scopes=dead,
        unjudged=unjudged,
        verdict=verdict,
    )


def _other_reasons(reference: TargetReport, judge: Judge, dead: Sequence[str], unjudged: Sequence[str]) -> Iterator[Reason]:
    counts = reference.problem_counts
    if counts["damaged"]:
        yield Reason(USAGE, f"{_cases(counts['damaged'])} with a damaged cassette")
    if counts["stale"]:
        yield Reason(USAGE, f"{_cases(counts['stale'])} stale: the request changed since the recording")
    if counts["missing"]:
        yield Reason(CANNOT_JUDGE, f"{_cases(counts['missing'])} without a recording")
    if counts["incomplete"]:
        yield Reason(CANNOT_JUDGE, f"{_cases(counts['incomplete'])} with fewer recordings than the suite asks for")
    if not judge.judged:
        yield Reason(CANNOT_JUDGE, "nothing was judged: no case with a recording is in the scope of any probe")
    if dead:
        yield Reason(REVIEW, f"{len(dead)} {'scope matches' if len(dead) == 1 else 'scopes match'} no case")
    if unjudged:
        yield Reason(REVIEW, f"{_cases(len(unjudged))} that no probe judges")


def _cases(number: int) -> str:
    return f"{number} case" if number == 1 else f"{number} cases"


class _Rules:
    """What the policy knows of each check; expectations are the same for every case, but for a case that is required."""

    def __init__(self, suite: LoadedSuite, selection: Selection) -> None:
        self._bound = {bound.name: bound for bound in suite.probes if selection.wants(bound.name, bound.category)}
        self._required = {ref.id for ref in suite.refs if ref.required}
        self._rules: dict[tuple[str, bool], Rule] = {}

    def rule(self, case: str, probe: str) -> Rule:
        place = (probe, case in self._required)
        found = self._rules.get(place)
        if found is None:
            bound = self._bound.get(probe)
            gate = "hard" if bound is None else bound.gate
            found = Rule(gate=gate, required=place[1] or (bound is not None and bound.required))
            self._rules[place] = found
        return found

    def describe(self, name: str, line: ProbeLine) -> None:
        bound = self._bound.get(name)
        line.category = bound.category if bound else "expectation"
        line.gate = bound.gate if bound else "hard"


# ---------------------------------------------------------------------------------- results, in one process or in many
def _results(
    suite: LoadedSuite, selection: Selection, refs: Sequence[CaseRef], targets: Sequence[str], workers: int | None
) -> Iterator[CaseResult]:
    wanted = workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    slices = [refs[start : start + _SLICE] for start in range(0, len(refs), _SLICE)] or [[]]
    if wanted <= 1 or len(slices) == 1 or (workers is None and len(refs) < WORTH_A_PROCESS):
        yield from Scorer(suite, selection, targets).results(refs, after=None, to_the_end=True)
        return
    from canary_replay.modes.replay_workers import spread  # only a large suite pays for the process machinery

    yield from spread(suite, selection, targets, slices, wanted)
