"""What people who write probes are given: strategies of everything a probe may meet, and laws that catch each kind of mistake."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from pydantic import BaseModel, ConfigDict

from canary_replay.decoding import decode
from canary_replay.errors import UsageError
from canary_replay.expectations import check_expectations
from canary_replay.interaction import Interaction
from canary_replay.outcome import Score, Span
from canary_replay.probing import BoundProbe, Probe
from canary_replay.response import Response, ToolCall
from canary_replay.suite import Case
from canary_replay.testing import LawBrokenError, cases, check_probe, responses, streams, tool_calls

AT_ONCE = 20.0  # when every chunk of the law's streams arrives, in milliseconds


class Box(BaseModel):
    """Parameters that are less frozen than they look."""

    model_config = ConfigDict(frozen=True)

    words: list[str] = ["a"]


def bound(function: Callable[..., Any], *, parameters: BaseModel | None = None) -> BoundProbe:
    """A rule around a function, without registering it."""
    kind = None if parameters is None else type(parameters)
    probe = Probe(name="mine", category="format", version=1, function=function, parameters=kind)
    return BoundProbe(name="mine", probe=probe, parameters=parameters, rule="rule")


def raises_on_a_long_answer(_case: Case, response: Response) -> bool:
    """Not total."""
    return not response.text or response.text[2] != "x"


def goes_beyond_one(_case: Case, response: Response) -> float:
    """Not bounded."""
    return len(response.tool_calls) / 2


def returns_nothing(_case: Case, _response: Response) -> None:
    """No score at all."""


def changes_the_case(case: Case, _response: Response) -> bool:
    """Not pure: a frozen case still holds a dict."""
    case.variables["seen"] = True
    return True


def changes_its_parameters(_case: Case, response: Response, box: Box) -> bool:
    """Not pure: what it is configured with grows."""
    box.words.append(response.text)
    return True


def points_beside_the_word(_case: Case, response: Response) -> Score:
    """Not bounded: a capital I with a dot is longer in lower case, so that a place after it may lie outside the answer."""
    start = response.text.lower().find("thank")
    return Score(1.0) if start < 0 else Score(1.0, "", (Span(start, start + len("thank")),))


def throws_dice(_case: Case, _response: Response) -> float:
    """Not repeatable."""
    return random.random()  # noqa: S311 - the mistake that is to be found


def compares_objects(_case: Case, response: Response) -> Score:
    """Not repeatable: equal answers are other objects."""
    return Score(1.0, f"{id(response)}")


def counts_answers() -> Callable[[Case, Response], float]:
    """Not repeatable: each question changes the next answer."""
    seen: list[str] = []

    def probe(_case: Case, response: Response) -> float:
        seen.append(response.text)
        return 1 / len(seen)

    return probe


def remembers_the_one_before() -> Callable[[Case, Response], bool]:
    """A memory that asking twice in a row does not show."""
    last: list[str] = ["", ""]

    def probe(_case: Case, response: Response) -> bool:
        if response.text != last[1]:
            last[:] = [last[1], response.text]
        return len(last[0]) <= len(last[1])

    return probe


def counts_time_to_first_token(_case: Case, response: Response) -> Score:
    """Fine: every chunk of the law's streams comes at one moment."""
    return Score(1.0, f"{response.ttft_ms}")


BROKEN: dict[str, tuple[BoundProbe, str]] = {
    "raises": (bound(raises_on_a_long_answer), "'total': the probe raised IndexError"),
    "beyond one": (bound(goes_beyond_one), "'bounded': a score is a number from 0 to 1, not 1.5"),
    "beside": (bound(points_beside_the_word), "'bounded': the span "),
    "nothing": (bound(returns_nothing), "'bounded': a probe returns a Score"),
    "case": (bound(changes_the_case), "'pure'"),
    "parameters": (bound(changes_its_parameters, parameters=Box()), "'pure'"),
    "dice": (bound(throws_dice), "'repeatable'"),
    "objects": (bound(compares_objects), "'repeatable'"),
    "counter": (bound(counts_answers()), "'repeatable'"),
    "memory": (bound(remembers_the_one_before()), "'no memory'"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken(kind: str) -> None:
    """Each kind of broken probe is caught, by the law that it breaks, with the case and the response that show it."""
    probe, law = BROKEN[kind]

    with pytest.raises(LawBrokenError) as caught:
        check_probe(probe, examples=100)

    message = str(caught.value)
    assert message.startswith(f"the probe 'mine' breaks the law {law}")
    assert "case: Case(" in message
    assert "response: Response(" in message


def test_broken_by_cuts() -> None:
    """A probe that says another thing of the same stream, cut elsewhere, is caught even where it is sound on everything else."""
    asked = iter(range(10**6))

    def fickle_about_streams(_case: Case, response: Response) -> bool:
        return response.ttft_ms != AT_ONCE or next(asked) % 2 == 0

    with pytest.raises(LawBrokenError, match="'cuts do not matter'"):
        check_probe(bound(fickle_about_streams), examples=20)


@pytest.mark.parametrize("function", [counts_time_to_first_token, lambda _case, response: "x" in response.text])
def test_sound(function: Callable[..., Any]) -> None:
    """A probe that keeps the laws passes in silence."""
    check_probe(bound(function), examples=50)


def test_smallest() -> None:
    """The example in the message is the smallest that Hypothesis found, not the first."""
    with pytest.raises(LawBrokenError, match=r"text='[^']{1,2}'"):
        check_probe(bound(raises_on_a_long_answer), examples=100)


def test_by_name() -> None:
    """A registered probe is checked by its name, with given parameters or with its own examples."""
    check_probe("contains", examples=20)
    check_probe("contains", {"texts": "x"}, examples=20)


def test_wrong_use() -> None:
    """An unknown name, and parameters for a probe that has some, are mistakes that say what to do."""
    with pytest.raises(UsageError, match="did you mean 'contains'"):
        check_probe("contain")
    with pytest.raises(UsageError, match="configured already"):
        check_probe(bound(throws_dice), {"x": 1})


@given(cases())
def test_cases(case: Case) -> None:
    """Every generated case is one that a suite could hold: its expectations are valid."""
    check_expectations(case)


@given(responses(like=("needle",)))
def test_responses(response: Response) -> None:
    """Generated responses are well-formed."""
    assert isinstance(response.text, str)
    assert all(isinstance(call.arguments, str) for call in response.tool_calls)


@given(tool_calls())
def test_tool_calls(call: ToolCall) -> None:
    """Generated tool calls have text for arguments, JSON or not."""
    assert isinstance(call.arguments, str)


@given(streams())
def test_streams(stream: Interaction) -> None:
    """Every generated stream is one that the decoders read to its end, and its chunks are all of its bytes."""
    response = decode([stream]).response

    assert response.error is None
    assert response.text or response.tool_calls
    assert all(isinstance(call.parsed(), dict) for call in response.tool_calls)
    assert b"".join(piece for _, piece in stream.chunks()) == stream.response.body
