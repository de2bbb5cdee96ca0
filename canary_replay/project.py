"""Find and load a project: its suites, their targets, cases and probes, with every mistake told as file, line and what to do."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import tomli
from pydantic import BaseModel, ValidationError

import canary_replay.probes  # noqa: F401 - registers the built-in probes
from canary_replay import case_files, probe_files
from canary_replay.errors import UsageError, nearest, unknown
from canary_replay.expectations import expectations
from canary_replay.probing import BoundProbe, bind, known_probes
from canary_replay.prompt import fill, fill_in, named_in
from canary_replay.request import Request
from canary_replay.scope import compile_scope
from canary_replay.suite import Case, File, ProbeTable, Suite, Table, Target
from canary_replay.toml_places import TomlPlaces
from canary_replay.wrong_values import Loc, usage_error

DEFAULTS: dict[str, Any] = {"temperature": 0, "seed": 0}
_SUITE_FILE = -1  # in CaseRef.file: the case stands in the suite file itself


class CaseRef(NamedTuple):
    """Where a case is to be read; light, so that 100,000 of them cost little.

    :ivar origin: ``file:line``, for messages.
    :ivar file: the number of the case file in the suite, or -1 for the suite file.
    :ivar offset: where in that file.
    :ivar tags: every tag that scopes see, the file's own and the group among them.
    :ivar judged: whether the case has expectations.
    """

    id: str
    origin: str
    file: int
    offset: int
    tags: frozenset[str]
    required: bool
    judged: bool


@dataclass(frozen=True)
class ResolvedTarget:
    """A target with everything that it extends filled in, and its files read."""

    name: str
    model: str
    provider: str | None
    system: str | None
    tools: tuple[dict[str, Any], ...]
    parameters: dict[str, Any]
    against: str | None
    api_base: str | None
    headers: dict[str, str]
    metadata: dict[str, str]


@dataclass(frozen=True)
class LoadedSuite:
    """A suite, ready to be asked or scored.

    :ivar root: the project's folder; ``path`` is the suite file from there.
    :ivar reference: the name of the target whose cassettes are the baseline.
    :ivar targets: by name, the reference first.
    :ivar refs: every case, sorted by id.
    """

    root: Path
    path: str
    suite: Suite
    reference: str
    targets: dict[str, ResolvedTarget]
    probes: tuple[BoundProbe, ...]
    refs: list[CaseRef]
    _csv: dict[int, list[case_files.CsvRow]] = field(default_factory=dict, repr=False)
    _texts: dict[str, str] = field(default_factory=dict, repr=False)
    _tools: dict[str, tuple[dict[str, Any], ...]] = field(default_factory=dict, repr=False)
    _names: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The suite's name."""
        return self.suite.name

    @property
    def file(self) -> Path:
        """The suite file."""
        return self.root / self.path

    def case(self, ref: CaseRef) -> Case:
        """Read and check one case.

        :raises UsageError: it does not fit; the message names file, line and key.
        """
        [(_ref, case)] = self.cases([ref])
        return case

    def cases(self, refs: Iterable[CaseRef] | None = None) -> Iterator[tuple[CaseRef, Case]]:
        """The cases behind these refs, in their order, one at a time; all of them, sorted by id, by default.

        Bodies of JSON lines are read when their turn comes, so that any number of cases needs no memory.

        :raises UsageError: one does not fit; the message names file, line and key.
        """
        with ExitStack() as files:
            opened: dict[int, BinaryIO] = {}
            for ref in self.refs if refs is None else refs:
                if ref.file == _SUITE_FILE:
                    yield ref, self.suite.cases[ref.offset]  # checked when the suite was loaded
                    continue
                if ref.file not in self._csv and ref.file not in opened:
                    opened[ref.file] = files.enter_context(self._open(ref))
                case = self._read(ref, opened.get(ref.file))
                _check_case(case, ref, self)
                yield ref, case

    def _open(self, ref: CaseRef) -> BinaryIO:
        return case_files.opened(self.file.parent / self.suite.cases_from[ref.file].file, ref.origin.rpartition(":")[0])

    def _read(self, ref: CaseRef, file: BinaryIO | None) -> Case:
        if file is None:
            data = dict(self._csv[ref.file][ref.offset].data)
        else:
            file.seek(ref.offset)
            data = case_files.json_object(file.readline().removeprefix(case_files.BOM), ref.origin)
        if given := self.suite.cases_from[ref.file].tags:
            data["tags"] = [*data.get("tags", ()), *given]
        return case_files.case_from(data, ref.origin)

    def system_of(self, case: Case, where: str) -> str | None:
        """The system prompt that a case brings along; None when it has none of its own."""
        if not isinstance(case.system, File):
            return case.system
        name = case.system.file
        if name not in self._texts:
            self._texts[name] = _text(self.root, self.file, case.system, where) or ""
        return self._texts[name]

    def tools_of(self, case: Case, where: str) -> tuple[dict[str, Any], ...] | None:
        """The tools that a case brings along; None when it has none of its own."""
        if case.tools is None:
            return None
        if not isinstance(case.tools, File):
            return _checked_tools(case.tools, where)
        name = case.tools.file
        if name not in self._tools:
            self._tools[name] = _tools(self.root, self.file, case.tools, where)
        return self._tools[name]

    def names_in_system(self, target: ResolvedTarget) -> frozenset[str]:
        """The names in braces in a target's system prompt."""
        if target.name not in self._names:
            self._names[target.name] = frozenset(named_in([target.system]))
        return self._names[target.name]


@dataclass(frozen=True)
class Project:
    """A folder with suites."""

    root: Path
    suites: tuple[LoadedSuite, ...]


def load_project(root: Path, *, suites: Sequence[str] = ()) -> Project:
    """Load a project.

    :param suites: names or files of suites; all of ``suites/*.toml`` by default.
    :raises UsageError: there is nothing to load, or something in it is wrong.
    """
    root = root.resolve()
    if not root.is_dir():
        raise UsageError(f"there is no folder {str(root)!r}")
    loaded = sorted((_load_suite(root, path) for path in _suite_files(root, suites)), key=lambda suite: suite.name)
    for one, other in pairwise(loaded):
        if one.name == other.name:
            raise UsageError(f"{one.path} and {other.path} are both named {one.name!r}; rename one of them")
    return Project(root, tuple(loaded))


def _suite_files(root: Path, wanted: Sequence[str]) -> list[Path]:
    found = sorted((root / "suites").glob("*.toml"))
    if not wanted:
        if not found:
            looked = f"looked for suites/*.toml in {str(root)!r}"
            raise UsageError(f"there is no suite: {looked}; write suites/first.toml, or name the project's folder with --project")
        return found
    return list(dict.fromkeys(_suite_file(root, name, found) for name in wanted))


def _suite_file(root: Path, name: str, found: Sequence[Path]) -> Path:
    for path in (Path(name), root / name):
        if path.suffix == ".toml" and path.is_file():
            if not path.resolve().is_relative_to(root):
                raise UsageError(f"the suite {name!r} is outside the project {str(root)!r}; name its folder with --project")
            return path.resolve()
    for path in found:
        if path.stem == name or _name_in(path) == name:
            return path
    known = {path.stem for path in found} | {own for path in found if (own := _name_in(path))}
    raise UsageError(unknown("suite", name, known))


def _name_in(path: Path) -> str | None:
    """The name that a suite file gives itself; None when it cannot be read, which is told when it is loaded."""
    try:
        found = tomli.loads(path.read_bytes().removeprefix(case_files.BOM).decode("utf-8")).get("name")
    except (ValueError, OSError, RecursionError):
        return None
    return found if isinstance(found, str) else None


# ------------------------------------------------------------------------------------------------ a suite
class _Source(NamedTuple):
    """A TOML file that was read: what messages call it, where its keys stand, what it holds."""

    shown: str
    places: TomlPlaces
    data: dict[str, Any]

    def where(self, path: Loc) -> str:
        return f"{self.shown}:{self.places.line(path)}"


def _read_toml(root: Path, path: Path) -> _Source:
    shown = _shown(root, path)
    try:
        text = path.read_bytes().removeprefix(case_files.BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{shown}: cannot be read: {error.strerror}") from None
    try:
        data = tomli.loads(text)
        source = _Source(shown, TomlPlaces(text), data)
        _refuse_what_json_lacks(data, source, ())
    except tomli.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(found.group(1)) if found else text.rstrip().count("\n") + 1
        raise UsageError(f"{shown}:{line}: is not TOML: {str(error).partition(' (at')[0]}") from None
    except RecursionError:
        raise UsageError(f"{shown}: is nested too deeply") from None
    return source


def _refuse_what_json_lacks(value: Any, source: _Source, path: Loc) -> None:  # noqa: ANN401 - any TOML
    """Dates, nan, infinities and giant integers: a request or a cassette could not hold them."""
    if isinstance(value, dict):
        for key, one in value.items():
            _refuse_what_json_lacks(one, source, (*path, key))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            _refuse_what_json_lacks(one, source, (*path, number))
    elif not _in_json(value):
        raise UsageError(f"{source.where(path)}: {path[-1]}: {value} cannot be sent as JSON; write it as a text, in quotes")


def _in_json(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, str)


def _load_suite(root: Path, path: Path) -> LoadedSuite:
    if not path.resolve().is_relative_to(root):
        raise UsageError(f"{_shown(root, path)}: is a link to a file outside the project; keep what a suite needs inside it")
    source = _read_toml(root, path)
    try:
        suite = Suite.model_validate(source.data)
    except ValidationError as error:
        raise usage_error(error, model=Suite, data=source.data, where=source.where) from None
    targets = _targets(root, path, suite, source)
    reference = _reference(suite, targets, source)
    csv: dict[int, list[case_files.CsvRow]] = {}
    loaded = LoadedSuite(
        root=root,
        path=source.shown,
        suite=suite,
        reference=reference,
        targets={reference: targets[reference], **targets},
        probes=_probes(root, suite, source),
        refs=_refs(root, path, suite, source, csv),
        _csv=csv,
    )
    for ref in loaded.refs:
        if ref.file == _SUITE_FILE:
            _check_case(suite.cases[ref.offset], ref, loaded)
            expected_of(ref, suite.cases[ref.offset])
    return loaded


def _reference(suite: Suite, targets: dict[str, ResolvedTarget], source: _Source) -> str:
    if not targets:
        raise UsageError(f"{source.where(('targets',))}: a suite needs at least one target: [targets.current] with a model")
    if suite.reference is not None:
        if suite.reference not in targets:
            raise UsageError(f"{source.where(('reference',))}: reference: {unknown('target', suite.reference, targets)}")
        return suite.reference
    return next((name for name, target in targets.items() if target.against is None), next(iter(targets)))


def _targets(root: Path, path: Path, suite: Suite, source: _Source) -> dict[str, ResolvedTarget]:
    resolved = {}
    for name in suite.targets:
        table = _extended(name, suite, source, ())
        where = f"{source.where(('targets', name))}: targets.{name}"
        if table.model is None and table.provider is None:
            raise UsageError(f"{where}: has no model; give it one, or extend a target that has one")
        against = suite.targets[name].against
        if against is not None and (against == name or against not in suite.targets):
            others = [other for other in suite.targets if other != name]
            raise UsageError(f"{source.where(('targets', name, 'against'))}: against: {unknown('other target', against, others)}")
        resolved[name] = ResolvedTarget(
            name=name,
            model=table.model or str(table.provider),
            provider=table.provider,
            system=_text(root, path, table.system, _where_said("system", name, suite, source)),
            tools=_tools(root, path, table.tools, _where_said("tools", name, suite, source)),
            parameters=table.parameters,
            against=against,
            api_base=table.api_base,
            headers=table.headers,
            metadata=table.metadata,
        )
    return resolved


def _where_said(key: str, name: str, suite: Suite, source: _Source) -> str:
    """Where a target, or the one that it extends, says this; for messages."""
    while key not in suite.targets[name].model_fields_set and (base := suite.targets[name].extends):
        name = base
    return f"{source.where(('targets', name, key))}: targets.{name}.{key}"


def _extended(name: str, suite: Suite, source: _Source, seen: tuple[str, ...]) -> Target:
    """A target with what it extends filled in: what it says itself counts, parameters key by key."""
    table = suite.targets[name]
    if table.extends is None:
        return table
    place = source.where(("targets", name, "extends"))
    if name in seen:
        raise UsageError(f"{place}: targets extend each other in a circle: {' -> '.join((*seen, name))}")
    if table.extends not in suite.targets:
        raise UsageError(f"{place}: extends: {unknown('target', table.extends, suite.targets)}")
    base = _extended(table.extends, suite, source, (*seen, name))
    own = {key: getattr(table, key) for key in table.model_fields_set}
    for key in ("parameters", "headers", "metadata"):
        own[key] = {**getattr(base, key), **getattr(table, key)}
    return base.model_copy(update=own)


# ------------------------------------------------------------------------------------------------ files that a suite names
def _shown(root: Path, path: Path) -> str:
    """What messages call a file: its path from the project's folder."""
    return Path(os.path.relpath(path, root)).as_posix()


def _inside(root: Path, folder: Path, name: str, where: str) -> Path:
    """A file that a suite names.

    :raises UsageError: it leaves the project, or does not exist; the message names the nearest that does.
    """
    path = folder / name
    try:
        inside, there = path.resolve().is_relative_to(root), path.is_file()
    except (OSError, RuntimeError, ValueError):  # links in a circle, a NUL, a name too long for the disk
        raise UsageError(f"{where}: {name!r} cannot be the name of a file") from None
    if not inside:
        raise UsageError(f"{where}: the file {name!r} is outside the project; keep what a suite needs inside it")
    if not there:
        near = nearest(name, _files_near(folder, path))
        hint = f"; did you mean {near!r}?" if near else ""
        raise UsageError(f"{where}: there is no file {_shown(root, path)!r}{hint}")
    return path


def _files_near(folder: Path, path: Path) -> list[str]:
    """The files beside one that does not exist, or, where its folder does not exist either, those in the folders around."""
    beside = path.parent.is_dir()
    found = path.parent.glob("*") if beside else folder.glob("*/*")
    return sorted(Path(os.path.relpath(one, folder)).as_posix() for one in found if one.is_file())


def _text(root: Path, suite_file: Path, given: str | File | None, where: str) -> str | None:
    """A text as it is given, or as it stands in its file: every line end is a newline, and the last one is no part of it."""
    if not isinstance(given, File):
        return given
    path = _inside(root, suite_file.parent, given.file, where)
    try:
        text = path.read_bytes().removeprefix(case_files.BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{_shown(root, path)}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{_shown(root, path)}: cannot be read: {error.strerror}") from None
    return text.replace("\r\n", "\n").removesuffix("\n")


def _tools(
    root: Path, suite_file: Path, given: tuple[dict[str, Any], ...] | File | None, where: str
) -> tuple[dict[str, Any], ...]:
    if given is None:
        return ()
    if not isinstance(given, File):
        return _checked_tools(given, where)
    path = _inside(root, suite_file.parent, given.file, where)
    shown = _shown(root, path)
    try:
        found = msgspec.json.decode(path.read_bytes().removeprefix(case_files.BOM))
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{shown}: is not JSON: {error}") from None
    except OSError as error:
        raise UsageError(f"{shown}: cannot be read: {error.strerror}") from None
    if not isinstance(found, list):
        raise UsageError(f"{shown}: should be a list of tools, as in OpenAI's API")
    return _checked_tools(found, shown)


def _checked_tools(tools: Iterable[Any], where: str) -> tuple[dict[str, Any], ...]:
    found = tuple(tools)
    for number, tool in enumerate(found):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            problem = 'is not {"type": "function", "function": {"name": ..., "parameters": ...}}'
            raise UsageError(f"{where}: tool {number + 1} {problem}")
    return found


# ------------------------------------------------------------------------------------------------ cases
def _refs(root: Path, path: Path, suite: Suite, source: _Source, csv: dict[int, list[case_files.CsvRow]]) -> list[CaseRef]:
    """Every case of the suite, sorted by id; rows of CSV files are put into ``csv``."""
    tag_sets: dict[tuple[str, ...], frozenset[str]] = {}

    def tags_of(*tags: str) -> frozenset[str]:
        return tag_sets.setdefault(tags, frozenset(tags))

    refs = [
        CaseRef(
            id=case.id,
            origin=source.where(("cases", number)),
            file=_SUITE_FILE,
            offset=number,
            tags=case.all_tags,
            required=case.required,
            judged=case_files.expects_something(case.expect.model_dump(by_alias=True, exclude_unset=True)),
        )
        for number, case in enumerate(suite.cases)
    ]
    named: dict[Path, str] = {}
    for number, table in enumerate(suite.cases_from):
        where = source.where(("cases_from", number, "file"))
        file = _inside(root, path.parent, table.file, where)
        if (first := named.setdefault(file.resolve(), where)) != where:
            raise UsageError(f"{where}: the file {table.file!r} is named at {first} too; its cases would all stand twice")
        shown = _shown(root, file)
        refs += [
            CaseRef(row.id, f"{shown}:{row.line}", number, row.offset, tags_of(*row.tags, *table.tags), row.required, row.judged)
            for row in _rows(file, shown, where, number, csv)
        ]
    refs.sort(key=lambda ref: ref.id)
    for one, other in pairwise(refs):
        if one.id == other.id:
            raise UsageError(f"{other.origin}: the case id {one.id!r} stands at {one.origin} too; ids are unique in a suite")
    return refs


def _rows(file: Path, shown: str, where: str, number: int, csv: dict[int, list[case_files.CsvRow]]) -> Iterator[case_files.Row]:
    if file.suffix == ".jsonl":
        yield from case_files.json_rows(file, shown=shown)
    elif file.suffix == ".csv":
        csv[number] = case_files.csv_rows(file, shown=shown)
        for place, row in enumerate(csv[number]):
            yield case_files.head_of(row, place, shown=shown)
    else:
        raise UsageError(f"{where}: cases are read from .jsonl and .csv files, not from {shown!r}; rename it, or convert it")


def _check_case(case: Case, ref: CaseRef, suite: LoadedSuite) -> None:
    """What only shows when a case is seen in its suite: whether its files exist, and its variables and its texts fit."""
    where = f"{ref.origin}: case {case.id!r}"
    own_system = suite.system_of(case, where)
    suite.tools_of(case, where)
    if not case.variables:
        return
    used = named_in([case.user, case.messages, own_system])
    _refuse_unknown_names(used, case, where)
    if case.system is None:
        for target in suite.targets.values():
            names = suite.names_in_system(target)
            _refuse_unknown_names(names, case, f"{where}: in the system prompt of {target.name!r}")
            used |= names
    for name in sorted(case.variables.keys() - used):
        near = nearest(name, used)
        hint = f"did you mean {near!r}?" if near else f"write {{{name}}} where it goes"
        raise UsageError(f"{where}: no text uses the variable {name!r}; {hint}")


def _refuse_unknown_names(names: Iterable[str], case: Case, where: str) -> None:
    for name in sorted(set(names) - case.variables.keys()):
        hint = f"{{{{{name}}}}} writes it as it is"
        raise UsageError(f"{where}: {unknown('variable', name, case.variables)}; {hint}")


def expected_of(ref: CaseRef, case: Case) -> tuple[BoundProbe, ...]:
    """The rules that a case brings along.

    :raises UsageError: an expectation is wrong; the message names file and line.
    """
    try:
        return expectations(case)
    except UsageError as error:
        raise UsageError(f"{ref.origin}: {error}") from None


def request_for(case: Case, target: ResolvedTarget, suite: LoadedSuite) -> Request:
    """The provider-neutral request of a case: system prompt first, variables filled in, the case's parameters over the target's.

    :raises UsageError: a file that the case names cannot be read.
    """
    where = f"{suite.path}: case {case.id!r}"
    system = target.system if case.system is None else suite.system_of(case, where)
    tools = suite.tools_of(case, where)
    messages: list[dict[str, Any]] = []
    if system:
        messages.append({"role": "system", "content": fill(system, case.variables)})
    if case.user is not None:
        messages.append({"role": "user", "content": fill(case.user, case.variables)})
    else:
        messages += fill_in(list(case.messages), case.variables)
    return Request(
        model=target.model,
        messages=tuple(messages),
        tools=target.tools if tools is None else tools,
        parameters={**DEFAULTS, **target.parameters, **case.parameters},
    )


# ------------------------------------------------------------------------------------------------ probes
class _Configured(NamedTuple):
    """The table of a probe, and where it stands: the file, and the path of the table in it."""

    table: ProbeTable
    source: _Source
    path: Loc

    def where(self, *keys: str) -> str:
        return self.source.where((*self.path, *keys))


def _probes(root: Path, suite: Suite, source: _Source) -> tuple[BoundProbe, ...]:
    """The probes of a suite's files and of its own tables, sorted by name."""
    probe_files.forget_all()
    configured: list[_Configured] = []
    offered: list[tuple[str, str]] = []
    named: dict[Path, str] = {}
    for number, name in enumerate(suite.probes):
        where = source.where(("probes", number))
        file = _inside(root, root, name, where)
        shown = _shown(root, file)
        if (first := named.setdefault(file.resolve(), name)) != name or name in suite.probes[:number]:
            raise UsageError(f"{where}: the probe file {name!r} is named twice, first as {first!r}; keep one of them")
        if file.suffix == ".py":
            offered += [(probe, shown) for probe in probe_files.load_python(file.resolve(), shown=shown)]
        elif file.suffix == ".toml":
            configured += _probe_tables(_read_toml(root, file))
        else:
            raise UsageError(f"{where}: probes are read from .toml and .py files, not from {name!r}")
    configured += [_Configured(table, source, ("probes_inline", number)) for number, table in enumerate(suite.probes_inline)]
    bound = [_bound(one) for one in configured]
    used = {one.table.use for one in configured}
    unused = [(probe, shown) for probe, shown in offered if probe not in used and not _needs_parameters(probe)]
    bound += [bind(probe, {}, name=probe, origin=shown) for probe, shown in unused]
    bound.sort(key=lambda one: one.name)
    for one, other in pairwise(bound):
        if one.name == other.name:
            problem = f"the probe name {one.name!r} stands at {one.origin} too; names are unique in a suite"
            raise UsageError(f"{other.origin}: {problem}")
    return tuple(bound)


class _ProbeFile(Table):
    """A TOML file of probes: the same tables as ``[[probes_inline]]``, under ``[[probe]]``."""

    probe: tuple[ProbeTable, ...] = ()


def _probe_tables(source: _Source) -> list[_Configured]:
    try:
        found = _ProbeFile.model_validate(source.data)
    except ValidationError as error:
        raise usage_error(error, model=_ProbeFile, data=source.data, where=source.where) from None
    return [_Configured(table, source, ("probe", number)) for number, table in enumerate(found.probe)]


def _needs_parameters(name: str) -> bool:
    parameters = known_probes.get(name).parameters
    return parameters is not None and any(info.is_required() for info in parameters.model_fields.values())


def _bound(one: _Configured) -> BoundProbe:
    table = one.table
    named = f"probe {table.name!r}"
    if table.use not in known_probes:
        known_probes.load_installed()
    if table.use not in known_probes:
        raise UsageError(f"{one.where('use')}: {named}: {unknown('probe', table.use, known_probes)}")
    try:
        applies = compile_scope(table.scope)
    except UsageError as error:
        raise UsageError(f"{one.where('scope')}: {named}: {error}") from None
    try:
        return bind(
            table.use,
            table.parameters,
            name=table.name,
            applies=applies,
            scope=table.scope,
            threshold=table.threshold,
            category=table.category,
            gate=table.gate,
            required=table.required,
            origin=one.where(),
        )
    except ValidationError as error:
        raise _wrong_parameter(error, one) from None
    except UsageError as error:
        raise UsageError(f"{_place_of_parameter(one)}: {named}: {error}") from None


def _wrong_parameter(error: ValidationError, one: _Configured) -> UsageError:
    model = known_probes.get(one.table.use).parameters or BaseModel

    def where(path: Loc) -> str:
        return one.source.where((*one.path, *path))

    place, number, problem = str(usage_error(error, model=model, data=one.table.parameters, where=where)).split(":", 2)
    return UsageError(f"{place}:{number}: probe {one.table.name!r}:{problem}")


def _place_of_parameter(one: _Configured) -> str:
    """Where the first parameter stands that the probe does not know."""
    model = known_probes.get(one.table.use).parameters
    known = set() if model is None else {info.alias or name for name, info in model.model_fields.items()}
    return one.where(*[key for key in one.table.parameters if key not in known][:1])


# ------------------------------------------------------------------------------------------------ what is asked of a suite
def select(suite: LoadedSuite, *, cases: Sequence[str] = (), tags: str = "") -> list[CaseRef]:
    """The cases of these ids that are in this scope, sorted by id.

    :param cases: ids, or patterns such as ``tool-*``; a text that is an id means that case alone.
    :raises UsageError: an id is unknown, a pattern matches nothing, or the scope does not parse.
    """
    applies = compile_scope(tags)
    known = {ref.id for ref in suite.refs}
    wanted = {found for case in cases for found in _ids(case, known, suite)} if cases else known
    return [ref for ref in suite.refs if ref.id in wanted and applies(ref.tags)]


def _ids(case: str, known: set[str], suite: LoadedSuite) -> set[str]:
    if case in known:
        return {case}
    if re.search(r"[*?[]", case):
        from fnmatch import translate

        if found := set(filter(re.compile(translate(case)).match, known)):
            return found
        raise UsageError(f"{suite.path}: no case matches {case!r}")
    near = nearest(case, known)
    raise UsageError(f"{suite.path}: there is no case {case!r}" + (f"; did you mean {near!r}?" if near else ""))


def dead_scopes(suite: LoadedSuite) -> list[str]:
    """A sentence for each probe whose scope matches no case, with the nearest tag for those that no case has."""
    tag_sets = {ref.tags for ref in suite.refs}
    known = {tag for tags in tag_sets for tag in tags}
    found = []
    for bound in suite.probes:
        if suite.refs and not any(bound.applies(tags) for tags in tag_sets):
            strange = sorted(set(re.findall(r"[^\s()]+", bound.scope)) - {"and", "or", "not"} - known)
            hints = "".join(f"; no case has the tag {word!r}{_did_you_mean(word, known)}" for word in strange)
            found.append(f"{bound.origin}: the scope {bound.scope!r} of probe {bound.name!r} matches no case{hints}")
    return found


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = nearest(word, known)
    return f" (did you mean {near!r}?)" if near else ""


def unmatched_cases(suite: LoadedSuite) -> list[CaseRef]:
    """The cases that neither a probe nor an expectation judges."""
    judged = {tags: any(bound.applies(tags) for bound in suite.probes) for tags in {ref.tags for ref in suite.refs}}
    return [ref for ref in suite.refs if not ref.judged and not judged[ref.tags]]


def suite_schema() -> dict[str, Any]:
    """The JSON Schema of a suite file, for editors."""
    return Suite.model_json_schema(by_alias=True)
