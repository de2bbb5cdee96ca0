"""Tests of the run store: every finished recording is read back, whatever happened to the one after it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given

from canary_replay import runs
from canary_replay.errors import CanaryError, DamagedFileError, UsageError
from canary_replay.interaction import HttpRequest, HttpResponse, Interaction
from canary_replay.recording import Recording, bytes_digest
from canary_replay.request import Request, request_key
from canary_replay.response import ErrorInfo, Response
from tests.strategies import recordings_of_one_case

REQUEST = Request(model="openai/gpt", messages=({"role": "user", "content": "Hello?"},))


def recording(case: str = "greeting", trial: int = 0, *, body: bytes = b"\xff\n{}", error: ErrorInfo | None = None) -> Recording:
    """A recording of one exchange."""
    asked = HttpRequest(method="POST", uri="http://embedded.invalid/v1", body="é\n".encode())
    wire = (Interaction(request=asked, response=HttpResponse(status=200, body=body)),)
    return Recording(
        suite="support",
        target="current",
        case=case,
        trial=trial,
        key=request_key(REQUEST),
        request=REQUEST,
        response=Response(text="one\ntwo\u2028three", error=error),
        digest=bytes_digest(wire),
        interactions=wire,
        by={"model": "gpt"},
    )


def writer(root: Path, command: str = "record") -> runs.RunWriter:
    """A run in which nothing is a secret."""
    return runs.RunWriter(root, command, guard=lambda _data: None, by={"canary_replay": "0.1.0"})


def written(root: Path, *recordings: Recording, command: str = "record") -> runs.RunWriter:
    """A finished run."""
    run = writer(root, command)
    for one in recordings:
        run.append(one)
    run.close()
    return run


def lines_of(run: runs.RunWriter) -> Path:
    """The file that holds a run's recordings."""
    return run.folder / "recordings.jsonl"


# ------------------------------------------------------------------------------------------------ round trip
@given(recordings_of_one_case())
def test_what_is_appended_is_read_back(tmp_path_factory: pytest.TempPathFactory, recordings: list[Recording]) -> None:
    """Any recording comes back equal, wire and all, in the order in which the recordings ended."""
    root = tmp_path_factory.mktemp("run")

    run = written(root, *reversed(recordings))

    assert list(runs.recordings(root, run.id)) == recordings[::-1]


def test_a_recording_is_on_disk_before_append_returns(tmp_path: Path) -> None:
    """Somebody else reads it at once, while the run goes on."""
    run = writer(tmp_path)

    run.append(recording("a"))
    seen = list(runs.recordings(tmp_path, run.id))
    run.append(recording("b"))
    run.close()

    assert seen == [recording("a")]
    assert list(runs.recordings(tmp_path, run.id)) == [recording("a"), recording("b")]


def test_runs_are_listed_with_what_they_were(tmp_path: Path) -> None:
    """Command, date and versions of each run; of the same second, in the order of their ids."""
    ids = {written(tmp_path, command=command).id: command for command in ("record", "live", "record")}

    found = runs.list_runs(tmp_path)

    assert {run.id: run.command for run in found} == ids
    assert [(run.started, run.id) for run in found] == sorted((run.started, run.id) for run in found)
    assert all(run.by == {"canary_replay": "0.1.0"} for run in found)
    assert all(re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", run.id) for run in found)


def test_a_project_without_runs(tmp_path: Path) -> None:
    """No run is no error."""
    assert runs.list_runs(tmp_path) == []
    assert list(runs.heads(tmp_path, command="record")) == []


def test_a_run_that_recorded_nothing(tmp_path: Path) -> None:
    """A run that was stopped before its first answer, or before its file was there, holds no recordings."""
    run = written(tmp_path)
    assert list(runs.recordings(tmp_path, run.id)) == []

    lines_of(run).unlink()

    assert list(runs.recordings(tmp_path, run.id)) == []


def test_a_folder_that_never_became_a_run(tmp_path: Path) -> None:
    """A folder that a crash left without ``run.json`` is no run."""
    (runs.runs_folder(tmp_path) / "20260501-120000-abcdef").mkdir(parents=True)
    run = written(tmp_path, recording())

    assert [one.id for one in runs.list_runs(tmp_path)] == [run.id]


# ------------------------------------------------------------------------------------------------ crashes and damage
def test_cut_at_every_byte(tmp_path: Path) -> None:
    """Wherever a crash cuts the last line, everything before it is read, and no half recording with it."""
    run = written(tmp_path, recording("a"), recording("b"))
    data = lines_of(run).read_bytes()
    whole = data.index(b"\n") + 1

    for length in range(len(data) + 1):
        lines_of(run).write_bytes(data[:length])
        cases = [one.case for one in runs.recordings(tmp_path, run.id)]
        assert cases == ["a", "b"][: (length >= whole) + (length == len(data))], length


@pytest.mark.parametrize(
    "line",
    [
        b"{oops}",
        b"",
        b"[]",
        b'{"suite": "support"}',
        b'{"suite": "\xff"}',
        b'{"by": ' + b"[" * 100_000,
        b'{"later": ' + b"[" * 100_000,
    ],
)
def test_a_damaged_line_in_the_middle(tmp_path: Path, line: bytes) -> None:
    """Damage before the end is no crash of ours: one line names the run's file and the line in it."""
    run = written(tmp_path, recording("a"), recording("b"), recording("c"))
    lines = lines_of(run).read_bytes().splitlines(keepends=True)
    lines[1] = line + b"\n"
    lines_of(run).write_bytes(b"".join(lines))
    reading = runs.recordings(tmp_path, run.id)

    assert next(reading).case == "a"
    with pytest.raises(DamagedFileError) as raised:
        next(reading)
    with pytest.raises(DamagedFileError) as raised_by_heads:
        list(runs.heads(tmp_path, command="record"))

    for message in (str(raised.value), str(raised_by_heads.value)):
        assert message.startswith(f".canary/runs/{run.id}/recordings.jsonl: line 2: is damaged: ")
        assert len(message.splitlines()) == 1


def test_a_body_that_is_not_base64(tmp_path: Path) -> None:
    """A binary body that was edited is damage of its line."""
    run = written(tmp_path, recording(body=b"\xff\xff\xff"))
    lines_of(run).write_bytes(lines_of(run).read_bytes().replace(b'"////"', b'"//!/"'))

    with pytest.raises(DamagedFileError, match=r"recordings\.jsonl: line 1: is damaged: "):
        list(runs.recordings(tmp_path, run.id))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"id": 1}'])
def test_a_damaged_run_file(tmp_path: Path, data: bytes) -> None:
    """``run.json`` that cannot be read is named."""
    run = written(tmp_path)
    (run.folder / "run.json").write_bytes(data)

    with pytest.raises(DamagedFileError, match=rf"^\.canary/runs/{run.id}/run\.json: is damaged: "):
        runs.list_runs(tmp_path)


def test_a_run_of_a_later_version(tmp_path: Path) -> None:
    """A format that is not known is not guessed at."""
    run = written(tmp_path)
    path = run.folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 9}))

    with pytest.raises(DamagedFileError, match=r"run\.json: \$\.format: has format 9, this canary-replay reads up to 1; upgrade"):
        runs.list_runs(tmp_path)


# ------------------------------------------------------------------------------------------------ finding recordings again
def test_heads_name_every_recording_and_where_it_stands(tmp_path: Path) -> None:
    """A recording is found by its head and read alone from its place; runs of other commands are not looked at."""
    first = written(tmp_path, recording("a", 0), recording("a", 1))
    written(tmp_path, recording("never"), command="live")
    second = written(tmp_path, recording("é", 2))
    info = {run.id: run for run in runs.list_runs(tmp_path)}
    expected = [recording("a", 0), recording("a", 1), recording("é", 2)]
    if (info[second.id].started, second.id) < (info[first.id].started, first.id):
        expected = [expected[2], *expected[:2]]

    found = list(runs.heads(tmp_path, command="record"))

    assert [(head.case, head.trial, head.key) for head, _place in found] == [(one.case, one.trial, one.key) for one in expected]
    assert [head.by for head, _place in found] == [{"model": "gpt"}] * 3
    assert [runs.read_at(place) for _head, place in found] == expected


def test_heads_tell_an_error_from_an_answer(tmp_path: Path) -> None:
    """What failed is known to be missing still, without reading what was answered."""
    failure = recording("b", error=ErrorInfo(message="overloaded", status=529))
    written(tmp_path, recording("a"), failure)

    found = {head.case: head.failed for head, _place in runs.heads(tmp_path, command="record")}

    assert found == {"a": False, "b": True}
    assert failure.failed


def test_heads_of_a_run_that_broke_off(tmp_path: Path) -> None:
    """A line that a crash cut short is not there, as it is not when the run is read."""
    run = written(tmp_path, recording("a"), recording("b"))
    lines_of(run).write_bytes(lines_of(run).read_bytes()[:-1])

    assert [head.case for head, _place in runs.heads(tmp_path, command="record")] == ["a"]


def test_reading_a_place_that_moved(tmp_path: Path) -> None:
    """A place in the middle of a line names file and byte."""
    run = written(tmp_path, recording())

    with pytest.raises(DamagedFileError, match=rf"^\.canary/runs/{run.id}/recordings\.jsonl: byte 5: is damaged: "):
        runs.read_at(runs.Place(lines_of(run), 5))


def test_an_unknown_run_names_the_nearest(tmp_path: Path) -> None:
    """A mistyped id is answered with the one that was meant."""
    run = written(tmp_path, recording())
    wrong = f"{run.id[:-1]}_"

    with pytest.raises(UsageError) as raised:
        next(runs.recordings(tmp_path, wrong))

    assert str(raised.value).startswith(f"there is no run {wrong!r}; did you mean {run.id!r}?")


@pytest.mark.parametrize("wrong", ["", ".", "..", "../runs", "a/b", "\x00"])
def test_no_way_out_of_the_runs(tmp_path: Path, wrong: str) -> None:
    """What is no id is never taken for a path."""
    written(tmp_path, recording())

    with pytest.raises(UsageError, match=r"^there is no run "):
        next(runs.recordings(tmp_path, wrong))


# ------------------------------------------------------------------------------------------------ writing
class SecretFoundError(CanaryError):
    """What a guard raises."""


def test_a_guard_that_refuses_writes_nothing(tmp_path: Path) -> None:
    """A recording that holds a secret leaves no byte; those around it are kept."""

    def guard(data: bytes) -> None:
        if b"secret" in data:
            raise SecretFoundError("a secret")

    run = runs.RunWriter(tmp_path, "record", guard=guard, by={})

    run.append(recording("a"))
    before = lines_of(run).read_bytes()
    with pytest.raises(SecretFoundError):
        run.append(recording("secret"))
    after = lines_of(run).read_bytes()
    run.append(recording("b"))
    run.close()

    assert after == before
    assert [one.case for one in runs.recordings(tmp_path, run.id)] == ["a", "b"]


def test_threads_lose_nothing(tmp_path: Path) -> None:
    """Recordings that end at once in many threads each get a line of their own."""
    run, start = writer(tmp_path), threading.Barrier(8)
    body = b"x" * 20_000  # more than a pipe or a page takes at once

    def record(number: int) -> None:
        start.wait()
        for trial in range(5):
            run.append(recording(f"case-{number}", trial, body=body))

    threads = [threading.Thread(target=record, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.close()
    found = list(runs.recordings(tmp_path, run.id))

    expected = [(f"case-{number}", trial) for number in range(8) for trial in range(5)]
    assert sorted((one.case, one.trial) for one in found) == expected
    assert all(one == recording(one.case, one.trial, body=body) for one in found)


def test_two_runs_at_once(tmp_path: Path) -> None:
    """Each run has its own folder, also when both begin in the same second."""
    one, other = writer(tmp_path), writer(tmp_path)

    one.append(recording("one"))
    other.append(recording("other"))
    one.close()
    other.close()

    assert [found.case for found in runs.recordings(tmp_path, one.id)] == ["one"]
    assert [found.case for found in runs.recordings(tmp_path, other.id)] == ["other"]


FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.test_runs import lines_of, recording, writer

run = writer(Path(sys.argv[1]))
run.append(recording("a"))
size = lines_of(run).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
try:
    run.append(recording("lost"))
except OSError:
    print(lines_of(run).stat().st_size == size)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
run.append(recording("b"))
print(run.id)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit for the size of a file")
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """What does not fit is an error, never half a line that would spoil the next one."""
    root = Path(__file__).resolve().parents[1]

    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], cwd=root, capture_output=True, text=True, check=True)
    taken_back, run_id = done.stdout.split()

    assert taken_back == "True"
    assert [one.case for one in runs.recordings(tmp_path, run_id)] == ["a", "b"]


def test_one_record_at_a_time(tmp_path: Path) -> None:
    """A second record in the same project is refused while the first is at work, and welcome afterwards."""
    with runs.only_one(tmp_path), pytest.raises(UsageError, match="another 'record' is at work"), runs.only_one(tmp_path):
        pass

    with runs.only_one(tmp_path):
        assert (tmp_path / ".canary" / "lock").exists()
