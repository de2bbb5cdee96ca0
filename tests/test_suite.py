"""The suite file as people write it: what it accepts, its JSON Schema, and its mistakes in plain words."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import tomli
from pydantic import BaseModel, ValidationError

from canary_replay.project import suite_schema
from canary_replay.suite import Case, Suite
from canary_replay.wrong_values import usage_error

EXAMPLE = r"""
name = "support"
trials = 3
probes = ["probes/support.toml", "probes/polite.py"]

[targets.current]
model = "openai/gpt-5-mini-2025-08-07"
system = { file = "prompts/current.txt" }
tools = { file = "tools.json" }
parameters = { temperature = 0, max_tokens = 800 }
[targets.candidate]
extends = "current"
against = "current"
system = { file = "prompts/candidate.txt" }

[[cases]]
id = "tool-001"
tags = ["tools", "orders"]
user = "Find order {order}."
variables = { order = "EXAMPLE-42" }
expect = { tool = "lookup_order", arguments = { order_id = "EXAMPLE-42" } }
[[cases]]
id = "turns"
messages = [{ role = "user", content = "Hello" }, { role = "assistant", content = "Hi" }, { role = "user", content = "Who?" }]
expect = { contains = "I", json = false, forbid_tool = ["pay"] }
[[cases_from]]
file = "cases/regression.jsonl"

[[probes_inline]]
name = "order-number"
use = "regex"
scope = "orders and not refusal"
pattern = 'A-\d{5}'
category = "correctness"
gate = "hard"

[policy]
required_cases_pass = true
"""
A_NAME = "at most 80 letters, digits, '.', '_' and '-', a letter or digit first"
TARGET = {"current": {"model": "openai/x"}}
CASE = {"id": "a", "user": "x"}


def said(model: type[BaseModel], data: Any, line: int = 3) -> str:  # noqa: ANN401 - any TOML
    """What is said of these data."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(data)
    message = str(usage_error(caught.value, model=model, data=data, where=lambda _path: f"here:{line}"))
    assert message.startswith("here:3: ")
    return message.removeprefix("here:3: ")


def test_example() -> None:
    """The example of the documentation is a suite."""
    suite = Suite.model_validate(tomli.loads(EXAMPLE))

    assert suite.cases[0].all_tags == {"tools", "orders"}
    assert suite.cases[1].expect.contains == ("I",)
    assert suite.probes_inline[0].parameters == {"pattern": r"A-\d{5}"}


class TestSchema:
    """What an editor completes and underlines."""

    def test_accepts_the_example(self) -> None:
        """Whatever loads is also right by the published schema."""
        schema = suite_schema()
        jsonschema.Draft202012Validator.check_schema(schema)

        jsonschema.validate(tomli.loads(EXAMPLE), schema)

    @pytest.mark.parametrize(
        "change",
        [
            {"trails": 3},
            {"trials": 0},
            {"targets": {"current": {"modle": "x"}}},
            {"keep_wire": "some"},
            {"probes_inline": [{"name": "x"}]},
            {"cases": [{"id": "a", "user": "x", "expect": {"jsn": True}}]},
        ],
    )
    def test_refuses_mistakes(self, change: dict[str, Any]) -> None:
        """What does not load is wrong by the schema too."""
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**tomli.loads(EXAMPLE), **change}, suite_schema())


@pytest.mark.parametrize(
    "data, message",
    [
        ({"name": "a b", "targets": TARGET}, f"name should be {A_NAME}, not 'a b'"),
        ({"targets": TARGET}, "the key 'name' is missing"),
        ({"name": "a"}, "the key 'targets' is missing"),
        ({"name": "a", "targets": 3}, "targets should be a table, not 3"),
        ({"name": "a", "targets": {"current": 3}}, "targets.current should be a table, not 3"),
        ({"name": "a", "targets": {"a b": {}}}, f"targets.a b should be {A_NAME}, not 'a b'"),
        ({"name": "a", "targets": TARGET, "trials": 0}, "trials should be greater than or equal to 1, not 0"),
        ({"name": "a", "targets": TARGET, "trials": 1.5}, "trials should be a whole number, not 1.5"),
        ({"name": "a", "targets": TARGET, "trials": "many"}, "trials should be a whole number, not 'many'"),
        ({"name": "a", "targets": TARGET, "keep_wire": "some"}, "keep_wire should be 'all', 'first' or 'none', not 'some'"),
        ({"name": "a", "targets": TARGET, "pass": 3}, "pass should be 'all' or 'majority' or less than or equal to 1, not 3"),
        ({"name": "a", "targets": TARGET, "probes_inline": [{"name": "x"}]}, "probes_inline[0]: the key 'use' is missing"),
        ({"name": "a", "targets": TARGET, "record": {"timeout": -1}}, "record.timeout should be greater than 0, not -1"),
        ({"name": "a", "targets": {"current": {"headers": {"x": 3}}}}, "targets.current.headers.x should be a text, not 3"),
        ({"name": "a", "targets": {"current": {"system": 3}}}, "targets.current.system should be a text or a table, not 3"),
        ({"name": "a", "targets": {"current": {"system": {}}}}, "targets.current.system: the key 'file' is missing"),
    ],
)  # fmt: skip
def test_wrong_suite(data: dict[str, Any], message: str) -> None:
    """A wrong value is told by its place, what it should be and what it is; a missing key by its table."""
    assert said(Suite, data) == message


@pytest.mark.parametrize(
    "change, message",
    [
        ({"user": 5}, "user should be a text, not 5"),
        ({"tags": ["ok", "a b"]}, "tags[1] should be one word without parentheses, not 'a b'"),
        ({"variables": {"a": [1]}}, "variables.a should be a text or a whole number or a number or true or false, not [1]"),
        ({"tools": "x"}, "tools should be a list or a table, not 'x'"),
        ({"expect": {"contains": [1]}}, "expect.contains[0] should be a text, not 1"),
        ({"expect": {"forbid_tool": 5}}, "expect.forbid_tool should be true or false or a list, not 5"),
        ({"expect": {"forbid_tool": [5]}}, "expect.forbid_tool[0] should be a text, not 5"),
        ({"user": None}, "a case has either 'user' (the prompt) or 'messages', not both and not neither"),
        ({"expect": "x" * 100}, f"expect should be a table, not '{'x' * 76}..."),
    ],
)
def test_wrong_case(change: dict[str, Any], message: str) -> None:
    """A value that may be one of several things is told with all of them, once."""
    assert said(Case, {**CASE, **change}) == message


@pytest.mark.parametrize(
    "data, place, near",
    [
        ({"nmae": "a", "targets": TARGET}, "", "name"),
        ({"name": "a", "targets": {"model": {"modle": "x"}}}, "targets.model: ", "model"),
        ({"name": "a", "targets": {"current": {"system": {"fil": "x"}}}}, "targets.current.system: ", "file"),
        ({"name": "a", "targets": TARGET, "cases": [{**CASE, "tgas": []}]}, "cases[0]: ", "tags"),
        ({"name": "a", "targets": TARGET, "cases": [{**CASE, "expect": {"jsn": True}}]}, "cases[0].expect: ", "json"),
        ({"name": "a", "targets": TARGET, "record": {"concurency": 1}}, "record: ", "concurrency"),
    ],
)
def test_unknown_key(data: dict[str, Any], place: str, near: str) -> None:
    """An unknown key is answered with its table and the nearest key of that table."""
    assert f"{place}there is no key " in said(Suite, data)
    assert f"; did you mean {near!r}? known: " in said(Suite, data)


def test_first_of_several() -> None:
    """Of several mistakes the first in the file is told, and how many more there are."""
    data = {"trials": 0, "name": "a b", "keep_wire": "some", "targets": TARGET}
    lines = {"trials": 9, "name": 12, "keep_wire": 7}

    with pytest.raises(ValidationError) as caught:
        Suite.model_validate(data)
    message = str(usage_error(caught.value, model=Suite, data=data, where=lambda path: f"here:{lines[str(path[0])]}"))

    assert message == "here:7: keep_wire should be 'all', 'first' or 'none', not 'some' (and 2 more)"


def test_alternatives_are_one_mistake() -> None:
    """A value that fits none of its alternatives is one mistake, not one for each of them."""
    assert "more)" not in said(Case, {**CASE, "system": {"fil": "x"}})
