"""Tests of verify, scan and show: what is stored agrees with itself, holds no key, and is shown without harm."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given

from canary_replay import cassette as cassettes
from canary_replay import ledger
from canary_replay.cassette import Cassette
from canary_replay.decoding import decode
from canary_replay.errors import UsageError
from canary_replay.interaction import HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.ledger import Approval
from canary_replay.modes.scan import scan
from canary_replay.modes.show import show
from canary_replay.modes.verify import check_cassette, check_ledger, check_scorecard, differing_fields, verify
from canary_replay.outcome import AcceptedOutcome
from canary_replay.recording import Recording, bytes_digest
from canary_replay.request import Request, request_key
from canary_replay.response import ErrorInfo, Response, ToolCall, Usage
from tests.strategies import recordings_of_one_case

KEY = "sk-proj-Zx81kQm3vT09bWcY7aLd24HfRp6sNj5u"  # made up
REQUEST = Request(model="openai/gpt", messages=({"role": "user", "content": "Hello?"},), parameters={"temperature": 0})


def answer(text: str = "Hi.") -> bytes:
    """The body of a chat completion."""
    message = {"role": "assistant", "content": text}
    return json.dumps({"model": "gpt", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()


def exchange(body: bytes, timing: Timing | None = None) -> Interaction:
    """One HTTP exchange with a chat server."""
    return Interaction(
        request=HttpRequest(method="POST", uri="http://embedded.invalid/v1/chat/completions", body=b"{}"),
        response=HttpResponse(status=200, headers={"content-type": ["application/json"]}, body=body, timing=timing),
    )


def recording(case: str = "greeting", trial: int = 0, text: str = "Hi.", request: Request = REQUEST) -> Recording:
    """A recording in which everything agrees."""
    body = answer(text)
    wire = (exchange(body, Timing(chunks=((1.0, 10), (2.0, len(body) - 10)), end_ms=2.5)),)
    decoded = decode(wire)
    return Recording(
        suite="support",
        target="current",
        case=case,
        trial=trial,
        key=request_key(request),
        request=request,
        response=decoded.response,
        decoder=decoded.decoder,
        digest=bytes_digest(wire),
        interactions=wire,
    )


def cassette(*recordings: Recording) -> Cassette:
    """A cassette that holds these recordings."""
    first = recordings[0]
    return Cassette(
        suite=first.suite, target=first.target, case=first.case, key=first.key, request=first.request, recordings=recordings
    )


def approval(stored: Cassette, *, old: str | None = None) -> Approval:
    """The approval of a cassette."""
    return Approval(
        case=stored.case, action="first", at="2026-05-01", who="Ada", reason="first", old=old, new=stored.digest, key=stored.key
    )


def accepted(case: str, response: str, *, trial: int = 0) -> AcceptedOutcome:
    """An accepted outcome of a response."""
    return AcceptedOutcome(case=case, trial=trial, probe="polite", outcome="passed", score=1.0, response=response)


def said(*recordings: Recording) -> list[str]:
    """What a check of one cassette finds."""
    return list(check_cassette(cassette(*recordings), file_stem="greeting"))


# ------------------------------------------------------------------------------------------------ one cassette
def test_a_cassette_that_agrees_with_itself() -> None:
    """Nothing is found where nothing is wrong, in any number of trials."""
    assert said(recording(), recording(trial=1, text="")) == []


@pytest.mark.parametrize(
    "changed, says",
    [
        ({"digest": "0" * 32}, "its digest is not the digest of its bytes: the interactions were edited"),
        (
            {"response": Response(text="Hello.", stop_reason="stop", model="gpt", total_ms=2.5)},
            "the stored text is not what its bytes say",
        ),
        ({"response": None}, "it was kept undecoded, openai-chat/1 reads it today"),
        ({"response": Response(), "decoder": "openai-chat/0"}, "openai-chat/1 reads another text, stop_reason, model"),
        ({"interactions": (), "response": None}, "holds neither interactions nor a response"),
        ({"interactions": (exchange(answer("Ho.")),)}, "its digest is not the digest of its bytes: the interactions were edited"),
        ({"interactions": (exchange(answer("Ho.")),)}, "the stored text"),
        ({"interactions": (exchange(answer(), Timing(chunks=((1.0, 3),))),)}, "the chunk table of interaction 0 does not add up"),
        (
            {"interactions": (exchange(b"ab", Timing(chunks=((2.0, 1), (1.0, 1)))),)},
            "the chunks of interaction 0 are not in the order",
        ),
    ],
)
def test_what_was_edited_is_found(changed: dict[str, object], says: str) -> None:
    """Every part of a recording that does not agree with its bytes is named, with its trial; the other trials are not."""
    found = said(recording(), msgspec.structs.replace(recording(trial=1), **changed))

    assert any(text.startswith(f"trial 1: {says}") for text in found), found
    assert all(text.startswith("trial 1: ") for text in found)


def test_an_answer_that_no_decoder_reads_any_more() -> None:
    """A response that was once decoded from bytes that nobody reads today is told; one that never was decoded is not."""
    wire = (
        Interaction(request=HttpRequest(method="GET", uri="http://x.invalid/"), response=HttpResponse(status=200, body=b"?")),
    )
    orphan = msgspec.structs.replace(recording(), interactions=wire, digest=bytes_digest(wire))

    assert said(orphan) == ["trial 0: no decoder reads it today; it was read by openai-chat/1"]
    assert said(msgspec.structs.replace(orphan, response=None, decoder="")) == []
    assert said(msgspec.structs.replace(orphan, decoder="")) == []


@pytest.mark.parametrize("wire", ["left out by keep_wire", ""])
def test_a_cassette_without_its_wire(wire: str) -> None:
    """A recording whose interactions were left out still has its response; there are no bytes to compare it with."""
    assert said(msgspec.structs.replace(recording(), interactions=(), wire=wire)) == []


def test_the_cost_is_not_in_the_bytes() -> None:
    """A response may carry what only the client library knows."""
    priced = msgspec.structs.replace(recording(), response=msgspec.structs.replace(recording().response, cost=0.25))

    assert said(priced) == []
    assert differing_fields(Response(text="a", cost=1.0), Response(text="b", ttft_ms=3.0)) == ["text", "ttft_ms"]


def test_a_request_that_was_edited() -> None:
    """The key must be the key of the request."""
    other = msgspec.structs.replace(REQUEST, model="openai/other")

    found = said(msgspec.structs.replace(recording(), request=other))

    assert found == ["its key is not the key of its request: one of them was edited"]


@pytest.mark.parametrize("mask", ["REDACTEDxxxxxxxxxxxxxxxx", "REDACT", "RED"])
def test_a_request_with_a_mask_in_it(mask: str) -> None:
    """The key was taken before redaction, so that it cannot be computed again; that is no edit, however short the mask."""
    masked = msgspec.structs.replace(REQUEST, messages=({"role": "user", "content": f"customer {mask}"},))

    assert said(msgspec.structs.replace(recording(), request=masked)) == []


def test_a_cassette_with_another_name() -> None:
    """A file that was renamed by hand would never be found again."""
    found = list(check_cassette(cassette(recording("CON")), file_stem="con"))

    name = cassettes.file_name("CON")
    assert found == [f"its name does not fit its case 'CON'; it belongs in {name}.json"]


@given(recordings_of_one_case())
def test_checking_never_raises(recordings: list[Recording]) -> None:
    """Whatever a cassette holds, a check gives sentences of one line, each about one thing."""
    found = list(check_cassette(cassette(*recordings), file_stem=cassettes.file_name(recordings[0].case)))

    assert all(len(text.splitlines()) == 1 for text in found)
    assert not any("digest" in text or "add up" in text or "order of their times" in text for text in found)


# ------------------------------------------------------------------------------------------------ ledger and scorecard
ONE, OTHER = cassette(recording("one")), cassette(recording("other"))
ONE_LATER = cassette(recording("one", text="Hello."))


@pytest.mark.parametrize(
    "approvals, stored, says",
    [
        ([approval(ONE), approval(OTHER)], [ONE, OTHER], []),
        ([approval(ONE), approval(OTHER), approval(ONE_LATER, old=ONE.digest)], [ONE_LATER, OTHER], []),
        ([], [ONE], ["case 'one' has a cassette that nobody approved; approve it with: nox -s record"]),
        ([approval(ONE)], [], ["case 'one' was approved, but its cassette is gone; restore it"]),
        ([approval(ONE)], [ONE_LATER], ["the cassette of case 'one' is not the one that was approved on 2026-05-01"]),
        (
            [approval(ONE), approval(ONE_LATER, old=ONE.digest)],
            [ONE],
            ["the cassette of case 'one' is not the one that was approved on 2026-05-01"],
        ),
        (
            [approval(ONE), approval(ONE_LATER)],
            [ONE_LATER],
            ["the chain of case 'one' breaks at its approval of 2026-05-01: a line is missing, edited or moved"],
        ),
        (
            [approval(ONE_LATER, old=ONE.digest)],
            [ONE_LATER],
            ["the chain of case 'one' breaks at its approval of 2026-05-01: a line is missing, edited or moved"],
        ),
        (
            [approval(ONE_LATER, old=ONE.digest), approval(ONE)],
            [ONE],
            ["the chain of case 'one' breaks at its approval of 2026-05-01: a line is missing, edited or moved"] * 2,
        ),
    ],
)
def test_the_chain_of_approvals(approvals: list[Approval], stored: list[Cassette], says: list[str]) -> None:
    """Each approval follows the one before it of the same case, and the last one approves what is stored."""
    assert list(check_ledger(approvals, {one.case: one for one in stored})) == says


@pytest.mark.parametrize(
    "outcomes, says",
    [
        ([accepted("one", ONE.recordings[0].digest), accepted("other", OTHER.recordings[0].digest)], []),
        ([], []),
        ([accepted("one", "00")], ["case 'one': trial 0 was accepted for another response than the stored one"]),
        ([accepted("one", "00"), accepted("one", "00", trial=1)], ["case 'one': trial 0 was accepted for another response"]),
        ([accepted("one", ONE.recordings[0].digest, trial=3)], ["case 'one': trial 3 was accepted for another response"]),
        ([accepted("never", "00")], ["case 'never' has accepted outcomes, but no cassette"]),
        ([accepted("never", "00"), accepted("never", "00", trial=1)], ["case 'never' has accepted outcomes, but no cassette"]),
    ],
)
def test_what_was_accepted_is_what_is_stored(outcomes: list[AcceptedOutcome], says: list[str]) -> None:
    """An outcome accepted for another response is told once per case."""
    found = list(check_scorecard(outcomes, {"one": ONE, "other": OTHER}))

    assert [text[: len(expected)] for text, expected in zip(found, says, strict=True)] == says


# ------------------------------------------------------------------------------------------------ a whole project
def project(root: Path) -> Path:
    """A project with one approved cassette; returns the cassette's file."""
    path = cassettes.cassette_path(root, "support", "current", "greeting")
    cassettes.write(path, [recording(), recording(trial=1)], guard=lambda _data: None)
    stored = cassettes.read(path)
    assert stored is not None
    ledger.append(ledger.ledger_path(root, "support", "current"), [approval(stored)])
    outcomes = [accepted("greeting", one.digest, trial=one.trial) for one in stored.recordings]
    ledger.write_scorecard(ledger.scorecard_path(root, "support", "current"), outcomes)
    return path


def test_a_project_that_agrees_with_itself(tmp_path: Path) -> None:
    """Cassettes, ledger and scorecard as `record` leaves them."""
    project(tmp_path)

    found = verify(tmp_path)

    assert (found.cassettes, found.recordings, found.findings) == (1, 2, ())


def test_a_byte_that_somebody_edited(tmp_path: Path) -> None:
    """An answer that was made nicer by hand is found in its cassette."""
    path = project(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("Hi.", "Ho."), encoding="utf-8")

    found = verify(tmp_path).findings

    assert {finding.path for finding in found} == {"cassettes/support/current/cases/greeting.json"}
    assert {finding.text for finding in found} == {
        f"trial {trial}: its digest is not the digest of its bytes: the interactions were edited" for trial in (0, 1)
    }


def test_damage_is_a_finding(tmp_path: Path) -> None:
    """A damaged cassette, ledger or scorecard does not stop the others from being verified."""
    path = project(tmp_path)
    whole = cassettes.cassette_path(tmp_path, "support", "current", "other")
    cassettes.write(whole, [recording("other")], guard=lambda _data: None)
    path.write_bytes(path.read_bytes()[:100])
    ledger.scorecard_path(tmp_path, "support", "current").write_bytes(b"oops\n")

    found = verify(tmp_path)

    texts = {finding.path.rpartition("/")[2]: finding.text for finding in found.findings}
    assert found.cassettes == 2
    assert found.recordings == 1
    assert "is damaged" in texts["greeting.json"]
    assert texts["scorecard.jsonl"].startswith("line 1: is damaged: ")
    assert "case 'other' has a cassette that nobody approved" in next(
        finding.text for finding in found.findings if "'other'" in finding.text
    )


def test_a_candidate_is_not_approved(tmp_path: Path) -> None:
    """A target without ledger and scorecard has cassettes that nobody must approve."""
    path = cassettes.cassette_path(tmp_path, "support", "candidate", "greeting")
    cassettes.write(path, [recording()], guard=lambda _data: None)

    assert verify(tmp_path).findings == ()


def test_a_baseline_whose_cassettes_are_gone(tmp_path: Path) -> None:
    """A ledger beside which every cassette was deleted is told, as long as there is anything to verify."""
    project(tmp_path).unlink()
    cassettes.write(
        cassettes.cassette_path(tmp_path, "support", "candidate", "greeting"), [recording()], guard=lambda _data: None
    )

    texts = [finding.text for finding in verify(tmp_path).findings]

    assert texts == [
        "case 'greeting' was approved, but its cassette is gone; restore it",
        "case 'greeting' has accepted outcomes, but no cassette",
    ]


def test_one_file_alone(tmp_path: Path) -> None:
    """A file or a folder can be verified by itself, without the ledger."""
    path = project(tmp_path)
    ledger.ledger_path(tmp_path, "support", "current").unlink()

    assert verify(tmp_path, [path]).findings == ()
    assert verify(tmp_path, [path.parent]).cassettes == 1
    assert verify(tmp_path).findings != ()


def test_nothing_to_verify(tmp_path: Path) -> None:
    """Nothing is never taken for fine."""
    with pytest.raises(UsageError, match=r"there is no cassette under .*; record one with: nox -s record"):
        verify(tmp_path)
    with pytest.raises(UsageError, match=r"nowhere\.json does not exist"):
        verify(tmp_path, [tmp_path / "nowhere.json"])


# ------------------------------------------------------------------------------------------------ scan
def test_a_key_is_found_with_file_and_line(tmp_path: Path) -> None:
    """A key in anything that a recording could reach is named by file, line and kind, never shown."""
    path = project(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("Hello?", KEY), encoding="utf-8")
    line = path.read_text(encoding="utf-8")[: path.read_text(encoding="utf-8").index(KEY)].count("\n") + 1
    (tmp_path / "README").write_text(KEY)

    found = list(scan(tmp_path, environ={}))

    assert [text.rpartition(": ")[0] for text in found] == [f"cassettes/support/current/cases/greeting.json:{line}"]
    assert KEY not in "".join(found)
    assert [text.rpartition(": ")[0] for text in scan(tmp_path, [tmp_path / "README"], environ={})] == ["README:1"]


def test_a_key_of_the_environment_is_found(tmp_path: Path) -> None:
    """A key without a known shape is found because it is one: its value stands in the environment."""
    path = project(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("Hello?", "correct horse battery"), encoding="utf-8")

    assert list(scan(tmp_path, environ={})) == []
    assert len(list(scan(tmp_path, environ={"OPENAI_API_KEY": "correct horse battery"}))) == 1


def test_nothing_to_find(tmp_path: Path) -> None:
    """A clean project, and one with nothing in it, give no line; a path that is not there is an error."""
    assert list(scan(tmp_path, environ={})) == []
    project(tmp_path)

    assert list(scan(tmp_path, environ={})) == []
    with pytest.raises(UsageError, match="nowhere does not exist"):
        list(scan(tmp_path, [tmp_path / "nowhere"], environ={}))


# ------------------------------------------------------------------------------------------------ show
def test_what_a_person_reads_of_a_cassette() -> None:
    """What was asked, what each trial answered, and how it arrived."""
    full = Response(
        text="Hi.\nHow are you?",
        tool_calls=(ToolCall(name="look_up", arguments='{"id": 1}'),),
        stop_reason="stop",
        refusal="no",
        usage=Usage(input_tokens=3, output_tokens=4),
        cost=0.25,
        ttft_ms=12.4,
        total_ms=99.6,
        error=ErrorInfo(message="broke off", status=500),
    )
    told = msgspec.structs.replace(
        recording(), response=full, seed=7, dropped=("seed",), client_drift=("text",), by={"litellm": "1"}
    )
    silent = msgspec.structs.replace(recording(trial=1), response=None, wire="a secret was cut over events")

    lines = list(show(cassette(told, silent)))

    assert lines[0] == "case greeting of support/current"
    for line in (
        "model openai/gpt",
        "user: Hello?",
        'parameters: {"temperature":0}',
        "trial 0, seed 7, no date, litellm 1",
        "  not sent, because the model rejects it: seed",
        "  client drift: the client library read another text from the same bytes",
        "  | Hi.",
        "  | How are you?",
        '  calls look_up {"id": 1}',
        "  refusal: no",
        "  error: HTTP 500 broke off",
        "  stop reason stop, 3 + 4 tokens, first token 12 ms, total 100 ms, $0.250000, decoded by openai-chat/1",
        "trial 1, no date, nobody said by whom",
        "  no decoder reads this answer; every probe of it is unscored",
        "  interactions: a secret was cut over events",
    ):
        assert line in lines


def test_the_wire_is_shown_chunk_by_chunk() -> None:
    """Each chunk stands with its time, in order, and the body is all there."""
    without, lines = list(show(cassette(recording()))), list(show(cassette(recording()), wire=True))

    assert without == lines[: len(without)]
    assert "  interaction 0: POST http://embedded.invalid/v1/chat/completions -> 200 " in lines
    body = answer().decode()
    assert lines[-2:] == [f"          1.0 ms  {body[:10]}", f"          2.0 ms  {body[10:]}"]


@given(recordings_of_one_case())
def test_nothing_of_a_cassette_controls_the_terminal(recordings: list[Recording]) -> None:
    """Whatever was asked and answered, every line is one line, and holds no control character."""
    for line in show(cassette(*recordings), wire=True):
        assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in line)
        assert len(line.splitlines()) <= 1  # Unicode has line ends of its own
