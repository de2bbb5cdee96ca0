"""On which line of a TOML file a key stands, so that an error can point at it (the parser gives no positions)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

import tomli

Path = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")  # white space, line ends and comments
_KEY_PART = re.compile(r"""[ \t]*([A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')[ \t]*(\.?)""")
_STRING = re.compile(r'''"""(?:[^\\]|\\.)*?""""{0,2}|\'\'\'.*?\'\'\'\'{0,2}|"(?:[^"\\]|\\.)*"|'[^']*\'''', re.DOTALL)
_SCALAR = re.compile(r"[^,\]}#\r\n]*")


class TomlPlaces:
    """The lines of every key and every element of one TOML text, which must be valid.

    :raises RecursionError: arrays or inline tables are nested too deeply.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._line_ends = [found.start() for found in re.finditer("\n", text)]
        self._at = 0
        self._places: dict[Path, int] = {}
        self._last: dict[Path, int] = {}  # the number of the newest [[table]] of each array of tables
        self._document()

    def line(self, path: Sequence[str | int]) -> int:
        """The line (from 1) of the key or element at ``path``; if it is not there, of the nearest table around it."""
        wanted = tuple(path)
        while wanted and wanted not in self._places:
            wanted = wanted[:-1]
        return self._places.get(wanted, 1)

    def _document(self) -> None:
        table: Path = ()
        self._skip(_GAP)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_GAP)

    def _header(self) -> Path:
        """A ``[table]`` or ``[[table]]``: its path, with the numbers of the arrays that it stands in."""
        array = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if array else 1
        path: Path = ()
        *around, last = self._key()
        for part in around:
            path = (*path, part)
            if path in self._last:
                path = (*path, self._last[path])
        path = (*path, last)
        if array:
            self._note(path, line)
            self._last[path] = self._last.get(path, -1) + 1
            path = (*path, self._last[path])
        self._note(path, line)
        self._at = self._text.index("]", self._at) + (2 if array else 1)
        return path

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = (*table, *self._key())
        self._note(path, line)
        self._at += 1  # the equals sign
        self._value(path)

    def _key(self) -> list[str]:
        parts = []
        dot = "."
        while dot and (found := _KEY_PART.match(self._text, self._at)):
            name, dot = found.groups()
            parts.append(_unquoted(name))
            self._at = found.end()
        return parts

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        first = self._text[self._at]
        if first == "[":
            self._elements(path)
        elif first == "{":
            self._inline_table(path)
        else:
            self._skip(_STRING if first in "\"'" else _SCALAR)

    def _elements(self, path: Path) -> None:
        number = 0
        while self._goes_on("]"):
            element = (*path, number)
            self._note(element, self._line())
            self._value(element)
            number += 1

    def _inline_table(self, path: Path) -> None:
        while self._goes_on("}"):
            self._pair(path)

    def _goes_on(self, end: str) -> bool:
        """Step over the opening bracket or comma; whether something follows before ``end``, which is stepped over too."""
        self._skip(_GAP)
        if self._text[self._at] in "[{,":
            self._at += 1
            self._skip(_GAP)
        if self._text[self._at] != end:
            return True
        self._at += 1
        return False

    def _skip(self, pattern: re.Pattern[str]) -> None:
        if found := pattern.match(self._text, self._at):
            self._at = found.end()

    def _note(self, path: Path, line: int) -> None:
        for length in range(1, len(path) + 1):
            self._places.setdefault(path[:length], line)

    def _line(self) -> int:
        return bisect_right(self._line_ends, self._at) + 1


def _unquoted(key: str) -> str:
    if "\\" in key and key[0] == '"':
        return str(tomli.loads(f"key = {key}")["key"])
    return key[1:-1] if key[0] in "\"'" else key
