"""Tests of the reporters: complete, the same every time, and unharmed by whatever an answer quotes."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import canary_replay.reporters  # noqa: F401 - registers the reporters
from canary_replay.comparing import compare
from canary_replay.errors import UsageError
from canary_replay.gating import CANNOT_JUDGE, REJECT, REVIEW, USAGE, Reason, decide
from canary_replay.outcome import AcceptedOutcome, Outcome, OutcomeKind, Span
from canary_replay.reporters.terminal import printable
from canary_replay.reporting import (
    LISTED,
    CaseResult,
    ProbeLine,
    Problem,
    Report,
    Style,
    SuiteReport,
    TargetReport,
    format_of,
    known_formats,
)
from canary_replay.request import Change

HOSTILE = {
    "ansi": "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "c1": "\x9b31mred\x85next",
    "markup": "[/b][bold red]</script><script>alert(1)</script>&amp;",
    "surrogate": "half \ud83d of a pair \udc80",
    "direction": "abc\u202egnp.exe\u2066\u200f\u061c\u200b",
    "nul": "a\x00b\x7f",
    "lines": "one\ntwo\r\nthree\u2028four\u2029five\x0b\x0csix",
    "long": "x" * 1_000_000,
    "tags": "hidden \U000e0041\U000e0042",
    "percent": "%s {0} {name} \\u0041 $(id)",
    "empty": "",
}
FORBIDDEN = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]"
)
every_text = st.text(st.characters(), max_size=20) | st.sampled_from([text for text in HOSTILE.values() if len(text) < 100])


PLAIN = Style()


def outcome(kind: OutcomeKind, *, probe: str = "polite", trial: int = 0, reason: str = "", score: float | None = None) -> Outcome:
    """What one probe says of one trial today."""
    return Outcome(case="greeting", trial=trial, probe=probe, outcome=kind, score=score, response="R", rule="new", reason=reason)


def result(
    *now: Outcome, then: tuple[OutcomeKind, ...] = (), problem: Problem | None = None, case: str = "greeting"
) -> CaseResult:
    """What replay found about a case whose trials were accepted as ``then``, under an older rule."""
    before = [
        AcceptedOutcome(case=case, trial=n, probe="polite", outcome=k, response="R", rule="old") for n, k in enumerate(then)
    ]
    comparisons = tuple(compare(before, [msgspec.structs.replace(one, case=case) for one in now], rule="all"))
    return CaseResult(suite="support", target="current", case=case, trials=len(now), comparisons=comparisons, problem=problem)


def report(*results: CaseResult, reasons: tuple[Reason, ...] = (), **of_suite: Any) -> Report:  # noqa: ANN401 - fields of a suite's report
    """The report of one suite of one target."""
    target = TargetReport(target="current")
    for one in results:
        target.add(one)
    verdict = decide(reasons)
    suite = SuiteReport(suite="support", path="suites/support.toml", reference=target, verdict=verdict, **of_suite)
    return Report(command="replay", suites=[suite], verdict=verdict)


def written(name: str, report: Report, *results: CaseResult, style: Style = PLAIN) -> bytes:
    """What a reporter writes when it is shown these results, then the whole."""
    stream = io.BytesIO()
    reporter = known_formats.get(name).new(stream, style)
    for one in results:
        reporter.case(one)
    reporter.end(report)
    return stream.getvalue()


def text_of(report: Report, *results: CaseResult, style: Style = PLAIN) -> str:
    """The report at the terminal."""
    return written("terminal", report, *results, style=style).decode("utf-8")


def json_of(report: Report, *results: CaseResult) -> dict[str, Any]:
    """The JSON report, read by a reader that forgives nothing."""
    data = written("json", report, *results)
    found = msgspec.json.decode(data)
    assert found == json.loads(data.decode("utf-8"), parse_constant=pytest.fail)
    assert isinstance(found, dict)
    return found


def everywhere(text: str) -> tuple[Report, list[CaseResult]]:
    """A report that has this text in every place where a text from outside can stand."""
    fields = (Change(text, then=text, now=None), Change("x", then=None, now={text: [text]}))
    problem = Problem(kind="stale", text=text, changes=fields)
    failed = msgspec.structs.replace(outcome("failed", reason=text), traceback=text, evidence=(Span(0, 3),))
    results = [
        result(failed, then=("passed",), case=text),
        result(outcome("failed", reason=text), then=("failed",)),
        result(outcome("crashed", probe=f"probe {text}", reason=text), problem=problem, case=text),
    ]
    whole = report(*results, reasons=(Reason(REJECT, text), Reason(REVIEW, text)), dead_scopes=[text], unjudged=[text])
    candidate = TargetReport(target=text, probes={text: ProbeLine(passed=1)}, problems=[(text, problem)])
    whole.suites[0].candidates.append(candidate)
    whole.suites[0].path = text
    return whole, results


# ------------------------------------------------------------------------------------------------ hostile text
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_text_controls_the_terminal(text: str) -> None:
    """Nothing that an answer, a case or a file quotes reaches the terminal as a control or direction character, or as a line."""
    quiet, _results = everywhere("harmless")
    whole, _results = everywhere(text)

    found = text_of(whole)

    assert not FORBIDDEN.search(found)
    assert found.count("\n") <= text_of(quiet).count("\n")
    assert max(map(len, found.splitlines())) < 700


@given(every_text)
def test_no_text_at_all_controls_the_terminal(text: str) -> None:
    """The same for any characters that Python can hold."""
    whole, _results = everywhere(text)

    assert not FORBIDDEN.search(text_of(whole))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_json_holds_any_text(text: str) -> None:
    """The document stays JSON for strict readers, and says what was said; only half a pair of surrogates is written out."""
    whole, results = everywhere(text)

    found = json_of(whole, *results)

    said = text.encode("utf-8", "backslashreplace").decode("utf-8")
    assert [one.get("reason", "") for one in found["outcomes"]] == [said] * 3
    assert found["outcomes"][0]["case"] == said
    assert found["outcomes"][0].get("traceback", "") == said
    assert found["verdict"]["reasons"][0]["text"] == said
    assert found["suites"][0]["reference"]["problems"][0]["changes"][1]["now"] == {said: [said]}


@given(every_text, st.integers(1, 50))
def test_printable(text: str, longest: int) -> None:
    """Foreign text becomes one line that is no longer than asked for; harmless text stays as it is."""
    found = printable(text, longest=longest)

    assert len(found) <= longest
    assert len(found.splitlines()) <= 1
    assert not FORBIDDEN.search(found)
    assert printable(found, longest=longest) == found


def test_printable_leaves_people_their_languages() -> None:
    """Letters, emoji with their joiners and combining marks are not control characters."""
    text = "日本 é e\u0301 👩\u200d💻 مرحبا שלום ☃"

    assert printable(text) == text
    assert printable("a\tb\nc") == "a b⏎c"
    assert printable("abcdef", longest=4) == "abc…"


# ------------------------------------------------------------------------------------------------ the terminal
def test_the_verdict_comes_first() -> None:
    """The first line says the verdict and why, the next ones say what else holds."""
    reasons = (Reason(REVIEW, "1 check is gone"), Reason(REJECT, "2 checks regressed (hard gate)"))

    lines = text_of(report(reasons=reasons)).splitlines()

    assert lines[:2] == ["REJECT  2 checks regressed (hard gate)", "  also: 1 check is gone"]
    assert text_of(report()).startswith("ADMIT  every check stands as it was accepted\n")


@pytest.mark.parametrize("code", [REJECT, USAGE, CANNOT_JUDGE, REVIEW])
def test_quiet(code: int) -> None:
    """Quiet leaves the verdict and its reasons."""
    one = result(outcome("failed", reason="It shouts."), then=("passed",))

    found = text_of(report(one, reasons=(Reason(code, "1 check regressed"),)), one, style=Style(quiet=True))

    assert found == f"{decide([Reason(code, '')]).word.upper()}  1 check regressed\n"


def test_colour_is_asked_for() -> None:
    """Without a wish for colour there is no escape; with it, the text between the escapes is the same."""
    whole, results = everywhere("a text")

    plain, coloured = text_of(whole, *results), text_of(whole, *results, style=Style(color=True))

    assert "\x1b" not in plain
    assert coloured.startswith("\x1b[31mREJECT\x1b[0m")
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    assert coloured.count("\x1b[0m") * 2 == coloured.count("\x1b")


def test_what_changed_and_why() -> None:
    """A change is told with its counts, its cause and the first reason; a known failure apart; what is kept, not at all."""
    regressed = result(
        outcome("passed"), outcome("failed", trial=1, reason="It shouts."), then=("passed", "passed"), case="shouting"
    )
    known = result(outcome("failed", reason="It never did."), then=("failed",), case="old trouble")
    kept = result(outcome("passed"), then=("passed",), case="fine")

    lines = [line.strip() for line in text_of(report(regressed, known, kept)).splitlines()]

    assert "regressed  shouting · polite: 2 of 2 passed then, 1 of 2 now (rule effect)" in lines
    assert "trial 1: It shouts." in lines
    assert "known failures, accepted as they are: 1" in lines
    assert "old trouble · polite: 0 of 1 pass" in lines
    assert not any("fine" in line for line in lines)
    assert "current: 3 cases, 4 recordings; changed outcomes: 1 by rule" in lines


def test_a_stale_case_shows_the_fields() -> None:
    """A changed request is shown field by field; a side that lacks the field is absent, one that is null is null."""
    fields = (Change("parameters.stop", then="null", now=None), Change("messages[0].content", then="a\nb", now="c"))
    one = result(problem=Problem(kind="stale", text="x.json is stale", changes=fields))

    lines = [line.strip() for line in text_of(report(one)).splitlines()]

    place = lines.index("✗ x.json is stale")
    assert lines[place + 1 : place + 7] == ["parameters.stop", "- null", "+ (absent)", "messages[0].content", "- a⏎b", "+ c"]


def many(number: int) -> Iterator[CaseResult]:
    """Regressed cases."""
    for index in range(number):
        yield result(outcome("failed"), then=("passed",), case=f"case-{index}")


def test_a_long_list_is_cut_and_counted() -> None:
    """Twenty changes are shown one by one, the rest is a number, and the number is right even beyond what a report keeps."""
    for total in (20, 21, LISTED + 7):
        found = text_of(report(*many(total)))

        assert found.count("regressed  case-") == 20
        assert ("  and " in found) == (total > 20)
        assert total == 20 or f"  and {total - 20} more\n" in found


def test_noise() -> None:
    """A report says whether repeated trials answer the same."""
    same, noisy = (msgspec.structs.replace(result(outcome("passed")), noisy=noisy) for noisy in (False, True))

    assert "no noise measured (all trials of every case are identical)" in text_of(report(same))
    assert "1 of 2 cases answer differently from trial to trial" in text_of(report(same, noisy))
    assert "noise" not in text_of(report(result(outcome("passed"))))


# ------------------------------------------------------------------------------------------------ JSON
def test_every_outcome_is_in_the_document() -> None:
    """Each outcome of each case, kept or not, with the transition of its check and its own effect."""
    results = [
        result(outcome("passed"), outcome("failed", trial=1, score=0.25, reason="No."), then=("failed", "passed"), case="a"),
        result(outcome("passed"), then=("passed",), case="b"),
        result(then=("passed",), case="gone"),
        result(case="nothing"),
    ]

    found = json_of(report(*results), *results)["outcomes"]

    same = {"suite": "support", "target": "current", "probe": "polite", "response": "R", "rule": "new"}
    first, second = same | {"case": "a", "transition": "known"}, same | {"case": "b", "transition": "kept"}
    assert found == [
        first | {"trial": 0, "outcome": "passed", "score": None, "effect": "rule"},
        first | {"trial": 1, "outcome": "failed", "score": 0.25, "effect": "rule", "reason": "No."},
        second | {"trial": 0, "outcome": "passed", "score": None},
    ]


def test_more_outcomes_than_a_report_keeps() -> None:
    """The document has them all, however many there are, and more than wait in memory."""
    reason = "y" * 10_000
    results = [
        result(*(outcome("failed", trial=trial, reason=reason) for trial in range(3)), case=f"case-{index}")
        for index in range(200)
    ]

    found = json_of(report(*results), *results)["outcomes"]

    assert [(one["case"], one["trial"]) for one in found] == [
        (f"case-{index}", trial) for index in range(200) for trial in range(3)
    ]
    assert all(one["reason"] == reason for one in found)


def test_the_document_reads_from_the_verdict_down() -> None:
    """Verdict, then suites, then outcomes; a report of nothing has an empty list."""
    found = json_of(report(reasons=(Reason(REVIEW, "why"),)))

    assert list(found) == ["format", "command", "verdict", "suites", "outcomes"]
    assert found["verdict"] == {"word": "review", "exit_code": 3, "reasons": [{"code": 3, "text": "why"}]}
    assert found["outcomes"] == []


@pytest.mark.parametrize("name", ["json", "terminal"])
def test_the_same_report_twice(name: str) -> None:
    """The bytes do not depend on when, nor on the order in which a target's probes and transitions were first met."""
    results = [
        result(outcome("failed", probe="b"), outcome("passed", probe="a"), then=("passed",), case="one"),
        result(outcome("crashed", probe="c"), then=("failed",), case="two"),
    ]
    ordered, turned = report(*results), report(*results)
    reference = turned.suites[0].reference
    reference.probes = dict(reversed(reference.probes.items()))
    reference.transitions = type(reference.transitions)(dict(reversed(reference.transitions.items())))

    assert written(name, ordered, *results) == written(name, ordered, *results) == written(name, turned, *results)


# ------------------------------------------------------------------------------------------------ formats
@pytest.mark.parametrize("file, name", [("report.json", "json"), ("a.b/report.txt", "terminal")])
def test_the_format_of_a_file(file: str, name: str) -> None:
    """A file's ending says its format."""
    assert format_of(file).name == name


def test_an_unknown_ending() -> None:
    """An ending that no format has is answered with those that are known."""
    with pytest.raises(UsageError, match=r"'report\.jsn'.*known: \.json, \.txt"):
        format_of("report.jsn")


# ------------------------------------------------------------------------------------------------ counting
def test_a_target_counts_what_it_sees() -> None:
    """Cases with recordings, trials, outcomes of each kind by probe, transitions and effects; a gone case is no case."""
    target = TargetReport(target="current")

    target.add(result(outcome("passed"), outcome("unscored", trial=1), then=("passed", "passed")))
    target.add(result(outcome("crashed", probe="b")))
    target.add(result(then=("failed",), case="gone"))
    target.add(result(problem=Problem(kind="missing", text="x"), case="missing"))

    assert (target.cases, target.trials) == (2, 3)
    assert target.transitions == {"unscored": 1, "crashed": 1, "gone": 1}
    assert target.effects == {"rule": 1}
    assert target.probes == {"polite": ProbeLine(passed=1, unscored=1), "b": ProbeLine(crashed=1)}
    assert target.problem_counts == {"missing": 1}


def test_a_target_keeps_a_limited_list() -> None:
    """However many cases change, a report keeps some and counts all; memory does not grow with the suite."""
    target = TargetReport(target="current")

    for one in many(LISTED + 7):
        target.add(msgspec.structs.replace(one, problem=Problem(kind="incomplete", text="x")))

    assert len(target.changed) == len(target.problems) == LISTED
    assert target.transitions["regressed"] == target.problem_counts["incomplete"] == LISTED + 7
