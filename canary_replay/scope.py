"""Scope expressions over tags, ``orders and not (json or agent)``: which cases a probe applies to."""

from __future__ import annotations

import re
from collections.abc import Callable

from canary_replay.errors import UsageError

InScope = Callable[[frozenset[str]], bool]

_MOST_WORDS = 200  # parsing and asking go as deep as an expression is long, and Python's stack is finite
_TOKEN = re.compile(r"\s*(?:([()])|([^\s()]+))")


def compile_scope(expression: str) -> InScope:
    """A predicate over a case's tags; an empty expression holds for every case.

    Words are tags; ``not`` binds tighter than ``and``, ``and`` tighter than ``or``, parentheses group.

    :raises UsageError: the expression does not parse; the message points at the place.
    """
    if not expression.strip():
        return lambda _tags: True
    parser = _Parser(expression)
    if len(parser.words) > _MOST_WORDS:
        raise UsageError(f"the scope {expression[:40]!r}... has more than {_MOST_WORDS} words; give its cases a tag of their own")
    predicate = parser.either()
    if parser.word is not None:
        parser.fail(f"expected 'and', 'or' or the end, not {parser.word!r}")
    return predicate


class _Parser:
    """Recursive descent over the words of one expression."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.words = [(m.group(1) or m.group(2), m.start(1) if m.group(1) else m.start(2)) for m in _TOKEN.finditer(expression)]
        self.next = 0

    @property
    def word(self) -> str | None:
        return self.words[self.next][0] if self.next < len(self.words) else None

    def fail(self, problem: str) -> None:
        place = self.words[self.next][1] if self.next < len(self.words) else len(self.expression)
        raise UsageError(f"the scope {self.expression!r} does not parse at character {place + 1}: {problem}")

    def take(self, word: str) -> bool:
        if self.word == word:
            self.next += 1
            return True
        return False

    def either(self) -> InScope:
        left = self.both()
        while self.take("or"):
            left = _any_of(left, self.both())
        return left

    def both(self) -> InScope:
        left = self.single()
        while self.take("and"):
            left = _all_of(left, self.single())
        return left

    def single(self) -> InScope:
        if self.take("not"):
            return _none_of(self.single())
        if self.take("("):
            inner = self.either()
            if not self.take(")"):
                self.fail("a parenthesis is not closed")
            return inner
        if self.word is None or self.word in {")", "and", "or"}:
            self.fail("expected a tag" + (f", not {self.word!r}" if self.word else ""))
        tag = self.words[self.next][0]
        self.next += 1
        return lambda tags: tag in tags


def _any_of(left: InScope, right: InScope) -> InScope:
    return lambda tags: left(tags) or right(tags)


def _all_of(left: InScope, right: InScope) -> InScope:
    return lambda tags: left(tags) and right(tags)


def _none_of(inner: InScope) -> InScope:
    return lambda tags: not inner(tags)
