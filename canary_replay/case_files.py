"""Cases in files of their own: JSON lines, read one at a time by offset, and CSV."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from pydantic import ValidationError

from canary_replay.errors import UsageError, unknown
from canary_replay.suite import Case
from canary_replay.wrong_values import usage_error

BOM = b"\xef\xbb\xbf"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What the first pass over a case file keeps of a case: enough to sort, scope and find it again.

    :ivar line: the line (from 1) on which it begins.
    :ivar offset: for JSON lines, the byte offset of its line; for CSV, the number of its row from 0.
    :ivar tags: its own tags and its group.
    :ivar judged: whether the case brings expectations of its own.
    """

    id: str
    line: int
    offset: int
    tags: tuple[str, ...] = ()
    required: bool = False
    judged: bool = False


class CsvRow(msgspec.Struct, frozen=True):
    """A case of a CSV file as it is written there, and the line (from 1) on which it begins."""

    line: int
    data: dict[str, Any]


class _Head(msgspec.Struct, frozen=True):
    """The keys of a case that the first pass needs; the others are skipped, not built."""

    id: str
    tags: tuple[str, ...] = ()
    group: str | None = None
    required: bool = False
    expect: dict[str, msgspec.Raw] | None = None


_head = msgspec.json.Decoder(_Head).decode


def expects_something(expect: Mapping[str, Any]) -> bool:
    """Whether any key of ``expect`` asks for something; ``json = false`` and ``forbid_tool = false`` do not."""
    return any(value is not None and not (value is False and key in {"json", "forbid_tool"}) for key, value in expect.items())


def case_from(data: dict[str, Any], origin: str) -> Case:
    """The case that a row or an object describes.

    :raises UsageError: it does not fit; the message begins with ``origin`` and names the key or column.
    """
    try:
        return Case.model_validate(data)
    except ValidationError as error:
        raise usage_error(error, model=Case, data=data, where=lambda _path: origin) from None


def opened(path: Path, shown: str) -> BinaryIO:
    """The file, open for reading.

    :raises UsageError: it cannot be opened.
    """
    try:
        return open(path, "rb")
    except OSError as error:
        raise UsageError(f"{shown}: cannot be read: {error.strerror}") from None


# ------------------------------------------------------------------------------------------------ JSON lines
def json_rows(path: Path, *, shown: str) -> Iterator[Row]:
    """The first, cheap pass over a JSON lines file, in the order of the file; blank lines are skipped.

    :raises UsageError: a line is not a case; the message names file, line and what is wrong.
    """
    offset = 0
    with opened(path, shown) as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(BOM)
            if text.strip():
                yield _row(text, f"{shown}:{number}", line=number, offset=offset)
            offset += len(line)


def _row(text: bytes, origin: str, *, line: int, offset: int) -> Row:
    try:
        head = _head(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        case_from(json_object(text, origin), origin)  # says it better, if it finds the same
        raise UsageError(f"{origin}: is not a case: {error}") from None
    return Row(
        id=head.id,
        line=line,
        offset=offset,
        tags=head.tags if head.group is None else (*head.tags, head.group),
        required=head.required,
        judged=head.expect is not None and expects_something({key: _roughly(raw) for key, raw in head.expect.items()}),
    )


def _roughly(raw: msgspec.Raw) -> bool | None:
    """Null and false as they are; anything else is something that is expected."""
    return {b"null": None, b"false": False}.get(bytes(raw), True)


def json_object(text: bytes, origin: str) -> dict[str, Any]:
    """One line of a JSON lines file.

    :raises UsageError: it is not one JSON object in UTF-8, or an object in it has a key twice.
    """
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{origin}: is not one JSON object: {_json_problem(text, error)}") from None
    except RecursionError:
        raise UsageError(f"{origin}: is nested too deeply") from None
    if not isinstance(found, dict):
        raise UsageError(f'{origin}: is not one JSON object; each line is one: {{"id": ..., "user": ...}}')
    if text.count(b":") != _keys_in(found):  # a colon in a text, or a key that stands twice
        _refuse_repeated_keys(text, origin)
    return found


def _keys_in(value: Any) -> int:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        return len(value) + sum(map(_keys_in, value.values()))
    return sum(map(_keys_in, value)) if isinstance(value, list) else 0


def _json_problem(text: bytes, error: msgspec.DecodeError) -> str:
    """What is wrong with a line that is no JSON; the standard library says it more exactly than the fast parser."""
    import json

    try:
        json.loads(text.rstrip())
    except UnicodeDecodeError as problem:
        return f"it is not UTF-8 (byte {problem.start} of the line); save the file as UTF-8"
    except ValueError as problem:
        return re.sub(r": line 1 (column \d+) \(char \d+\)", r" at \1", str(problem))
    if re.search(rb"\\u[dD][89a-fA-F]", text):
        return "it holds half of a surrogate pair, which is no text"
    return str(error)


def _refuse_repeated_keys(text: bytes, origin: str) -> None:
    """A key that stands twice: the parser would take the last one and say nothing."""
    import json

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _value in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"{origin}: the key {twice!r} stands twice; keep one of them")
        return found

    json.loads(text, object_pairs_hook=once)


# ------------------------------------------------------------------------------------------------ CSV
_COLUMNS = ("id", "tags", "group", "user", "input", "system", "required")
_TABLES = ("variables", "parameters", "expect")
_TEXTS = {"equals", "tool"}  # expectations that are texts, even where the cell reads like a number
_LISTS = {"contains", "must_not_contain", "regex", "not_regex", "required"}  # that are texts or JSON lists of texts


def csv_rows(path: Path, *, shown: str) -> list[CsvRow]:
    """The cases of a CSV file, in the order of the file. The first row names the columns; an empty cell is no value.

    ``tags`` are separated by spaces, commas or semicolons. Columns ``variables.x``, ``parameters.x`` and ``expect.x`` fill those
    tables: a variable is the text of its cell, a parameter or expectation is JSON where its cell can be read as JSON, else text.

    :raises UsageError: the file is not UTF-8 or not CSV, or a column is unknown; the message names file, line and column.
    """
    import csv
    import io

    with opened(path, shown) as file:
        content = file.read().removeprefix(BOM)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{shown}:{line}: is not UTF-8 (byte {error.start}); save the file as UTF-8") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    found: list[CsvRow] = []
    header: list[str] | None = None
    line = 1
    try:
        for cells in reader:
            if any(cells):
                if header is None:
                    header = _header(cells, f"{shown}:{line}")
                else:
                    found.append(CsvRow(line, _csv_case(header, cells, f"{shown}:{line}")))
            line = reader.line_num + 1
    except csv.Error as error:
        raise UsageError(f"{shown}:{line}: is not CSV: {error}") from None
    if header is None:
        raise UsageError(f"{shown}:1: is empty; the first row names the columns: id,user,tags")
    return found


def head_of(row: CsvRow, number: int, *, shown: str) -> Row:
    """The same row as the first pass keeps it.

    :raises UsageError: it lacks an id, or ``required`` is neither true nor false.
    """
    data = row.data
    if "id" not in data or not isinstance(data.get("required", False), bool):
        case_from(data, f"{shown}:{row.line}")
    return Row(
        id=data["id"],
        line=row.line,
        offset=number,
        tags=(*data.get("tags", ()), *([data["group"]] if "group" in data else ())),
        required=data.get("required", False),
        judged=expects_something(data.get("expect", {})),
    )


def _header(cells: list[str], origin: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    for name in names:
        table, _, key = name.partition(".")
        if name not in _COLUMNS and not (table in _TABLES and key):
            if ";" in name or "\t" in name:
                raise UsageError(f"{origin}: the columns {name!r} are not separated by commas; save the file with commas")
            raise UsageError(f"{origin}: {unknown('column', name, [*_COLUMNS, *(f'{one}.<name>' for one in _TABLES)])}")
        if names.count(name) > 1:
            raise UsageError(f"{origin}: the column {name!r} stands twice; keep one of them")
    if "id" not in names:
        raise UsageError(f"{origin}: the column 'id' is missing")
    return names


def _csv_case(header: list[str], cells: list[str], origin: str) -> dict[str, Any]:
    if len(cells) != len(header):
        raise UsageError(f"{origin}: has {len(cells)} cells where the header has {len(header)}; quote a cell that holds commas")
    case: dict[str, Any] = {}
    for name, cell in zip(header, cells, strict=True):
        table, _, key = name.partition(".")
        if not cell:
            continue
        if key:
            case.setdefault(table, {})[key] = _cell(table, key, cell)
        elif name == "tags":
            case["tags"] = cell.replace(",", " ").replace(";", " ").split()
        elif name == "required":
            case["required"] = {"true": True, "false": False}.get(cell.strip().lower(), cell)
        else:
            case[name] = cell
    return case


def _cell(table: str, key: str, cell: str) -> Any:  # noqa: ANN401 - any JSON
    if table == "variables" or (table == "expect" and key in _TEXTS):
        return cell
    try:
        value = msgspec.json.decode(cell.strip().lower() if cell.strip().lower() in {"true", "false"} else cell)
    except msgspec.DecodeError:
        return cell
    return cell if table == "expect" and key in _LISTS and not isinstance(value, list) else value
