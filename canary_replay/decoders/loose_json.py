"""JSON as real servers send it: not always UTF-8, with lone surrogates, NaN and raw control characters."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode


def loads(text: str) -> Any:  # noqa: ANN401 - any JSON
    """The value that a text means.

    Strings may still hold lone surrogates, because a provider may cut a pair over two events; `mended` joins them.

    :raises ValueError: it is not JSON, or nested deeper than Python goes.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(text, strict=False)
    except RecursionError:
        raise ValueError("nested too deep") from None


def dumps(value: object) -> str:
    """A value read by `loads` as compact JSON text."""
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def mended(text: str) -> str:
    """The text with surrogate pairs joined and every lone surrogate replaced by U+FFFD, so that it can be written as UTF-8."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def text_of(value: object) -> str:
    """The value if it is a string, else an empty one: a field of the wrong type counts as absent."""
    return value if isinstance(value, str) else ""


def table_of(value: object) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """The value if it is a JSON array, else an empty one."""
    return value if isinstance(value, list) else []


def count_of(value: object) -> int | None:
    """The value if it is a number of things that a file can keep (63 bits), else None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None
