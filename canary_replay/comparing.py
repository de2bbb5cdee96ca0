"""Then and now, matched by (case, probe): transitions, and whether the rule or the response is the cause."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import msgspec

from canary_replay.outcome import AcceptedOutcome, Outcome

T = TypeVar("T", AcceptedOutcome, Outcome)
PassRule = Literal["all", "majority"] | float
Standing = Literal["passed", "failed", "crashed", "unscored", "absent"]
Effect = Literal["rule", "decoder", "response", "unexplained"]
Transition = Literal["kept", "fixed", "regressed", "known", "decayed", "new", "gone", "unscored", "crashed"]


class Tally(msgspec.Struct, frozen=True):
    """How the trials of one (case, probe) stand: k of n passed, their mean score, and what that makes of the case."""

    standing: Standing
    passed: int
    trials: int
    mean: float | None


class TrialChange(msgspec.Struct, frozen=True, kw_only=True):
    """One trial whose outcome or score differs from the accepted one, and what caused it."""

    trial: int
    effect: Effect
    then: AcceptedOutcome
    now: Outcome


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One (case, probe), then and now.

    :ivar changes: the trials that differ; a trial that is new or gone is no change but shows in the tallies.
    """

    case: str
    probe: str
    transition: Transition
    then: Tally
    now: Tally
    changes: tuple[TrialChange, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    @property
    def effects(self) -> frozenset[Effect]:
        """What caused the differences."""
        return frozenset(change.effect for change in self.changes)


def compare(then: Sequence[AcceptedOutcome], now: Sequence[Outcome], *, rule: PassRule) -> list[Comparison]:
    """Compare the accepted outcomes of a case with today's, sorted by probe.

    Trials are matched one to one: both sides judge the same stored responses.
    """
    before, after = _by_probe(then), _by_probe(now)
    return [
        _compare_probe(probe, before.get(probe, ()), after.get(probe, ()), rule) for probe in sorted(before.keys() | after.keys())
    ]


def _by_probe(outcomes: Iterable[T]) -> dict[str, list[T]]:
    grouped: dict[str, list[T]] = {}
    for outcome in outcomes:
        grouped.setdefault(outcome.probe, []).append(outcome)
    return grouped


def _compare_probe(probe: str, then: Sequence[AcceptedOutcome], now: Sequence[Outcome], rule: PassRule) -> Comparison:
    accepted = {outcome.trial: outcome for outcome in then}
    changes = tuple(
        [
            TrialChange(trial=outcome.trial, effect=effect, then=accepted[outcome.trial], now=outcome)
            for outcome in now
            if outcome.trial in accepted and (effect := effect_of(accepted[outcome.trial], outcome)) is not None
        ]
    )
    after = tally(now, rule)
    unchanged = not changes and [outcome.trial for outcome in now] == list(accepted)
    before = after if unchanged else tally(then, rule)
    return Comparison(
        case=(now or then)[0].case,
        probe=probe,
        transition=transition(before, after),
        then=before,
        now=after,
        changes=changes,
        outcomes=tuple(now),
    )


def effect_of(then: AcceptedOutcome, now: Outcome) -> Effect | None:
    """Why an outcome differs from the accepted one; None when it does not differ.

    Another response digest: the stored response itself was changed. The same response under another rule digest: the rule.
    Both the same, but read by another decoder: the decoder. All the same and yet different: the probe is not repeatable.
    """
    if then.response != now.response:
        return "response"
    if then.outcome == now.outcome and then.score == now.score:
        return None
    if then.rule != now.rule:
        return "rule"
    return "decoder" if then.decoder != now.decoder else "unexplained"


def tally(outcomes: Sequence[AcceptedOutcome] | Sequence[Outcome], rule: PassRule) -> Tally:
    """What the trials of one (case, probe) amount to. One crashed or unscored trial makes the whole undecided."""
    if not outcomes:
        return Tally("absent", 0, 0, None)
    kinds = [outcome.outcome for outcome in outcomes]
    passed = kinds.count("passed")
    scores = [outcome.score for outcome in outcomes if outcome.score is not None]
    mean = math.fsum(scores) / len(scores) if scores else None  # exact, so that the order of the trials cannot show
    standing: Standing
    if "crashed" in kinds:
        standing = "crashed"
    elif "unscored" in kinds:
        standing = "unscored"
    else:
        standing = "passed" if enough(passed, len(kinds), rule) else "failed"
    return Tally(standing, passed, len(kinds), mean)


def enough(passed: int, trials: int, rule: PassRule) -> bool:
    """Whether k of n passing trials make a passing case: all of them, more than half, or at least a rate."""
    if rule == "all":
        return passed == trials
    if rule == "majority":
        return 2 * passed > trials
    return passed >= rule * trials - 1e-9


def transition(then: Tally, now: Tally) -> Transition:
    """The word for what happened to a (case, probe)."""
    if now.standing == "absent":
        return "gone"
    if now.standing in {"crashed", "unscored"}:
        return "crashed" if now.standing == "crashed" else "unscored"
    if then.standing not in {"passed", "failed"}:
        return "new"
    if then.standing == "failed":
        return "fixed" if now.standing == "passed" else "known"
    if now.standing == "failed":
        return "regressed"
    fell = then.mean is not None and now.mean is not None and now.mean < then.mean - 1e-9
    return "decayed" if fell else "kept"
