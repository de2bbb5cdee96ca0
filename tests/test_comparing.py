"""Tests of comparing: the word for what happened, what caused it, and that nothing drifts from itself."""

from __future__ import annotations

import random
from itertools import product
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary_replay.comparing import Comparison, Effect, PassRule, Standing, Tally, Transition, compare, effect_of, enough, tally
from canary_replay.comparing import transition as transition_of
from canary_replay.outcome import AcceptedOutcome, Outcome, OutcomeKind, accepted
from tests.strategies import outcomes

rules: st.SearchStrategy[PassRule] = st.sampled_from(["all", "majority"]) | st.floats(0.01, 1)


def outcome(
    kind: OutcomeKind = "passed", score: float | None = None, *, trial: int = 0, response: str = "R", rule: str = "r"
) -> Outcome:
    """What one probe says of one trial."""
    return Outcome(
        case="greeting", trial=trial, probe="polite", outcome=kind, score=score, response=response, rule=rule, decoder="chat/1"
    )


def trials(*kinds: OutcomeKind) -> list[Outcome]:
    """What one probe says of some trials."""
    scores = {"passed": 1.0, "failed": 0.0}
    return [outcome(kind, scores.get(kind), trial=trial) for trial, kind in enumerate(kinds)]


def then(outcomes: list[Outcome]) -> list[AcceptedOutcome]:
    """The same, as somebody accepted it."""
    return [accepted(one) for one in outcomes]


def settled(comparison: Comparison) -> tuple[object, ...]:
    """A comparison without the order of its trials."""
    changes = sorted((change.trial, change.effect) for change in comparison.changes)
    return (comparison.case, comparison.probe, comparison.transition, comparison.then, comparison.now, changes)


# ------------------------------------------------------------------------------------------------ transitions
TRANSITIONS: dict[tuple[Standing, Standing], Transition] = {
    ("passed", "passed"): "kept",
    ("passed", "failed"): "regressed",
    ("failed", "passed"): "fixed",
    ("failed", "failed"): "known",
    ("absent", "passed"): "new",
    ("absent", "failed"): "new",
    ("crashed", "passed"): "new",
    ("crashed", "failed"): "new",
    ("unscored", "passed"): "new",
    ("unscored", "failed"): "new",
    **{(before, "crashed"): "crashed" for before in get_args(Standing)},
    **{(before, "unscored"): "unscored" for before in get_args(Standing)},
    **{(before, "absent"): "gone" for before in get_args(Standing)},
}


@pytest.mark.parametrize("before, now", list(product(get_args(Standing), get_args(Standing))))
def test_every_pair_of_standings_has_its_word(before: Standing, now: Standing) -> None:
    """The word depends on nothing but how the case stood and stands, while the scores are the same."""
    assert transition_of(Tally(before, 0, 3, 0.5), Tally(now, 3, 3, 0.5)) == TRANSITIONS[before, now]


@pytest.mark.parametrize(
    "before, now, word",
    [
        (1.0, 0.9, "decayed"),
        (0.9, 1.0, "kept"),
        (0.9, 0.9 - 1e-12, "kept"),
        (None, 0.1, "kept"),
        (0.1, None, "kept"),
    ],
)
def test_a_pass_with_a_lower_score(before: float | None, now: float | None, word: Transition) -> None:
    """A case that still passes with a lower score decayed; the last bit of a float is no decay."""
    assert transition_of(Tally("passed", 3, 3, before), Tally("passed", 3, 3, now)) == word


@pytest.mark.parametrize(
    "before, now, word",
    [
        (["passed"], ["passed"], "kept"),
        (["passed"], ["failed"], "regressed"),
        (["failed"], ["passed"], "fixed"),
        (["failed"], ["failed"], "known"),
        (["passed"], ["crashed"], "crashed"),
        (["passed"], ["unscored"], "unscored"),
        (["passed"], [], "gone"),
        ([], ["failed"], "new"),
        (["passed", "passed", "passed"], ["passed", "failed", "passed"], "regressed"),
        (["failed", "passed"], ["passed", "failed"], "known"),
        (["passed", "failed"], ["crashed", "unscored"], "crashed"),
        (["passed"], ["passed", "failed"], "regressed"),
    ],
)
def test_trials_together_make_one_transition(before: list[OutcomeKind], now: list[OutcomeKind], word: Transition) -> None:
    """A case is judged by all its trials together, never trial against trial."""
    (found,) = compare(then(trials(*before)), trials(*now), rule="all")

    assert found.transition == word
    assert (found.then.trials, found.now.trials) == (len(before), len(now))


def test_probes_are_matched_by_name() -> None:
    """A probe of one side alone is new or gone; the result is sorted by probe, whatever the order of the outcomes."""
    kept, gone, new = (msgspec.structs.replace(outcome(), probe=name) for name in ("kept", "gone", "new"))

    found = compare(then([kept, gone]), [new, kept], rule="all")

    assert [(one.probe, one.transition) for one in found] == [("gone", "gone"), ("kept", "kept"), ("new", "new")]


def test_nothing_compared_with_nothing() -> None:
    """No outcomes, no comparisons."""
    assert compare([], [], rule="all") == []


# ------------------------------------------------------------------------------------------------ effects
@pytest.mark.parametrize(
    "changed, effect",
    [
        ({}, None),
        ({"rule": "other"}, None),
        ({"decoder": "other"}, None),
        ({"reason": "other"}, None),
        ({"response": "other"}, "response"),
        ({"response": "other", "outcome": "failed"}, "response"),
        ({"response": "other", "rule": "other", "decoder": "other", "outcome": "failed"}, "response"),
        ({"rule": "other", "outcome": "failed"}, "rule"),
        ({"rule": "other", "score": 0.9}, "rule"),
        ({"rule": "other", "decoder": "other", "outcome": "failed"}, "rule"),
        ({"decoder": "other", "outcome": "failed"}, "decoder"),
        ({"decoder": "other", "score": None}, "decoder"),
        ({"outcome": "failed"}, "unexplained"),
        ({"outcome": "crashed", "score": None}, "unexplained"),
        ({"score": 0.9}, "unexplained"),
    ],
)
def test_every_difference_has_one_cause(changed: dict[str, object], effect: Effect | None) -> None:
    """The response before the rule before the decoder; where all are the same, the probe is not repeatable."""
    before = outcome(score=1.0)
    now = msgspec.structs.replace(before, **changed)

    (found,) = compare([accepted(before)], [now], rule="all")

    assert effect_of(accepted(before), now) == effect
    assert found.effects == ({effect} if effect else set())
    assert [(change.trial, change.then, change.now) for change in found.changes] == (
        [(0, accepted(before), now)] if effect else []
    )


def test_a_trial_more_or_less_is_no_change_of_a_trial() -> None:
    """Trials that only one side has show in the tallies."""
    (found,) = compare(then(trials("passed", "passed")), trials("passed")[:1], rule="all")

    assert found.changes == ()
    assert (found.then.passed, found.then.trials, found.now.passed, found.now.trials) == (2, 2, 1, 1)


# ------------------------------------------------------------------------------------------------ laws
@given(
    st.lists(st.sampled_from("abc"), unique=True).flatmap(lambda names: st.tuples(*(outcomes(probe=name) for name in names))),
    rules,
)
def test_nothing_drifts_from_itself(groups: tuple[list[Outcome], ...], rule: PassRule) -> None:
    """Outcomes compared with themselves have no change, no effect, and stand as they stood."""
    same = [one for group in groups for one in group]

    found = compare(then(same), same, rule=rule)

    assert len(found) == len(groups)
    assert all(one.changes == () and one.then == one.now for one in found)
    assert {one.transition for one in found} <= {"kept", "known", "crashed", "unscored"}


@given(outcomes(), outcomes(), rules, st.randoms(use_true_random=False))
def test_the_order_of_trials_does_not_matter(
    before: list[Outcome], now: list[Outcome], rule: PassRule, shuffle: random.Random
) -> None:
    """Shuffled trials give the same transition, the same tallies to the last bit and the same changes."""
    found = compare(then(before), now, rule=rule)

    shuffle.shuffle(before)
    shuffle.shuffle(now)

    assert [settled(one) for one in compare(then(before), now, rule=rule)] == [settled(one) for one in found]


@given(outcomes(), outcomes(), rules)
def test_back_and_forth(before: list[Outcome], now: list[Outcome], rule: PassRule) -> None:
    """What regressed one way is fixed the other way, and each side's tally is the same from both ends."""
    opposite = {
        "regressed": {"fixed"},
        "fixed": {"regressed"},
        "known": {"known"},
        "decayed": {"kept"},
        "kept": {"kept", "decayed"},
    }

    (there,) = compare(then(before), now, rule=rule)
    (back,) = compare(then(now), before, rule=rule)

    assert (there.then, there.now) == (back.now, back.then)
    if there.transition in opposite and back.transition in opposite:
        assert back.transition in opposite[there.transition]


# ------------------------------------------------------------------------------------------------ tallies
@pytest.mark.parametrize(
    "rule, passing",
    [
        ("all", {1: 1, 2: 2, 3: 3, 4: 4, 10: 10}),
        ("majority", {1: 1, 2: 2, 3: 2, 4: 3, 10: 6}),
        (0.9, {1: 1, 2: 2, 3: 3, 4: 4, 10: 9}),
        (0.5, {1: 1, 2: 1, 3: 2, 4: 2, 10: 5}),
        (0.7, {1: 1, 2: 2, 3: 3, 4: 3, 10: 7}),
        (2 / 3, {1: 1, 2: 2, 3: 2, 4: 3, 10: 7}),
        (1.0, {1: 1, 2: 2, 3: 3, 4: 4, 10: 10}),
    ],
)
def test_how_many_trials_must_pass(rule: PassRule, passing: dict[int, int]) -> None:
    """For each number of trials the smallest number of passes that is enough; every larger one is enough, no smaller one is."""
    for total, smallest in passing.items():
        assert [enough(passed, total, rule) for passed in range(total + 1)] == [passed >= smallest for passed in range(total + 1)]


@pytest.mark.parametrize(
    "kinds, standing, passed",
    [
        ([], "absent", 0),
        (["passed", "passed"], "passed", 2),
        (["passed", "failed"], "failed", 1),
        (["passed", "unscored"], "unscored", 1),
        (["failed", "unscored"], "unscored", 0),
        (["unscored", "crashed"], "crashed", 0),
        (["passed", "crashed"], "crashed", 1),
    ],
)
def test_one_trial_that_cannot_be_judged_leaves_the_case_undecided(
    kinds: list[OutcomeKind], standing: Standing, passed: int
) -> None:
    """A crash or a missing verdict is never outvoted by the trials around it."""
    for rule in ("all", "majority", 0.51):
        found = tally(trials(*kinds), rule)
        assert (found.standing, found.passed, found.trials) == (standing, passed, len(kinds))


def test_the_mean_score_counts_what_was_scored() -> None:
    """Trials without a score do not count as zero; without any score there is no mean."""
    scored = [outcome("passed", 1.0), outcome("failed", 0.5, trial=1), outcome("unscored", trial=2)]

    assert tally(scored, "all").mean == 0.75
    assert tally(scored[2:], "all").mean is None


def test_a_mean_is_exact() -> None:
    """Ten scores of 0.1 have the mean 0.1, on every version of Python."""
    tenths = [outcome("failed", 0.1, trial=trial) for trial in range(10)]

    assert tally(tenths, "all").mean == 0.1
