"""Tests of the cassette: what is written is read back, VCR.py reads it too, and damage is named."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canary_replay import cassette as cassettes
from canary_replay.errors import CanaryError, DamagedFileError
from canary_replay.interaction import HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.recording import Recording, bytes_digest
from canary_replay.request import Request, request_key
from canary_replay.response import Response
from tests.strategies import recordings_of_one_case, texts

REQUEST = Request(model="openai/gpt", messages=({"role": "user", "content": "Hello?"},), parameters={"temperature": 0, "seed": 7})


def exchange(body: bytes = b'{"id": 1}', *, sent: bytes = b'{"model": "gpt"}', timing: Timing | None = None) -> Interaction:
    """One HTTP exchange with a chat server."""
    return Interaction(
        request=HttpRequest(method="POST", uri="http://embedded.invalid/v1/chat/completions", body=sent),
        response=HttpResponse(status=200, reason="OK", headers={"content-type": ["application/json"]}, body=body, timing=timing),
    )


def recording(trial: int = 0, *interactions: Interaction, response: Response | None = None) -> Recording:
    """One trial of the case ``greeting``."""
    return Recording(
        suite="support",
        target="current",
        case="greeting",
        trial=trial,
        key=request_key(REQUEST),
        request=REQUEST,
        response=response or Response(text="Hi.\nHow can I help?"),
        decoder="openai-chat/1",
        digest=bytes_digest(interactions),
        interactions=interactions,
    )


def write(path: Path, *recordings: Recording, keep_wire: str = "all") -> None:
    """Write a cassette in which nothing is a secret."""
    cassettes.write(path, recordings, keep_wire=keep_wire, guard=lambda _data: None)


def document(path: Path) -> dict[str, Any]:
    """A cassette as any JSON reader sees it."""
    found = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def damaged(path: Path, data: bytes) -> str:
    """The message about a file with these bytes; both ways of reading must say it is damaged, in one line."""
    path.write_bytes(data)
    with pytest.raises(DamagedFileError) as whole:
        cassettes.read_whole(path, shown="cassettes/x.json")
    with pytest.raises(DamagedFileError) as head:
        cassettes.read(path, shown="cassettes/x.json")
    for message in (str(whole.value), str(head.value)):
        assert message.startswith("cassettes/x.json: ")
        assert len(message.splitlines()) == 1
    return str(whole.value)


# ------------------------------------------------------------------------------------------------ round trip
@given(recordings_of_one_case())
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, recordings: list[Recording]) -> None:
    """Any texts, bodies that are not UTF-8, empty bodies and chunk tables come back equal, in the order of the trials."""
    path = tmp_path_factory.getbasetemp() / "round-trip.json"

    write(path, *reversed(recordings))
    found = cassettes.read_whole(path)

    assert found is not None
    assert list(found.recordings) == recordings
    assert found.request == recordings[0].request
    assert request_key(found.request) == found.key


@given(recordings_of_one_case())
def test_reading_the_head_is_reading_the_whole_without_the_wire(
    tmp_path_factory: pytest.TempPathFactory, recordings: list[Recording]
) -> None:
    """Replay, which skips the interactions, sees the same facts as whoever reads everything."""
    path = tmp_path_factory.getbasetemp() / "head.json"

    write(path, *recordings)
    head, whole = cassettes.read(path), cassettes.read_whole(path)

    assert head is not None
    assert whole is not None
    assert head.recordings == tuple(msgspec.structs.replace(one, interactions=()) for one in whole.recordings)
    assert head.digest == whole.digest == cassettes.digest_of_recordings(whole.key, recordings)


@given(recordings_of_one_case())
def test_the_same_recordings_give_the_same_bytes(recordings: list[Recording]) -> None:
    """The order in which trials arrive does not show in the file."""
    assert cassettes.encode(recordings) == cassettes.encode(recordings[::-1])


@given(texts)
def test_line_ends_of_another_system_change_nothing(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """A checkout that turns line ends into CRLF leaves the approved facts as they are."""
    path = tmp_path_factory.getbasetemp() / "crlf.json"
    write(path, recording(0, exchange(text.encode()), response=Response(text=text)))
    before = cassettes.read_whole(path)

    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))

    assert cassettes.read_whole(path) == before


@pytest.mark.parametrize("text", ["[ 1.0, 2 ]", "a [\n 1,\n 2\n] b", "[1,\u20282]", "[  -3e+5,   17   ]"])
def test_a_text_that_looks_like_a_chunk_table(tmp_path: Path, text: str) -> None:
    """Chunk tables are written on one line; an answer or a body that looks like one is not touched."""
    path = tmp_path / "x.json"

    write(path, recording(0, exchange(text.encode()), response=Response(text=text)))
    found = cassettes.read_whole(path)

    assert found is not None
    assert found.recordings[0].response == Response(text=text)
    assert found.recordings[0].interactions[0].response.body == text.encode()


def test_a_chunk_stands_on_one_line(tmp_path: Path) -> None:
    """A person who reads a pull request sees one chunk a line, and one line of the answer a line."""
    path = tmp_path / "x.json"

    write(path, recording(0, exchange(b"abcdef", timing=Timing(chunks=((8.5, 4), (21.0, 2)), end_ms=21.5))))
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]

    assert "[8.5, 4]," in lines
    assert "[21.0, 2]" in lines
    assert lines[lines.index('"text": [') + 1 :][:2] == ['"Hi.",', '"How can I help?"']


def test_order_of_the_file(tmp_path: Path) -> None:
    """What people read comes first, what only machines read comes last."""
    path = tmp_path / "x.json"

    write(path, recording(0, exchange()))

    assert list(document(path)) == ["metadata", "version", "interactions"]
    assert path.read_bytes().endswith(b"}\n")


@pytest.mark.parametrize("keep_wire, kept", [("all", [2, 1]), ("first", [2, 0]), ("none", [0, 0])])
def test_keep_wire(tmp_path: Path, keep_wire: str, kept: list[int]) -> None:
    """The wire of all trials, of the first or of none is kept; what it said, and its digest, always are."""
    path = tmp_path / "x.json"
    recordings = [recording(0, exchange(b"a"), exchange(b"b")), recording(1, exchange(b"c"))]

    write(path, *recordings, keep_wire=keep_wire)
    found = cassettes.read_whole(path)

    assert found is not None
    assert [len(one.interactions) for one in found.recordings] == kept
    assert [one.wire for one in found.recordings] == ["" if number else "left out by keep_wire" for number in kept]
    assert [one.response for one in found.recordings] == [one.response for one in recordings]
    assert [one.digest for one in found.recordings] == [one.digest for one in recordings]
    assert len(document(path)["interactions"]) == sum(kept)


def test_wire_of_a_recording_that_never_had_one(tmp_path: Path) -> None:
    """A recording without interactions does not claim that some were left out."""
    path = tmp_path / "x.json"

    write(path, recording(0), keep_wire="none")
    found = cassettes.read(path)

    assert found is not None
    assert found.recordings[0].wire == ""


# ------------------------------------------------------------------------------------------------ plain VCR.py
def test_plain_vcr_loads_a_cassette(tmp_path: Path) -> None:
    """``vcr.use_cassette`` reads the file as it is, our metadata and chunk tables included."""
    vcr = pytest.importorskip("vcr", reason="VCR.py is not installed")
    path = tmp_path / "x.json"
    write(path, recording(0, exchange(b"one"), exchange(b"two", timing=Timing(chunks=((1.0, 3),)))))

    with vcr.use_cassette(str(path), serializer="json", record_mode="none") as loaded:
        bodies = [response["body"]["string"] for response in loaded.responses]

    assert bodies == [b"one", b"two"]
    assert [request.uri for request in loaded.requests] == ["http://embedded.invalid/v1/chat/completions"] * 2


@given(recordings_of_one_case())
def test_vcr_reads_what_we_wrote(recordings: list[Recording]) -> None:
    """VCR.py's own reader finds method, address, headers, status and body of every interaction whose bodies are UTF-8."""
    serialize = pytest.importorskip("vcr.serialize", reason="VCR.py is not installed")
    jsonserializer = pytest.importorskip("vcr.serializers.jsonserializer", reason="VCR.py is not installed")
    plain = [msgspec.structs.replace(one, interactions=tuple(filter(_is_utf8, one.interactions))) for one in recordings]
    expected = [interaction for one in plain for interaction in one.interactions]

    asked, answered, _metadata = serialize.deserialize(cassettes.encode(plain).decode("utf-8"), jsonserializer)

    assert [(one.method, one.uri, one.body or b"") for one in asked] == [
        (one.request.method, one.request.uri, one.request.body) for one in expected
    ]
    assert [(one["status"], one["headers"], one["body"]["string"]) for one in answered] == [
        ({"code": one.response.status, "message": one.response.reason}, one.response.headers, one.response.body)
        for one in expected
    ]


def _is_utf8(interaction: Interaction) -> bool:
    try:
        interaction.request.body.decode()
        interaction.response.body.decode()
    except UnicodeDecodeError:
        return False
    return True


# ------------------------------------------------------------------------------------------------ damage
def test_a_missing_cassette_is_not_a_damaged_one(tmp_path: Path) -> None:
    """No file is None, whichever way it is read."""
    assert cassettes.read(tmp_path / "x.json") is None
    assert cassettes.read_whole(tmp_path / "x.json") is None


def test_cut_at_every_byte(tmp_path: Path) -> None:
    """Wherever a file breaks off, it is damaged: never read as less, never another exception."""
    path, cut = tmp_path / "x.json", tmp_path / "cut.json"
    write(path, recording(0, exchange("é".encode(), timing=Timing(chunks=((1.0, 2),)))))
    data = path.read_bytes().removesuffix(b"\n")

    for length in range(len(data)):
        damaged(cut, data[:length])


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    """What cannot be read as a file is named with the system's reason."""
    with pytest.raises(DamagedFileError, match=r"^x\.json: cannot be read: \w+"):
        cassettes.read(tmp_path, shown="x.json")


@pytest.mark.parametrize(
    "data, says",
    [
        (b"", "is empty; restore it from version control or record the case again"),
        (b" \n\n", "is empty"),
        (b"\x00" * 20, "line 1: is damaged"),
        (b"\xff\xfe{}", "line 1: is not UTF-8 (byte 0)"),
        (b'{\n "metadata": "\xe9"\n}', "line 2: is not UTF-8 (byte 16)"),
        (b"<<<<<<< HEAD\n{}\n", "line 1: is damaged"),
        (b"[]", "is not a cassette of canary-replay (it has no metadata.canary)"),
        (b"{}", "is not a cassette of canary-replay (it has no metadata.canary)"),
        (b'{"interactions": [], "version": 1}', "it looks like one of plain VCR.py"),
        (b'{"version": 1, "interactions": [{}], "metadata": {"by": "somebody"}}', "it looks like one of plain VCR.py"),
        (b'{"metadata": {"canary": {"format": 2, "all": "new"}}}', "has format 2, this canary-replay reads up to 1; upgrade"),
        (
            b'{"metadata": {"canary": {"format": 2, "all": "new"}}, "interactions": [{}]}',
            "has format 2, this canary-replay reads",
        ),
        (b'{"metadata": {"canary": {"format": 1}}}', "$.metadata.canary: is damaged: Object missing required field `suite`"),
        (b"[" * 100_000, "is not a cassette of canary-replay"),
        (b'{"metadata": ' + b'{"a": ' * 100_000, "is nested too deeply to be a cassette"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, says: str) -> None:
    """One line says which file, where in it, what is wrong and what to do."""
    assert says in damaged(tmp_path / "x.json", data)


def test_not_utf8_inside_the_wire(tmp_path: Path) -> None:
    """A byte that is not UTF-8 is found even in the part that replay skips."""
    path = tmp_path / "x.json"
    write(path, recording(0, exchange("naïve".encode())))
    data = path.read_bytes()
    line = data[: data.index("naïve".encode())].count(b"\n") + 1

    message = damaged(path, data.replace("naïve".encode(), "naïve".encode("latin-1")))

    assert f"line {line}: is not UTF-8" in message


def test_a_torn_line_is_found_by_its_number(tmp_path: Path) -> None:
    """JSON that breaks in the middle is named by its line, as an editor counts them."""
    path = tmp_path / "x.json"
    write(path, recording(0, exchange()))
    lines = path.read_bytes().split(b"\n")
    place = next(number for number, line in enumerate(lines, 1) if b'"decoder"' in line)
    lines[place - 1] = b'   "decoder" oops'

    message = damaged(path, b"\n".join(lines))

    assert message.startswith(f"cassettes/x.json: line {place}: is damaged: ")


def edited(path: Path, change: str, value: Any) -> bytes:  # noqa: ANN401 - any JSON
    """The bytes of a cassette after one value in it was set to another (``recordings.0.trial``)."""
    found = document(path)
    *parents, last = [int(part) if part.isdigit() else part for part in change.split(".")]
    place: Any = found["metadata"]["canary"]
    for part in parents:
        place = place[part]
    place[last] = value
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    "change, value, says",
    [
        ("format", 7, "$.metadata.canary.format: has format 7, this canary-replay reads up to 1; upgrade canary-replay"),
        ("recordings", [], "$.metadata.canary.recordings: holds no recording; record the case again"),
        ("recordings.0.trial", 1, "$.metadata.canary.recordings: has trials out of order or twice: [1, 1]"),
        ("recordings.0.trial", 5, "$.metadata.canary.recordings: has trials out of order or twice: [5, 1]"),
        ("recordings.1.trial", "one", "$.metadata.canary.recordings[1].trial: is damaged: Expected `int`, got `str`"),
        ("key", None, "$.metadata.canary.key: is damaged: Expected `str`, got `null`"),
    ],
)
def test_an_edit_is_named(tmp_path: Path, change: str, value: object, says: str) -> None:
    """A value that cannot be is named by its path in the document."""
    path = tmp_path / "x.json"
    write(path, recording(0, exchange()), recording(1, exchange()))

    assert damaged(path, edited(path, change, value)).startswith(f"cassettes/x.json: {says}")


@pytest.mark.parametrize("index", [-1, 2, 10**9])
def test_an_interaction_that_is_not_there(tmp_path: Path, index: int) -> None:
    """A recording that names an interaction beyond the file's is damaged, never someone else's wire."""
    path = tmp_path / "x.json"
    write(path, recording(0, exchange()), recording(1, exchange()))
    path.write_bytes(edited(path, "recordings.1.interactions", [index]))

    with pytest.raises(DamagedFileError) as raised:
        cassettes.read_whole(path, shown="x.json")

    place = "$.metadata.canary.recordings[1].interactions"
    assert str(raised.value) == f"x.json: {place}: names an interaction that the file does not hold (it holds 2)"


@pytest.mark.parametrize("encoded", ["a", "é", "====="])
def test_a_body_that_is_not_base64(tmp_path: Path, encoded: str) -> None:
    """A binary body that was edited is damaged."""
    path = tmp_path / "x.json"
    write(path, recording(0, exchange(b"\xff\xfe")))
    data = path.read_bytes()
    stored = base64.b64encode(b"\xff\xfe")
    path.write_bytes(data.replace(stored, encoded.encode()))

    with pytest.raises(DamagedFileError, match=r"^x\.json: \$\.interactions: a body is not base64: "):
        cassettes.read_whole(path, shown="x.json")


def test_a_cassette_in_another_cases_place(tmp_path: Path) -> None:
    """A copied file says which case it holds and which its place says."""
    path = tmp_path / "x.json"
    write(path, recording(0))
    found = cassettes.read(path)
    assert found is not None

    cassettes.same_identity(found, suite="support", target="current", case="greeting", shown="x.json")
    with pytest.raises(DamagedFileError) as raised:
        cassettes.same_identity(found, suite="support", target="current", case="farewell", shown="x.json")

    assert "holds suite, target, case ('support', 'current', 'greeting')" in str(raised.value)
    assert "its place says ('support', 'current', 'farewell')" in str(raised.value)


# ------------------------------------------------------------------------------------------------ writing
class SecretFoundError(CanaryError):
    """What a guard raises."""


def refuse(_data: bytes) -> None:
    """A guard that finds a secret in everything."""
    raise SecretFoundError("a secret")


def test_a_guard_that_refuses_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """Bytes that hold a secret reach neither the file nor a temporary one beside it."""
    path = tmp_path / "cases" / "x.json"
    write(path, recording(0))
    before = path.read_bytes()

    with pytest.raises(SecretFoundError):
        cassettes.write(path, [recording(0), recording(1)], guard=refuse)

    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["x.json"]


def test_a_guard_sees_the_bytes_of_the_file(tmp_path: Path) -> None:
    """What the guard is asked about is what will stand on disk, to the byte."""
    path, seen = tmp_path / "x.json", []

    cassettes.write(path, [recording(0)], guard=seen.append)

    assert seen == [path.read_bytes()]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """Where the file cannot take its place (a folder stands there), the one written aside is removed."""
    path = tmp_path / "x.json"
    (path / "in the way").mkdir(parents=True)

    with pytest.raises(OSError, match=re.escape("x.json")):
        cassettes.write_atomically(path, b"{}")

    assert [one.name for one in tmp_path.iterdir()] == ["x.json"]


def test_writing_again_leaves_one_file(tmp_path: Path) -> None:
    """A rewritten cassette replaces the old one and leaves no file written aside."""
    path = tmp_path / "deep" / "down" / "x.json"

    for trial in range(3):
        write(path, recording(trial))

    assert [one.name for one in path.parent.iterdir()] == ["x.json"]
    assert document(path)["metadata"]["canary"]["recordings"][0]["trial"] == 2


# ------------------------------------------------------------------------------------------------ names of files
WINDOWS_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
hard_names = st.sampled_from(
    ["CON", "nul", "com1", "LPT9", "con.txt", "..", ".", "/", "\\", "a/b", "a:b", "a ", "a.", "", "~", "-"]
)


@given(st.text(max_size=120) | hard_names)
def test_a_file_name_is_safe_everywhere(name: str) -> None:
    """Lower-case letters, digits, dash and underscore, at most 80 of them, and no name that Windows keeps for itself."""
    found = cassettes.file_name(name)

    assert re.fullmatch(r"[a-z0-9_-]{1,80}", found)
    assert found not in WINDOWS_DEVICES
    assert cassettes.file_name(name) == found


@given(st.from_regex(r"[a-z0-9_-]{1,80}", fullmatch=True).filter(lambda name: name not in WINDOWS_DEVICES))
def test_a_safe_name_stands_as_it_is(name: str) -> None:
    """A person finds the cassette of a case by its id."""
    assert cassettes.file_name(name) == name


@given(st.lists(st.text(max_size=100) | st.text("aA1.-_ ", max_size=6), unique=True, max_size=60))
def test_two_names_never_share_a_file(names: list[str]) -> None:
    """Different ids have different files, also where the file system does not tell upper from lower case."""
    assert len({cassettes.file_name(name).casefold() for name in names}) == len(names)


def test_a_large_sample_of_names_never_shares_a_file() -> None:
    """Every spelling of a few letters in upper and lower case, and long ids that differ at their end alone."""
    spelled = [
        "".join(letter.upper() if number >> bit & 1 else letter for bit, letter in enumerate("straßenkind"))
        for number in range(2048)
    ]
    long = [f"{'x' * 200}{number}" for number in range(2000)]
    numbered = [f"{separator}{number}" for separator in ("case ", "case-", "case_", "case.", "Case-") for number in range(2000)]
    names = {*spelled, *long, *numbered}

    assert len({cassettes.file_name(name).casefold() for name in names}) == len(names)


def test_places_of_a_target(tmp_path: Path) -> None:
    """A cassette stands under its suite and its target, and is found again in a fixed order."""
    for case in ("b", "A", "a"):
        write(cassettes.cassette_path(tmp_path, "support", "current", case), recording(0))

    found = [path.relative_to(tmp_path).as_posix() for path in cassettes.cassette_files(tmp_path)]

    assert found == sorted(found)
    assert "cassettes/support/current/cases/a.json" in found
    assert len(found) == 3
