"""What a person wrote that a model does not accept, in plain words: where, what is wrong, the nearest known key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError

from canary_replay.errors import UsageError, unknown

Loc = tuple[str | int, ...]

_KINDS = {
    "string_type": "be a text",
    "int_type": "be a whole number",
    "int_parsing": "be a whole number",
    "int_from_float": "be a whole number",
    "float_type": "be a number",
    "float_parsing": "be a number",
    "bool_type": "be true or false",
    "bool_parsing": "be true or false",
    "dict_type": "be a table",
    "model_type": "be a table",
    "model_attributes_type": "be a table",
    "tuple_type": "be a list",
    "list_type": "be a list",
}
_PATTERNS = {  # the patterns of `canary_replay.suite`, in words
    r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$": "be at most 80 letters, digits, '.', '_' and '-', a letter or digit first",
    r"^[^\s()]+$": "be one word without parentheses",
}


class _Problem(NamedTuple):
    """One of pydantic's complaints; ``path`` leads to the value (or the missing key) in what the person wrote."""

    path: Loc
    kind: str
    message: str
    given: Any
    context: dict[str, Any]


def usage_error(error: ValidationError, *, model: type[BaseModel], data: Any, where: Callable[[Loc], str]) -> UsageError:  # noqa: ANN401 - any JSON or TOML
    """The one-line error for what pydantic found, the first in the order of the file.

    :param data: what was validated.
    :param where: ``file:line`` for a path into the data.
    """
    found: dict[Loc, list[_Problem]] = {}
    for one in error.errors(include_url=False):
        value, path = _places(one["loc"], data, one["type"])
        problem = _Problem(path, one["type"], one["msg"], one["input"], one.get("ctx", {}))
        found.setdefault(value, []).append(problem)
    mistakes = [_nearest_to_meant(problems) for problems in found.values()]
    first = min(mistakes, key=lambda those: (_order(where(those[0].path)), those[0].kind != "extra_forbidden"))
    text = f"{where(first[0].path)}: {_in_words(first, model)}"
    return UsageError(text if len(mistakes) == 1 else f"{text} (and {len(mistakes) - 1} more)")


def _order(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return (file, int(line)) if line.isdigit() else (place, 0)


def _places(loc: Sequence[str | int], data: Any, kind: str) -> tuple[Loc, Loc]:  # noqa: ANN401 - any JSON or TOML
    """The value that is wrong, and the place inside it that is.

    They differ where a value may be one of several things: pydantic then complains about each of these, and puts names into
    its location that nobody wrote.
    """
    path: list[str | int] = []
    value: Loc | None = None
    for part in loc:
        if _has(data, part):
            data = data[part]
            path.append(part)
        elif value is None and not (kind == "missing" and part == loc[-1]):
            value = tuple(path)
    if kind == "missing" and loc:
        path.append(loc[-1])
    return (tuple(path) if value is None else value), tuple(path)


def _has(data: Any, part: str | int) -> bool:  # noqa: ANN401 - any JSON or TOML
    return part in (range(len(data)) if isinstance(data, list | tuple) else data if isinstance(data, dict) else ())


def _nearest_to_meant(problems: Sequence[_Problem]) -> list[_Problem]:
    """Of the complaints about one value, those about the alternative that it resembles most: it got deepest there."""
    unknown_keys = [one for one in problems if one.kind == "extra_forbidden"]
    if unknown_keys:
        return unknown_keys[:1]
    deepest = max(len(one.path) for one in problems)
    return [one for one in problems if len(one.path) == deepest]


def _in_words(problems: Sequence[_Problem], model: type[BaseModel]) -> str:
    first = problems[0]
    table = _dotted(first.path[:-1])
    inside = f"{table}: " if table else ""
    if first.kind == "extra_forbidden":
        known = _keys_at(model, first.path[:-1])
        if first.path[-1] in known:  # two spellings of one key, and both are given
            return f"{inside}{first.path[-1]!r} is given twice, under two names; keep one"
        return inside + unknown("key", str(first.path[-1]), known)
    if first.kind == "missing":
        return f"{inside}the key {str(first.path[-1])!r} is missing"
    place = _dotted(first.path)
    if first.kind == "value_error":
        text = first.message.removeprefix("Value error, ")
        return f"{place}: {text}" if place else text
    return f"{place or 'this'} should {_wanted(problems)}, not {_shortly(first.given)}"


def _wanted(problems: Sequence[_Problem]) -> str:
    phrases = list(dict.fromkeys(_phrase(one) for one in problems))
    return " or ".join([phrases[0], *(phrase.removeprefix("be ") for phrase in phrases[1:])])


def _phrase(problem: _Problem) -> str:
    """What the value should do or be, as it goes on after "should"."""
    if problem.kind == "string_pattern_mismatch" and problem.context.get("pattern") in _PATTERNS:
        return _PATTERNS[problem.context["pattern"]]
    return _KINDS.get(problem.kind) or problem.message.partition("should ")[2] or f"be valid ({problem.message})"


def _shortly(value: Any) -> str:  # noqa: ANN401 - any JSON or TOML
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def _dotted(path: Loc) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _keys_at(model: type[BaseModel], path: Loc) -> list[str]:
    """The keys that the table at ``path`` may have."""
    current: type[BaseModel] | None = model
    parts = iter(path)
    for part in parts:
        if isinstance(part, int):
            continue
        if current is None:
            return []
        annotation = next((info.annotation for name, info in current.model_fields.items() if part in (name, info.alias)), None)
        current = _model_in(annotation)
        if get_origin(annotation) is dict:
            next(parts, None)  # the name of a target: any word
    return [] if current is None else list(_spellings(current))


def _spellings(model: type[BaseModel]) -> Iterator[str]:
    """The names of a model's keys as people write them; ``json_`` is only Python's spelling of ``json``."""
    for name, info in model.model_fields.items():
        if info.alias:
            yield info.alias
        if not info.alias or (model.model_config.get("populate_by_name") and not name.endswith("_")):
            yield name


def _model_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 - any type expression
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if (found := _model_in(argument)) is not None:
            return found
    return None
