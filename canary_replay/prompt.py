"""Prompts with ``{name}`` in them: filling in a case's variables, and finding the names that do not fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_PLACE = re.compile(r"\{\{(\w+)\}\}|\{([A-Za-z_]\w*)\}")

Variables = Mapping[str, str | int | float | bool]


def fill(text: str, variables: Variables) -> str:
    """The text with ``{name}`` replaced by the variable ``name``; ``{{name}}`` becomes a literal ``{name}``.

    What is in braces but names no variable stays. A case without variables leaves every text as it is, so that prompts
    with JSON in them need no care.
    """
    if not variables:
        return text

    def one(found: re.Match[str]) -> str:
        literal, name = found.groups()
        if literal is not None:
            return f"{{{literal}}}"
        return _shown(variables[name]) if name in variables else found.group()

    return _PLACE.sub(one, text)


def fill_in(value: Any, variables: Variables) -> Any:  # noqa: ANN401 - any JSON
    """The same for every text inside a JSON value."""
    return _walk(value, lambda text: fill(text, variables)) if variables else value


def named_in(texts: Iterable[Any]) -> set[str]:
    """The names in braces anywhere in these texts (or JSON values)."""
    found: set[str] = set()

    def look(text: str) -> str:
        found.update(match.group(2) for match in _PLACE.finditer(text) if match.group(2))
        return text

    for value in texts:
        _walk(value, look)
    return found


def _shown(value: str | float | bool) -> str:  # noqa: FBT001 - a variable's value
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _walk(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _walk(one, change) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(one, change) for one in value]
    return value
