"""What a probe is, how one is registered, configured for a suite and called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel

from canary_replay.digest import digest, digest_of
from canary_replay.errors import UsageError, unknown
from canary_replay.outcome import Score
from canary_replay.registry import Registry
from canary_replay.response import Response
from canary_replay.suite import Case, Gate

Answer = Score | bool | float
F = TypeVar("F", bound=Callable[..., Answer])


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A registered probe: a pure function of a case and its response.

    :ivar parameters: the frozen pydantic model of its parameters; None when it has none.
    :ivar reads_case: whether it looks at the case's expectations, variables or tags; the rule digest then covers them.
    :ivar doc: its documentation: what it checks, why it matters, an answer that passes, one that fails.
    :ivar source: digest of the file that defines it.
    """

    name: str
    category: str
    version: int
    function: Callable[..., Answer]
    parameters: type[BaseModel] | None = None
    reads_case: bool = True
    doc: str = ""
    source: str = ""


known_probes: Registry[Probe] = Registry("probe", entry_points="canary_replay.probes")


def probe(
    name: str,
    *,
    category: str,
    version: int = 1,
    parameters: type[BaseModel] | None = None,
    reads_case: bool = True,
) -> Callable[[F], F]:
    """Register a function as a probe.

    The function takes ``(case, response)``, or ``(case, response, parameters)`` when ``parameters`` is given, and returns a
    `Score`, a bool (1 or 0) or a float from 0 to 1. It must be pure: the same arguments give the same score, for ever.

    :param category: ``format``, ``reasoning``, ``safety``, ``tool use``, ``factual``, or a word of your own.
    :param version: raise it when the probe's meaning changes through something outside its own file.
    :param parameters: a frozen pydantic model; a suite's further keys are validated with it.
    :param reads_case: say False when only ``response`` and ``parameters`` matter.
    :raises UsageError: the name is taken.
    """

    def register(function: F) -> F:
        known_probes.add(
            name,
            Probe(
                name=name,
                category=category,
                version=version,
                function=function,
                parameters=parameters,
                reads_case=reads_case,
                doc=(function.__doc__ or "").strip(),
                source=_source_digest(function.__module__),
            ),
        )
        return function

    return register


_sources: dict[str, str] = {}


def _source_digest(module: str) -> str:
    """The digest of the file that a module was loaded from, the same whatever its line ends."""
    if module not in _sources:
        file = getattr(sys.modules.get(module), "__file__", None)
        _sources[module] = digest(_bytes_of(file).replace(b"\r\n", b"\n"))
    return _sources[module]


def _bytes_of(file: str | None) -> bytes:
    """The bytes of a source file; nothing for a probe that was typed in or piped in."""
    try:
        return Path(file).read_bytes() if file else b""
    except OSError:
        return b""


def forget_source(module: str) -> None:
    """Read a module's file again the next time a probe is registered from it."""
    _sources.pop(module, None)


class BoundProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A probe configured for a suite: the rule that scores an answer.

    :ivar applies: whether a case with these tags is in its scope.
    :ivar rule: digest of everything that can change its score, but for the case's own expectations.
    :ivar origin: ``file:line`` where it was configured, for reports.
    """

    name: str
    probe: Probe
    parameters: BaseModel | None = None
    applies: Callable[[frozenset[str]], bool] = lambda _tags: True
    scope: str = ""
    threshold: float = 1.0
    category: str = ""
    gate: Gate = "hard"
    required: bool = False
    rule: str = ""
    origin: str = ""

    def call(self, case: Case, response: Response) -> Answer:
        """Ask the probe; whatever it raises is the caller's to handle."""
        if self.parameters is None:
            return self.probe.function(case, response)
        return self.probe.function(case, response, self.parameters)


def bind(
    use: str,
    given: dict[str, Any],
    *,
    name: str,
    applies: Callable[[frozenset[str]], bool] = lambda _tags: True,
    scope: str = "",
    threshold: float = 1.0,
    category: str | None = None,
    gate: Gate = "hard",
    required: bool = False,
    origin: str = "",
) -> BoundProbe:
    """Configure the registered probe ``use`` with the parameters ``given``.

    :raises UsageError: no such probe, or it takes no such parameters; pydantic's ValidationError for a wrong value.
    """
    found = known_probes.get(use)
    if found.parameters is None:
        if given:
            raise UsageError(f"the probe {use!r} takes no parameters; remove {', '.join(sorted(given))}")
        parameters = None
    else:
        fields = {info.alias or field for field, info in found.parameters.model_fields.items()}
        for key in given:
            if key not in fields:
                raise UsageError(unknown(f"parameter of the probe {use!r} named", key, fields))
        parameters = found.parameters.model_validate(given)
    shown = None if parameters is None else parameters.model_dump(mode="json", by_alias=True)
    return BoundProbe(
        name=name,
        probe=found,
        parameters=parameters,
        applies=applies,
        scope=scope,
        threshold=threshold,
        category=category or found.category,
        gate=gate,
        required=required,
        rule=digest_of([found.name, found.version, found.source, shown, threshold]),
        origin=origin,
    )
