"""The loop over the probes: what becomes of scores, of crashes, of errors and of answers that nobody can read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

import canary_replay.probes  # noqa: F401 - registers `error`
from canary_replay.interaction import HttpRequest, HttpResponse, Interaction
from canary_replay.outcome import Outcome, Score, Span, unscored
from canary_replay.probing import BoundProbe, Probe, bind
from canary_replay.recording import Recording
from canary_replay.request import Request
from canary_replay.response import ErrorInfo, Response
from canary_replay.scope import compile_scope
from canary_replay.scoring import digest_of_case, rule_digest, score, score_recording
from canary_replay.suite import Case, Expect

CASE = Case(id="greeting", user="Hello?", tags=("polite",))
HELLO = Response(text="Hello!")


def bound(function: Callable[..., Any], *, reads_case: bool = False, **settings: object) -> BoundProbe:
    """A rule around a function, without registering it."""
    probe = Probe(name="mine", category="format", version=1, function=function, reads_case=reads_case)
    return BoundProbe(name="mine", probe=probe, rule="rule-digest", **settings)  # type: ignore[arg-type] # as given


def ask(function: Callable[..., Any], response: Response = HELLO, **settings: object) -> Outcome:
    """The outcome of one function for one answer."""
    return score(bound(function, **settings), CASE, response, trial=2, response_digest="r", decoder="openai-chat/1")


def recorded(response: Response | None, **changed: object) -> Recording:
    """A recording of an answer."""
    request = Request(model="m", messages=())
    return Recording(
        suite="s", target="t", case=CASE.id, trial=2, key="k", request=request, response=response, digest="r", **changed
    )


@pytest.mark.parametrize(
    "answer,outcome,value",
    [
        (True, "passed", 1.0),
        (False, "failed", 0.0),
        (1, "passed", 1.0),
        (0.5, "failed", 0.5),
        (-0.0, "failed", 0.0),
        (Score(1.0, "well said"), "passed", 1.0),
        (Score(value=True), "passed", 1.0),
        (unscored("no idea"), "unscored", None),
    ],
)
def test_scores(answer: object, outcome: str, value: float | None) -> None:
    """A bool, a number and a Score each become an outcome with a score from 0 to 1, or none."""
    found = ask(lambda _case, _response: answer)

    assert (found.outcome, found.score) == (outcome, value)
    assert math.copysign(1, found.score or 0.0) == 1, "there is one zero, and it is written 0.0"


@pytest.mark.parametrize(
    "answer,says",
    [
        (math.nan, "not nan"),
        (Score(math.nan), "not nan"),
        (1.01, "from 0 to 1, not 1.01"),
        (-0.1, "from 0 to 1, not -0.1"),
        (math.inf, "not inf"),
        (2, "not 2"),
        (None, "not NoneType"),
        ("1.0", "not str"),
        (Score("1.0"), "not str"),  # type: ignore[arg-type] # a probe's mistake
        (Score(1.0, None), "is text, not NoneType"),  # type: ignore[arg-type] # a probe's mistake
        (Score(1.0, "", "here"), "tuple of spans, not str"),  # type: ignore[arg-type] # a probe's mistake
        (Score(1.0, "", ((0, 1),)), "holds a tuple"),  # type: ignore[arg-type] # a probe's mistake
        (Score(1.0, "", (Span(0, 900),)), "0 to 900 is not inside the answer's 6 characters"),
        (Score(1.0, "", (Span(3, 2),)), "3 to 2 is not inside"),
    ],
)
def test_no_score(answer: object, says: str) -> None:
    """What is no score from 0 to 1 is a crash that says so; it is never clamped into one."""
    found = ask(lambda _case, _response: answer)

    assert (found.outcome, found.score) == ("crashed", None)
    assert says in found.reason
    assert found.traceback


def test_crash() -> None:
    """A probe that raises is crashed; the traceback names files without directories and objects without addresses."""

    def explode(_case: Case, _response: Response) -> bool:
        raise FileNotFoundError(f"/home/somebody/project/words.txt is needed by {object()!r}")

    found = ask(explode)

    assert (found.outcome, found.score) == ("crashed", None)
    assert found.reason == "the probe raised FileNotFoundError: words.txt is needed by <object object at 0x...>"
    first, last = found.traceback.splitlines()
    assert first.startswith("  test_scoring.py, line ")
    assert first.endswith(", in explode")
    assert last == "FileNotFoundError: words.txt is needed by <object object at 0x...>"


def test_crash_without_end() -> None:
    """A probe that recurses for ever has a short traceback, and one that leaves the program does not end the run."""

    def recurse(case: Case, response: Response) -> bool:
        return recurse(case, response)

    def leave(_case: Case, _response: Response) -> bool:
        raise SystemExit("done")

    assert ask(recurse).outcome == "crashed"
    assert len(ask(recurse).traceback.splitlines()) < 20
    assert ask(leave).reason == "the probe raised SystemExit: done"


def test_keyboard_interrupt() -> None:
    """Somebody who presses Ctrl-C in the middle of a probe stops the run."""

    def interrupted(_case: Case, _response: Response) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(interrupted)


@pytest.mark.parametrize("threshold,outcome", [(0.0, "passed"), (0.5, "passed"), (0.51, "failed"), (1.0, "failed")])
def test_threshold(threshold: float, outcome: str) -> None:
    """A score passes when it is at least the threshold."""
    assert ask(lambda _case, _response: 0.5, threshold=threshold).outcome == outcome


def test_reason_can_be_written() -> None:
    """A reason that quotes a lone surrogate is kept as an escape, because no file can hold it as it is."""
    found = ask(lambda _case, _response: Score(0.0, "the answer holds \ud800 and é"))

    assert found.reason == "the answer holds \\ud800 and é"


@pytest.mark.parametrize(
    "error,reason",
    [
        (ErrorInfo(message="slow\ndown", status=429), "the answer is an error: HTTP 429: slow down"),
        (ErrorInfo(message="broke off"), "the answer is an error: broke off"),
    ],
)
def test_errors_are_unscored(error: ErrorInfo, reason: str) -> None:
    """An answer that is an error is no wrong answer: no probe is asked, and none passes."""

    def never(_case: Case, _response: Response) -> bool:
        raise AssertionError

    found = ask(never, Response(text="half an answer", error=error))

    assert (found.outcome, found.score, found.reason) == ("unscored", None, reason)


def test_error_probe_is_asked() -> None:
    """The probe of errors is the one that judges them."""
    rule = bind("error", {"status": 429}, name="expect.error")

    found = score_recording([rule], CASE, recorded(Response(error=ErrorInfo(message="slow down", status=429))))

    assert [one.outcome for one in found] == ["passed"]


def test_undecodable() -> None:
    """An answer that no decoder reads is unscored, and the reason says what must be read."""
    interaction = Interaction(request=HttpRequest(method="POST", uri="http://127.0.0.1/odd"), response=HttpResponse(status=200))
    rule = bound(lambda _case, _response: True)

    [unknown] = score_recording([rule], CASE, recorded(None, interactions=(interaction,)))
    [missing] = score_recording([rule], CASE, recorded(None, decoder="odd/1"))
    [lost] = score_recording([rule], CASE, recorded(None))

    assert {unknown.outcome, missing.outcome, lost.outcome} == {"unscored"}
    assert "no decoder reads the answer to POST http://127.0.0.1/odd" in unknown.reason
    assert "'odd/1'" in missing.reason
    assert "its bytes were not kept" in lost.reason


def test_scope() -> None:
    """A probe out of scope leaves no outcome at all; the others keep the order of the suite."""
    rules = [
        bound(lambda _case, _response: True, applies=compile_scope("polite")),
        bound(lambda _case, _response: True, applies=compile_scope("not polite")),
        bound(lambda _case, _response: 0.25),
    ]

    found = score_recording(rules, CASE, recorded(HELLO, decoder="openai-chat/1"))

    assert [one.score for one in found] == [1.0, 0.25]
    assert {(one.case, one.trial, one.response, one.decoder) for one in found} == {("greeting", 2, "r", "openai-chat/1")}


@pytest.mark.parametrize(
    "changed,same",
    [
        ({}, True),
        ({"user": "Good evening?"}, True),
        ({"tags": ("rude",)}, False),
        ({"variables": {"order": "A-1"}}, False),
        ({"expect": Expect(contains=("Hi",))}, False),
    ],
)
def test_rule_digest(changed: dict[str, Any], same: bool) -> None:  # noqa: FBT001 - a table
    """The rule of a probe that reads the case covers its expectations, variables and tags; the prompt has its own key."""
    rule = bound(lambda _case, _response: True, reads_case=True)
    other = CASE.model_copy(update=changed)

    assert (rule_digest(rule, CASE) == rule_digest(rule, other)) is same
    assert rule_digest(rule, CASE) == rule_digest(rule, CASE, digest_of_case(CASE))


def test_rule_digest_without_case() -> None:
    """The rule of a probe that never looks at the case is the same for every case."""
    rule = bound(lambda _case, _response: True)

    assert rule_digest(rule, CASE) == rule_digest(rule, Case(id="other", user="?", tags=("x",))) == "rule-digest"


def test_parameters_reach_the_probe() -> None:
    """A configured probe is asked with its parameters."""

    class Wanted(BaseModel):
        word: str

    rule = bound(lambda _case, response, wanted: wanted.word in response.text, parameters=Wanted(word="Hello"))

    assert score(rule, CASE, HELLO, trial=0, response_digest="", decoder="").outcome == "passed"
