"""Tests of gating: what each comparison asks for, and which of all reasons decides."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from canary_replay.comparing import Effect, compare
from canary_replay.gating import ADMIT, BUG, CANNOT_JUDGE, PROVIDER, REJECT, REVIEW, USAGE, Judge, Reason, Rule, decide
from canary_replay.outcome import Outcome, OutcomeKind, accepted
from canary_replay.suite import Gate

GRAVEST_FIRST = [70, 2, 1, 5, 4, 3, 0]
WORDS = {0: "admit", 1: "reject", 2: "cannot judge", 3: "review", 4: "cannot judge", 5: "cannot judge", 70: "cannot judge"}
HARD, STATISTICAL, ADVISORY = (Rule(gate=gate, required=False) for gate in ("hard", "statistical", "advisory"))
REQUIRED = Rule(gate="hard", required=True)


def outcome(kind: OutcomeKind, *, trial: int = 0, score: float | None = None, response: str = "R", rule: str = "r") -> Outcome:
    """What one probe says of one trial."""
    return Outcome(case="greeting", trial=trial, probe="polite", outcome=kind, score=score, response=response, rule=rule)


def weigh(
    before: OutcomeKind | None, now: OutcomeKind | None, rule: Rule, *, required_cases_pass: bool = True
) -> tuple[int, Judge]:
    """The exit code that one case asks for after its rule was rewritten, and the judge that saw it."""
    judge = Judge(required_cases_pass=required_cases_pass)
    then = [] if before is None else [accepted(outcome(before, rule="old"))]
    (comparison,) = compare(then, [] if now is None else [outcome(now)], rule="all")
    return judge.see(comparison, rule), judge


# ------------------------------------------------------------------------------------------------ which reason decides
def test_the_exit_codes() -> None:
    """The documented numbers."""
    assert [BUG, USAGE, REJECT, PROVIDER, CANNOT_JUDGE, REVIEW, ADMIT] == GRAVEST_FIRST


@pytest.mark.parametrize("held", list(product([False, True], repeat=7)), ids=lambda held: "".join("01"[one] for one in held))
def test_the_gravest_reason_decides(held: tuple[bool, ...]) -> None:
    """Of every set of reasons the first of 70, 2, 1, 5, 4, 3, 0 is the exit code, and comes first in the verdict."""
    codes = [code for code, holds in zip(GRAVEST_FIRST, held, strict=True) if holds]

    verdict = decide(Reason(code, f"reason {code}") for code in reversed(codes))

    assert verdict.exit_code == (codes[0] if codes else 0)
    assert verdict.word == WORDS[verdict.exit_code]
    assert [reason.code for reason in verdict.reasons] == codes


def test_the_order_of_reasons_does_not_matter() -> None:
    """Every order of the same reasons gives the same verdict."""
    reasons = [Reason(code, f"reason {code}") for code in (3, 4, 1, 2)]

    assert len({decide(order) for order in permutations(reasons)}) == 1


# ------------------------------------------------------------------------------------------------ what each gate makes of a case
@pytest.mark.parametrize(
    "before, now, hard, statistical",
    [
        ("passed", "passed", ADMIT, ADMIT),
        ("passed", "failed", REJECT, REVIEW),
        ("failed", "passed", REVIEW, REVIEW),
        ("failed", "failed", ADMIT, ADMIT),
        (None, "passed", ADMIT, ADMIT),
        (None, "failed", REJECT, REVIEW),
        ("crashed", "failed", REJECT, REVIEW),
        ("unscored", "failed", REJECT, REVIEW),
        ("crashed", "passed", REVIEW, REVIEW),
        ("passed", None, REVIEW, REVIEW),
        ("failed", None, REVIEW, REVIEW),
        *(
            (before, now, CANNOT_JUDGE, CANNOT_JUDGE)
            for now in ("crashed", "unscored")
            for before in (None, "passed", "failed", now)
        ),
    ],
)
def test_what_a_gate_asks_for(before: OutcomeKind | None, now: OutcomeKind | None, hard: int, statistical: int) -> None:
    """A hard gate rejects what a statistical one gives to a person; an advisory gate lets everything pass."""
    assert weigh(before, now, HARD)[0] == hard
    assert weigh(before, now, STATISTICAL)[0] == statistical
    assert weigh(before, now, ADVISORY)[0] == ADMIT


@pytest.mark.parametrize("gate", ["hard", "statistical", "advisory"])
@pytest.mark.parametrize("before", [None, "passed", "failed", "crashed"])
def test_what_is_required_must_pass(before: OutcomeKind | None, gate: Gate) -> None:
    """A required check that fails rejects, also where the failure is known or the gate would only advise."""
    rule = Rule(gate=gate, required=True)

    assert weigh(before, "failed", rule)[0] == REJECT
    assert weigh(before, "passed", rule)[0] != REJECT


def test_a_policy_may_forgive_required_cases() -> None:
    """``required_cases_pass = false`` judges a required case like any other."""
    assert weigh("failed", "failed", REQUIRED, required_cases_pass=False)[0] == ADMIT
    assert weigh("passed", "failed", REQUIRED, required_cases_pass=False)[0] == REJECT


@pytest.mark.parametrize("gate", ["hard", "statistical", "advisory"])
@pytest.mark.parametrize("effect", ["unexplained", "response"])
def test_a_comparison_without_a_held_side(effect: Effect, gate: Gate) -> None:
    """A probe that is not repeatable, or a response that nobody accepted, is an error under every gate, even if all pass."""
    judge = Judge()
    response = "other" if effect == "response" else "R"
    score = 0.5 if effect == "unexplained" else 1.0
    (comparison,) = compare(
        [accepted(outcome("passed", score=1.0))], [outcome("passed", score=score, response=response)], rule="all"
    )

    code = judge.see(comparison, Rule(gate=gate, required=False))

    assert comparison.effects == {effect}
    assert code == USAGE


@pytest.mark.parametrize("now, code", [(1.0, ADMIT), (0.9, REVIEW), (0.95, REVIEW)])
def test_a_score_that_moved(now: float, code: int) -> None:
    """A case that still passes with another score is for a person to look at."""
    judge = Judge()
    before = accepted(outcome("passed", score=1.0, rule="old"))
    (comparison,) = compare([before], [outcome("passed", score=now)], rule="all")

    assert judge.see(comparison, HARD) == code


def test_a_score_that_rose() -> None:
    """A better score is not accepted silently either: the scorecard would hide the next fall."""
    (comparison,) = compare([accepted(outcome("passed", score=0.9, rule="old"))], [outcome("passed", score=1.0)], rule="all")

    assert comparison.transition == "kept"
    assert Judge().see(comparison, HARD) == REVIEW


def test_trials_that_changed_places() -> None:
    """A known failure whose failing trial is another one today is for a person to look at."""
    before = [accepted(outcome("failed", trial=0, rule="old")), accepted(outcome("passed", trial=1, rule="old"))]
    (comparison,) = compare(before, [outcome("passed", trial=0), outcome("failed", trial=1)], rule="all")

    assert comparison.transition == "known"
    assert Judge().see(comparison, HARD) == REVIEW


# ------------------------------------------------------------------------------------------------ counting
def test_reasons_are_counted() -> None:
    """One sentence for each kind of reason, with its number, and nothing for what is fine."""
    judge = Judge()
    for before, now in [("passed", "failed"), ("passed", "failed"), ("passed", "passed"), ("passed", "crashed")]:
        (comparison,) = compare([accepted(outcome(before, rule="old"))], [outcome(now)], rule="all")  # type: ignore[arg-type] # literals
        judge.see(comparison, HARD)

    assert judge.reasons() == [Reason(REJECT, "2 checks regressed (hard gate)"), Reason(CANNOT_JUDGE, "1 check crashed")]
    assert judge.judged == 3


@pytest.mark.parametrize("before, now", [("passed", "crashed"), ("passed", "unscored"), ("passed", None), (None, "crashed")])
@pytest.mark.parametrize("rule", [HARD, STATISTICAL, ADVISORY, REQUIRED], ids=lambda rule: f"{rule.gate}-{rule.required}")
def test_what_could_not_be_judged_is_not_counted_as_judged(
    before: OutcomeKind | None, now: OutcomeKind | None, rule: Rule
) -> None:
    """A crash, a missing verdict or a check that is gone leaves the number of judged checks at nothing: none of them passes."""
    assert weigh(before, now, rule)[1].judged == 0


@pytest.mark.parametrize("now", ["passed", "failed"])
def test_what_was_judged_is_counted(now: OutcomeKind) -> None:
    """A pass and a fail are both judgements, under an advisory gate too."""
    assert weigh(None, now, ADVISORY)[1].judged == 1
