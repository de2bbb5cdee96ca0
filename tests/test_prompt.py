"""Variables in prompts: what is replaced, what is left, and what is literal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary_replay.prompt import fill, fill_in, named_in

names = st.text("abcxyz_", min_size=1, max_size=4)


@pytest.mark.parametrize(
    "text, variables, filled",
    [
        ("Find order {order}.", {"order": "A-1"}, "Find order A-1."),
        ("{a}{b}{a}", {"a": 1, "b": 2.5}, "12.51"),
        ("{yes} or {no}", {"yes": True, "no": False}, "true or false"),
        ("{{order}} is written as {order}", {"order": "A-1"}, "{order} is written as A-1"),
        ("{a}", {"a": "{b}", "b": "x"}, "{b}"),
        ('{"status": {status}}', {"status": 1}, '{"status": 1}'),
        ("{ order } {0} {} {order", {"order": "A-1"}, "{ order } {0} {} {order"),
    ],
)
def test_fill(text: str, variables: dict[str, str | int | float | bool], filled: str) -> None:
    """A variable's value takes the place of its name in braces, once; doubled braces write the name itself."""
    assert fill(text, variables) == filled


@given(text=st.text() | st.sampled_from(["{order}", "{{order}}", '{"a": {"b": 1}}']))
def test_no_variables(text: str) -> None:
    """A case without variables leaves every text as it is, whatever stands in braces."""
    assert fill(text, {}) == text
    assert fill_in([{"content": text}], {}) == [{"content": text}]


@given(values=st.dictionaries(names, st.text(), min_size=1, max_size=3))
def test_every_name_is_replaced(values: dict[str, str]) -> None:
    """A text of nothing but names becomes the values, in order, even where a value looks like a name."""
    text = "|".join(f"{{{name}}}" for name in values)

    assert fill(text, values) == "|".join(values.values())


def test_fill_in() -> None:
    """Every text inside a message is filled in, keys and other values are left."""
    message = {"role": "user", "{x}": 1, "content": [{"type": "text", "text": "{x}"}, {"type": "n", "n": 3, "none": None}]}

    filled = fill_in([message], {"x": "y"})

    assert filled == [{"role": "user", "{x}": 1, "content": [{"type": "text", "text": "y"}, {"type": "n", "n": 3, "none": None}]}]


def test_named_in() -> None:
    """The names in braces are found at any depth; literal ones and JSON are not names."""
    assert named_in(["{a} {{b}}", None, [{"content": '{"c": {d}}'}]]) == {"a", "d"}
