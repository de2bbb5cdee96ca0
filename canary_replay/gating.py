"""The policy applied: from comparisons and problems to one verdict with all its reasons, and its exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from canary_replay.comparing import Comparison
from canary_replay.suite import Gate

Word = Literal["admit", "review", "reject", "cannot judge"]

ADMIT, REJECT, USAGE, REVIEW, CANNOT_JUDGE, PROVIDER, BUG = 0, 1, 2, 3, 4, 5, 70
_PRECEDENCE = (BUG, USAGE, REJECT, PROVIDER, CANNOT_JUDGE, REVIEW, ADMIT)
_WORDS: dict[int, Word] = {
    ADMIT: "admit",
    REJECT: "reject",
    REVIEW: "review",
    CANNOT_JUDGE: "cannot judge",
    USAGE: "cannot judge",
}


class Reason(msgspec.Struct, frozen=True):
    """Why a verdict is what it is: the exit code that it asks for, and one sentence with its count."""

    code: int
    text: str


class Verdict(msgspec.Struct, frozen=True):
    """The verdict of a run: ``admit``, ``review``, ``reject`` or ``cannot judge``; an error of the user's cannot be judged."""

    word: Word
    exit_code: int
    reasons: tuple[Reason, ...]


class Rule(msgspec.Struct, frozen=True):
    """What the policy needs to know of a probe (or of an expectation) for a case."""

    gate: Gate
    required: bool


def decide(reasons: Iterable[Reason]) -> Verdict:
    """The verdict for all reasons together; the gravest decides: 70, 2, 1, 5, 4, 3, 0."""
    ordered = sorted(reasons, key=lambda reason: _PRECEDENCE.index(reason.code))
    code = ordered[0].code if ordered else ADMIT
    return Verdict(_WORDS.get(code, "cannot judge"), code, tuple(ordered))


class Judge:
    """Collects what the gates say of each comparison, in memory that does not grow with the number of cases."""

    def __init__(self, *, required_cases_pass: bool = True) -> None:
        self._required_cases_pass = required_cases_pass
        self._counts: Counter[tuple[int, str]] = Counter()
        self.judged = 0

    def see(self, comparison: Comparison, rule: Rule) -> int:
        """Weigh one comparison; returns the exit code that it alone would ask for."""
        if comparison.now.standing in {"passed", "failed"}:
            self.judged += 1
        code, what = self._weigh(comparison, rule)
        if code != ADMIT:
            self._counts[code, what] += 1
        return code

    def _weigh(self, comparison: Comparison, rule: Rule) -> tuple[int, str]:
        if "unexplained" in comparison.effects:
            return USAGE, "gave another outcome for the same response under the same rule: the probe is not repeatable"
        if "response" in comparison.effects:
            return USAGE, "stood on a response that is not the one the scorecard accepted: restore the cassette or the scorecard"
        failed = comparison.now.standing == "failed"
        if failed and rule.required and self._required_cases_pass:
            return REJECT, "required and failing"
        if rule.gate == "advisory":
            return ADMIT, ""
        blocks = REJECT if rule.gate == "hard" else REVIEW
        match comparison.transition:
            case "regressed":
                return blocks, f"regressed ({rule.gate} gate)"
            case "new" if failed:
                return blocks, f"new and failing ({rule.gate} gate)"
            case "crashed":
                return CANNOT_JUDGE, "crashed"
            case "unscored":
                return CANNOT_JUDGE, "could not be scored"
            case "fixed" | "gone" | "decayed":
                words = {
                    "fixed": "fixed and not accepted yet",
                    "gone": "gone",
                    "decayed": "passing with a lower score than accepted",
                }
                return REVIEW, words[comparison.transition]
            case _ if comparison.changes:
                return REVIEW, "with other scores or other trials passing than accepted"
            case _:
                return ADMIT, ""

    def reasons(self) -> list[Reason]:
        """What was seen, one reason per kind, with its count."""
        return [Reason(code, f"{_count(number)} {what}") for (code, what), number in sorted(self._counts.items())]


def _count(number: int) -> str:
    return f"{number} check" if number == 1 else f"{number} checks"
