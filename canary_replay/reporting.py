"""What a report is made of, and what a reporter is: results case by case as they come, then the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import BinaryIO, Literal, Protocol

import msgspec

from canary_replay.comparing import Comparison
from canary_replay.errors import UsageError, unknown
from canary_replay.gating import Verdict
from canary_replay.registry import Registry
from canary_replay.request import Change

LISTED = 500  # changes that a report keeps to show one by one; all are counted, and the JSON report has every outcome


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A case that could not be judged as it should: its recording is stale, missing, incomplete or damaged.

    :ivar text: one line that says what, where and what to do.
    :ivar changes: for a stale one, the fields of the request that differ from the recorded ones.
    """

    kind: Literal["stale", "missing", "incomplete", "damaged"]
    text: str
    changes: tuple[Change, ...] = ()


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """What replay found about one case of one target."""

    suite: str
    target: str
    case: str
    origin: str = ""
    trials: int = 0
    noisy: bool | None = None
    comparisons: tuple[Comparison, ...] = ()
    problem: Problem | None = None


class ProbeLine(msgspec.Struct, kw_only=True):
    """How the trials of one probe came out over a whole suite."""

    category: str = ""
    gate: str = ""
    passed: int = 0
    failed: int = 0
    crashed: int = 0
    unscored: int = 0

    def count(self, kind: str) -> None:
        """Count one outcome."""
        setattr(self, kind, getattr(self, kind) + 1)


class TargetReport(msgspec.Struct, kw_only=True):
    """One target of a suite: what its stored responses score today.

    :ivar noisy_cases: cases of which at least two trials answered differently, out of ``repeated_cases`` with trials to compare.
    :ivar changed, known: comparisons worth a look, at most `LISTED` of them; ``transitions`` counts them all.
    """

    target: str
    cases: int = 0
    trials: int = 0
    repeated_cases: int = 0
    noisy_cases: int = 0
    transitions: Counter[str] = msgspec.field(default_factory=Counter)
    effects: Counter[str] = msgspec.field(default_factory=Counter)
    probes: dict[str, ProbeLine] = msgspec.field(default_factory=dict)
    changed: list[Comparison] = msgspec.field(default_factory=list)
    known: list[Comparison] = msgspec.field(default_factory=list)
    problems: list[tuple[str, Problem]] = msgspec.field(default_factory=list)
    problem_counts: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, result: CaseResult) -> None:
        """Count one case."""
        if result.trials:
            self.cases += 1
            self.trials += result.trials
        if result.noisy is not None:
            self.repeated_cases += 1
            self.noisy_cases += result.noisy
        if result.problem is not None:
            self.problem_counts[result.problem.kind] += 1
            if len(self.problems) < LISTED:
                self.problems.append((result.case, result.problem))
        for comparison in result.comparisons:
            self._add_comparison(comparison)

    def _add_comparison(self, comparison: Comparison) -> None:
        self.transitions[comparison.transition] += 1
        for change in comparison.changes:
            self.effects[change.effect] += 1
        if comparison.outcomes:
            line = self.probes.get(comparison.probe)
            if line is None:
                line = self.probes[comparison.probe] = ProbeLine()
            for outcome in comparison.outcomes:
                line.count(outcome.outcome)
        as_before = not comparison.changes and comparison.transition in {"kept", "known"}
        new_and_fine = comparison.transition == "new" and comparison.now.standing == "passed"
        if new_and_fine or (as_before and comparison.transition == "kept"):
            return
        keep = self.known if as_before else self.changed
        if len(keep) < LISTED:
            keep.append(comparison)


class SuiteReport(msgspec.Struct, kw_only=True):
    """One suite: its reference against the scorecard, its candidates beside it.

    :ivar dead_scopes: probes that no case is in the scope of, each with what to do.
    :ivar unjudged: cases that no probe and no expectation judges, ``id (file:line)``.
    """

    suite: str
    path: str
    reference: TargetReport
    candidates: list[TargetReport] = msgspec.field(default_factory=list)
    dead_scopes: list[str] = msgspec.field(default_factory=list)
    unjudged: list[str] = msgspec.field(default_factory=list)
    verdict: Verdict


class Report(msgspec.Struct, kw_only=True):
    """What a command found: every suite, and one verdict."""

    command: str
    suites: list[SuiteReport]
    verdict: Verdict


class Reporter(Protocol):
    """Writes a report; results arrive in order, while the command still works."""

    def case(self, result: CaseResult) -> None:
        """Take one case's result."""

    def end(self, report: Report) -> None:
        """Take the whole, and write."""


class Style(msgspec.Struct, frozen=True):
    """How a person wants a text report: with colour, and only what matters."""

    color: bool = False
    quiet: bool = False


NewReporter = Callable[[BinaryIO, Style], Reporter]


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A registered output format: how its reporter is made, and the file endings that mean it."""

    name: str
    endings: tuple[str, ...]
    new: NewReporter


known_formats: Registry[Format] = Registry("format", entry_points="canary_replay.reporters")


def reporter(name: str, *, endings: tuple[str, ...]) -> Callable[[NewReporter], NewReporter]:
    """Register a reporter: a class (or function) that takes a binary stream and a `Style`."""

    def register(new: NewReporter) -> NewReporter:
        known_formats.add(name, Format(name=name, endings=endings, new=new))
        return new

    return register


def format_of(file_name: str) -> Format:
    """The format that a file's ending means.

    :raises UsageError: no format has that ending.
    """
    known = {ending: known_formats.get(name) for name in known_formats for ending in known_formats.get(name).endings}
    for ending, found in known.items():
        if file_name.endswith(ending):
            return found
    raise UsageError(unknown("format for a file that ends like", file_name, known))
