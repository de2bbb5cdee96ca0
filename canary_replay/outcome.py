"""What was found: a probe's score, the outcome of one (case, trial, probe), and the accepted outcomes of the scorecard."""

from __future__ import annotations

from typing import Literal

import msgspec

OutcomeKind = Literal["passed", "failed", "crashed", "unscored"]


class Span(msgspec.Struct, frozen=True):
    """A piece of evidence: characters ``start`` to ``end`` of the response's text."""

    start: int
    end: int


class Score(msgspec.Struct, frozen=True):
    """What a probe returns.

    :ivar value: 0.0 (as wrong as can be) to 1.0 (right); None when the probe cannot judge this answer (``unscored``).
    :ivar reason: one plain sentence; it may quote the answer.
    :ivar evidence: where in the text, if that can be said.
    """

    value: float | None
    reason: str = ""
    evidence: tuple[Span, ...] = ()


def unscored(reason: str) -> Score:
    """The score of an answer that the probe cannot judge; it never counts as a pass."""
    return Score(None, reason)


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one probe said of one trial of one case.

    :ivar outcome: ``passed``, ``failed``, ``crashed`` (the probe raised) or ``unscored`` (it cannot judge).
    :ivar response: digest of the recorded bytes that were scored.
    :ivar rule: digest of the rule that scored them.
    :ivar decoder: name and version of the decoder that read them.
    """

    case: str
    trial: int
    probe: str
    outcome: OutcomeKind
    score: float | None = None
    response: str = ""
    rule: str = ""
    decoder: str = ""
    reason: str = ""
    evidence: tuple[Span, ...] = ()
    traceback: str = ""


class AcceptedOutcome(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A line of ``scorecard.jsonl``: an outcome that somebody accepted, without its words."""

    case: str
    trial: int
    probe: str
    outcome: OutcomeKind
    score: float | None = None
    response: str = ""
    rule: str = ""
    decoder: str = ""


def accepted(outcome: Outcome) -> AcceptedOutcome:
    """What the scorecard keeps of an outcome."""
    return AcceptedOutcome(
        case=outcome.case,
        trial=outcome.trial,
        probe=outcome.probe,
        outcome=outcome.outcome,
        score=outcome.score,
        response=outcome.response,
        rule=outcome.rule,
        decoder=outcome.decoder,
    )
