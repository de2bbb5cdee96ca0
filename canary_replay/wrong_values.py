"""What a person wrote that a model does not accept, in plain words: where, what is wrong, the nearest known key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from canary_replay.errors import UsageError, unknown

Loc = tuple[str | int, ...]

_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "tuple_type": "a list",
    "list_type": "a list",
}


def usage_error(error: ValidationError, *, model: type[BaseModel], data: Any, where: Callable[[Loc], str]) -> UsageError:  # noqa: ANN401 - any JSON or TOML
    """The one-line error for what pydantic found, the first in the order of the file.

    :param data: what was validated.
    :param where: ``file:line`` for a path into the data.
    """
    found: dict[Loc, list[dict[str, Any]]] = {}
    for problem in error.errors(include_url=False):
        found.setdefault(_real_path(problem["loc"], data, problem["type"]), []).append(dict(problem))
    first = min(found, key=lambda path: _line_number(where(path)))
    text = f"{where(first)}: {_in_words(first, found[first], model, data)}"
    return UsageError(text if len(found) == 1 else f"{text} (and {len(found) - 1} more)")


def _line_number(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return (file, int(line)) if line.isdigit() else (place, 0)


def _real_path(loc: Sequence[str | int], data: Any, kind: str) -> Loc:  # noqa: ANN401 - any JSON or TOML
    """The part of pydantic's location that is in the data; a union adds the names of its members, which nobody wrote."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(data, dict) and part in data:
            data = data[part]
        elif isinstance(data, list | tuple) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            break
        path.append(part)
    if kind == "missing" and loc:
        path.append(loc[-1])
    return tuple(path)


def _in_words(path: Loc, problems: Sequence[dict[str, Any]], model: type[BaseModel], data: Any) -> str:  # noqa: ANN401 - any JSON or TOML
    problem = next((one for one in problems if one["type"] in {"extra_forbidden", "missing"}), problems[0])
    kind, table = problem["type"], _dotted(path[:-1])
    inside = f"{table}: " if table else ""
    if kind == "extra_forbidden":
        return inside + unknown("key", str(path[-1]), _keys_at(model, path[:-1], data))
    if kind == "missing":
        return f"{inside}the key {str(path[-1])!r} is missing"
    if kind == "value_error":
        text = str(problem["msg"]).removeprefix("Value error, ")
        return f"{_dotted(path)}: {text}" if path else text
    expected = [_EXPECTED[one["type"]] for one in problems if one["type"] in _EXPECTED]
    wanted = f"should be {' or '.join(dict.fromkeys(expected))}" if expected else _plain(str(problem["msg"]))
    return f"{_dotted(path)} {wanted}, not {_shortly(problem['input'])}"


def _plain(message: str) -> str:
    """pydantic's sentence from its verb on: ``should be greater than 0``."""
    return message[message.index("should") :] if "should" in message else message[0].lower() + message[1:]


def _shortly(value: Any) -> str:  # noqa: ANN401 - any JSON or TOML
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def _dotted(path: Loc) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _keys_at(model: type[BaseModel], path: Loc, data: Any) -> list[str]:  # noqa: ANN401 - any JSON or TOML
    """The keys that the table at ``path`` may have."""
    current: type[BaseModel] | None = model
    names = iter(path)
    for part in names:
        if current is None or not isinstance(part, str):
            continue
        field = next((info for name, info in current.model_fields.items() if part in (name, info.alias)), None)
        if field is None:
            continue  # the name of a target: its table is the model that is current already
        current = _model_in(field.annotation)
    return [] if current is None else [info.alias or name for name, info in current.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401 - any type expression
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if (found := _model_in(argument)) is not None:
            return found
    return None
