"""A probe of one's own: the code of docs/how-to/write-a-probe.md, run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field

from canary_replay.outcome import Score, Span
from canary_replay.probing import bind, known_probes, probe
from canary_replay.response import Response
from canary_replay.scoring import score
from canary_replay.suite import Case
from canary_replay.testing import check_probe


class SentencesParameters(BaseModel):
    """How many sentences are right."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [{"count": 2}]})

    count: Annotated[int, Field(ge=1)]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register the two probes of this page, and forget them afterwards."""

    @probe("polite", category="format", reads_case=False)
    def polite(_case: Case, response: Response) -> Score:
        """The answer greets or thanks.

        Why it matters: support that forgets its manners loses customers.

        Passes: ``Hello! Your parcel is on its way.``
        Fails: ``It is on its way.``
        """
        if (found := re.search("(?i)hello|thank", response.text)) is None:
            return Score(0.0, "it neither greets nor thanks")
        return Score(1.0, f"it says {found[0]!r}", (Span(*found.span()),))

    @probe("sentences", category="format", parameters=SentencesParameters, reads_case=False)
    def sentences(_case: Case, response: Response, parameters: SentencesParameters) -> Score:
        """The answer has the right number of sentences; each one too many or too few costs a fifth."""
        found = sum(response.text.count(end) for end in ".!?")
        off = abs(found - parameters.count)
        return Score(max(0.0, 1 - off / 5), f"{found} sentences, {parameters.count} are asked for")

    yield
    known_probes.discard({"polite", "sentences"})


@pytest.mark.parametrize("answer,value", [("One. Two.", 1.0), ("One.", 0.8), ("A. B. C. D. E. F. G. H.", 0.0)])
def test_sentences(answer: str, value: float) -> None:
    """A graded score: exact 1.00, one off 0.80, six off 0.00."""
    rule = bind("sentences", {"count": 2}, name="two-sentences", threshold=0.8)

    found = score(rule, Case(id="c", user="?"), Response(text=answer), trial=0, response_digest="", decoder="")

    assert found.score == value
    assert found.outcome == ("passed" if value >= 0.8 else "failed")


def test_polite() -> None:
    """Evidence points at the words that decided."""
    rule = bind("polite", {}, name="polite")

    found = score(rule, Case(id="c", user="?"), Response(text="Oh, hello!"), trial=0, response_digest="", decoder="")

    assert (found.outcome, found.evidence) == ("passed", (Span(4, 9),))


@pytest.mark.parametrize("name", ["polite", "sentences"])
def test_laws(name: str) -> None:
    """Both keep the laws."""
    check_probe(name, examples=50)
