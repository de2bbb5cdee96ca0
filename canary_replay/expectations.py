"""What a case expects of its answer, as probes: each key of ``expect`` becomes a rule of its own, ``expect.<key>``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
from pydantic import BaseModel, ValidationError

from canary_replay.digest import canonical, digest
from canary_replay.errors import UsageError
from canary_replay.probing import BoundProbe, Probe, known_probes
from canary_replay.suite import Case, Expect


def expectations(case: Case) -> tuple[BoundProbe, ...]:
    """The rules that a case brings along, in the order of the keys of `Expect`; each is a hard gate with threshold 1.

    They apply to this case alone, whatever its tags. ``json = false`` and ``forbid_tool = false`` ask for nothing. Texts are
    found whatever their case: ``contains = "step"`` holds for "Step 1", and a marker leaks in capitals too.

    The built-in probes must be registered: whoever calls this has imported ``canary_replay.probes``.

    :raises UsageError: a value is wrong (a pattern that does not compile, an empty list); the message names case and key.
    """
    bound = []
    for key, use, parameters in _rules(case.expect):
        try:
            bound.append(_bound(f"expect.{key}", use, canonical(parameters)))
        except ValidationError as problem:
            raise UsageError(f"case {case.id!r}: expect.{key}: {_first_problem(problem)}") from None
        except (TypeError, ValueError, RecursionError) as problem:
            raise UsageError(f"case {case.id!r}: expect.{key}: not a value that JSON can hold: {problem}") from None
    return tuple(bound)


def check_expectations(case: Case) -> None:
    """Find a wrong expectation when the suite is loaded, not when an answer is scored.

    :raises UsageError: as `expectations` does.
    """
    expectations(case)


_THRESHOLD = 1.0
_Rule = tuple[str, dict[str, Any]]  # the registered probe and its parameters
_RULES: dict[str, Callable[[Any, Expect], _Rule | None]] = {
    "json": lambda wanted, _: ("json", {}) if wanted else None,
    "required": lambda keys, _: ("json", {"keys": keys}),
    "json_schema": lambda schema, _: ("json_schema", {"schema": schema}),
    "tool": lambda name, _: ("tool_called", {"tool": name}),
    "arguments": lambda arguments, expect: ("tool_arguments", {"tool": expect.tool, "arguments": arguments}),
    "forbid_tool": lambda which, _: _forbidden(which),
    "refusal": lambda expected, _: ("refusal", {"expected": expected}),
    "contains": lambda texts, _: ("contains", {"texts": texts, "ignore_case": True}),
    "must_not_contain": lambda texts, _: ("not_contains", {"texts": texts, "ignore_case": True}),
    "equals": lambda text, _: ("equals", {"text": text}),
    "regex": lambda patterns, _: ("regex", {"pattern": patterns}),
    "not_regex": lambda patterns, _: ("not_regex", {"pattern": patterns}),
    "error": lambda wanted, _: ("error", {"expected": wanted} if isinstance(wanted, bool) else {"status": wanted}),
}


def _rules(expect: Expect) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """``(key, registered probe, its parameters)`` of everything that is expected."""
    given = expect.model_fields_set
    for key, rule_of in _RULES.items():
        field = "json_" if key == "json" else key
        if field in given and (wanted := getattr(expect, field)) is not None and (rule := rule_of(wanted, expect)) is not None:
            yield key, *rule


def _forbidden(which: bool | tuple[str, ...]) -> _Rule | None:  # noqa: FBT001 - it is what the suite file says
    if isinstance(which, bool):
        return ("tool_forbidden", {}) if which else None
    return "tool_forbidden", {"tools": which}


@lru_cache(maxsize=8192)
def _bound(name: str, use: str, parameters: bytes) -> BoundProbe:
    """One rule; cases that expect the same share it. Its parameters have been through JSON, as the answers have.

    It is `canary_replay.probing.bind` without what no expectation needs: a hundred thousand cases may each bring their own.
    """
    found, model, identity = _built_in(use)
    return BoundProbe(
        name=name,
        probe=found,
        parameters=model.model_validate(msgspec.json.decode(parameters)),
        category=found.category,
        threshold=_THRESHOLD,
        rule=digest(identity, parameters),
    )


@lru_cache(maxsize=len(_RULES))
def _built_in(use: str) -> tuple[Probe, type[BaseModel], bytes]:
    """A probe, the model of its parameters, and all of a rule's identity that is not in its parameters."""
    found = known_probes.get(use)
    if found.parameters is None:
        raise TypeError(f"the probe {use!r} takes no parameters, so that no expectation can be given to it")
    return found, found.parameters, canonical([found.name, found.version, found.source, _THRESHOLD])


def _first_problem(problem: ValidationError) -> str:
    first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"][1:])  # the first part is the parameter, which the key has named
    message = first["msg"].removeprefix("Value error, ").replace("Tuple should", "the list should")
    return f"{place}: {message}" if place else message
