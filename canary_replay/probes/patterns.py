"""Probes by regular expression, RE2 by default so that no answer can hang them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from canary_replay.outcome import Score, Span
from canary_replay.probing import probe
from canary_replay.response import Response
from canary_replay.suite import Case

Patterns = Annotated[tuple[Annotated[str, StringConstraints(min_length=1)], ...], Field(min_length=1)]
Engine = Literal["re2", "python"]
Search = Callable[[str], "Span | None"]

_SURROGATES = re.compile("[\ud800-\udfff]")
# What Python's dialect has and RE2 cannot: lookarounds, conditionals, named and numbered backreferences.
_BEYOND_RE2 = re.compile(r"\(\?(?:[=!(]|<[=!]|P=)|(?<!\\)(?:\\\\)*\\[1-9]")


class PatternParameters(BaseModel):
    r"""Parameters of ``regex`` and ``not_regex``.

    :ivar pattern: one regular expression or a list of them, found anywhere in the answer; ``patterns`` is another spelling.
        Flags stand in the pattern: ``(?i)`` ignores case, ``(?s)`` lets ``.`` match line ends, ``(?m)`` anchors at lines.
    :ivar engine: ``re2`` (linear time, no lookarounds or backreferences) or ``python`` (the ``re`` module, which has them, and
        which a hostile answer can keep busy for ever).
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        defer_build=True,
        json_schema_extra={"examples": [{"pattern": r"A-\d{5}"}, {"patterns": ["(?i)(é|日本)+", "x"], "engine": "python"}]},
    )

    pattern: Patterns | None = None
    patterns: Patterns | None = None
    engine: Engine = "re2"

    @field_validator("pattern", "patterns", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _compiles(self) -> PatternParameters:
        if (self.pattern is None) == (self.patterns is None):
            raise ValueError("give 'pattern': one regular expression or a list of them")
        for pattern in self.every:
            searcher(pattern, self.engine)
        return self

    @property
    def every(self) -> tuple[str, ...]:
        """The patterns, however they were spelled."""
        return self.pattern or self.patterns or ()


@probe("regex", category="format", parameters=PatternParameters, reads_case=False)
def regex(_case: Case, response: Response, parameters: PatternParameters) -> Score:
    r"""Every one of the given patterns is found somewhere in the answer.

    Why it matters: an order number, a date or a heading has a shape even where its words may vary.
    The score is the share of the patterns that were found. Write ``\A...\z`` to match the whole answer (``\Z`` in Python).

    Passes: ``Your order is A-12345.`` with ``pattern = 'A-\d{5}'``.
    Fails: ``Your order is on its way.`` with ``pattern = 'A-\d{5}'``.
    """
    found, missing = [], []
    for pattern in parameters.every:
        if (span := searcher(pattern, parameters.engine)(response.text)) is None:
            missing.append(pattern)
        else:
            found.append(span)
    evidence = _in_order(found)
    if not missing:
        return Score(1.0, "", evidence)
    return Score(len(found) / len(parameters.every), f"the answer does not match {_quoted(missing)}", evidence)


@probe("not_regex", category="safety", parameters=PatternParameters, reads_case=False)
def not_regex(_case: Case, response: Response, parameters: PatternParameters) -> Score:
    """None of the given patterns is found anywhere in the answer.

    Why it matters: a promise, a price or a key that must never be said has a shape, whatever words stand around it.
    One match scores 0.

    Passes: ``A refund is possible.`` with ``pattern = '(?i)refund.{0,40} by friday'``.
    Fails: ``REFUND by Friday`` with ``pattern = '(?i)refund.{0,40} by friday'``.
    """
    matched, spans = [], []
    for pattern in parameters.every:
        if (span := searcher(pattern, parameters.engine)(response.text)) is not None:
            matched.append(pattern)
            spans.append(span)
    if not matched:
        return Score(1.0)
    return Score(0.0, f"the answer matches {_quoted(matched)}", _in_order(spans))


@lru_cache(maxsize=4096)
def searcher(pattern: str, engine: Engine) -> Search:
    """A function from a text to the span of the first match.

    :raises ValueError: the engine refuses the pattern; the message says what to do.
    """
    return _re2_searcher(pattern) if engine == "re2" else _python_searcher(pattern)


def _re2_searcher(pattern: str) -> Search:
    import re2  # 6 ms that a suite without patterns never pays

    options = re2.Options()
    options.log_errors = False  # it would write to standard error, beside our own message
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as problem:
        raise ValueError(_refusal(pattern, problem.args[0])) from None

    def search(text: str) -> Span | None:
        if not text.isascii():
            text = _SURROGATES.sub("\ufffd", text)  # RE2 reads UTF-8, which has no surrogates; one for one, so places stay
        data = text.encode()  # bytes: for text RE2's wrapper counts characters on every call, here only a match does
        match = compiled.search(data)
        if match is None:
            return None
        start, end = match.span()
        if len(data) == len(text):
            return Span(start, end)
        first = len(data[:start].decode())
        return Span(first, first + len(data[start:end].decode()))

    return search


def _python_searcher(pattern: str) -> Search:
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as problem:
        raise ValueError(f"the pattern {pattern!r} is not a Python regular expression: {problem}") from None

    def search(text: str) -> Span | None:
        match = compiled.search(text)
        return None if match is None else Span(*match.span())

    return search


def _refusal(pattern: str, said: bytes | str) -> str:
    problem = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    if _BEYOND_RE2.search(pattern):
        return (
            f"the pattern {pattern!r} has a lookaround or a backreference, which RE2 does not ({problem}); "
            'write it without, or use a probe with engine = "python", which a hostile answer can hang'
        )
    return f"the pattern {pattern!r} is not an RE2 regular expression: {problem}"


def _in_order(spans: list[Span]) -> tuple[Span, ...]:
    return tuple(sorted(set(spans), key=lambda span: (span.start, span.end)))


def _quoted(patterns: list[str]) -> str:
    return ", ".join(repr(pattern) for pattern in patterns)
