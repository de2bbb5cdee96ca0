"""Probes of how fast an answer came, by the timing that was recorded with it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from canary_replay.outcome import Score, unscored
from canary_replay.probing import probe
from canary_replay.response import Response
from canary_replay.suite import Case


class TimingParameters(BaseModel):
    """Parameters of ``latency`` and ``first_token``.

    :ivar max_ms: the most milliseconds that pass.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, json_schema_extra={"examples": [{"max_ms": 1500}]})

    max_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)]


@probe("latency", category="format", parameters=TimingParameters, reads_case=False)
def latency(_case: Case, response: Response, parameters: TimingParameters) -> Score:
    """The whole answer arrived in time.

    Why it matters: a model or a prompt that got slower breaks a product without a wrong word.
    A replay judges the timing that was recorded, not today's; an answer without a recorded timing is unscored.

    Passes: an answer recorded in 900 ms with ``max_ms = 1500``.
    Fails: an answer recorded in 4000 ms with ``max_ms = 1500``.
    """
    return _within(response.total_ms, parameters.max_ms, "the whole answer")


@probe("first_token", category="format", parameters=TimingParameters, reads_case=False)
def first_token(_case: Case, response: Response, parameters: TimingParameters) -> Score:
    """The first content of a streamed answer arrived in time.

    Why it matters: it is the silence that a user sees before anything happens.
    A replay judges the timing that was recorded, not today's; an answer that was not streamed is unscored.

    Passes: a stream whose first text came after 300 ms with ``max_ms = 500``.
    Fails: a stream whose first text came after 2000 ms with ``max_ms = 500``.
    """
    return _within(response.ttft_ms, parameters.max_ms, "the first token")


def _within(recorded: float | None, most: float, what: str) -> Score:
    if recorded is None:
        return unscored(f"no timing of {what} was recorded")
    if recorded <= most:
        return Score(1.0, f"{what} took {recorded:.1f} ms (recorded timing); at most {most:g} ms are allowed")
    # The ratio says how far off it was; the least step below 1 keeps a hair too slow from rounding up to a pass.
    value = min(max(most / recorded, 0.0), 1 - 2**-53)
    return Score(value, f"{what} took {recorded:.1f} ms (recorded timing); at most {most:g} ms are allowed")
