"""Probes of tool calls: the right tool, with the right arguments, or no call at all."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from canary_replay.outcome import Score
from canary_replay.probes.structure import json_value
from canary_replay.probing import probe
from canary_replay.response import Response, ToolCall
from canary_replay.suite import Case

ToolName = Annotated[str, StringConstraints(min_length=1)]


class ToolCalledParameters(BaseModel):
    """Parameters of ``tool_called``.

    :ivar tool: the tool that must be called, at least once; any tool by default.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, json_schema_extra={"examples": [{}, {"tool": "lookup_order"}]}
    )

    tool: ToolName | None = None


class ToolArgumentsParameters(BaseModel):
    """Parameters of ``tool_arguments``.

    :ivar tool: the tool whose arguments are looked at; any tool by default.
    :ivar arguments: the arguments that it must get, each with its value; 1 equals 1.0, but no number equals true or false.
    :ivar exact: whether further arguments are wrong.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,
        json_schema_extra={
            "examples": [
                {"tool": "lookup_order", "arguments": {"order_id": "EXAMPLE-42", "verbose": True}},
                {"arguments": {"n": [1, {"a": None}]}, "exact": True},
            ]
        },
    )

    tool: ToolName | None = None
    arguments: dict[str, Any]
    exact: bool = False


class ToolForbiddenParameters(BaseModel):
    """Parameters of ``tool_forbidden``.

    :ivar tools: one name or a list of names that may not be called; every tool by default.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, json_schema_extra={"examples": [{}, {"tools": ["delete_order"]}]}
    )

    tools: Annotated[tuple[ToolName, ...], Field(min_length=1)] | None = None

    @field_validator("tools", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        return [value] if isinstance(value, str) else value


@probe("tool_called", category="tool use", parameters=ToolCalledParameters, reads_case=False)
def tool_called(_case: Case, response: Response, parameters: ToolCalledParameters) -> Score:
    """The answer calls the given tool, or any tool.

    Why it matters: a model that answers from memory where it should look something up is wrong even when it sounds right.

    Passes: a call of ``lookup_order`` with ``tool = "lookup_order"``.
    Fails: the text ``Let me look that up.`` without a call.
    """
    if any(parameters.tool in (None, call.name) for call in response.tool_calls):
        return Score(1.0, f"called: {_names(response.tool_calls)}")
    return Score(0.0, _not_called(parameters.tool, response.tool_calls))


@probe("tool_arguments", category="tool use", parameters=ToolArgumentsParameters, reads_case=False)
def tool_arguments(_case: Case, response: Response, parameters: ToolArgumentsParameters) -> Score:
    """The answer calls the tool with the given arguments.

    Why it matters: the right tool with the wrong order number does the wrong thing.
    The score is the share of the arguments that are there with the right value: of two, one missing scores 0.5. Several calls
    are judged by the best of them. Further arguments are allowed; with ``exact = true`` each one counts as a wrong argument.

    Passes: ``lookup_order({"order_id": "EXAMPLE-42"})`` with ``arguments = { order_id = "EXAMPLE-42" }``.
    Fails: ``lookup_order({"order_id": "42"})``, arguments that are not a JSON object, no call at all.
    """
    calls = [call for call in response.tool_calls if parameters.tool in (None, call.name)]
    if not calls:
        return Score(0.0, _not_called(parameters.tool, response.tool_calls))
    return max((_score_call(call, parameters) for call in calls), key=lambda scored: scored.value or 0.0)


@probe("tool_forbidden", category="tool use", parameters=ToolForbiddenParameters, reads_case=False)
def tool_forbidden(_case: Case, response: Response, parameters: ToolForbiddenParameters) -> Score:
    """The answer calls no tool, or none of the given ones.

    Why it matters: a call where a plain answer is enough costs time, and a call that deletes or pays does harm.

    Passes: a plain text with no calls.
    Fails: a call of ``delete_order`` with ``tools = "delete_order"``.
    """
    wrong = [call for call in response.tool_calls if parameters.tools is None or call.name in parameters.tools]
    if not wrong:
        return Score(1.0)
    return Score(0.0, f"called a forbidden tool: {_names(wrong)}")


def _score_call(call: ToolCall, parameters: ToolArgumentsParameters) -> Score:
    try:
        given = json_value(call.arguments) if call.arguments.strip() else {}
    except ValueError as problem:
        return Score(0.0, f"the arguments of {call.name!r} are not JSON: {problem}")
    if not isinstance(given, dict):
        return Score(0.0, f"the arguments of {call.name!r} are not a JSON object: {_shown(given)}")
    problems = [
        f"{name!r} is missing" if name not in given else f"{name!r} is {_shown(given[name])}, not {_shown(expected)}"
        for name, expected in parameters.arguments.items()
        if name not in given or not same(expected, given[name])
    ]
    right, total = len(parameters.arguments) - len(problems), len(parameters.arguments)
    if parameters.exact:
        further = sorted(given.keys() - parameters.arguments.keys())
        problems += [f"{name!r} is not expected" for name in further]
        total += len(further)
    if not problems:
        return Score(1.0)
    return Score(right / total, f"in the call of {call.name!r}: {'; '.join(problems)}")


def same(expected: object, given: object) -> bool:
    """Whether two JSON values are equal: 1 equals 1.0, no number equals a boolean, order counts in arrays only."""
    if isinstance(expected, bool) or isinstance(given, bool):
        return isinstance(expected, bool) and isinstance(given, bool) and expected == given
    if isinstance(expected, dict) and isinstance(given, dict):
        return expected.keys() == given.keys() and all(same(value, given[name]) for name, value in expected.items())
    if isinstance(expected, list | tuple) and isinstance(given, list | tuple):
        return len(expected) == len(given) and all(map(same, expected, given))
    return expected == given


def _shown(value: object) -> str:
    try:
        return f"{value!r:.100}"
    except RecursionError:
        return "a value that is nested too deeply to be shown"


def _not_called(tool: str | None, calls: tuple[ToolCall, ...]) -> str:
    if not calls:
        return "no tool was called" if tool is None else f"no tool was called; {tool!r} was expected"
    return f"{tool!r} was not called, but {_names(calls)}"


def _names(calls: tuple[ToolCall, ...] | list[ToolCall]) -> str:
    return ", ".join(dict.fromkeys(repr(call.name) for call in calls))
