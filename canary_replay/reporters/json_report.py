"""The report as one JSON document: verdict first, then suites, then every outcome."""

from __future__ import annotations

import shutil
from typing import Any, BinaryIO

import msgspec

from canary_replay.comparing import Comparison, Tally
from canary_replay.outcome import Outcome
from canary_replay.reporting import CaseResult, Problem, Report, Style, SuiteReport, TargetReport, reporter

FORMAT = 1
_IN_MEMORY = 4_000_000  # bytes of outcomes that wait in memory for the verdict to be known; more wait in a temporary file

_encoder = msgspec.json.Encoder(order=None)


def _encode(value: object) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, quoted from an answer
        return _encoder.encode(_writable(msgspec.to_builtins(value)))


def _writable(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The value with every lone surrogate written out, as the report at the terminal has it."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_writable(name): _writable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(one) for one in value]
    return value


@reporter("json", endings=(".json",))
class JsonReporter:
    """Outcomes wait beside the document until the verdict, which comes first, is known; memory stays flat."""

    def __init__(self, stream: BinaryIO, style: Style) -> None:  # noqa: ARG002 - JSON has no style
        import tempfile  # a replay for the terminal need not load it

        self._stream = stream
        self._outcomes = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed at the end
        self._first = True

    def case(self, result: CaseResult) -> None:
        """Set the outcomes of one case aside."""
        lines = [
            _encode(_outcome(result, comparison, outcome)) for comparison in result.comparisons for outcome in comparison.outcomes
        ]
        if lines:
            self._outcomes.write((b"\n" if self._first else b",\n") + b",\n".join(lines))
            self._first = False

    def end(self, report: Report) -> None:
        """Write the document."""
        head = {
            "format": FORMAT,
            "command": report.command,
            "verdict": report.verdict,
            "suites": [_suite(suite) for suite in report.suites],
        }
        text = msgspec.json.format(_encode(head), indent=1)
        self._stream.write(text[: text.rindex(b"}")].rstrip() + b',\n "outcomes": [')
        self._outcomes.seek(0)
        shutil.copyfileobj(self._outcomes, self._stream)
        self._outcomes.close()
        self._stream.write(b"\n ]\n}\n")


def _outcome(result: CaseResult, comparison: Comparison, outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = {
        "suite": result.suite,
        "target": result.target,
        "case": outcome.case,
        "trial": outcome.trial,
        "probe": outcome.probe,
        "outcome": outcome.outcome,
        "score": outcome.score,
        "transition": comparison.transition,
    }
    for change in comparison.changes:
        if change.trial == outcome.trial:
            found["effect"] = change.effect
    if outcome.reason:
        found["reason"] = outcome.reason
    if outcome.evidence:
        found["evidence"] = outcome.evidence
    if outcome.traceback:
        found["traceback"] = outcome.traceback
    return found | {"response": outcome.response, "rule": outcome.rule}


def _suite(suite: SuiteReport) -> dict[str, Any]:
    return {
        "suite": suite.suite,
        "path": suite.path,
        "verdict": suite.verdict,
        "reference": _target(suite.reference),
        "candidates": [_target(candidate) for candidate in suite.candidates],
        "scopes_that_match_nothing": suite.dead_scopes,
        "cases_that_nothing_judges": suite.unjudged,
    }


def _target(target: TargetReport) -> dict[str, Any]:
    return {
        "target": target.target,
        "cases": target.cases,
        "trials": target.trials,
        "noise": {"repeated_cases": target.repeated_cases, "noisy_cases": target.noisy_cases},
        "probes": {name: target.probes[name] for name in sorted(target.probes)},
        "transitions": dict(sorted(target.transitions.items())),
        "effects": dict(sorted(target.effects.items())),
        "changed": [_comparison(comparison) for comparison in target.changed],
        "problems": [_problem(case, problem) for case, problem in target.problems],
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "case": comparison.case,
        "probe": comparison.probe,
        "transition": comparison.transition,
        "then": _tally(comparison.then),
        "now": _tally(comparison.now),
        "effects": sorted(comparison.effects),
    }


def _tally(tally: Tally) -> dict[str, Any]:
    return {"standing": tally.standing, "passed": tally.passed, "trials": tally.trials, "mean_score": tally.mean}


def _problem(case: str, problem: Problem) -> dict[str, Any]:
    return {"case": case, "kind": problem.kind, "text": problem.text, "changes": problem.changes}
