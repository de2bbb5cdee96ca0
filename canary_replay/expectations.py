"""What a case expects of its answer, as probes: each key of ``expect`` becomes a rule of its own, ``expect.<key>``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
from pydantic import ValidationError

from canary_replay import probes  # noqa: F401 - importing them registers them
from canary_replay.digest import canonical
from canary_replay.errors import UsageError
from canary_replay.probing import BoundProbe, bind
from canary_replay.suite import Case, Expect


def expectations(case: Case) -> tuple[BoundProbe, ...]:
    """The rules that a case brings along, in the order of the keys of `Expect`; each is a hard gate with threshold 1.

    They apply to this case alone, whatever its tags. ``json = false`` and ``forbid_tool = false`` ask for nothing. Texts are
    found whatever their case: ``contains = "step"`` holds for "Step 1", and a marker leaks in capitals too.

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


def _rules(expect: Expect) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """``(key, registered probe, its parameters)`` of everything that is expected."""
    if expect.json_:
        yield "json", "json", {}
    if expect.required is not None:
        yield "required", "json", {"required": expect.required}
    if expect.json_schema is not None:
        yield "json_schema", "json_schema", {"schema": expect.json_schema}
    if expect.tool is not None:
        yield "tool", "tool_called", {"tool": expect.tool}
    if expect.arguments is not None:
        yield "arguments", "tool_arguments", {"tool": expect.tool, "arguments": expect.arguments}
    if expect.forbid_tool is not None and expect.forbid_tool is not False:
        yield "forbid_tool", "tool_forbidden", {} if expect.forbid_tool is True else {"tools": expect.forbid_tool}
    if expect.refusal is not None:
        yield "refusal", "refusal", {"expected": expect.refusal}
    if expect.contains is not None:
        yield "contains", "contains", {"texts": expect.contains, "ignore_case": True}
    if expect.must_not_contain is not None:
        yield "must_not_contain", "not_contains", {"texts": expect.must_not_contain, "ignore_case": True}
    if expect.equals is not None:
        yield "equals", "equals", {"text": expect.equals}
    if expect.regex is not None:
        yield "regex", "regex", {"pattern": expect.regex}
    if expect.not_regex is not None:
        yield "not_regex", "not_regex", {"pattern": expect.not_regex}
    if expect.error is not None:
        yield "error", "error", {"expected": expect.error} if isinstance(expect.error, bool) else {"status": expect.error}


@lru_cache(maxsize=8192)
def _bound(name: str, use: str, parameters: bytes) -> BoundProbe:
    """One rule; cases that expect the same share it. The parameters pass through JSON, as the answers that they are compared with."""
    return bind(use, msgspec.json.decode(parameters), name=name)


def _first_problem(problem: ValidationError) -> str:
    first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"][1:])  # the first part is the parameter, which the key has named
    message = first["msg"].removeprefix("Value error, ").replace("Tuple should", "the list should")
    return f"{place}: {message}" if place else message
