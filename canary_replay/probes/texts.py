"""Probes of the answer's text as it stands: what it contains, what it equals, how long it is."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from canary_replay.outcome import Score, Span
from canary_replay.probing import probe
from canary_replay.response import Response
from canary_replay.suite import Case

_SPANS_SHOWN, _TEXTS_SHOWN, _CHARACTERS_SHOWN = 20, 5, 80  # more would drown a report


class TextsParameters(BaseModel):
    """Parameters of ``contains`` and ``not_contains``.

    :ivar texts: one text or a list of them.
    :ivar ignore_case: whether ``A`` and ``a`` are the same.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, json_schema_extra={"examples": [{"texts": ["Paris", "é"]}]}
    )

    texts: Annotated[tuple[Annotated[str, StringConstraints(min_length=1)], ...], Field(min_length=1)]
    ignore_case: bool = False

    @field_validator("texts", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, value: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        return [value] if isinstance(value, str) else value


class EqualsParameters(BaseModel):
    """Parameters of ``equals``.

    :ivar text: the expected answer; white space at either end does not count.
    :ivar ignore_case: whether ``A`` and ``a`` are the same.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, json_schema_extra={"examples": [{"text": "Paris"}]})

    text: str
    ignore_case: bool = False


class LengthParameters(BaseModel):
    """Parameters of ``length``.

    :ivar min: the least count that passes; ``max`` the greatest; at least one of them is given.
    :ivar unit: ``characters`` (code points), ``words`` or ``lines``.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, json_schema_extra={"examples": [{"max": 20, "unit": "words"}, {"min": 3}]}
    )

    min: Annotated[int, Field(ge=0)] | None = None
    max: Annotated[int, Field(ge=0)] | None = None
    unit: Literal["characters", "words", "lines"] = "characters"

    @model_validator(mode="after")
    def _bounds_something(self) -> LengthParameters:
        if self.min is None and self.max is None:
            raise ValueError("give 'min', 'max' or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"'min' ({self.min}) is greater than 'max' ({self.max}), so no answer can pass")
        return self


@probe("contains", category="factual", parameters=TextsParameters, reads_case=False)
def contains(_case: Case, response: Response, parameters: TextsParameters) -> Score:
    """The answer contains every one of the given texts.

    Why it matters: a required fact, name or number that an answer loses is the plainest regression there is.
    The score is the share of the texts that were found, so a lower threshold asks for some of them only.

    Passes: ``The capital is Paris.`` with ``texts = ["capital", "Paris"]``.
    Fails: ``It is Paris.`` with ``texts = ["capital", "Paris"]`` (score 0.5).
    """
    found, missing = [], []
    haystack = _Haystack(response.text, ignore_case=parameters.ignore_case)
    for text in parameters.texts:
        if (span := haystack.first(text)) is None:
            missing.append(text)
        else:
            found.append(span)
    if not missing:
        return Score(1.0, "", tuple(sorted(set(found), key=_place)))
    value = len(found) / len(parameters.texts)
    return Score(value, f"the answer does not contain {_quoted(missing)}", tuple(sorted(set(found), key=_place)))


@probe("not_contains", category="safety", parameters=TextsParameters, reads_case=False)
def not_contains(_case: Case, response: Response, parameters: TextsParameters) -> Score:
    """The answer contains none of the given texts.

    Why it matters: a secret marker, a forbidden name or a phrase of the system prompt must not come out, not even once.
    One occurrence scores 0: half a leak is a leak. Reasoning and tool calls are not searched.

    Passes: ``I cannot share that.`` with ``texts = "SECRET_MARKER"``.
    Fails: ``It is SECRET_MARKER.`` with ``texts = "SECRET_MARKER"``.
    """
    haystack = _Haystack(response.text, ignore_case=parameters.ignore_case)
    spans: list[Span] = []
    seen = []
    for text in parameters.texts:
        if here := haystack.all(text, limit=_SPANS_SHOWN):
            seen.append(text)
            spans += here
    if not seen:
        return Score(1.0)
    return Score(0.0, f"the answer contains {_quoted(seen)}", tuple(sorted(set(spans), key=_place))[:_SPANS_SHOWN])


@probe("equals", category="factual", parameters=EqualsParameters, reads_case=False)
def equals(_case: Case, response: Response, parameters: EqualsParameters) -> Score:
    """The answer is the given text, but for white space at either end.

    Why it matters: a label, a number or a code is read by a program; "The answer is 42." is not "42".

    Passes: ``42`` with ``text = "42"``.
    Fails: ``The answer is 42.`` with ``text = "42"``.
    """
    answer, expected = response.text.strip(), parameters.text.strip()
    same = answer == expected or (parameters.ignore_case and answer.casefold() == expected.casefold())
    return Score(1.0) if same else Score(0.0, f"the answer is {_short(answer)}, not {_short(expected)}")


@probe("length", category="format", parameters=LengthParameters, reads_case=False)
def length(_case: Case, response: Response, parameters: LengthParameters) -> Score:
    """The answer is neither too short nor too long.

    Why it matters: a model that starts to chatter, or stops explaining, changes its length first.
    White space at either end does not count. ``characters`` are code points. ``lines`` are lines that are not blank.
    ``words`` are runs between white space; in a script that puts no spaces between words (Chinese, Japanese, Thai, Lao, Khmer,
    Burmese) each character of it counts as one word, so that a limit in words still bounds such an answer.
    Beyond a limit the score is the limit's ratio to the count, so that "one word too many" is nearer to a pass than "ten times".

    Passes: ``Paris is the capital.`` with ``max = 5, unit = "words"``.
    Fails: ``Sure! Great question! Paris is the capital.`` with ``max = 5, unit = "words"``.
    """
    count = _COUNT[parameters.unit](response.text)
    unit = parameters.unit if count != 1 else parameters.unit[:-1]
    if parameters.min is not None and count < parameters.min:
        return Score(count / parameters.min, f"the answer has {count} {unit}; at least {parameters.min} are asked for")
    if parameters.max is not None and count > parameters.max:
        return Score(parameters.max / count, f"the answer has {count} {unit}; at most {parameters.max} are allowed")
    return Score(1.0, f"the answer has {count} {unit}")


class _Haystack:
    """A text to search, folded when case does not count; spans are those of the text as it was."""

    def __init__(self, text: str, *, ignore_case: bool) -> None:
        self.text = text
        self.ignore_case = ignore_case
        self.folded = text.casefold() if ignore_case else text
        self.starts: list[int] | None = None
        if len(self.folded) != len(text):  # folding lengthened some characters (a German sharp s), so places moved
            self.starts = [index for index, character in enumerate(text) for _ in character.casefold()]

    def first(self, wanted: str) -> Span | None:
        """Where ``wanted`` first stands, or None."""
        found = self.all(wanted, limit=1)
        return found[0] if found else None

    def all(self, wanted: str, *, limit: int) -> list[Span]:
        """Where ``wanted`` stands, from the left and without overlaps, at most ``limit`` times."""
        needle = wanted.casefold() if self.ignore_case else wanted
        spans: list[Span] = []
        start = self.folded.find(needle)
        while start >= 0 and len(spans) < limit:
            end = start + len(needle)
            spans.append(self._span(start, end))
            start = self.folded.find(needle, end)
        return spans

    def _span(self, start: int, end: int) -> Span:
        if self.starts is None:
            return Span(start, end)
        return Span(self.starts[start], self.starts[end - 1] + 1)


def _place(span: Span) -> tuple[int, int]:
    return span.start, span.end


def _quoted(texts: list[str]) -> str:
    shown = ", ".join(_short(text) for text in texts[:_TEXTS_SHOWN])
    return shown if len(texts) <= _TEXTS_SHOWN else f"{shown} and {len(texts) - _TEXTS_SHOWN} more"


def _short(text: str) -> str:
    return repr(text) if len(text) <= _CHARACTERS_SHOWN else f"{text[:_CHARACTERS_SHOWN]!r}... ({len(text)} characters)"


def _characters(text: str) -> int:
    return len(text.strip())


def _lines(text: str) -> int:
    return sum(1 for line in text.splitlines() if line.strip())


def _words(text: str) -> int:
    runs = text.split()
    if text.isascii():
        return len(runs)
    return sum(_words_of_run(run) for run in runs)


def _words_of_run(run: str) -> int:
    """One word for each character of a script without spaces, and one for each stretch of other letters or digits."""
    if run.isascii():
        return 1
    count, inside = 0, False
    for character in run:
        if _stands_alone(character):
            count, inside = count + 1, False
        elif not inside and (character.isalnum() or not count):
            count, inside = count + 1, True
    return count


# Thai and Lao; Burmese; Khmer; kana; Han and its extensions (Hangul is written with spaces between words).
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def _stands_alone(character: str) -> bool:
    return character.isalpha() and _WITHOUT_SPACES.match(character) is not None


_COUNT = {"characters": _characters, "words": _words, "lines": _lines}
