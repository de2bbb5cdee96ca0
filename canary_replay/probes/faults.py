"""Probes of answers that are errors; the only ones that are asked about them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from canary_replay.outcome import Score
from canary_replay.probing import probe
from canary_replay.response import Response
from canary_replay.suite import Case


class ErrorParameters(BaseModel):
    """Parameters of ``error``.

    :ivar expected: whether the answer must be an error, or must not be one.
    :ivar status: the HTTP status that the error must have; any by default, broken streams and refused connections included.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, json_schema_extra={"examples": [{}, {"status": 429}, {"expected": False}]}
    )

    expected: bool = True
    status: Annotated[int, Field(ge=100, le=599)] | None = None

    @model_validator(mode="after")
    def _status_of_something(self) -> ErrorParameters:
        if self.status is not None and not self.expected:
            raise ValueError("'status' says which error is expected; it has no meaning with 'expected = false'")
        return self


@probe("error", category="format", parameters=ErrorParameters, reads_case=False)
def error(_case: Case, response: Response, parameters: ErrorParameters) -> Score:
    """The answer is an error: any, or one with the given HTTP status.

    Why it matters: a request that a provider must reject (too long, a bad tool schema, no permission) is behaviour too,
    and a program that relies on the status breaks when it changes.

    Passes: an answer of HTTP 400 with ``status = 400``.
    Fails: an answer of HTTP 200 with text, or of HTTP 500 with ``status = 400``.
    """
    found = response.error
    if found is None:
        return Score(0.0, "the answer is no error") if parameters.expected else Score(1.0)
    said = f"HTTP {found.status}" if found.status is not None else f"{found.message!r:.200} (no HTTP error status)"
    if not parameters.expected:
        return Score(0.0, f"the answer is an error: {said}")
    if parameters.status is None or parameters.status == found.status:
        return Score(1.0, f"the answer is an error: {said}")
    return Score(0.0, f"the answer is an error, but {said}, not HTTP {parameters.status}")
