"""The report for a person at a terminal: the verdict and why on the first line, then what changed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from canary_replay.comparing import Comparison
from canary_replay.gating import Verdict
from canary_replay.outcome import Outcome
from canary_replay.reporting import CaseResult, ProbeLine, Problem, Report, Style, SuiteReport, TargetReport, reporter

_SHOWN = 20  # changes listed one by one; the JSON report has them all
_CODES = {"green": "32", "red": "31", "yellow": "33", "bold": "1", "dim": "2"}
_VERDICT_COLOR = {"admit": "green", "review": "yellow", "reject": "red", "cannot judge": "red"}
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


@reporter("terminal", endings=(".txt",))
class TerminalReporter:
    """Plain text; colour only where it is wanted, and nothing from an answer reaches the terminal as a control code."""

    def __init__(self, stream: BinaryIO, style: Style) -> None:
        self._stream = stream
        self._style = style

    def case(self, result: CaseResult) -> None:
        """Nothing: the verdict comes first."""

    def end(self, report: Report) -> None:
        """Write the text."""
        lines = [*_headline(report.verdict, self._style)]
        if not self._style.quiet:
            for suite in report.suites:
                lines += ["", *_suite(suite, self._style)]
        self._stream.write(("\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))


def printable(text: str, *, longest: int = 160) -> str:
    """One line of foreign text, with control and direction characters written out, cut to a readable length."""
    flat = _UNPRINTABLE.sub(lambda found: _written_out(found.group()), text[: longest + 1])
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def _written_out(character: str) -> str:
    return {"\n": "⏎", "\t": " "}.get(character) or f"\\u{ord(character):04x}"


def _paint(text: str, color: str, style: Style) -> str:
    return f"\x1b[{_CODES[color]}m{text}\x1b[0m" if style.color else text


def _headline(verdict: Verdict, style: Style) -> Iterator[str]:
    word = _paint(verdict.word.upper(), _VERDICT_COLOR[verdict.word], style)
    if not verdict.reasons:
        yield f"{word}  every check stands as it was accepted"
        return
    yield f"{word}  {printable(verdict.reasons[0].text)}"
    for reason in verdict.reasons[1:]:
        yield f"  also: {printable(reason.text)}"


def _suite(suite: SuiteReport, style: Style) -> Iterator[str]:
    reference = suite.reference
    yield _paint(printable(suite.suite), "bold", style) + f"  {printable(suite.path)}  {suite.verdict.word}"
    yield f"  {_target_line(reference)}"
    yield from _problems(reference, style)
    yield from _changes(reference.changed, reference, style)
    yield from _known(reference.known, reference.transitions["known"], style)
    yield from _probe_table(reference.probes.items(), style)
    for message in suite.dead_scopes:
        yield f"  ! {printable(message, longest=400)}"
    for case in suite.unjudged[:_SHOWN]:
        yield f"  ! no probe and no expectation judges {printable(case)}"
    for candidate in suite.candidates:
        yield from _candidate(candidate, reference, style)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _target_line(target: TargetReport) -> str:
    parts = [f"{printable(target.target)}: {_counted(target.cases, 'case')}, {_counted(target.trials, 'recording')}"]
    if target.repeated_cases and not target.noisy_cases:
        parts.append("no noise measured (all trials of every case are identical)")
    elif target.repeated_cases:
        parts.append(f"{target.noisy_cases} of {target.repeated_cases} cases answer differently from trial to trial")
    effects = ", ".join(f"{number} by {effect}" for effect, number in sorted(target.effects.items()))
    parts.append(f"changed outcomes: {effects}" if effects else "no outcome changed")
    return "; ".join(parts)


def _problems(target: TargetReport, style: Style) -> Iterator[str]:
    for _case, problem in target.problems[:_SHOWN]:
        yield f"  {_paint('✗', 'red', style)} {printable(problem.text, longest=400)}"
        yield from _request_diff(problem)
    if (total := target.problem_counts.total()) > _SHOWN:
        yield f"    and {total - _SHOWN} more"


def _request_diff(problem: Problem) -> Iterator[str]:
    for change in problem.changes[:6]:
        yield f"      {printable(change.field)}"
        yield f"        - {printable(_value(change.then))}"
        yield f"        + {printable(_value(change.now))}"


def _value(value: Any) -> str:  # noqa: ANN401 - any JSON
    return "(absent)" if value is None else value if isinstance(value, str) else repr(value)


def _changes(comparisons: list[Comparison], target: TargetReport, style: Style) -> Iterator[str]:
    for comparison in comparisons[:_SHOWN]:
        color = "red" if comparison.transition in {"regressed", "crashed", "unscored"} else "yellow"
        cause = f" ({' and '.join(sorted(comparison.effects))} effect)" if comparison.effects else ""
        name = f"{printable(comparison.case, longest=60)} · {printable(comparison.probe, longest=60)}"
        yield f"  {_paint(comparison.transition, color, style)}  {name}: {_counts(comparison)}{cause}"
        yield from _why(comparison.outcomes)
    total = sum(number for word, number in target.transitions.items() if word not in {"kept", "known"})
    if len(comparisons) > _SHOWN:
        yield f"  and {max(total, len(comparisons)) - _SHOWN} more"


def _counts(comparison: Comparison) -> str:
    then, now = comparison.then, comparison.now
    before = "no outcome" if then.standing == "absent" else f"{then.passed} of {then.trials} passed"
    after = "no outcome" if now.standing == "absent" else f"{now.passed} of {now.trials}"
    return f"{before} then, {after} now"


def _why(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """The first reason that is not a pass; one is enough to see what kind of failure it is."""
    for outcome in outcomes:
        if outcome.outcome != "passed" and outcome.reason:
            yield f"      trial {outcome.trial}: {printable(outcome.reason)}"
            return


def _known(comparisons: list[Comparison], total: int, style: Style) -> Iterator[str]:
    if not total:
        return
    yield f"  known failures, accepted as they are: {total}"
    for comparison in comparisons[:_SHOWN]:
        name = f"{printable(comparison.case, longest=60)} · {printable(comparison.probe, longest=60)}"
        yield _paint(f"    {name}: {comparison.now.passed} of {comparison.now.trials} pass", "dim", style)
        yield from _why(comparison.outcomes)


def _probe_table(probes: Iterable[tuple[str, ProbeLine]], style: Style) -> Iterator[str]:
    rows = [(printable(name, longest=60), line) for name, line in sorted(probes)]
    if not rows:
        return
    width = max(len(name) for name, _line in rows)
    yield _paint(f"  {'check':<{width}}  passed  failed  other  gate", "dim", style)
    for name, line in rows:
        other = line.crashed + line.unscored
        yield f"  {name:<{width}}  {line.passed:>6}  {line.failed:>6}  {other:>5}  {line.gate}"


def _candidate(candidate: TargetReport, reference: TargetReport, style: Style) -> Iterator[str]:
    held = f"{_counted(candidate.cases, 'case')}, {_counted(candidate.trials, 'recording')}"
    yield f"  {_paint(printable(candidate.target), 'bold', style)}: {held} (a candidate, beside the reference; not judged here)"
    yield from _problems(candidate, style)
    for name, line in sorted(candidate.probes.items()):
        beside = reference.probes.get(name, ProbeLine())
        total, before = line.passed + line.failed, beside.passed + beside.failed
        if (line.passed, total) != (beside.passed, before):
            against = f"{printable(reference.target)} {beside.passed} of {before}"
            yield f"    {printable(name, longest=60)}: {line.passed} of {total} passed, {against}"
