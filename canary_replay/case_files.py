"""Cases in files of their own: JSON lines, read one at a time by offset, and CSV."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from canary_replay.errors import UsageError, unknown

BOM = b"\xef\xbb\xbf"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What the first pass over a case file keeps of a case: enough to sort, scope and find it again.

    :ivar judged: whether the case brings expectations of its own.
    :ivar offset: for JSON lines, the byte offset of its line; for CSV, the number of its row from 0.
    """

    id: str
    line: int
    offset: int
    tags: tuple[str, ...] = ()
    required: bool = False
    judged: bool = False


class _Head(msgspec.Struct, frozen=True):
    id: str
    tags: tuple[str, ...] = ()
    group: str | None = None
    required: bool = False
    expect: dict[str, msgspec.Raw] | None = None


_head = msgspec.json.Decoder(_Head).decode


def rows(path: Path, *, shown: str) -> Iterator[Row]:
    """The first, cheap pass over a case file.

    :raises UsageError: the file or a line cannot be read; the message names file, line and what is wrong.
    """
    if path.suffix == ".jsonl":
        yield from _json_rows(path, shown)
    elif path.suffix == ".csv":
        for number, (line, data) in enumerate(csv_rows(path, shown=shown)):
            tags = (*data.get("tags", ()), *([data["group"]] if "group" in data else ()))
            required, judged = bool(data.get("required", False)), bool(data.get("expect"))
            yield Row(id=str(data.get("id", "")), line=line, offset=number, tags=tags, required=required, judged=judged)
    else:
        raise UsageError(f"{shown}: cases are read from .jsonl and .csv files; rename it, or convert it")


def _json_rows(path: Path, shown: str) -> Iterator[Row]:
    offset = 0
    with _opened(path, shown) as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(BOM) if number == 1 else line
            if text.strip():
                head = _parsed(text, shown, number)
                tags = head.tags if head.group is None else (*head.tags, head.group)
                judged = bool(head.expect)
                yield Row(id=head.id, line=number, offset=offset, tags=tags, required=head.required, judged=judged)
            offset += len(line)


def _parsed(text: bytes, shown: str, number: int) -> _Head:
    try:
        return _head(text)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        at = f"{place.rstrip('`')}: " if place else ""
        raise UsageError(f"{shown}:{number}: {at}{_plain(what)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown}:{number}: is not one JSON object: {error}") from None
    except RecursionError:
        raise UsageError(f"{shown}:{number}: is nested too deeply") from None


def _plain(message: str) -> str:
    return message.replace("Object missing required field", "the case lacks the key").replace("`", "'").replace("Expected", "expected")


def json_line(path: Path, row_offset: int, *, shown: str, line: int) -> dict[str, Any]:
    """The case that stands at a byte offset of a JSON lines file.

    :raises UsageError: it is not one JSON object, or an object has a key twice.
    """
    with _opened(path, shown) as file:
        file.seek(row_offset)
        return parse_line(file.readline().removeprefix(BOM), shown=shown, line=line)


def parse_line(text: bytes, *, shown: str, line: int) -> dict[str, Any]:
    """One line of a JSON lines file as a dict; see `json_line`."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{shown}:{line}: is not one JSON object: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{shown}:{line}: is not one JSON object")
    return found


def csv_rows(path: Path, *, shown: str) -> list[tuple[int, dict[str, Any]]]:
    """The cases of a CSV file: ``(line, case)``. ``tags`` are separated by spaces, commas or semicolons.

    Columns ``variables.x``, ``parameters.x`` and ``expect.x`` fill those tables; their cells are JSON where they can be read
    as JSON, else text; an empty cell is no value.
    """
    import csv

    try:
        text = path.read_bytes().removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown}: is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UsageError(f"{shown}: cannot be read: {error.strerror}") from None
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    found: list[tuple[int, dict[str, Any]]] = []
    try:
        header = next(reader, [])
        _check_header(header, shown)
        for cells in reader:
            if not any(cells):
                continue
            if len(cells) != len(header):
                raise UsageError(f"{shown}:{reader.line_num}: has {len(cells)} cells, the header has {len(header)}")
            found.append((reader.line_num, _case(dict(zip(header, cells, strict=True)))))
    except csv.Error as error:
        raise UsageError(f"{shown}:{reader.line_num}: is not CSV: {error}") from None
    return found


_COLUMNS = ("id", "tags", "group", "user", "input", "system", "required")
_TABLES = ("variables", "parameters", "expect")


def _check_header(header: list[str], shown: str) -> None:
    for name in header:
        table, _, key = name.partition(".")
        if name not in _COLUMNS and not (table in _TABLES and key):
            raise UsageError(f"{shown}:1: {unknown('column', name, [*_COLUMNS, *(f'{one}.…' for one in _TABLES)])}")
    if len(set(header)) != len(header):
        raise UsageError(f"{shown}:1: a column stands twice")


def _case(cells: dict[str, str]) -> dict[str, Any]:
    case: dict[str, Any] = {}
    for name, cell in cells.items():
        table, _, key = name.partition(".")
        if not cell:
            continue
        if key:
            case.setdefault(table, {})[key] = _value(cell)
        elif name == "tags":
            case["tags"] = cell.replace(",", " ").replace(";", " ").split()
        elif name == "required":
            case["required"] = _value(cell.lower())
        else:
            case[name] = cell
    return case


def _value(cell: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(cell)
    except msgspec.DecodeError:
        return cell


def _opened(path: Path, shown: str) -> Any:  # noqa: ANN401 - a binary file
    try:
        return open(path, "rb")
    except OSError as error:
        raise UsageError(f"{shown}: cannot be read: {error.strerror}") from None
