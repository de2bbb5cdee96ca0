"""Find and load a project: its suites, their targets, cases and probes, with every mistake told as file, line and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

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
    _csv: dict[int, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The suite's name."""
        return self.suite.name

    def case(self, ref: CaseRef) -> Case:
        """Read and check one case.

        :raises UsageError: it does not fit; the message names file, line and key.
        """
        for _ref, case in self.cases([ref]):
            return case
        raise AssertionError  # pragma: no cover - one ref gives one case

    def cases(self, refs: Iterable[CaseRef] | None = None) -> Iterator[tuple[CaseRef, Case]]:
        """The cases behind these refs, one at a time, all of them by default.

        :raises UsageError: one does not fit; the message names file, line and key.
        """
        opened: dict[int, Any] = {}
        try:
            for ref in self.refs if refs is None else refs:
                case = self.suite.cases[ref.offset] if ref.file == _SUITE_FILE else self._read(ref, opened)
                _check_case(case, ref, self._system_texts)
                yield ref, case
        finally:
            for file in opened.values():
                file.close()

    @property
    def _system_texts(self) -> list[str]:
        return [target.system for target in self.targets.values() if target.system]

    def _read(self, ref: CaseRef, opened: dict[int, Any]) -> Case:
        source = self.suite.cases_from[ref.file]
        path = self.root / self.path
        file = path.parent / source.file
        shown, _, line = ref.origin.rpartition(":")
        if file.suffix == ".csv":
            data = self._csv[ref.file][ref.offset][1]
        else:
            if ref.file not in opened:
                opened[ref.file] = open(file, "rb")  # noqa: SIM115 - closed by the caller
            opened[ref.file].seek(ref.offset)
            text = opened[ref.file].readline().removeprefix(case_files.BOM)
            data = case_files.parse_line(text, shown=shown, line=int(line))
        if source.tags:
            data["tags"] = [*data.get("tags", ()), *source.tags]
        try:
            return Case.model_validate(data)
        except ValidationError as error:
            raise usage_error(error, model=Case, data=data, where=lambda _path: ref.origin) from None


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
    probe_files.forget_all()
    loaded = sorted((_load_suite(root, path) for path in _suite_files(root, suites)), key=lambda suite: suite.name)
    for one, other in zip(loaded, loaded[1:], strict=False):
        if one.name == other.name:
            raise UsageError(f"{one.path} and {other.path} are both named {one.name!r}; rename one of them")
    return Project(root, tuple(loaded))


def _suite_files(root: Path, wanted: Sequence[str]) -> list[Path]:
    found = sorted((root / "suites").glob("*.toml"))
    if not wanted:
        if not found:
            raise UsageError(f"there is no suite: looked for suites/*.toml in {root.name!r}; write one, or name the project")
        return found
    return [_suite_file(root, name, found) for name in dict.fromkeys(wanted)]


def _suite_file(root: Path, name: str, found: Sequence[Path]) -> Path:
    for path in (Path(name), root / name):
        if path.suffix == ".toml" and path.is_file():
            if not path.resolve().is_relative_to(root):
                raise UsageError(f"the suite {name!r} is outside the project {root.name!r}; give --project")
            return path.resolve()
    for path in found:
        if path.stem == name or _name_in(path) == name:
            return path
    raise UsageError(unknown("suite", name, [path.stem for path in found]))


def _name_in(path: Path) -> str | None:
    """The name that a suite file gives itself; None when it cannot be read, which is told when it is loaded."""
    try:
        return str(tomli.loads(path.read_text("utf-8")).get("name"))
    except (tomli.TOMLDecodeError, UnicodeDecodeError, OSError):
        return None


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
    except tomli.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)|\(at end of document\)", str(error))
        line = int(found.group(1)) if found and found.group(1) else text.count("\n") + 1
        raise UsageError(f"{shown}:{line}: is not TOML: {str(error).partition(' (at')[0]}") from None
    except RecursionError:
        raise UsageError(f"{shown}: is nested too deeply") from None
    return _Source(shown, TomlPlaces(text), data)


def _load_suite(root: Path, path: Path) -> LoadedSuite:
    source = _read_toml(root, path)
    try:
        suite = Suite.model_validate(source.data)
    except ValidationError as error:
        raise usage_error(error, model=Suite, data=source.data, where=source.where) from None
    targets = _targets(root, path, suite, source)
    reference = _reference(suite, targets, source)
    ordered = {reference: targets[reference], **{name: one for name, one in targets.items() if name != reference}}
    csv: dict[int, list[tuple[int, dict[str, Any]]]] = {}
    return LoadedSuite(
        root=root,
        path=source.shown,
        suite=suite,
        reference=reference,
        targets=ordered,
        probes=_probes(root, suite, source),
        refs=_refs(root, path, suite, source, csv),
        _csv=csv,
    )


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
            system=_text(root, path, table.system, where),
            tools=_tools(root, path, table.tools, where),
            parameters=table.parameters,
            against=against,
            api_base=table.api_base,
            headers=table.headers,
            metadata=table.metadata,
        )
    return resolved


def _extended(name: str, suite: Suite, source: _Source, seen: tuple[str, ...]) -> Target:
    """A target with what it extends filled in: what it says itself counts, parameters key by key."""
    table = suite.targets[name]
    if table.extends is None:
        return table
    place = source.where(("targets", name, "extends"))
    if name in seen or table.extends == name:
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
    try:
        return path.relative_to(root).as_posix()
    except ValueError:
        return str(path)


def _inside(root: Path, folder: Path, name: str, where: str) -> Path:
    """A file that a suite names.

    :raises UsageError: it leaves the project, or does not exist; the message names the nearest that does.
    """
    path = folder / name
    if not path.resolve().is_relative_to(root):
        raise UsageError(f"{where}: the file {name!r} is outside the project; keep what a suite needs inside it")
    if not path.is_file():
        near = nearest(name, [_shown(folder, one) for one in sorted(path.parent.glob("*"))]) if path.parent.is_dir() else None
        hint = f"; did you mean {near!r}?" if near else ""
        raise UsageError(f"{where}: there is no file {_shown(root, path)!r}{hint}")
    return path


def _text(root: Path, suite_file: Path, given: str | File | None, where: str) -> str | None:
    if not isinstance(given, File):
        return given
    path = _inside(root, suite_file.parent, given.file, where)
    try:
        text = path.read_bytes().removeprefix(case_files.BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{_shown(root, path)}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None
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
        found = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise UsageError(f"{shown}: is not JSON: {error}") from None
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
def _refs(
    root: Path, path: Path, suite: Suite, source: _Source, csv: dict[int, list[tuple[int, dict[str, Any]]]]
) -> list[CaseRef]:
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
            judged=bool(case.expect.model_fields_set),
        )
        for number, case in enumerate(suite.cases)
    ]
    for number, table in enumerate(suite.cases_from):
        file = _inside(root, path.parent, table.file, source.where(("cases_from", number)))
        shown = _shown(root, file)
        if file.suffix == ".csv":
            csv[number] = case_files.csv_rows(file, shown=shown)
        refs += [
            CaseRef(row.id, f"{shown}:{row.line}", number, row.offset, tags_of(*row.tags, *table.tags), row.required, row.judged)
            for row in case_files.rows(file, shown=shown)
        ]
    refs.sort(key=lambda ref: ref.id)
    for one, other in zip(refs, refs[1:], strict=False):
        if one.id == other.id:
            raise UsageError(f"{other.origin}: the case id {one.id!r} stands at {one.origin} too; ids are unique in a suite")
    return refs


def _check_case(case: Case, ref: CaseRef, system_texts: Sequence[str]) -> None:
    """What only shows when a case is seen whole: its variables and its expectations."""
    if case.variables:
        own = named_in([case.user, case.messages, case.system if isinstance(case.system, str) else None])
        for name in sorted(own - case.variables.keys()):
            raise UsageError(f"{ref.origin}: case {case.id!r}: {unknown('variable', name, case.variables)}")
        used = own | named_in(system_texts)
        for name in sorted(case.variables.keys() - used):
            if not isinstance(case.system, File):
                raise UsageError(f"{ref.origin}: case {case.id!r}: no text uses the variable {name!r}; write {{{name}}} where it goes")
    try:
        expectations(case)
    except UsageError as error:
        raise UsageError(f"{ref.origin}: {error}") from None


def request_for(case: Case, target: ResolvedTarget, suite: LoadedSuite) -> Request:
    """The provider-neutral request of a case: system prompt first, variables filled in, the case's parameters over the target's.

    :raises UsageError: a file that the case names cannot be read.
    """
    path = suite.root / suite.path
    where = f"{suite.path}: case {case.id!r}"
    system = target.system if case.system is None else _text(suite.root, path, case.system, where)
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
        tools=target.tools if case.tools is None else _case_tools(suite.root, path, case.tools, where),
        parameters={**DEFAULTS, **target.parameters, **case.parameters},
    )


def _case_tools(root: Path, path: Path, given: tuple[dict[str, Any], ...] | File, where: str) -> tuple[dict[str, Any], ...]:
    return _tools_of_file(root, path, given.file) if isinstance(given, File) else _checked_tools(given, where)


@lru_cache(maxsize=64)
def _tools_of_file(root: Path, path: Path, name: str) -> tuple[dict[str, Any], ...]:
    return _tools(root, path, File(file=name), _shown(root, path))


# ------------------------------------------------------------------------------------------------ probes
def _probes(root: Path, suite: Suite, source: _Source) -> tuple[BoundProbe, ...]:
    """The probes of a suite's files and of its own tables, sorted by name."""
    tables: list[tuple[ProbeTable, str]] = []
    offered: list[tuple[str, str]] = []
    for number, name in enumerate(suite.probes):
        file = _inside(root, root, name, source.where(("probes", number)))
        shown = _shown(root, file)
        if file.suffix == ".py":
            offered += [(probe, shown) for probe in probe_files.load_python(file, shown=shown)]
        elif file.suffix == ".toml":
            tables += _probe_tables(_read_toml(root, file))
        else:
            raise UsageError(f"{source.where(('probes', number))}: probes are read from .toml and .py files, not from {name!r}")
    tables += [(table, source.where(("probes_inline", number))) for number, table in enumerate(suite.probes_inline)]
    bound = [_bound(table, origin) for table, origin in tables]
    configured = {table.use for table, _origin in tables}
    bound += [
        bind(probe, {}, name=probe, origin=shown)
        for probe, shown in offered
        if probe not in configured and not _needs_parameters(probe)
    ]
    bound.sort(key=lambda one: one.name)
    for one, other in zip(bound, bound[1:], strict=False):
        if one.name == other.name:
            raise UsageError(f"{other.origin}: the probe name {one.name!r} stands at {one.origin} too; names are unique in a suite")
    return tuple(bound)


class _ProbeFile(Table):
    """A TOML file of probes: the same tables as ``[[probes_inline]]``, under ``[[probe]]``."""

    probe: tuple[ProbeTable, ...] = ()


def _probe_tables(source: _Source) -> list[tuple[ProbeTable, str]]:
    try:
        found = _ProbeFile.model_validate(source.data)
    except ValidationError as error:
        raise usage_error(error, model=_ProbeFile, data=source.data, where=source.where) from None
    return [(table, source.where(("probe", number))) for number, table in enumerate(found.probe)]


def _needs_parameters(name: str) -> bool:
    parameters = known_probes.get(name).parameters
    return parameters is not None and any(info.is_required() for info in parameters.model_fields.values())


def _bound(table: ProbeTable, origin: str) -> BoundProbe:
    try:
        return bind(
            table.use,
            table.parameters,
            name=table.name,
            applies=compile_scope(table.scope),
            scope=table.scope,
            threshold=table.threshold,
            category=table.category,
            gate=table.gate,
            required=table.required,
            origin=origin,
        )
    except ValidationError as error:
        model = known_probes.get(table.use).parameters or BaseModel
        problem = str(usage_error(error, model=model, data=table.parameters, where=lambda _path: origin)).removeprefix(f"{origin}: ")
        raise UsageError(f"{origin}: probe {table.name!r}: {problem}") from None
    except UsageError as error:
        raise UsageError(f"{origin}: probe {table.name!r}: {error}") from None


# ------------------------------------------------------------------------------------------------ what is asked of a suite
def select(suite: LoadedSuite, *, cases: Sequence[str] = (), tags: str = "") -> list[CaseRef]:
    """The cases of these ids that are in this scope, sorted by id.

    :raises UsageError: an id is unknown, or the scope does not parse.
    """
    applies = compile_scope(tags)
    known = {ref.id for ref in suite.refs}
    for case in cases:
        if case not in known:
            near = nearest(case, known)
            raise UsageError(f"{suite.path}: there is no case {case!r}" + (f"; did you mean {near!r}?" if near else ""))
    wanted = set(cases) or known
    return [ref for ref in suite.refs if ref.id in wanted and applies(ref.tags)]


def dead_scopes(suite: LoadedSuite) -> list[str]:
    """A sentence for each probe whose scope matches no case, with the nearest tag for those that no case has."""
    tag_sets = {ref.tags for ref in suite.refs}
    known = {tag for tags in tag_sets for tag in tags}
    found = []
    for bound in suite.probes:
        if suite.refs and not any(bound.applies(tags) for tags in tag_sets):
            words = set(re.findall(r"[^\s()]+", bound.scope)) - {"and", "or", "not"} - known
            hints = [f"no case has the tag {word!r}" + _did_you_mean(word, known) for word in sorted(words)]
            found.append(f"{bound.origin}: the scope {bound.scope!r} of probe {bound.name!r} matches no case: {', '.join(hints)}".rstrip(": "))
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
