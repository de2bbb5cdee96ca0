"""What goes over the wire is recorded as it was, played as it was, and never lands in another recording."""

from __future__ import annotations

import asyncio
import contextvars
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vcr", reason="recording needs the extra 'live'")
pytest.importorskip("httpx", reason="recording needs the extra 'live'")

import httpx
import httpx2

from canary_replay.capture import (
    CassetteMissError,
    Limits,
    OfflineError,
    cassette_miss,
    install,
    offline,
    playing,
    recording,
)
from canary_replay.interaction import HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.redact import Redactor
from tests import loopback
from tests.loopback import FakeProvider

ROOT = Path(__file__).parents[1]
CLIENTS = [httpx, httpx2]


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    """A fake provider for the whole file."""
    with loopback.serving() as fake:
        yield fake


def asked(model: str, text: str = "hello", *, stream: bool = True) -> dict[str, Any]:
    """The body of a question."""
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]}


def ask(provider: FakeProvider, model: str, text: str = "hello", *, stream: bool = True, client: Any = httpx) -> list[bytes]:  # noqa: ANN401 - httpx or httpx2
    """Ask, and give the chunks that the caller saw."""
    url = f"{provider.base}/v1/chat/completions"
    with client.Client() as session, session.stream("POST", url, json=asked(model, text, stream=stream)) as response:
        return list(response.iter_raw())


async def ask_async(provider: FakeProvider, model: str, text: str = "hello", *, client: Any = httpx) -> list[bytes]:  # noqa: ANN401 - httpx or httpx2
    """The same, asynchronously."""
    url = f"{provider.base}/v1/chat/completions"
    async with client.AsyncClient() as session, session.stream("POST", url, json=asked(model, text)) as response:
        return [chunk async for chunk in response.aiter_raw()]


def timing_of(interaction: Interaction) -> Timing:
    """The timing of an interaction that has one."""
    assert interaction.response.timing is not None
    return interaction.response.timing


def chunks_of(interaction: Interaction) -> list[bytes]:
    """The body as it was cut."""
    return [data for _at, data in interaction.chunks()]


def question_in(interaction: Interaction) -> str:
    """The text that was asked."""
    return str(json.loads(interaction.request.body)["messages"][0]["content"])


# ------------------------------------------------------------------------------------------------ recording
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_boundaries_and_order(provider: FakeProvider, client: Any, asynchronous: bool) -> None:  # noqa: ANN401, FBT001 - a matrix
    """Twenty events are twenty chunks, cut and in the order as sent, each stamped after it was sent; the caller sees the same."""
    with recording() as recorder:
        seen = (
            asyncio.run(ask_async(provider, "paced-8", client=client))
            if asynchronous
            else ask(provider, "paced-8", client=client)
        )

    (interaction,) = recorder.interactions
    timing = timing_of(interaction)
    assert chunks_of(interaction) == [data for _at, data in provider.sent] == seen
    assert len(seen) == 20
    with pytest.raises(UnicodeDecodeError):
        seen[7].decode()  # a character stands in two chunks
    arrived = [timing.started + at / 1000 for at, _size in timing.chunks]
    assert arrived == sorted(arrived)
    assert all(-0.002 < got - sent < 5 for got, (sent, _data) in zip(arrived, provider.sent, strict=True))  # stamps are rounded
    assert 0 < timing.headers_ms <= timing.chunks[0][0]
    assert timing.end == "eof"
    assert timing.end_ms >= timing.chunks[-1][0]


def test_slow_reader(provider: FakeProvider) -> None:
    """The times are the network's, however slowly the caller reads."""
    url = f"{provider.base}/v1/chat/completions"
    with recording() as recorder, httpx.stream("POST", url, json=asked("paced-5")) as response:
        for number, _chunk in enumerate(response.iter_raw()):
            time.sleep(0.3 if number == 0 else 0)
        waited = time.time()

    timing = timing_of(recorder.interactions[0])

    assert timing.started + timing.end_ms / 1000 < waited - 0.29


@pytest.mark.parametrize("model", ["gzip", "deflate"])
def test_compressed(provider: FakeProvider, model: str) -> None:
    """A compressed body is kept as what it means, and its encoding is noted; the caller gets it without the header."""
    with recording() as recorder:
        body = b"".join(ask(provider, model, stream=False))

    response = recorder.interactions[0].response
    assert loopback.TEXT in json.loads(body)["choices"][0]["message"]["content"]
    assert response.body == body
    assert timing_of(recorder.interactions[0]).encoding == model
    assert "content-encoding" not in response.headers
    assert response.headers["content-length"] == [str(len(body))]


def test_compressed_stream(provider: FakeProvider) -> None:
    """A compressed stream keeps its cuts: what each network read added stands in one chunk."""
    with recording() as plain:
        ask(provider, "plain")
    with recording() as compressed:
        ask(provider, "gzip")

    sizes = [[size for _at, size in timing_of(recorder.interactions[0]).chunks] for recorder in (plain, compressed)]

    assert sum(sizes[1]) == len(compressed.interactions[0].response.body)
    assert len(sizes[0]) == len(sizes[1]) == 12


def test_bytes_that_are_not_utf8(provider: FakeProvider) -> None:
    """Bytes are kept as bytes."""
    with recording() as recorder:
        ask(provider, "latin1", stream=False)

    assert b"caf\xe9" in recorder.interactions[0].response.body


@pytest.mark.parametrize("stream", [False, True])
def test_disconnect(provider: FakeProvider, stream: bool) -> None:  # noqa: FBT001 - a matrix
    """A connection that breaks keeps what had come, and the caller sees the same break, while recording and when it is played."""
    with recording() as recorder, pytest.raises(httpx.RemoteProtocolError) as live:
        ask(provider, "disconnect", stream=stream)
    with playing(recorder.interactions), pytest.raises(httpx.RemoteProtocolError) as played:
        ask(provider, "disconnect", stream=stream)

    (interaction,) = recorder.interactions
    assert timing_of(interaction).end == f"error:RemoteProtocolError:{live.value}"
    assert str(played.value) == str(live.value)
    assert len(interaction.response.body) == (sum(map(len, chunks_of(interaction))) if stream else 40)
    assert interaction.response.body
    assert not interaction.ended_well


def test_death_before_the_headers(provider: FakeProvider) -> None:
    """A request that gets no response is no interaction, but it is reported."""
    with recording() as recorder, pytest.raises(httpx.RemoteProtocolError):
        ask(provider, "hangup")

    (failure,) = recorder.failures
    assert recorder.interactions == ()
    assert failure.error.startswith("RemoteProtocolError:")
    assert failure.after_ms > 0
    assert json.loads(failure.request.body)["model"] == "hangup"


@pytest.mark.parametrize(
    "limits, end", [(Limits(max_bytes=2000), "cap:bytes"), (Limits(seconds=0.1), "cap:seconds")], ids=["bytes", "seconds"]
)
def test_endless(provider: FakeProvider, limits: Limits, end: str) -> None:
    """A stream that does not end is cut at the first limit it reaches; the caller sees it break."""
    with recording(limits) as recorder, pytest.raises(httpx.ReadError, match="cut at its limit"):
        ask(provider, "endless")

    (interaction,) = recorder.interactions
    assert timing_of(interaction).end == end
    assert len(interaction.response.body) > 100
    assert len(interaction.response.body) < 1_000_000


def test_bomb() -> None:
    """A small body that becomes an enormous one is cut at the limit."""
    import gzip

    from canary_replay.capture import decompressed

    bomb = gzip.compress(b"0" * 5_000_000)

    plain = decompressed({"content-encoding": ["gzip"]}, [(1.0, bomb[:100]), (2.0, bomb[100:])], limit=1000)

    assert plain is not None
    assert plain.cut
    assert b"".join(data for _at, data in plain.chunks) == b"0" * 1000


def test_not_what_its_header_says() -> None:
    """A body that is not compressed as its header says is kept as it came."""
    from canary_replay.capture import decompressed

    assert decompressed({"content-encoding": ["gzip"]}, [(1.0, b"plain")], limit=1000) is None


def test_outside_a_recording(provider: FakeProvider) -> None:
    """Outside of any recording the capture changes nothing: the caller streams live."""
    install()
    install()

    url = f"{provider.base}/v1/chat/completions"
    with httpx.stream("POST", url, json=asked("endless")) as response:
        first = next(response.iter_raw())

    assert first.startswith(b"data: ")


# ------------------------------------------------------------------------------------------------ whose exchange it is
def test_tasks(provider: FakeProvider) -> None:
    """Twenty-eight overlapping recordings in tasks hold their own requests each, in the order in which they started."""

    async def one(number: int) -> tuple[str, list[str]]:
        with recording() as recorder:
            for part in range(3):
                await ask_async(
                    provider, "paced-1" if (number + part) % 2 else "plain", f"{number}.{part}", client=CLIENTS[part % 2]
                )
            return str(number), [question_in(interaction) for interaction in recorder.interactions]

    async def everything() -> list[tuple[str, list[str]]]:
        return await asyncio.gather(*map(one, range(28)))

    for number, questions in asyncio.run(everything()):
        assert questions == [f"{number}.0", f"{number}.1", f"{number}.2"]


def test_threads(provider: FakeProvider) -> None:
    """Twenty-four overlapping recordings in threads hold their own requests each."""
    together = threading.Barrier(24)

    def one(number: int) -> list[str]:
        with recording() as recorder:
            together.wait(30)
            for part in range(3):
                ask(provider, "plain", f"{number}.{part}", client=CLIENTS[part % 2])
        return [question_in(interaction) for interaction in recorder.interactions]

    with ThreadPoolExecutor(24) as pool:
        found = list(pool.map(one, range(24)))

    assert found == [[f"{number}.{part}" for part in range(3)] for number in range(24)]


def test_order_of_starts(provider: FakeProvider) -> None:
    """Interactions stand in the order in which their requests started, not in that of their ends."""

    async def two() -> None:
        slow = asyncio.create_task(ask_async(provider, "paced-5", "slow"))
        await asyncio.sleep(0.02)
        await ask_async(provider, "plain", "quick")
        await slow

    with recording() as recorder:
        asyncio.run(two())

    assert [question_in(interaction) for interaction in recorder.interactions] == ["slow", "quick"]


def test_late_thread(provider: FakeProvider) -> None:
    """A thread that inherited the context and asks after the recording has ended is in no recording."""
    with recording() as recorder:
        context = contextvars.copy_context()
        ask(provider, "plain", "mine")
    late = threading.Thread(target=context.run, args=(ask, provider, "plain", "late"))
    late.start()
    late.join()

    assert [question_in(interaction) for interaction in recorder.interactions] == ["mine"]
    assert b"late" in provider.received[-1].body


def test_still_under_way(provider: FakeProvider) -> None:
    """A request that has not ended when the recording does is in no recording."""
    with recording() as recorder:
        context = contextvars.copy_context()
        late = threading.Thread(target=context.run, args=(ask, provider, "paced-20", "late"))
        before = len(provider.received)
        late.start()
        while len(provider.received) == before:
            time.sleep(0.005)
    late.join()

    assert recorder.exchanges == ()


def test_own_thread(provider: FakeProvider) -> None:
    """A recording of one thread leaves out what other threads ask in its context, as client libraries do behind one's back."""
    with recording(own_thread=True) as recorder:
        context = contextvars.copy_context()
        other = threading.Thread(target=context.run, args=(ask, provider, "plain", "behind"))
        other.start()
        ask(provider, "plain", "mine")
        other.join()

    assert [question_in(interaction) for interaction in recorder.interactions] == ["mine"]


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_imported_later(provider: FakeProvider, library: str) -> None:
    """A client library that is imported after the capture was installed, even inside a recording, is captured."""
    script = f"""
import sys
from canary_replay import capture
capture.install()
assert {library!r} not in sys.modules
with capture.recording() as recorder:
    import {library}
    {library}.post({provider.base + "/v1/chat/completions"!r}, json={{"model": "plain"}})
print(len(recorder.interactions))
"""

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)

    assert done.stdout == "1\n", done.stderr


# ------------------------------------------------------------------------------------------------ playing
@pytest.mark.parametrize("player_client", CLIENTS)
def test_same_cuts(provider: FakeProvider, player_client: Any) -> None:  # noqa: ANN401 - httpx or httpx2
    """Another client gets the recorded stream with the recorded cuts, synchronously and not, with no request to anybody."""
    with recording() as recorder:
        live = ask(provider, "utf8")
    before = len(provider.received)

    with playing(recorder.interactions * 2) as player, offline() as refused:
        played = ask(provider, "utf8", client=player_client)
        played_async = asyncio.run(ask_async(provider, "utf8", client=player_client))

    assert played == played_async == live
    assert player.unplayed == ()
    assert refused == []
    assert len(provider.received) == before


def test_speed(provider: FakeProvider) -> None:
    """At speed 1 a stream takes at least as long as it took; at speed 0 it does not wait."""
    with recording() as recorder:
        ask(provider, "paced-5")
    timing = timing_of(recorder.interactions[0])
    recorded = (timing.chunks[-1][0] - timing.headers_ms) / 1000

    with playing(recorder.interactions, speed=1.0):
        start = time.monotonic()
        ask(provider, "paced-5")
        took = time.monotonic() - start

    assert took >= recorded * 0.99


def test_first_in_first_out(provider: FakeProvider) -> None:
    """Equal requests are answered in the order in which they were recorded, also when threads ask at once."""
    with recording() as recorder:
        for _ in range(16):
            ask(provider, "plain")
    recorded = [interaction.response.body for interaction in recorder.interactions]
    assert len(set(recorded)) == 16

    with playing(recorder.interactions):
        one_by_one = [b"".join(ask(provider, "plain")) for _ in range(16)]
    with playing(recorder.interactions):
        contexts = [contextvars.copy_context() for _ in range(16)]
        with ThreadPoolExecutor(16) as pool:
            at_once = list(pool.map(lambda context: b"".join(context.run(ask, provider, "plain")), contexts))

    assert one_by_one == recorded
    assert sorted(at_once) == sorted(recorded)


def test_body_as_json_and_any_host(provider: FakeProvider) -> None:
    """Neither the order of keys, nor the host, nor headers matter; a value does."""
    with recording() as recorder:
        ask(provider, "plain", stream=False)
    body = json.dumps(dict(reversed(asked("plain", stream=False).items())), indent=2)

    with playing(recorder.interactions):
        answer = httpx.post("https://elsewhere.invalid/v1/chat/completions", content=body, headers={"x-new": "1"})

    assert answer.json()["choices"][0]["message"]["content"] == loopback.TEXT


def test_miss(provider: FakeProvider) -> None:
    """A request that was not recorded does not go out; the error names the nearest recorded one and the fields that differ."""
    with recording() as recorder:
        ask(provider, "plain", "far", stream=False)
        ask(provider, "plain", "hello")
    before = len(provider.received)

    with playing(recorder.interactions) as player, pytest.raises(CassetteMissError) as caught:
        ask(provider, "plain", "goodbye")

    assert str(caught.value) == (
        f"POST {provider.base}/v1/chat/completions is not in the cassette; the nearest recorded one, POST "
        f"{provider.base}/v1/chat/completions, differs in body.messages[0].content; record the case again"
    )
    assert len(player.misses) == 1
    assert len(provider.received) == before


def test_once_more_than_recorded(provider: FakeProvider) -> None:
    """A request that was recorded once cannot be played twice; the error says so."""
    with recording() as recorder:
        ask(provider, "plain")

    with playing(recorder.interactions):
        ask(provider, "plain")
        with pytest.raises(CassetteMissError, match="once more: it was recorded 1 time and is asked again"):
            ask(provider, "plain")


def test_empty_player(provider: FakeProvider) -> None:
    """Nothing can be played from nothing."""
    with playing(()), pytest.raises(CassetteMissError, match="holds no more interactions"):
        ask(provider, "plain")


def test_miss_under_other_errors() -> None:
    """A miss is found under whatever a client wrapped around it; other errors hide none."""
    miss = CassetteMissError("gone")
    connection = RuntimeError("connection")
    connection.__cause__ = miss
    status = ValueError("status 500")
    status.__context__ = connection
    status.__cause__ = status  # chains may be circles

    found = cassette_miss(status)

    assert found is miss
    assert cassette_miss(ValueError("other")) is None
    assert cassette_miss(None) is None


def test_masked_requests() -> None:
    """A live request is masked like the stored ones before they are compared."""
    redactor = Redactor(["made-up-key-1234567"])
    sent = HttpRequest(method="POST", uri="http://h/x?key=made-up-key-1234567", body=b'{"user": "made-up-key-1234567"}')
    stored = redactor.interaction(Interaction(request=sent, response=HttpResponse(status=200, body=b"fine")))

    with playing([stored], redactor=redactor):
        answer = httpx.post(sent.uri, content=sent.body)

    assert answer.text == "fine"


# ------------------------------------------------------------------------------------------------ offline
def test_offline(provider: FakeProvider) -> None:
    """Where nothing may reach the network, every thread is refused, recording or not; the list says what was."""
    before = len(provider.received)

    with offline() as refused, recording():
        with pytest.raises(OfflineError, match="nothing may reach the network here"):
            ask(provider, "plain")
        with ThreadPoolExecutor(1) as pool, pytest.raises(OfflineError):
            pool.submit(ask, provider, "plain").result()
        with pytest.raises(OfflineError):
            asyncio.run(ask_async(provider, "plain", client=httpx2))

    assert refused == [f"POST {provider.base}/v1/chat/completions"] * 3
    assert len(provider.received) == before
    assert ask(provider, "plain")
