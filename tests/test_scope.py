"""Scope expressions: they mean what Python's own booleans mean, and a wrong one says where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary_replay.errors import UsageError
from canary_replay.scope import compile_scope

TAGS = ["json", "agent", "tool-use", "été", "2024", "a.b"]

tags = st.sampled_from(TAGS)
expressions: st.SearchStrategy[str] = st.recursive(
    tags,
    lambda inner: st.one_of(
        inner.map(lambda one: f"not {one}"),
        inner.map(lambda one: f"({one})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join),
    ),
    max_leaves=12,
)


def as_python(expression: str, case: frozenset[str]) -> bool:
    """What Python says of the same words when each tag is True or False."""
    words = expression.replace("(", " ( ").replace(")", " ) ").split()
    return bool(eval(" ".join(str(word in case) if word in TAGS else word for word in words)))  # noqa: S307 - our own words


@given(expression=expressions, case=st.frozensets(tags))
def test_means_what_python_means(expression: str, case: frozenset[str]) -> None:
    """``not`` binds tighter than ``and``, ``and`` tighter than ``or``, and parentheses group, as in Python."""
    applies = compile_scope(expression)

    assert applies(case) is as_python(expression, case)


@given(expression=expressions, case=st.frozensets(tags), space=st.sampled_from(["  ", "\t", "\n "]))
def test_white_space_means_nothing(expression: str, case: frozenset[str], space: str) -> None:
    """An expression may be written over several lines, and with room around parentheses."""
    wide = expression.replace("(", " ( ").replace(")", " ) ").replace(" ", space)

    assert compile_scope(wide)(case) is compile_scope(expression)(case)


@pytest.mark.parametrize("expression", ["", "  ", "\n"])
def test_empty(expression: str) -> None:
    """No scope at all is every case, one without tags too."""
    applies = compile_scope(expression)

    assert applies(frozenset())
    assert applies(frozenset({"json"}))


@pytest.mark.parametrize("expression", ["js", "JSON", "json-schema"])
def test_tags_are_whole_words(expression: str) -> None:
    """A tag is matched whole and as it is written, never in part."""
    assert not compile_scope(expression)(frozenset({"json"}))


@pytest.mark.parametrize(
    "expression, place, problem",
    [
        ("json and", 9, "expected a tag"),
        ("and json", 1, "expected a tag, not 'and'"),
        ("json agent", 6, "expected 'and', 'or' or the end, not 'agent'"),
        ("(json or agent", 15, "a parenthesis is not closed"),
        ("json)", 5, "expected 'and', 'or' or the end, not ')'"),
        ("json and ()", 11, "expected a tag, not ')'"),
        ("not", 4, "expected a tag"),
        ("json or or agent", 9, "expected a tag, not 'or'"),
    ],
)
def test_wrong(expression: str, place: int, problem: str) -> None:
    """An expression that does not parse is shown with the character at which it goes wrong."""
    with pytest.raises(UsageError) as caught:
        compile_scope(expression)

    assert str(caught.value) == f"the scope {expression!r} does not parse at character {place}: {problem}"


@pytest.mark.parametrize("expression", ["(" * 5000 + "json" + ")" * 5000, "not " * 5000 + "json", " or ".join(["json"] * 5000)])
def test_endless(expression: str) -> None:
    """An expression that no person wrote is refused; it does not exhaust the stack."""
    with pytest.raises(UsageError, match="has more than 200 words"):
        compile_scope(expression)
