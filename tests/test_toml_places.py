"""The places of keys in TOML: the line is right however the text is laid out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from canary_replay.toml_places import TomlPlaces

ROOT = Path(__file__).resolve().parent.parent
TEXT = '''# a comment with [brackets] and key = "value"
name = "x"  # ] } """

a.b = """
[not.a.table]
c = 1 \\"""
""\\""""
path = 'C:\\'
[[cases]]
id = "one"
[cases.expect]
tags = [ # ]
  "a", 'b]',
  { f = 1 }, { f = 2,
    g = [[1], [2, { h = 1979-05-27 07:32:00 }]] },
]
[[cases]]
"q\\u00e9" . 'r s' = """one line"""
[[cases.turns]]
x = 1
[[cases.turns]]
x = 2
[ a . c ]
y = inf
'''


@pytest.mark.parametrize(
    "path, line",
    [
        (("name",), 2),
        (("a", "b"), 4),
        (("path",), 8),
        (("cases",), 9),
        (("cases", 0, "id"), 10),
        (("cases", 0, "expect"), 11),
        (("cases", 0, "expect", "tags"), 12),
        (("cases", 0, "expect", "tags", 1), 13),
        (("cases", 0, "expect", "tags", 3, "f"), 14),
        (("cases", 0, "expect", "tags", 3, "g", 1, 1, "h"), 15),
        (("cases", 1), 17),
        (("cases", 1, "qé", "r s"), 18),
        (("cases", 1, "turns", 0, "x"), 20),
        (("cases", 1, "turns", 1, "x"), 22),
        (("a", "c", "y"), 24),
    ],
)
def test_line(path: tuple[str | int, ...], line: int) -> None:
    """Tables, arrays of tables, dotted and quoted keys, inline tables and strings over several lines are all seen through."""
    tomli.loads(TEXT)

    assert TomlPlaces(TEXT).line(path) == line


@pytest.mark.parametrize(
    "path, line", [(("cases", 0, "user"), 9), (("cases", 0, "expect", "json"), 11), (("nothing",), 1), ((), 1)]
)
def test_missing_key(path: tuple[str | int, ...], line: int) -> None:
    """A key that is missing is found at the table that should have it."""
    assert TomlPlaces(TEXT).line(path) == line


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_line_ends(line_end: str) -> None:
    """Only line ends of TOML count: other white space that splits lines elsewhere does not."""
    text = line_end.join(['a = "\u2028\x85"', "b = '''", "\u2029", "'''", "c = 1"])

    assert TomlPlaces(text).line(("c",)) == 5


keys = st.text("abc-_1", min_size=1, max_size=3) | st.text(min_size=1, max_size=3).filter(lambda key: key.isprintable())
leaves = st.integers(-9, 9) | st.booleans() | st.text("ab\"'\\[]{}#=,\n é", max_size=6)
values: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)


class Writer:
    """Writes a table as TOML in a layout that is drawn, and keeps the line of every key that it wrote."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.text = ""
        self.lines: dict[tuple[str | int, ...], int] = {}

    def put(self, text: str) -> None:
        self.text += text

    def note(self, path: tuple[str | int, ...]) -> None:
        self.lines[path] = self.text.count("\n") + 1

    def gap(self) -> None:
        self.put(self.draw(st.sampled_from(["", " ", "\n", " # ] } [x]\n", "\n\n  "])))

    def key(self, key: str) -> str:
        return key if key.isascii() and key.replace("-", "a").replace("_", "a").isalnum() else self.string(key)

    def string(self, text: str) -> str:
        escaped = "".join(f"\\u{ord(one):04x}" if ord(one) < 0x20 or one in '"\\\x7f' else one for one in text)
        return f'"{escaped}"'

    def value(self, path: tuple[str | int, ...], value: Any) -> None:  # noqa: ANN401 - any TOML
        if isinstance(value, dict):
            self.put("{")
            for number, (key, one) in enumerate(value.items()):
                self.put(", " if number else "")
                self.pair(path, key, one)
            self.put("}")
        elif isinstance(value, list):
            self.put("[")
            for number, one in enumerate(value):
                self.gap()
                self.note((*path, number))
                self.value((*path, number), one)
                self.gap()
                self.put(",")
            self.put("]")
        elif isinstance(value, str):
            self.put(self.draw(st.sampled_from([self.string(value), f'"""\n{self.string(value)[1:-1]}\n"""'])))
        else:
            self.put(str(value).lower())

    def pair(self, table: tuple[str | int, ...], key: str, value: Any) -> None:  # noqa: ANN401 - any TOML
        self.note((*table, key))
        self.put(f"{self.key(key)} = ")
        self.value((*table, key), value)

    def table(self, path: tuple[str | int, ...], table: dict[str, Any]) -> None:
        for key, value in table.items():
            self.gap()
            self.pair(path, key, value)
            self.put("\n")


@st.composite
def documents(draw: st.DrawFn) -> Writer:
    """TOML with some keys, some tables and an array of tables."""
    tables = st.dictionaries(keys, values, max_size=3)
    writer = Writer(draw)
    writer.table((), {f"top-{key}": value for key, value in draw(tables).items() if key.isalnum()})
    for name in ("first", "second"):
        writer.note((name,))
        writer.put(f"[{name}]\n")
        writer.table((name,), draw(tables))
    for number in range(draw(st.integers(0, 3))):
        writer.note(("many", number))
        writer.put("[[ many ]]\n")
        writer.table(("many", number), draw(tables))
    return writer


@given(written=documents())
def test_generated(written: Writer) -> None:
    """Whatever stands in a document and however it is laid out, every key and element is found at its own line."""
    tomli.loads(written.text)
    places = TomlPlaces(written.text)

    assert {path: places.line(path) for path in written.lines} == written.lines


def paths_in(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 - any TOML
    """The path of every key and element."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield (*path, key)
        yield from paths_in(one, (*path, key))


@pytest.mark.parametrize("file", ["pyproject.toml", *sorted(path.name for path in (ROOT / "suites").glob("*.toml"))])
def test_real_files(file: str) -> None:
    """In this project's own files every key stands at a line that holds its name."""
    path = ROOT / file if (ROOT / file).exists() else ROOT / "suites" / file
    text = path.read_text(encoding="utf-8")
    places = TomlPlaces(text)

    lines = text.split("\n")
    for found in paths_in(tomli.loads(text)):
        if isinstance(found[-1], str):
            assert found[-1] in lines[places.line(found) - 1]
