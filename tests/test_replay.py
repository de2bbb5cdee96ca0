"""Replay end to end: what a changed rule does, what damage says, and that nothing else makes a difference."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from canary_replay import cassette as cassettes
from canary_replay import ledger
from canary_replay.expectations import expectations
from canary_replay.outcome import accepted
from canary_replay.project import load_project, request_for
from canary_replay.recording import Recording
from canary_replay.request import request_key
from canary_replay.response import Response
from canary_replay.scoring import score_recording
from tests.projects import EUROS, GREET, PRICE, TARGET, environment, project, run, run_apart, tree

REFERENCE = "cassettes/shop/current"
ORIGINAL = """
[[cases]]
id = "colour"
tags = ["facts"]
user = "The sky is blue."

[[probes_inline]]
name = "short"
use = "length"
max = 30
"""


def baseline(folder: Path, *parts: str, trials: int = 1, texts: dict[str, str] | None = None) -> Path:
    """A project and its baseline, as ``record`` leaves them, without asking anybody.

    :param texts: what was answered, by case; the question itself by default.
    """
    project(folder, *parts, trials=trials)
    for suite in load_project(folder).suites:
        outcomes = []
        for name, target in suite.targets.items():
            for ref, case in suite.cases():
                request = request_for(case, target, suite)
                text = (texts or {}).get(ref.id) or str(request.messages[-1]["content"])
                made = [
                    Recording(
                        suite=suite.name,
                        target=name,
                        case=ref.id,
                        trial=trial,
                        key=request_key(request),
                        request=request,
                        response=Response(text=text, stop_reason="stop", model="echo-1"),
                        digest=f"{ref.id}-{text}",
                        recorded_at="2026-11-30T12:00:00+00:00",
                        wire="there was no HTTP response",
                    )
                    for trial in range(trials)
                ]
                path = cassettes.cassette_path(folder, suite.name, name, ref.id)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(cassettes.encode(made))
                if name == suite.reference:
                    checks = (*suite.probes, *expectations(case))
                    outcomes += [accepted(one) for recording in made for one in score_recording(checks, case, recording)]
        ledger.write_scorecard(ledger.scorecard_path(folder, suite.name, suite.reference), outcomes)
    return folder


def report_of(root: Path, *arguments: str) -> dict[str, Any]:
    """The JSON report of a replay."""
    found = json.loads(run(root, "replay", "--format", "json", *arguments).out)
    assert isinstance(found, dict)
    return found


# ------------------------------------------------------------------------------------------------ a rule changed
@pytest.mark.parametrize(
    "gate, code, word",
    [("hard", 1, "reject"), ("statistical", 3, "review"), ("advisory", 0, "admit")],
)
def test_edited_pattern_is_a_rule_effect(tmp_path: Path, gate: str, code: int, word: str) -> None:
    """A pattern that no longer fits is a rule effect in every trial; the gate says what becomes of it."""
    baseline(tmp_path, TARGET, GREET, PRICE, EUROS + f'gate = "{gate}"\n', trials=3)
    assert run(tmp_path, "replay").code == 0
    project(tmp_path, TARGET, GREET, PRICE, EUROS.replace("euros'", "dollars'") + f'gate = "{gate}"\n', trials=3)

    ran = run(tmp_path, "replay")
    found = report_of(tmp_path)

    assert ran.code == code
    assert ran.out.startswith(word.upper())
    assert "3 by rule" in ran.out
    assert "price · euros: 3 of 3 passed then, 0 of 3 now (rule effect)" in ran.out
    suite = found["suites"][0]
    assert suite["reference"]["effects"] == {"rule": 3}
    assert suite["reference"]["transitions"]["regressed"] == 1
    assert [one["effect"] for one in found["outcomes"] if one["probe"] == "euros"] == ["rule"] * 3


def test_edited_threshold_is_a_rule_effect(tmp_path: Path) -> None:
    """A threshold that is raised over a stored score rejects; lowered again it admits, for it is the accepted rule again."""
    half = """
[[probes_inline]]
name = "words"
use = "contains"
texts = ["tea", "coffee"]
threshold = 0.5
scope = "money"
"""
    baseline(tmp_path, TARGET, GREET, PRICE, half)
    assert run(tmp_path, "replay").code == 0
    project(tmp_path, TARGET, GREET, PRICE, half.replace("0.5", "0.9"))

    raised = run(tmp_path, "replay")
    project(tmp_path, TARGET, GREET, PRICE, half)
    lowered = run(tmp_path, "replay")

    assert raised.code == 1
    assert "(rule effect)" in raised.out
    assert lowered.code == 0


def test_edited_probe_file_is_a_rule_effect(tmp_path: Path) -> None:
    """A rewritten Python probe is judged at once, in the same process too."""
    source = 'from canary_replay import probe\n\n@probe("polite", category="style")\ndef polite(case, response):\n    return {}\n'
    polite = 'probes = ["probes/polite.py"]\n'
    project(tmp_path)
    (tmp_path / "probes").mkdir()
    (tmp_path / "probes" / "polite.py").write_text(source.format("True"), encoding="utf-8")
    baseline(tmp_path, polite, TARGET, GREET)
    assert run(tmp_path, "replay").code == 0
    (tmp_path / "probes" / "polite.py").write_text(source.format("'please' in response.text"), encoding="utf-8")

    ran = run(tmp_path, "replay")

    assert ran.code == 1
    assert "regressed  greet · polite" in ran.out
    assert "rule effect" in ran.out


def test_fixed_check_asks_for_a_look(tmp_path: Path) -> None:
    """A known failure that passes now is a review: somebody accepts it before it counts."""
    baseline(tmp_path, TARGET, PRICE, EUROS.replace("euros'", "dollars'"))
    assert run(tmp_path, "replay").code == 0
    project(tmp_path, TARGET, PRICE, EUROS)

    ran = run(tmp_path, "replay")

    assert ran.code == 3
    assert "fixed" in ran.out


def test_known_failure_is_shown_and_admitted(tmp_path: Path) -> None:
    """A failure that was accepted admits and stays visible."""
    baseline(tmp_path, TARGET, PRICE, EUROS.replace("euros'", "dollars'"))

    ran = run(tmp_path, "replay")

    assert ran.code == 0
    assert "known failures, accepted as they are: 1" in ran.out
    assert "price · euros: 0 of 1 pass" in ran.out


@pytest.mark.parametrize("where", ["case", "probe"])
def test_required_failure_rejects_though_known(tmp_path: Path, where: str) -> None:
    """What is required rejects even where the failure was accepted; the policy can switch that off."""
    case = PRICE + ("required = true\n" if where == "case" else "")
    probe = EUROS.replace("euros'", "dollars'") + ("required = true\n" if where == "probe" else "")
    baseline(tmp_path, TARGET, case, probe)

    required = run(tmp_path, "replay")
    project(tmp_path, TARGET, case, probe, "[policy]\nrequired_cases_pass = false\n")
    switched_off = run(tmp_path, "replay")

    assert required.code == 1
    assert "required and failing" in required.out
    assert switched_off.code == 0


def test_new_probe_is_judged_without_a_baseline(tmp_path: Path) -> None:
    """A probe that is added passes quietly or rejects by its gate; one that is removed is reported as gone."""
    baseline(tmp_path, TARGET, GREET, PRICE)
    project(tmp_path, TARGET, GREET, PRICE, EUROS)
    passing = run(tmp_path, "replay")
    project(tmp_path, TARGET, GREET, PRICE, EUROS.replace("euros'", "dollars'"))
    failing = run(tmp_path, "replay")
    project(tmp_path, TARGET, GREET, PRICE.replace("expect = { refusal = false }", 'expect = { contains = "tea" }'))
    gone = run(tmp_path, "replay")

    assert passing.code == 0
    assert failing.code == 1
    assert "new and failing (hard gate)" in failing.out
    assert gone.code == 3
    assert "1 check gone" in gone.out


def test_raising_probe_cannot_be_judged(tmp_path: Path) -> None:
    """A probe that raises is `crashed`: exit 4, the exception is told, the other checks are judged."""
    source = (
        'from canary_replay import probe\n\n@probe("odd", category="style")\ndef odd(case, response):\n    return 1 / len("")\n'
    )
    project(tmp_path)
    (tmp_path / "probes").mkdir()
    (tmp_path / "probes" / "odd.py").write_text(source, encoding="utf-8")
    baseline(tmp_path, 'probes = ["probes/odd.py"]\n', TARGET, GREET)

    ran = run(tmp_path, "replay")
    found = report_of(tmp_path)

    assert ran.code == 4
    assert "ZeroDivisionError" in ran.out
    crashed = [one for one in found["outcomes"] if one["outcome"] == "crashed"]
    assert "odd.py, line 5" in crashed[0]["traceback"]
    assert run(tmp_path, "replay", "--probe", "expect.contains").code == 0


# ------------------------------------------------------------------------------------------------ what nothing judges
def test_scope_that_matches_nothing_is_reported(tmp_path: Path) -> None:
    """A probe whose scope matches no case is told with the nearest tag, at the terminal and in JSON, and is a review."""
    baseline(tmp_path, TARGET, GREET, PRICE, EUROS.replace('"money"', '"mony"'))

    ran = run(tmp_path, "replay")
    found = report_of(tmp_path)

    assert ran.code == 3
    assert "the scope 'mony' of probe 'euros' matches no case" in ran.out
    assert "no case has the tag 'mony' (did you mean 'money'?)" in ran.out
    (told,) = found["suites"][0]["scopes_that_match_nothing"]
    assert re.match(r"suites/shop\.toml:\d+: the scope 'mony'", told)
    assert found["verdict"]["exit_code"] == 3


def test_case_that_nothing_judges_is_reported(tmp_path: Path) -> None:
    """A case that neither a probe nor an expectation judges is told with its line, at the terminal and in JSON: a review."""
    baseline(tmp_path, TARGET, GREET, PRICE.replace("expect = { refusal = false }\n", ""))

    ran = run(tmp_path, "replay")
    found = report_of(tmp_path)

    assert ran.code == 3
    assert re.search(r"no probe and no expectation judges price \(suites/shop\.toml:\d+\)", ran.out)
    (told,) = found["suites"][0]["cases_that_nothing_judges"]
    assert told.startswith("price (suites/shop.toml:")


@pytest.mark.parametrize("parts", [(TARGET,), (TARGET, EUROS)])
def test_empty_suite_cannot_pass(tmp_path: Path, parts: tuple[str, ...]) -> None:
    """A suite without cases is `cannot judge`, never a pass."""
    baseline(tmp_path, *parts)

    ran = run(tmp_path, "replay")

    assert ran.code == 4
    assert ran.out.startswith("CANNOT JUDGE")
    assert "nothing was judged" in ran.out


# ------------------------------------------------------------------------------------------------ a part of a suite
def test_selection_narrows_what_is_scored(tmp_path: Path) -> None:
    """--case, --tags, --probe and --category leave out what was not asked for; the rest keeps its accepted outcomes."""
    baseline(tmp_path, TARGET, GREET, PRICE, ORIGINAL, EUROS.replace("euros'", "dollars'"))

    def scored(*arguments: str) -> set[tuple[str, str]]:
        found = report_of(tmp_path, *arguments)
        assert found["verdict"]["exit_code"] == 0, found
        assert {one["transition"] for one in found["outcomes"]} <= {"kept", "known"}, found
        return {(one["case"], one["probe"]) for one in found["outcomes"]}

    assert scored("--case", "greet") == {("greet", "expect.contains"), ("greet", "short")}
    assert scored("--case", "greet", "--case", "colour") == {
        ("greet", "expect.contains"),
        ("greet", "short"),
        ("colour", "short"),
    }
    assert scored("--tags", "money or facts") == {
        ("price", "short"),
        ("price", "euros"),
        ("price", "expect.refusal"),
        ("colour", "short"),
    }
    assert scored("--tags", "not money", "--probe", "short") == {("greet", "short"), ("colour", "short")}
    assert scored("--probe", "euros") == {("price", "euros")}
    assert scored("--category", "expectation") == {("greet", "expect.contains"), ("price", "expect.refusal")}
    assert scored("--category", "format") == {("price", "euros"), ("price", "short"), ("greet", "short"), ("colour", "short")}


def test_target_selects_candidates(tmp_path: Path) -> None:
    """--target leaves out the other candidates; the reference is always judged."""
    more = "".join(f'[targets.{name}]\nextends = "current"\nagainst = "current"\nsystem = "{name}"\n' for name in ("one", "two"))
    baseline(tmp_path, TARGET, more, GREET)

    both = run(tmp_path, "replay")
    one = run(tmp_path, "replay", "--target", "one")

    assert both.code == one.code == 0
    assert "one: 1 case, 1 recording (a candidate" in both.out
    assert "two: 1 case, 1 recording (a candidate" in both.out
    assert "one: 1 case, 1 recording (a candidate" in one.out
    assert "two: " not in one.out


@pytest.mark.parametrize(
    "command, option, wrong, near",
    [
        ("record", "--target", "curent", "current"),
        ("record", "--case", "gret", "greet"),
        ("replay", "--target", "curent", "current"),
        ("replay", "--case", "gret", "greet"),
        ("replay", "--probe", "eurs", "euros"),
        ("replay", "--category", "formt", "format"),
    ],
)
def test_unknown_selection_is_a_mistake(tmp_path: Path, command: str, option: str, wrong: str, near: str) -> None:
    """A name that nothing has is one line with the nearest known one and exit 2, never an empty success."""
    baseline(tmp_path, TARGET, GREET, PRICE, EUROS)

    ran = run(tmp_path, command, option, wrong)

    assert ran.code == 2
    assert repr(wrong) in ran.err
    assert f"did you mean {near!r}?" in ran.err
    assert ran.out == ""


def test_selection_looks_into_every_suite(tmp_path: Path) -> None:
    """A case id is found in whichever suite has it; a suite that lacks it is left out and judges nothing."""
    baseline(tmp_path, TARGET, GREET)
    project(tmp_path, TARGET, PRICE, EUROS, name="prices")
    before = (tmp_path / "suites" / "shop.toml").read_text(encoding="utf-8")
    baseline(tmp_path, TARGET, GREET)
    assert (tmp_path / "suites" / "shop.toml").read_text(encoding="utf-8") == before

    case = run(tmp_path, "replay", "--case", "greet")
    probe = run(tmp_path, "replay", "--probe", "euros")

    assert case.code == 0, case
    assert "prices" not in case.out
    assert probe.code == 0, probe
    assert "suites/shop.toml" not in probe.out


# ------------------------------------------------------------------------------------------------ reports
def test_json_on_standard_output_is_the_file(tmp_path: Path) -> None:
    """--format json prints one JSON document and nothing else, the same bytes as --output writes."""
    baseline(tmp_path, TARGET, GREET, PRICE, EUROS, texts={"price": "4 euros \x1b[31m日本語 🎉 \udcff".replace("\udcff", "")})
    report, text = tmp_path / "reports" / "replay.json", tmp_path / "reports" / "replay.txt"

    ran = run(tmp_path, "replay", "--format", "json", "--output", str(report), "--output", str(text))

    assert ran.code == 0
    assert ran.err == ""
    found = json.loads(ran.out)
    assert list(found)[:3] == ["format", "command", "verdict"]
    assert len(found["outcomes"]) == 3
    assert report.read_bytes() == ran.out.encode()
    assert text.read_text(encoding="utf-8") == run(tmp_path, "replay").out
    assert sorted(path.name for path in report.parent.iterdir()) == ["replay.json", "replay.txt"]


def test_replay_writes_nothing_but_reports(tmp_path: Path) -> None:
    """No file of the project changes, whatever the verdict is."""
    baseline(tmp_path, TARGET, GREET, PRICE, EUROS.replace("euros'", "dollars'"), trials=2)
    project(tmp_path, TARGET.replace("tea", "coffee"), GREET, PRICE, EUROS, trials=2)
    before = tree(tmp_path)

    ran = run(tmp_path, "replay", "--workers", "2")

    assert ran.code == 2
    assert tree(tmp_path) == before


# ------------------------------------------------------------------------------------------------ what is stored is wrong
BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda data: data[: len(data) // 2], r"greet\.json: line \d+: is damaged: .*"),
    "empty": (lambda _data: b"", r"greet\.json: is empty; restore it from version control or record the case again"),
    "not-utf-8": (
        lambda data: data.replace(b"sell", b"s\xe9ll"),
        r"greet\.json: line \d+: is not UTF-8 \(byte \d+\); restore it",
    ),
    "not-json": (lambda data: data.replace(b'"suite":', b'"suite"', 1), r"greet\.json: line \d+: is damaged: .*"),
    "future": (
        lambda data: data.replace(b'"format": 1', b'"format": 99'),
        r"greet\.json: \$\.metadata\.canary\.format: has format 99, .*",
    ),
    "foreign": (
        lambda _data: b'{"version": 1, "interactions": []}',
        r"greet\.json: is not a cassette of canary-replay .*plain VCR\.py",
    ),
    "list": (lambda _data: b"[]", r"greet\.json: is not a cassette of canary-replay .*"),
    "copied": (
        lambda data: data.replace(b'"case": "greet"', b'"case": "price"'),
        r"greet\.json: \$\.metadata\.canary: holds suite, .*",
    ),
    "no-recordings": (
        lambda data: re.sub(rb'"recordings": \[.*?\n   \]', b'"recordings": []', data, flags=re.DOTALL),
        r"greet\.json: \$\.metadata\.canary\.recordings: holds no recording.*",
    ),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_damaged_cassette_is_one_line(tmp_path: Path, damage: str) -> None:
    """Whatever a cassette is damaged by: exit 2 and one line with file and place; the other cases are judged."""
    baseline(tmp_path, TARGET, GREET, PRICE, EUROS)
    path = tmp_path / REFERENCE / "cases" / "greet.json"
    break_it, message = BROKEN[damage]
    path.write_bytes(break_it(path.read_bytes()))

    ran = run(tmp_path, "replay")
    shown = run(tmp_path, "cassette", "show", "greet")
    verified = run(tmp_path, "cassette", "verify")
    recorded = run(tmp_path, "record")

    assert ran.code == 2
    assert "1 case with a damaged cassette" in ran.out
    (line,) = [line for line in ran.out.splitlines() if "✗" in line]
    assert re.fullmatch(rf"  ✗ {REFERENCE}/cases/{message}", line)
    assert "euros                1" in ran.out
    assert ran.err == ""
    for other in (verified, recorded):
        assert other.code == 2
        assert "Traceback" not in other.err
    assert "greet.json" in verified.out
    assert "greet.json" in recorded.err
    if damage != "copied":
        assert shown.code == 2
        assert shown.err.count("\n") == 1


def test_damaged_scorecard_is_one_line(tmp_path: Path) -> None:
    """A scorecard that cannot be read, or is out of order, is exit 2 with file and line."""
    baseline(tmp_path, TARGET, GREET, PRICE, EUROS)
    path = tmp_path / REFERENCE / "scorecard.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)

    path.write_bytes(lines[0] + lines[1][:-9] + b"\n" + lines[2])
    damaged = run(tmp_path, "replay")
    path.write_bytes(b"".join(reversed(lines)))
    disordered = run(tmp_path, "replay")

    for ran in (damaged, disordered):
        assert ran.code == 2
        assert re.fullmatch(rf"error: {REFERENCE}/scorecard\.jsonl: line 2: .*\n", ran.err)


def test_scorecard_of_another_response_is_refused(tmp_path: Path) -> None:
    """A cassette that was exchanged behind the scorecard's back is exit 2, though every check passes."""
    baseline(tmp_path, TARGET, GREET)
    old = (tmp_path / REFERENCE / "scorecard.jsonl").read_bytes()
    baseline(tmp_path, TARGET, GREET, texts={"greet": "Hello, everybody"})
    (tmp_path / REFERENCE / "scorecard.jsonl").write_bytes(old)

    ran = run(tmp_path, "replay")

    assert ran.code == 2
    assert "a response that is not the one the scorecard accepted" in ran.out


def test_missing_cassette_names_the_nearest(tmp_path: Path) -> None:
    """A case without a cassette is exit 4, says how to record it, and names the nearest recorded request and how it differs."""
    baseline(tmp_path, TARGET, GREET, PRICE)
    project(tmp_path, TARGET, GREET, PRICE, GREET.replace('"greet"', '"hail"').replace("Hello, world", "Hello, moon"))

    ran = run(tmp_path, "replay")

    assert ran.code == 4
    assert "1 case without a recording" in ran.out
    assert f"{REFERENCE}/cases/hail.json does not exist; record it with: nox -s record" in ran.out
    assert "the nearest recorded request is case 'greet', which differs in messages[1].content" in ran.out


def test_renamed_case_is_recognised(tmp_path: Path) -> None:
    """A case whose request is recorded under another id was probably renamed, and the report says so."""
    baseline(tmp_path, TARGET, GREET, PRICE)
    project(tmp_path, TARGET, GREET.replace('"greet"', '"hail"'), PRICE)

    ran = run(tmp_path, "replay")

    assert ran.code == 4
    assert "the same request is recorded as case 'greet': was it renamed?" in ran.out


def test_case_that_is_gone_is_reported(tmp_path: Path) -> None:
    """Accepted outcomes of a case that is no longer asked are told: a failing case cannot be made to vanish."""
    baseline(tmp_path, TARGET, GREET, PRICE)
    project(tmp_path, TARGET, GREET)

    ran = run(tmp_path, "replay")

    assert ran.code == 3
    assert "gone  price · expect.refusal: 1 of 1 passed then, no outcome now" in ran.out


@pytest.mark.parametrize(
    "before, after, field",
    [
        ('system = "You sell tea."', 'system = "You sell."', "messages[0].content"),
        ('user = "Hello, world"', 'user = "Hello"', "messages[1].content"),
        ('model = "openai/gpt-plain"', 'model = "openai/gpt-other"', "model"),
        ('system = "You sell tea."', 'system = "You sell tea."\nparameters = { temperature = 1 }', "parameters.temperature"),
        ('system = "You sell tea."', 'system = "You sell tea."\ntools = [{ function = { name = "f" } }]', "tools[0]"),
    ],
)
def test_stale_cassette_says_which_field(tmp_path: Path, before: str, after: str, field: str) -> None:
    """Whatever of the request changed: exit 2, the field by its path, then and now."""
    baseline(tmp_path, TARGET, GREET)
    project(tmp_path, TARGET.replace(before, after), GREET.replace(before, after))

    ran = run(tmp_path, "replay")

    assert ran.code == 2
    assert f"greet.json is stale: {field} changed since it was recorded" in ran.out
    assert f"      {field}\n        - " in ran.out


@pytest.mark.parametrize(
    "more", ['api_base = "http://127.0.0.1:9"\n', 'headers = { x-source = "eval" }\n', 'metadata = { source = "eval" }\n']
)
def test_where_and_how_one_asks_is_no_change(tmp_path: Path, more: str) -> None:
    """Address, headers and metadata are not part of the request: nothing is stale when they change."""
    baseline(tmp_path, TARGET, GREET)
    project(tmp_path, TARGET + more, "[record]\ntimeout = 5\nconcurrency = 1\n", GREET)

    assert run(tmp_path, "replay").code == 0


# ------------------------------------------------------------------------------------------------ the same every time
@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of 1,200 cases of every kind, of which some fail: enough for three slices of work."""
    workload = pytest.importorskip("benchmarks.workload", reason="the benchmarks are not in this distribution")
    folder = tmp_path_factory.mktemp("large")
    workload.build(folder, 1200)
    suite = folder / "suites" / "load.toml"
    suite.write_text(suite.read_text(encoding="utf-8").replace("max = 1600", "max = 1200\nthreshold = 0.9"), encoding="utf-8")
    return Path(folder)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # the threads are those of pytest-xdist
def test_workers_make_no_difference(large: Path) -> None:
    """One process, two or three: the same bytes, at the terminal and in JSON."""
    pages = [run(large, "replay", "--workers", str(workers)) for workers in (1, 2, 3)]
    documents = [run(large, "replay", "--workers", str(workers), "--format", "json") for workers in (1, 2, 3)]

    assert pages[0].code == 1
    assert "rule effect" in pages[0].out
    assert json.loads(documents[0].out)["suites"][0]["reference"]["cases"] == 1200
    assert pages[1:] == pages[:1] * 2
    assert documents[1:] == documents[:1] * 2


def test_surroundings_make_no_difference(large: Path, tmp_path: Path) -> None:
    """Hash seed, time zone, locale, working directory and path of the project: the same bytes."""
    moved = tmp_path / "elsewhere ü" / "project"
    shutil.copytree(large, moved)
    surroundings = [
        (large, large, {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}),
        (large / "suites", large, {"PYTHONHASHSEED": "2", "TZ": "Asia/Kathmandu", "LC_ALL": "tr_TR.UTF-8"}),
        (Path("/"), large, {"PYTHONHASHSEED": "3", "TZ": "America/St_Johns", "LC_ALL": "C", "PYTHONUTF8": "1"}),
        (tmp_path, moved, {"PYTHONHASHSEED": "4", "COLUMNS": "20", "LANG": "de_DE.UTF-8", "PYTHONIOENCODING": "utf-8"}),
    ]

    ran = [
        run_apart("replay", "--format", "json", "--workers", "2", "--project", str(root), cwd=cwd, env=environment(**changes))
        for cwd, root, changes in surroundings
    ]

    assert ran[0].code == 1
    assert ran[0].err == ""
    assert [one == ran[0] for one in ran] == [True] * len(ran)


def test_files_in_another_order_make_no_difference(tmp_path: Path) -> None:
    """The order of cases and probes in the suite, and of files on disk, changes no outcome and no line of the table."""
    baseline(tmp_path / "one", TARGET, GREET, PRICE, ORIGINAL, EUROS)
    baseline(tmp_path / "two", EUROS, ORIGINAL, PRICE, GREET, TARGET)

    one, two = (report_of(tmp_path / name) for name in ("one", "two"))

    assert one == two


# ------------------------------------------------------------------------------------------------ free and offline
def test_replay_imports_no_network(tmp_path: Path) -> None:
    """Replay imports neither LiteLLM nor an HTTP client nor VCR.py."""
    baseline(tmp_path, TARGET, GREET, PRICE, EUROS)

    ran = run_apart("replay", cwd=tmp_path, before=("-X", "importtime"))

    assert ran.code == 0
    imported = {line.rpartition("|")[2].strip() for line in ran.err.splitlines() if line.startswith("import time:")}
    assert "canary_replay.modes.replay" in imported
    roots = {name.partition(".")[0] for name in imported}
    assert not roots & {
        "litellm",
        "vcr",
        "httpx",
        "httpx2",
        "aiohttp",
        "openai",
        "anthropic",
        "requests",
        "urllib3",
        "http",
        "ssl",
    }
    assert "canary_replay.provider" not in imported


def test_replay_runs_without_a_network(tmp_path: Path) -> None:
    """In a network namespace that holds nothing, not even a loopback that is up, replay is as it always is."""
    unshare = ["unshare", "-n"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["unshare", "-r", "-n"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*unshare, sys.executable, "-c", ""], capture_output=True, check=False).returncode
    ):
        pytest.skip("this machine permits no network namespaces")
    baseline(tmp_path, TARGET, GREET, PRICE, EUROS)

    ran = run_apart("replay", cwd=tmp_path, before=tuple(unshare))

    assert ran == run_apart("replay", cwd=tmp_path)
    assert ran.code == 0
