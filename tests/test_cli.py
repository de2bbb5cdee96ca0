"""The command line as a person or a pipeline meets it: help, mistakes, consoles that cannot show everything, exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from canary_replay import __version__, cli
from canary_replay.gating import ADMIT, BUG, CANNOT_JUDGE, PROVIDER, REJECT, REVIEW, USAGE, Reason, decide
from canary_replay.reporting import CaseResult, Report, Style, known_formats, reporter
from tests.projects import EUROS, GREET, PRICE, ROOT, TARGET, Ran, environment, project, run, run_apart
from tests.test_replay import baseline


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A small project with its baseline, whose answers are not ASCII."""
    return baseline(tmp_path, TARGET, GREET, PRICE, EUROS, texts={"greet": "Hello, ö 日本語 🎉"})


def alone(*arguments: str) -> Ran:
    """Run a command that needs no project."""
    capture = subprocess.run(
        [sys.executable, "-m", "canary_replay", *arguments], env=environment(), capture_output=True, check=False, timeout=60
    )
    return Ran(capture.returncode, capture.stdout.decode(), capture.stderr.decode())


# ------------------------------------------------------------------------------------------------ help
def test_help_tells_commands_and_exit_codes() -> None:
    """--help is 0, names every command and every exit code."""
    ran = alone("--help")

    assert (ran.code, ran.err) == (0, "")
    for command in ("record", "replay", "cassette", "probes"):
        assert re.search(rf"^    {command} ", ran.out, re.MULTILINE)
    for code in (0, 1, 2, 3, 4, 5, 70):
        assert re.search(rf"\b{code} [a-z]", ran.out)


@pytest.mark.parametrize(
    "command", ["record", "replay", "cassette", "cassette show", "cassette verify", "cassette scan", "probes list"]
)
def test_every_command_has_help(command: str, tmp_path: Path) -> None:
    """Each command's --help is 0 and says what it is for."""
    ran = run(tmp_path, *command.split(), "--help")

    assert ran.code == 0
    assert ran.out.startswith("usage: canary-replay")


def test_version_is_the_packages() -> None:
    """--version prints it and is 0."""
    assert alone("--version") == Ran(0, f"canary-replay {__version__}\n", "")


@pytest.mark.parametrize("arguments", [(), ("cassette",), ("probes",)])
def test_no_command_shows_the_help(arguments: tuple[str, ...]) -> None:
    """Nothing to do is a mistake: the help and exit 2."""
    ran = alone(*arguments)

    assert ran.code == 2
    assert "commands:" in ran.out


# ------------------------------------------------------------------------------------------------ mistakes
@pytest.mark.parametrize(
    "arguments, message",
    [
        (("replay", "shopp"), "there is no suite 'shopp'; did you mean 'shop'?"),
        (("record", "suites/shopp.toml"), "there is no suite 'suites/shopp.toml'"),
        (("replay", "--case", "gret"), "there is no case 'gret'; did you mean 'greet'?"),
        (("replay", "--tags", "money and"), "money and"),
        (("replay", "--format", "jsn"), "there is no format 'jsn'; did you mean 'json'? known: json, terminal"),
        (("replay", "--output", "report.pdf"), "known: .json, .txt"),
        (("replay", "--workers", "0"), "--workers is a number from 1 on, not 0"),
        (("cassette", "show", "gret"), "no target has a cassette of case 'gret'"),
        (("cassette", "show", "nowhere.json"), "nowhere.json does not exist"),
        (("cassette", "verify", "nowhere"), "nowhere does not exist"),
        (("cassette", "scan", "nowhere"), "nowhere does not exist"),
        (("probes", "show", "regexx"), "there is no probe 'regexx'; did you mean 'regex'?"),
    ],
)
def test_mistake_is_one_line(shop: Path, arguments: tuple[str, ...], message: str) -> None:
    """A mistake is exit 2 and one line that says what is wrong and what is near."""
    ran = run(shop, *arguments)

    assert ran.code == 2
    assert ran.out == ""
    assert re.fullmatch(r"error: .*\n", ran.err)
    assert message in ran.err


@pytest.mark.parametrize(
    "arguments", [("replay", "--wrokers", "2"), ("rply",), ("replay", "--workers", "many"), ("replay", "--work", "2")]
)
def test_unknown_option_is_exit_2(shop: Path, arguments: tuple[str, ...]) -> None:
    """An option or a command that does not exist is exit 2; options are not guessed from their beginnings."""
    ran = run(shop, *arguments)

    assert ran.code == 2
    assert ran.err.startswith("usage: ")


@pytest.mark.parametrize("place", ["suites/shop.toml/report.json", "suites"])
def test_report_that_cannot_be_written_is_a_mistake(shop: Path, place: str) -> None:
    """A report file whose place is a file or a folder is one line and exit 2, not our bug."""
    if place == "suites":
        (shop / "there.json").mkdir()
        place = "there.json"

    ran = run(shop, "replay", "--output", str(shop / "first.json"), "--output", str(shop / place))

    assert ran.code == 2
    assert re.fullmatch(r"error: .*cannot be written: .*\n", ran.err)
    assert [path.name for path in shop.rglob("*.tmp")] == []


def test_report_named_twice_is_written_once(shop: Path) -> None:
    """The same --output twice is one file."""
    place = str(shop / "report.json")

    ran = run(shop, "replay", "--output", place, "--output", place)

    assert ran.code == 0
    assert json.loads(Path(place).read_bytes())["command"] == "replay"


def test_project_that_does_not_exist_is_a_mistake(tmp_path: Path) -> None:
    """A wrong --project, and a folder without suites, are told by name."""
    missing = run(tmp_path / "nowhere", "replay")
    empty = run(tmp_path, "replay")

    assert missing.code == empty.code == 2
    assert "nowhere" in missing.err
    assert "suites/*.toml" in empty.err


def test_project_is_found_from_below(shop: Path) -> None:
    """From a folder inside the project, the project above is the one."""
    below = shop / "src" / "deep"
    below.mkdir(parents=True)

    ran = run_apart("replay", cwd=below)

    assert ran.code == 0, ran
    assert "suites/shop.toml" in ran.out


# ------------------------------------------------------------------------------------------------ consoles
@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8", "utf-16"])
def test_console_that_lacks_characters_gets_escapes(shop: Path, encoding: str) -> None:
    """A console that cannot show a character gets it written out, JSON is UTF-8 everywhere; the exit code is the verdict's."""
    commands = [("replay",), ("replay", "--format", "json"), ("cassette", "show", "greet"), ("replay", "no-suite-日本")]

    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "canary_replay", *command, "--project", str(shop)],
            env=environment(PYTHONIOENCODING=encoding),
            capture_output=True,
            check=False,
            timeout=60,
        )
        said = (done.stdout or done.stderr).decode("utf-8" if "json" in command else encoding)

        assert done.returncode == (2 if "no-suite-日本" in command else 0), done
        assert "Traceback" not in said
        if command[0] == "cassette":
            assert "Hello" in said
            assert ("日本語" in said) == encoding.startswith("utf")
        if "json" in command:
            assert json.loads(said)["verdict"]["word"] == "admit"


def test_reader_that_has_seen_enough_is_no_bug(tmp_path: Path) -> None:
    """Output into a pipe that is closed early ends quietly, without a traceback, whatever the command."""
    cases = "".join(
        f'[[cases]]\nid = "c{number:04}"\nuser = "{"word " * 200}"\nexpect = {{ contains = "x" }}\n' for number in range(300)
    )
    baseline(tmp_path, TARGET, cases)
    commands = [("replay", "--format", "json"), ("cassette", "show", "c0001"), ("probes", "list")]

    for command in commands:
        process = subprocess.Popen(
            [sys.executable, "-m", "canary_replay", *command, "--project", str(tmp_path)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read().decode()
        process.stderr.close()

        assert process.wait(60) == 141
        assert said == ""


def test_color_only_where_it_is_wanted(shop: Path) -> None:
    """No escape codes in a pipe; with --color always there are."""
    plain = run(shop, "replay")
    painted = run(shop, "replay", "--color", "always")

    assert "\x1b" not in plain.out
    assert "\x1b[32mADMIT\x1b[0m" in painted.out
    assert re.sub(r"\x1b\[\d+m", "", painted.out) == plain.out


def test_quiet_says_the_verdict_alone(shop: Path) -> None:
    """--quiet leaves the verdict and its reasons."""
    assert run(shop, "replay", "--quiet").out == "ADMIT  every check stands as it was accepted\n"


# ------------------------------------------------------------------------------------------------ our own bugs
class Exploding:
    """A reporter with a bug."""

    def __init__(self, stream: BinaryIO, style: Style) -> None:
        """Begin like any other."""

    def case(self, result: CaseResult) -> None:
        """Take it."""

    def end(self, report: Report) -> None:
        """Break."""
        raise KeyError("a bug that nobody foresaw")


@pytest.fixture
def exploding() -> Iterator[str]:
    """The name of a registered format whose reporter raises."""
    reporter("exploding", endings=(".boom",))(Exploding)
    yield "exploding"
    known_formats.discard({"exploding"})


def test_own_bug_is_exit_70(shop: Path, exploding: str) -> None:
    """An exception that nobody raised on purpose is a traceback and 70: never a verdict, and no half report is left."""
    ran = run(shop, "replay", "--format", exploding, "--output", str(shop / "report.txt"))

    assert ran.code == 70
    assert "KeyError: 'a bug that nobody foresaw'" in ran.err
    assert ran.err.endswith("this is a bug in canary-replay, not a verdict\n")
    assert [path.name for path in shop.iterdir() if "report" in path.name] == []


def test_main_leaves_with_the_exit_code(shop: Path) -> None:
    """The entry point of the installed command raises SystemExit with the verdict's code."""
    with pytest.raises(SystemExit) as left:
        cli.main(["replay", "--quiet", "--project", str(shop)])

    assert left.value.code == 0


# ------------------------------------------------------------------------------------------------ what is stored
def test_edited_response_is_found(shop: Path) -> None:
    """Verify is 2 when a stored file does not agree with itself, with the file and what is wrong."""
    assert "approvals" not in run(shop, "cassette", "verify", "cassettes").err
    path = shop / "cassettes/shop/current/cases/greet.json"
    path.write_bytes(path.read_bytes().replace(b"You sell tea.", b"You sell coffee."))

    ran = run(shop, "cassette", "verify")

    assert ran.code == 2
    assert "cases/greet.json: its key is not the key of its request: one of them was edited" in ran.out


def test_scan_finds_a_key_and_does_not_repeat_it(shop: Path) -> None:
    """Scan is 1 when something looks like a key: file, line and kind, never the value."""
    key = "sk-proj-" + "a1B2c3D4" * 6
    (shop / "suites" / "notes.md").write_text(f"first line\nthe key is {key}\n", encoding="utf-8")

    ran = run(shop, "cassette", "scan")

    assert ran.code == 1
    assert "suites/notes.md:2: " in ran.out
    assert key not in ran.out


def test_probes_are_listed_and_described(shop: Path) -> None:
    """A list has every built-in probe with one line, a description its parameters; with --project the project's own."""
    (shop / "probes").mkdir()
    source = '''
from canary_replay import probe

@probe("polite", category="style")
def polite(case, response):
    """It says please."""
    return True
'''
    (shop / "probes" / "polite.py").write_text(source, encoding="utf-8")
    project(shop, 'probes = ["probes/polite.py"]\n', TARGET, GREET, PRICE, EUROS)

    listed = run(shop, "probes", "list")
    shown = run(shop, "probes", "show", "tool_called")
    own = run(shop, "probes", "show", "polite")

    assert (listed.code, shown.code, own.code) == (0, 0, 0)
    assert re.search(r"^polite +style +It says please\.$", listed.out, re.MULTILINE)
    assert re.search(r"^  tool: ", shown.out, re.MULTILINE)
    assert own.out.startswith("polite (style, version 1)\n\nIt says please.\n")


# ------------------------------------------------------------------------------------------------ the pages about it
def test_command_line_page_has_every_option() -> None:
    """The reference page names every command and every option, and no option that does not exist."""
    page = ROOT / "docs" / "reference" / "command-line.md"
    if not page.exists():
        pytest.skip("the documentation is not in this distribution")
    text = page.read_text(encoding="utf-8")
    commands = ["record", "replay", "cassette show", "cassette verify", "cassette scan", "probes list", "probes show"]

    options = {"--version", "--help"}
    for command in commands:
        options |= set(re.findall(r"--[a-z]+", run(ROOT, *command.split(), "--help").out))

    assert set(re.findall(r"(?<![-|a-z])--[a-z]+", text)) == options
    for command in commands:
        assert f"canary-replay {command}" in text


def test_exit_code_page_has_every_code() -> None:
    """The reference page explains each code that the help names, in the order of precedence that the verdict has."""
    page = ROOT / "docs" / "reference" / "exit-codes.md"
    if not page.exists():
        pytest.skip("the documentation is not in this distribution")
    text = page.read_text(encoding="utf-8")

    explained = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}

    assert explained == {ADMIT, REJECT, USAGE, REVIEW, CANNOT_JUDGE, PROVIDER, BUG}
    assert {int(code) for code in re.findall(r"(\d+) [a-z]", cli.EXIT_CODES)} == explained
    order = [BUG, USAGE, REJECT, PROVIDER, CANNOT_JUDGE, REVIEW]
    assert f"the first of {', '.join(map(str, order))} is the one" in text
    assert decide(Reason(code, "") for code in reversed(order)).exit_code == order[0]
