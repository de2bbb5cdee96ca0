"""On which line of a TOML file a key stands, so that an error can point at it (the parser gives no positions)."""

from __future__ import annotations

import re
from collections.abc import Sequence

Path = tuple[str | int, ...]

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]\]?")
_PARTS = re.compile(_PART)
_QUOTES = ('"""', "'''", '"', "'")


class TomlPlaces:
    """The lines of the keys of one TOML text, which must be valid.

    Keys inside inline tables and arrays are found at the line where the value that holds them begins.
    """

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._places: dict[Path, int] = {}
        self._arrays: dict[Path, int] = {}
        self._read()

    def line(self, path: Sequence[str | int]) -> int:
        """The line (from 1) of the key at ``path``, or of the nearest table around it."""
        wanted = tuple(path)
        while wanted and wanted not in self._places:
            wanted = wanted[:-1]
        return self._places.get(wanted, 1)

    def _read(self) -> None:
        table: Path = ()
        number = 0
        while number < len(self._lines):
            line = self._lines[number]
            if header := _HEADER.match(line):
                table = self._header(_parts(header.group(2)), array=header.group(1) == "[[", line=number + 1)
            elif key := _KEY.match(line):
                self._note((*table, *_parts(key.group(1))), number + 1)
                number = self._end_of_value(number, key.end())
            number += 1

    def _header(self, parts: list[str], *, array: bool, line: int) -> Path:
        """The path of a table, with the numbers of the arrays that it stands in."""
        path: Path = ()
        for part in parts[:-1]:
            path = (*path, part)
            if path in self._arrays:
                path = (*path, self._arrays[path])
        path = (*path, parts[-1])
        if array:
            self._arrays[path] = self._arrays.get(path, -1) + 1
            self._note(path, line)
            path = (*path, self._arrays[path])
        elif path in self._arrays:
            path = (*path, self._arrays[path])
        self._note(path, line)
        return path

    def _note(self, path: Path, line: int) -> None:
        for length in range(1, len(path) + 1):
            self._places.setdefault(path[:length], line)

    def _end_of_value(self, number: int, column: int) -> int:
        """The number of the line on which the value that begins here ends."""
        depth, quote = 0, ""
        while number < len(self._lines):
            line = self._lines[number]
            while column < len(line):
                if quote:
                    if line.startswith(quote, column):
                        column, quote = column + len(quote), ""
                    else:
                        column += 2 if line[column] == "\\" and quote[0] == '"' else 1
                    continue
                if opened := next((mark for mark in _QUOTES if line.startswith(mark, column)), ""):
                    quote, column = opened, column + len(opened)
                    continue
                if line[column] == "#":
                    break
                depth += (line[column] in "[{") - (line[column] in "]}")
                column += 1
            if depth <= 0 and len(quote) != 3:
                return number
            number, column = number + 1, 0
        return number


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") if part[0] in "\"'" else part for part in _PARTS.findall(dotted)]
