"""Cases in JSON lines and CSV files: what is read, where it is found again, and what a wrong line says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary_replay.case_files import case_from, csv_rows, head_of, json_object, json_rows
from canary_replay.errors import UsageError


def file(folder: Path, content: str | bytes, name: str = "cases.jsonl") -> Path:
    """A file with this content."""
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def wrong(content: bytes, folder: Path) -> str:
    """What is said of a JSON lines file when all of its cases are read."""
    path = file(folder, content)
    with pytest.raises(UsageError) as caught:
        read_json(path)
    return str(caught.value)


def read_json(path: Path) -> None:
    """Read every case of a JSON lines file, as a suite does: first the rows, then each line again."""
    content = path.read_bytes()
    for row in json_rows(path, shown="c.jsonl"):
        origin = f"c.jsonl:{row.line}"
        case_from(json_object(content[row.offset :].partition(b"\n")[0], origin), origin)


def read_csv(path: Path) -> None:
    """Read every case of a CSV file."""
    for number, row in enumerate(csv_rows(path, shown="c.csv")):
        head_of(row, number, shown="c.csv")
        case_from(row.data, f"c.csv:{row.line}")


class TestJsonLines:
    """One object a line."""

    def test_rows(self, tmp_path: Path) -> None:
        """The first pass keeps id, line, tags with the group, and whether something is expected; blank lines are skipped."""
        lines = [
            b'\xef\xbb\xbf{"id": "a", "user": "x", "tags": ["t"], "group": "g", "required": true}\r\n',
            b"  \r\n",
            b'{"id": "b", "user": "x", "expect": {"json": true}}\n',
            b'{"id": "c", "user": "x", "expect": {"json": false, "forbid_tool": false, "tool": null}}\n',
            b'{"id": "d", "user": "x", "expect": {"refusal": false}}',
        ]

        rows = list(json_rows(file(tmp_path, b"".join(lines)), shown="c.jsonl"))

        assert [(row.id, row.line, row.tags, row.required, row.judged) for row in rows] == [
            ("a", 1, ("t", "g"), True, False),
            ("b", 3, (), False, True),
            ("c", 4, (), False, False),
            ("d", 5, (), False, True),
        ]

    @given(texts=st.lists(st.text(max_size=8), max_size=6), line_end=st.sampled_from([b"\n", b"\r\n", b"\n\n"]))
    def test_found_again(self, texts: list[str], line_end: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
        """The offset of a row leads back to its own line, whatever stands in the lines before it."""
        cases = [{"id": f"case-{number}", "user": text} for number, text in enumerate(texts)]
        path = file(tmp_path_factory.mktemp("cases"), line_end.join(msgspec.json.encode(case) for case in cases))

        rows = list(json_rows(path, shown="c.jsonl"))

        content = path.read_bytes()
        assert [json_object(content[row.offset :].partition(b"\n")[0], "here") for row in rows] == cases

    @pytest.mark.parametrize(
        "line, said",
        [
            (b'{"id": "b", "user": "x"', "is not one JSON object: Expecting ',' delimiter at column 24"),
            (b'{"id": "b", "user": "x"} {}', "is not one JSON object: Extra data at column 26"),
            (b"[1]", 'is not one JSON object; each line is one: {"id": ..., "user": ...}'),
            (b'"b"', 'is not one JSON object; each line is one: {"id": ..., "user": ...}'),
            (b"[" * 100_000, "is nested too deeply"),
            (
                b'{"id": "b", "user": "\xff"}',
                "is not one JSON object: it is not UTF-8 (byte 21 of the line); save the file as UTF-8",
            ),
            (b'{"id": "b", "user": "\\ud800"}', "is not one JSON object: it holds half of a surrogate pair, which is no text"),
            (b'{"id": "b", "id": "c", "user": "x"}', "the key 'id' stands twice; keep one of them"),
            (
                b'{"id": "b", "user": "a: b", "expect": {"tool": "x", "tool": "y"}}',
                "the key 'tool' stands twice; keep one of them",
            ),
            (b'{"id": 5, "user": "x"}', "id should be a text, not 5"),
            (b'{"id": "", "user": "x"}', "id should have at least 1 character, not ''"),
            (b'{"user": "x"}', "the key 'id' is missing"),
            (b'{"id": "b", "user": "x", "tags": "t"}', "tags should be a list, not 't'"),
            (b'{"id": "b", "user": "x", "tags": ["a b"]}', "tags[0] should be one word without parentheses, not 'a b'"),
            (b'{"id": "b", "user": "x", "required": "yes"}', "required should be true or false, not 'yes'"),
            (b'{"id": "b"}', "a case has either 'user' (the prompt) or 'messages', not both and not neither"),
            (b'{"id": "b", "messages": [{"content": "x"}]}', "messages: message 1 has no 'role' ('user', 'assistant', 'tool')"),
            (b'{"id": "b", "input": "x", "user": "y"}', "'user' is given twice, under two names; keep one"),
        ],
    )
    def test_wrong_line(self, line: bytes, said: str, tmp_path: Path) -> None:
        """A wrong line is one line of message: file, line, what is wrong."""
        assert wrong(b'{"id": "a", "user": "x"}\n\n' + line + b"\n", tmp_path) == f"c.jsonl:3: {said}"

    @pytest.mark.parametrize("line, near", [('"usr": "x"', "user"), ('"user": "x", "expect": {"jsn": true}', "json")])
    def test_nearest_key(self, line: str, near: str, tmp_path: Path) -> None:
        """An unknown key is answered with the nearest that exists, at any depth."""
        assert f"; did you mean {near!r}? known: " in wrong(f'{{"id": "a", {line}}}'.encode(), tmp_path)

    def test_no_file(self, tmp_path: Path) -> None:
        """A file that is gone is the user's to look for."""
        with pytest.raises(UsageError, match=r"^c\.jsonl: cannot be read: No such file"):
            list(json_rows(tmp_path / "none.jsonl", shown="c.jsonl"))


class TestCsv:
    """A header, then a case a row."""

    def rows(self, content: str | bytes, folder: Path) -> list[tuple[int, dict[str, Any]]]:
        return [(row.line, row.data) for row in csv_rows(file(folder, content, "c.csv"), shown="c.csv")]

    def test_rows(self, tmp_path: Path) -> None:
        """Quoted cells may hold line ends and commas; a row's line is where it begins; empty cells are no values."""
        content = (
            '\ufeffid,user,tags,required\r\na,"two\r\nlines, and a comma","x;y, z",TRUE\r\n\r\nb,\u2028 is no line end,,\r\n'
        )

        assert self.rows(content, tmp_path) == [
            (2, {"id": "a", "user": "two\r\nlines, and a comma", "tags": ["x", "y", "z"], "required": True}),
            (5, {"id": "b", "user": "\u2028 is no line end"}),
        ]

    @pytest.mark.parametrize(
        "column, cell, value",
        [
            ("variables.order", "007", "007"),
            ("variables.price", "1.50", "1.50"),
            ("parameters.max_tokens", "80", 80),
            ("parameters.stream", "TRUE", True),
            ("parameters.stop", "the end", "the end"),
            ("parameters.response_format", '{"type": "json_object"}', {"type": "json_object"}),
            ("expect.json", "true", True),
            ("expect.equals", "42", "42"),
            ("expect.tool", "true", "true"),
            ("expect.contains", "42", "42"),
            ("expect.contains", '["a", "b"]', ["a", "b"]),
            ("expect.regex", "[0-9]+", "[0-9]+"),
            ("expect.arguments", '{"id": 1}', {"id": 1}),
            ("expect.error", "429", 429),
        ],
    )
    def test_cells(self, column: str, cell: str, value: object, tmp_path: Path) -> None:
        """A cell is JSON where it reads as JSON, but for what is a text by its nature: variables and expected texts."""
        quoted = '"' + cell.replace('"', '""') + '"'
        table, _, key = column.partition(".")

        [(_line, data)] = self.rows(f"id,user,{column}\na,x,{quoted}\n", tmp_path)

        assert data[table] == {key: value}
        case_from(data, "here")

    @pytest.mark.parametrize(
        "content, said",
        [
            (b"", "1: is empty; the first row names the columns: id,user,tags"),
            (b"user,tags\nx,y\n", "1: the column 'id' is missing"),
            (b"id;user\na;x\n", "1: the columns 'id;user' are not separated by commas; save the file with commas"),
            (b"id,user,id\n", "1: the column 'id' stands twice; keep one of them"),
            (b"id,user\na\n", "2: has 1 cells where the header has 2; quote a cell that holds commas"),
            (b'id,user\na,"x\n', "2: is not CSV: unexpected end of data"),
            (b"id,user\na,x\nb,\xff\n", "3: is not UTF-8 (byte 14); save the file as UTF-8"),
            (b'id,user\n"a","x\ny"\n,x\n', "4: the key 'id' is missing"),
            (b"id,user,required\na,x,perhaps\n", "2: required should be true or false, not 'perhaps'"),
            (b"id,user,expect.json\na,x,perhaps\n", "2: expect.json should be true or false, not 'perhaps'"),
        ],
    )
    def test_wrong(self, content: bytes, said: str, tmp_path: Path) -> None:
        """A wrong row is one line of message: file, the row's first line, the column."""
        path = file(tmp_path, content, "c.csv")

        with pytest.raises(UsageError) as caught:
            read_csv(path)

        assert str(caught.value) == f"c.csv:{said}"

    def test_unknown_column(self, tmp_path: Path) -> None:
        """An unknown column is answered with the nearest that exists."""
        with pytest.raises(
            UsageError, match=r"^c\.csv:1: there is no column 'usr'; did you mean 'user'\? known: expect\.<name>, "
        ):
            self.rows("id,usr\n", tmp_path)

    def test_same_cases_as_json(self, tmp_path: Path) -> None:
        """A CSV row and a JSON line that say the same are the same case."""
        line = b'{"id": "a", "user": "Find {order}", "tags": ["x"], "variables": {"order": "7"}, "expect": {"contains": ["7"]}}'
        row = 'id,user,tags,variables.order,expect.contains\na,Find {order},x,7,"[""7""]"\n'

        [(_line, data)] = self.rows(row, tmp_path)

        assert case_from(data, "here") == case_from(json_object(line, "here"), "here")
