"""Tests of what this repository ships: its own suites, and their cassettes, recorded from real models."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from canary_replay import cassette as cassettes
from canary_replay.cassette import Cassette
from canary_replay.modes.scan import scan
from canary_replay.modes.verify import verify
from canary_replay.project import load_project
from canary_replay.redact import Redactor
from tests.projects import ROOT, run, tree

SHIPPED = ROOT / "cassettes"
FILES = sorted(SHIPPED.glob("*/*/cases/*.json"))
FOLDERS = ("cassettes", "probes", "suites")


@pytest.fixture(scope="module")
def replayed() -> dict[str, Any]:
    """The report of one replay of everything shipped, as JSON."""
    done = run(ROOT, "replay", "--format", "json")
    assert done.code == 0, done.out + done.err
    report: dict[str, Any] = json.loads(done.out)
    return report


@pytest.fixture(scope="module")
def shipped() -> list[Cassette]:
    """Every shipped cassette, wire included."""
    return [whole for path in FILES if (whole := cassettes.read_whole(path)) is not None]


def references(stored: list[Cassette]) -> list[Cassette]:
    """The cassettes of the reference targets."""
    named = {(suite.name, suite.reference) for suite in load_project(ROOT).suites}
    return [one for one in stored if (one.suite, one.target) in named]


class TestReplay:
    """What a clone sees first."""

    def test_of_the_shipped_cassettes_admits_and_changes_nothing(self) -> None:
        """A clone replays to exit 0, and no byte of suites, probes or cassettes is another one afterwards."""
        before = {name: tree(ROOT / name) for name in FOLDERS}

        done = run(ROOT, "replay")

        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("ADMIT")
        assert {name: tree(ROOT / name) for name in FOLDERS} == before

    def test_scores_everything(self, replayed: dict[str, Any]) -> None:
        """No answer of a reference is unscored, no probe crashed, and no scope or case is idle."""
        lines = [line for suite in replayed["suites"] for line in suite["reference"]["probes"].values()]
        idle = [
            entry
            for suite in replayed["suites"]
            for entry in (*suite["scopes_that_match_nothing"], *suite["cases_that_nothing_judges"])
        ]

        assert lines
        assert all(line["unscored"] == line["crashed"] == 0 for line in lines)
        assert idle == [[]] * len(idle)

    def test_shows_honest_failures(self, replayed: dict[str, Any]) -> None:
        """At least three checks are known to fail; the probes are not tuned until everything passes."""
        known = sum(suite["reference"]["transitions"]["known"] for suite in replayed["suites"])

        assert known >= 3

    def test_shows_what_the_candidate_lost(self, replayed: dict[str, Any]) -> None:
        """The prompt without the rule about order numbers loses more of them than the one with it."""
        support = next(suite for suite in replayed["suites"] if suite["suite"] == "support")
        candidate = next(target for target in support["candidates"] if target["target"] == "candidate")

        kept, lost = (target["probes"]["order-number"] for target in (support["reference"], candidate))

        assert kept["passed"] + kept["failed"] == lost["passed"] + lost["failed"]
        assert lost["passed"] <= kept["passed"] * 0.8


class TestCassettes:
    """What the committed files hold."""

    def test_cover_fifteen_cases_of_three_trials(self, shipped: list[Cassette]) -> None:
        """Both suites together ask at least fifteen cases, each three times."""
        counts = [len(one.recordings) for one in references(shipped)]

        assert len(counts) >= 15
        assert set(counts) == {3}

    def test_hold_every_kind_of_answer(self, shipped: list[Cassette]) -> None:
        """Plain text, JSON, tool calls, both streamed, a refusal, and Japanese with an emoji were really recorded."""
        found = {kind for one in shipped for recording in one.recordings for kind in kinds(one, recording.response)}

        assert found >= {"text", "json", "tool call", "streamed text", "streamed tool call", "refusal", "Japanese with an emoji"}

    def test_differ_between_trials(self, shipped: list[Cassette]) -> None:
        """Trials are answers of their own, not one answer three times: in most cases their bytes differ."""
        varied = [one for one in shipped if len({text_of(recording.response) for recording in one.recordings}) > 1]

        assert len(varied) >= len(shipped) / 3

    def test_agree_with_their_own_bytes(self) -> None:
        """Decoding the bytes again gives what is stored; ledger, scorecard and cassettes agree."""
        verification = verify(ROOT)

        assert [f"{finding.path}: {finding.text}" for finding in verification.findings] == []
        assert verification.cassettes == len(FILES)

    def test_hold_no_key_and_no_address(self) -> None:
        """No key shape and no e-mail address anywhere in suites, probes and cassettes."""
        addresses = Redactor(emails=True)
        places = [ROOT / name for name in FOLDERS]
        texts = [path for place in places for path in place.rglob("*") if path.suffix in {".json", ".jsonl", ".toml", ".txt"}]

        keys = list(scan(ROOT, places, environ={}))
        leaks = [path for path in texts if addresses.leaks(path.read_bytes())]

        assert keys == []
        assert leaks == []

    def test_name_neither_machine_nor_port(self) -> None:
        """A cassette does not change with the folder or the port of whoever recorded it."""
        traces = [path for path in FILES if re.search(rb"/(home|root|work|tmp|Users)/|127\.0\.0\.1|localhost", path.read_bytes())]

        assert traces == []

    def test_stay_small(self) -> None:
        """All of them together are below one and a half megabytes: they are cloned by everyone."""
        assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) < 1_500_000

    @pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SHIPPED).as_posix())
    def test_load_in_plain_vcr(self, path: Path) -> None:
        """VCR.py, without anything of ours, reads each file and finds as many interactions as it holds."""
        vcr = pytest.importorskip("vcr", reason="VCR.py is not installed")

        with vcr.VCR(serializer="json", record_mode="none").use_cassette(str(path)) as tape:
            requests, bodies = tape.requests, [response["body"]["string"] for response in tape.responses]

        whole = cassettes.read_whole(path)
        assert whole is not None
        stored = [interaction for recording in whole.recordings for interaction in recording.interactions]
        assert [request.body for request in requests] == [interaction.request.body for interaction in stored]
        assert bodies == [interaction.response.body for interaction in stored]


def text_of(response: Any) -> str:  # noqa: ANN401 - a Response, or None where nothing was decoded
    """What an answer says and calls, as one text."""
    return json.dumps([response.text, [(call.name, call.arguments) for call in response.tool_calls]])


def kinds(cassette: Cassette, response: Any) -> set[str]:  # noqa: ANN401 - as above
    """The kinds of answer that this one is."""
    streamed = "streamed " if cassette.request.parameters.get("stream") else ""
    found = {f"{streamed}tool call"} if response.tool_calls else {f"{streamed}text"}
    if "response_format" in cassette.request.parameters and is_json(response.text):
        found.add("json")
    if re.search(r"(?i)\b(sorry|apologize)\b.*\b(cannot|can't|not able|unable)\b", response.text):
        found.add("refusal")
    if re.search("[\u3040-\u30ff]", json.dumps(cassette.request.messages, ensure_ascii=False)) and re.search(
        "[\U0001f300-\U0001faff]", json.dumps(cassette.request.messages, ensure_ascii=False)
    ):
        found.add("Japanese with an emoji")
    return found


def is_json(text: str) -> bool:
    """Whether a text is one JSON value."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class TestReadme:
    """What the first page says is what the program prints."""

    def test_a_lowered_limit(self, tmp_path: Path) -> None:
        """The report in the README is that of `first-steps` with the limit of `short` lowered to 50 words."""
        for name in FOLDERS:
            shutil.copytree(ROOT / name, tmp_path / name)
        suite = tmp_path / "suites" / "first-steps.toml"
        suite.write_text(suite.read_text("utf-8").replace("max = 60", "max = 50"), encoding="utf-8")

        done = run(tmp_path, "replay", "first-steps")

        assert done.code == 1
        assert shown("REJECT") <= set(done.out.splitlines())

    def test_a_shorter_prompt(self) -> None:
        """The candidate in the README is the shipped one."""
        done = run(ROOT, "replay", "support")

        assert shown("  candidate:") <= set(done.out.splitlines())


def shown(start: str) -> set[str]:
    """The lines of the README's block that begins so."""
    blocks = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    return {line for block in blocks if block.startswith(start) for line in block.splitlines()}
