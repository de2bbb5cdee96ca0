"""The command line: arguments in, exit code out; each command imports its mode only when it runs."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from canary_replay.modes.record import RecordReport
    from canary_replay.modes.selecting import Selection
    from canary_replay.project import Project

EXIT_CODES = """exit codes: 0 admit · 1 reject · 2 your mistake, or a damaged or stale file · 3 review · 4 cannot judge ·
5 provider trouble · 70 a bug of ours"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; our own bug is a traceback and 70."""
    options = _parser().parse_args(arguments)
    if getattr(options, "version", False):
        from canary_replay import __version__

        _say(f"canary-replay {__version__}")
        return 0
    if not hasattr(options, "command"):
        options.parser.print_help()
        return 2
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it would search every installed package for them: 15 ms
    from canary_replay.errors import CanaryError, ProviderError

    try:
        return int(options.command(options))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has seen enough
        return 141
    except KeyboardInterrupt:
        _tell("interrupted; what was recorded is kept, run the command again to go on")
        return 130
    except CanaryError as error:
        _tell(f"error: {error}")
        return 5 if isinstance(error, ProviderError) else 2
    except Exception:  # noqa: BLE001 - our own bug must never look like a verdict
        import traceback

        traceback.print_exc()
        _tell("this is a bug in canary-replay, not a verdict")
        return 70


# ------------------------------------------------------------------------------------------------ the arguments
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="canary-replay",
        description="Record LLM answers once, re-score them for free, and know who changed what.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_record(commands)
    _add_replay(commands)
    _add_cassette(commands)
    _add_probes(commands)
    return parser


def _add_record(commands: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    parser = _command(commands, "record", "ask providers for the recordings that are missing", _record)
    _add_selection(parser, probes=False)


def _add_replay(commands: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    parser = _command(commands, "replay", "score the stored responses with today's rules; free, offline", _replay)
    _add_selection(parser, probes=True)
    parser.add_argument("--format", default=None, metavar="FORMAT", help="terminal (default) or json, on standard output")
    parser.add_argument(
        "--output", action="append", default=[], metavar="FILE", help="also write a report there; its ending says the format"
    )
    parser.add_argument("--workers", type=int, default=None, metavar="N", help="processes for large suites (default: all cores)")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colour (NO_COLOR is honoured)")
    parser.add_argument("--quiet", action="store_true", help="the verdict and its reasons only")


def _add_cassette(commands: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    parser = commands.add_parser("cassette", help="show, verify and scan what is stored", allow_abbrev=False)
    parser.set_defaults(parser=parser)
    inner = parser.add_subparsers(title="commands", metavar="COMMAND")
    shown = _command(inner, "show", "what a cassette holds, for people", _show)
    shown.add_argument("cassette", type=Path, metavar="FILE", help="a cassette file, or a case id")
    shown.add_argument("--wire", action="store_true", help="also the requests and every chunk with its time")
    verified = _command(inner, "verify", "check stored files against themselves", _verify)
    verified.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders (default: all of cassettes/)")
    scanned = _command(inner, "scan", "look for keys in stored files", _scan)
    scanned.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="files or folders (default: the project's own)")


def _add_probes(commands: Any) -> None:  # noqa: ANN401 - argparse has no public name for it
    parser = commands.add_parser("probes", help="list and describe the probes", allow_abbrev=False)
    parser.set_defaults(parser=parser)
    inner = parser.add_subparsers(title="commands", metavar="COMMAND")
    _command(inner, "list", "the probes that suites can use", _probes_list)
    shown = _command(inner, "show", "what a probe checks, with examples", _probes_show)
    shown.add_argument("probe", metavar="PROBE", help="the name of a probe")


def _command(commands: Any, name: str, text: str, function: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:  # noqa: ANN401 - argparse has no public name for it
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    parser.add_argument(
        "--project", type=Path, default=None, metavar="DIR", help="the project (default: this folder or one above)"
    )
    parser.set_defaults(command=function, parser=parser)
    return parser


def _add_selection(parser: argparse.ArgumentParser, *, probes: bool) -> None:
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="names or files of suites (default: all of suites/*.toml)")
    parser.add_argument("--target", action="append", default=[], metavar="NAME", help="only this target (repeatable)")
    parser.add_argument("--case", action="append", default=[], metavar="ID", help="only this case (repeatable)")
    parser.add_argument("--tags", default="", metavar="EXPR", help="only cases in this scope, as in: orders and not json")
    if probes:
        parser.add_argument("--probe", action="append", default=[], metavar="NAME", help="only this check (repeatable)")
        parser.add_argument("--category", action="append", default=[], metavar="NAME", help="only this category (repeatable)")


# ------------------------------------------------------------------------------------------------ the commands
def _record(options: argparse.Namespace) -> int:
    from canary_replay.modes.record import record_project
    from canary_replay.modes.record_progress import progress_for

    project = _project(options)
    report = record_project(project, selection=_selection(options), progress=progress_for(sys.stderr))
    for line in _record_lines(report):
        _say(line)
    return 5 if report.failures else 0


def _record_lines(report: RecordReport) -> Iterator[str]:
    from canary_replay.reporters.terminal import printable

    resumed = f" ({report.resumed} from earlier runs)" if report.resumed else ""
    if report.run:
        yield f"{report.recorded} recorded into run {report.run}, {report.present} were there already{resumed}"
    else:
        yield f"nothing to ask: all {report.present} recordings are there{resumed}"
    if report.recorded:
        unknown = f" (and {report.cost_unknown} of unknown cost)" if report.cost_unknown else ""
        yield f"cost ${report.cost:.6f}{unknown}"
    if report.undecoded:
        yield f"{report.undecoded} in a wire format that no decoder reads yet: kept, and unscored"
    if report.client_drift:
        yield f"client drift in {report.client_drift}: the client library read something else from the same bytes (cassette show)"
    if report.written:
        yield f"wrote {len(report.written)} {'cassette' if len(report.written) == 1 else 'cassettes'}: commit cassettes/"
    if report.approved:
        yield f"{len(report.approved)} {'case is' if len(report.approved) == 1 else 'cases are'} the baseline now"
    if report.accepted_failures:
        count = len(report.accepted_failures)
        known = "1 check does not pass there, and counts" if count == 1 else f"{count} checks do not pass there, and count"
        yield f"{known} as known from now on:"
        for name in report.accepted_failures[:20]:
            yield f"  {printable(name)}"
    if report.awaiting:
        count = len(report.awaiting)
        yield f"{count} {'case awaits' if count == 1 else 'cases await'} bless: {printable(', '.join(report.awaiting))}"
    for failure in report.failures:
        name = printable(f"{failure.suite}/{failure.target}/{failure.case}")
        yield f"✗ {name} trial {failure.trial}: {printable(failure.message)}"
    if report.failures:
        yield f"{len(report.failures)} could not be recorded; what was made is kept, run the command again to go on"


def _replay(options: argparse.Namespace) -> int:
    import canary_replay.reporters  # noqa: F401 - registers the formats
    from canary_replay.errors import UsageError
    from canary_replay.modes.replay import replay_project
    from canary_replay.reporting import Style, format_of, known_formats

    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers is a number from 1 on, not {options.workers}")
    shown = known_formats.get(options.format or "terminal")
    files = [(Path(name), format_of(name)) for name in dict.fromkeys(options.output)]
    project = _project(options)
    with _Outputs(files) as outputs:
        reporters = [
            shown.new(_stdout(for_people=shown.name == "terminal"), Style(color=_wants_color(options), quiet=options.quiet))
        ]
        reporters += [form.new(stream, Style()) for stream, form in outputs.streams()]
        see = [reporter.case for reporter in reporters]

        def everyone(result: Any) -> None:  # noqa: ANN401 - a CaseResult; importing it here would be for the name alone
            for one in see:
                one(result)

        report = replay_project(project, selection=_selection(options), workers=options.workers, see=everyone)
        for reporter in reporters:
            reporter.end(report)
    sys.stdout.flush()
    return report.verdict.exit_code


def _show(options: argparse.Namespace) -> int:
    from canary_replay import cassette as cassettes
    from canary_replay.errors import UsageError
    from canary_replay.modes.show import show

    paths = [options.cassette] if options.cassette.suffix == ".json" else _cassettes_of(_root(options), str(options.cassette))
    for number, path in enumerate(paths):
        stored = cassettes.read_whole(path)
        if stored is None:
            raise UsageError(f"{path} does not exist")
        if number:
            _say("")
        for line in show(stored, wire=options.wire):
            _say(line)
    return 0


def _cassettes_of(root: Path, case: str) -> list[Path]:
    from canary_replay.cassette import file_name
    from canary_replay.errors import UsageError

    found = sorted(root.glob(f"cassettes/*/*/cases/{file_name(case)}.json"))
    if not found:
        raise UsageError(f"no target has a cassette of case {case!r}; record it with: nox -s record")
    return found


def _verify(options: argparse.Namespace) -> int:
    from canary_replay.modes.verify import verify

    result = verify(_root(options), options.paths)
    for finding in result.findings:
        _say(f"{finding.path}: {finding.text}")
    wrong = len(result.findings)
    state = "everything agrees" if not wrong else f"{wrong} {'thing does' if wrong == 1 else 'things do'} not agree"
    cassettes = "1 cassette" if result.cassettes == 1 else f"{result.cassettes} cassettes"
    recordings = "1 recording" if result.recordings == 1 else f"{result.recordings} recordings"
    _say(f"{cassettes}, {recordings}: {state}")
    return 2 if wrong else 0


def _scan(options: argparse.Namespace) -> int:
    from canary_replay.modes.scan import scan

    found = 0
    for line in scan(_root(options), options.paths, environ=os.environ):
        _say(line)
        found += 1
    _say(f"{found} {'thing looks' if found == 1 else 'things look'} like a key" if found else "nothing looks like a key")
    return 1 if found else 0


def _probes_list(options: argparse.Namespace) -> int:
    import canary_replay.probes  # noqa: F401 - registers the built-in ones
    from canary_replay.probing import known_probes

    if options.project is not None:
        _project(options)
    known_probes.load_installed()
    names = sorted(known_probes)
    width = max(len(name) for name in names)
    for name in names:
        found = known_probes.get(name)
        _say(f"{name:<{width}}  {found.category:<10}  {found.doc.splitlines()[0] if found.doc else ''}")
    return 0


def _probes_show(options: argparse.Namespace) -> int:
    import inspect

    import canary_replay.probes  # noqa: F401 - registers the built-in ones
    from canary_replay.probing import known_probes

    if options.project is not None:
        _project(options)
    found = known_probes.get(options.probe)
    _say(f"{found.name} ({found.category}, version {found.version})")
    _say("")
    _say(inspect.cleandoc(found.doc) if found.doc else "It has no documentation.")
    if found.parameters is not None:
        _say("")
        _say("parameters:")
        for name, field in found.parameters.model_fields.items():
            default = "required" if field.is_required() else f"default {field.get_default(call_default_factory=True)!r}"
            _say(f"  {field.alias or name}: {default}{'; ' + field.description if field.description else ''}")
    return 0


# ------------------------------------------------------------------------------------------------ what commands share
def _root(options: argparse.Namespace) -> Path:
    """The project's folder: the one named, else the nearest one here or above that has ``suites/``."""
    if options.project is not None:
        return Path(options.project)
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "suites").is_dir()), here)


def _project(options: argparse.Namespace) -> Project:
    from canary_replay.project import load_project

    return load_project(_root(options), suites=getattr(options, "suites", ()))


def _selection(options: argparse.Namespace) -> Selection:
    from canary_replay.modes.selecting import Selection

    return Selection(
        cases=tuple(options.case),
        tags=options.tags,
        probes=tuple(getattr(options, "probe", ())),
        categories=tuple(getattr(options, "category", ())),
        targets=tuple(options.target),
    )


class _Outputs:
    """Report files: written aside and renamed when the report is whole, so that nobody reads half of one."""

    def __init__(self, files: Sequence[tuple[Path, Any]]) -> None:
        self._files = [(path, path.with_name(f".{path.name}.tmp"), form) for path, form in files]
        self._open: list[BinaryIO] = []

    def __enter__(self) -> Self:
        for path, aside, _form in self._files:
            try:
                self._open.append(_opened(path, aside))
            except OSError as error:
                self.__exit__(type(error))
                from canary_replay.errors import UsageError

                raise UsageError(f"the report {str(path)!r} cannot be written: {error.strerror}") from None
        return self

    def streams(self) -> Iterator[tuple[BinaryIO, Any]]:
        """Each open file with the format that goes into it."""
        for stream, (_path, _aside, form) in zip(self._open, self._files, strict=True):
            yield stream, form

    def __exit__(self, kind: object, *_rest: object) -> None:
        for stream, (path, aside, _form) in zip(self._open, self._files, strict=False):  # fewer, where one could not be opened
            stream.close()
            if kind is None:
                aside.replace(path)
            else:
                aside.unlink()


def _opened(path: Path, aside: Path) -> BinaryIO:
    """The file beside a report's place; an OSError where the report could not be put there in the end."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(aside, "wb")


def _stdout(*, for_people: bool) -> BinaryIO:
    """Standard output; what a program reads is UTF-8 whatever the console's encoding, the same bytes as in a file."""
    if not for_people and hasattr(sys.stdout, "buffer"):
        return sys.stdout.buffer
    return _Encoded(sys.stdout)  # type: ignore[return-value]  # it has the one method that reporters use


class _Encoded:
    """Standard output as a binary stream that survives a console which cannot show every character."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - any text stream
        self._stream = stream
        self._raw = getattr(stream, "buffer", None)
        self._encoding = (getattr(stream, "encoding", None) or "utf-8").lower()

    def write(self, data: bytes) -> int:
        """Write UTF-8 bytes in the console's encoding; what it cannot show is written as an escape."""
        if self._raw is None or self._encoding not in {"utf-8", "utf8"}:
            text = data.decode("utf-8").encode(self._encoding, "backslashreplace").decode(self._encoding)
            self._stream.write(text)
        else:
            self._raw.write(data)
        return len(data)


def _say(line: str) -> None:
    _Encoded(sys.stdout).write((line + "\n").encode("utf-8", "backslashreplace"))


def _tell(line: str) -> None:
    sys.stdout.flush()
    _Encoded(sys.stderr).write((line + "\n").encode("utf-8", "backslashreplace"))


def _wants_color(options: argparse.Namespace) -> bool:
    if options.color != "auto":
        return bool(options.color == "always")
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
