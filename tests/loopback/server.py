"""The fake provider's HTTP: raw control of chunks, pauses and faults, and a log of what arrived and what was sent when."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.loopback import dialects

SCENARIOS = {
    "tools": "calls a tool instead of talking",
    "utf8": "streams in pieces of five bytes, which cut characters",
    "paced": "sends 20 events: 100 ms apart, or as many as the name says (paced-5)",
    "endless": "streams until the client goes away",
    "err401": "refuses the key, and repeats it in the message",
    "err429": "is always busy; asks to wait 50 ms",
    "err500": "is always broken",
    "retry429": "is busy the first time, then answers",
    "retry500": "is broken the first time, then answers",
    "disconnect": "breaks the connection in the middle of the answer",
    "hangup": "breaks the connection before the headers",
    "malformed": "answers with half a JSON",
    "latin1": "answers with bytes that are not UTF-8",
    "badsse": "streams one event that is no JSON",
    "gzip": "compresses with gzip",
    "deflate": "compresses with deflate, without its envelope",
    "tellskey": "streams the key that it was given, cut over events",
    "side": "answers to GET with plain text; for requests that belong to no answer",
    "plain": "answers",
}
PRIVATE_HEADERS = {  # what real providers send and no cassette may hold
    "x-request-id": "req_{n}",
    "openai-organization": "org-madeUpOrganisation42",
    "anthropic-organization-id": "3f0b-made-up-organisation",
    "set-cookie": "__cf_bm=madeUpCookie{n}; path=/; HttpOnly",
    "openai-processing-ms": "12",
}


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass
class FakeProvider:
    """The provider and its log.

    :ivar base: its address, ``http://127.0.0.1:<port>``.
    :ivar received: every request, in the order in which they arrived.
    :ivar sent: when each chunk of the latest paced stream was handed to the network, seconds since 1970, and its bytes.
    :ivar streams: the same for the latest paced stream of each model.
    """

    base: str = ""
    received: list[Received] = field(default_factory=list)
    sent: list[tuple[float, bytes]] = field(default_factory=list)
    streams: dict[str, list[tuple[float, bytes]]] = field(default_factory=dict)
    _failed_once: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def start(self) -> asyncio.Server:
        """Listen on a free port."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=2**22)
        self.base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not writer.is_closing():
                await self._answer(writer, await _read(reader))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client went away, as clients do, or the server is ending
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, request: Received) -> None:
        path = request.target.partition("?")[0]
        if path == "/_sent":  # for whoever runs this as a process of its own
            log = {model: [[at, len(data)] for at, data in stream] for model, stream in self.streams.items()}
            return await _send(writer, 200, {"content-type": "application/json"}, json.dumps(log).encode())
        self.received.append(request)
        number = next(self._numbers)
        headers = {name: value.format(n=number) for name, value in PRIVATE_HEADERS.items()} | {"content-type": "application/json"}
        asked = _json(request.body)
        model = str(asked.get("model") or path)
        scenario = next(name for name in SCENARIOS if name in model or name == "plain")
        if await self._fail(writer, scenario, model, request, headers):
            return None
        plain, parts, content_type = _dialect(path, model, asked, number, request)
        if parts is None:
            return await self._plain(writer, scenario, headers, plain)
        return await self._stream(writer, scenario, model, headers | {"content-type": content_type}, parts)

    async def _fail(
        self, writer: asyncio.StreamWriter, scenario: str, model: str, request: Received, headers: dict[str, str]
    ) -> bool:
        """Send the error that a scenario stands for; whether it was one."""
        first_time = model not in self._failed_once
        self._failed_once.add(model)
        if scenario == "hangup":
            writer.transport.abort()
        elif scenario == "err429" or (scenario == "retry429" and first_time):
            error = {"message": "Rate limit reached for org-madeUpOrganisation42", "type": "rate_limit_error"}
            await _send(writer, 429, headers | {"retry-after": "2", "retry-after-ms": "50"}, dialects.encoded({"error": error}))
        elif scenario == "err500" or (scenario == "retry500" and first_time):
            error = {"message": "The server had an error", "type": "server_error"}
            await _send(writer, 500, headers, dialects.encoded({"error": error}))
        elif scenario == "err401":
            error = {"message": f"Incorrect API key provided: {_key(request)}", "type": "invalid_request_error"}
            await _send(writer, 401, headers, dialects.encoded({"error": error}))
        elif scenario == "malformed":
            await _send(writer, 200, headers, b'{"id": "chatcmpl-1", "object": "chat.completion", "choices": [{"ind')
        elif scenario == "side":
            await _send(writer, 200, {"content-type": "text/plain"}, b"an answer to nobody's question")
        else:
            return False
        return True

    async def _plain(self, writer: asyncio.StreamWriter, scenario: str, headers: dict[str, str], answer: dict[str, Any]) -> None:
        body = dialects.encoded(answer)
        if scenario == "disconnect":
            await _head(writer, 200, headers | {"content-length": str(len(body))})
            writer.write(body[:40])
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.transport.abort()
            return
        if scenario == "latin1":
            body = body.replace("日本語".encode(), b"caf\xe9")
        if scenario == "gzip":
            body, headers = gzip.compress(body, mtime=0), headers | {"content-encoding": "gzip"}
        if scenario == "deflate":
            machine = zlib.compressobj(wbits=-15)
            body, headers = machine.compress(body) + machine.flush(), headers | {"content-encoding": "deflate"}
        await _send(writer, 200, headers, body)

    async def _stream(
        self, writer: asyncio.StreamWriter, scenario: str, model: str, headers: dict[str, str], parts: list[bytes]
    ) -> None:
        pause, until = 0.0, len(parts)
        if scenario == "utf8":
            joined = b"".join(parts)
            parts, pause = [joined[start : start + 5] for start in range(0, len(joined), 5)], 0.0005
            until = len(parts)
        elif scenario == "disconnect":
            pause, until = 0.01, 5
        elif scenario == "badsse":
            parts, until = [*parts[:3], b'data: {"broken": \n\n', *parts[3:]], until + 1
        elif scenario == "gzip":
            parts, headers = _compressed(parts), headers | {"content-encoding": "gzip"}
            until = len(parts)
        elif scenario == "paced":
            spoken = model.partition("paced-")[2]
            pause = float(spoken or "100") / 1000
        await _head(writer, 200, headers | {"transfer-encoding": "chunked", "cache-control": "no-cache"})
        log: list[tuple[float, bytes]] = []
        if scenario == "paced":
            self.sent = self.streams[model] = log
        for part in itertools.cycle(parts[1:3]) if scenario == "endless" else parts[:until]:
            await asyncio.sleep(0.005 if scenario == "endless" else pause)
            if scenario == "paced":
                log.append((time.time(), part))
            writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
        if scenario == "disconnect":
            writer.transport.abort()
            return
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _dialect(
    path: str, model: str, asked: dict[str, Any], number: int, request: Received
) -> tuple[dict[str, Any], list[bytes] | None, str]:
    """The answer for a path: plain, the parts of the stream if one was asked for, and the stream's content type."""
    tools, stream, events = "tools" in model, bool(asked.get("stream")), "text/event-stream; charset=utf-8"
    if path.endswith("/v1/messages"):
        return (
            dialects.anthropic_plain(model, number, tools=tools),
            (dialects.anthropic_stream(model, number, tools=tools) if stream else None),
            events,
        )
    if "enerateContent" in path:
        parts = dialects.gemini_stream(model, number, tools=tools) if "streamGenerateContent" in path else None
        return dialects.gemini_plain(model, number, tools=tools), parts, events
    if path == "/api/chat":
        parts = dialects.ollama_stream(model, tools=tools) if asked.get("stream", True) else None
        return dialects.ollama_plain(model, tools=tools), parts, "application/x-ndjson"
    if path.endswith("/converse-stream"):
        return {}, dialects.converse_stream(), "application/vnd.amazon.eventstream"
    if path.endswith("/converse"):
        return dialects.converse_plain(), None, ""
    if "paced" in model:
        return {}, dialects.paced_stream(model, number), events
    pieces = dialects.split(_key(request), 7) if "tellskey" in model else dialects.PIECES
    usage = bool((asked.get("stream_options") or {}).get("include_usage"))
    parts = dialects.openai_stream(model, number, tools=tools, usage=usage, pieces=pieces) if stream else None
    return dialects.openai_plain(model, number, tools=tools), parts, events


def _key(request: Received) -> str:
    headers = request.headers
    return (headers.get("authorization") or headers.get("x-api-key") or headers.get("api-key") or "").removeprefix("Bearer ")


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _compressed(parts: list[bytes]) -> list[bytes]:
    machine = zlib.compressobj(wbits=31)
    return [*(machine.compress(part) + machine.flush(zlib.Z_SYNC_FLUSH) for part in parts), machine.flush()]


# ------------------------------------------------------------------------------------------------ HTTP
async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head.split("\r\n")
    method, target, _version = line.split(" ")
    headers = {name.lower(): value.strip() for name, colon, value in (one.partition(":") for one in fields) if colon}
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readline()).strip(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, target, headers, body)


_REASONS = {200: "OK", 401: "Unauthorized", 429: "Too Many Requests", 500: "Internal Server Error"}


async def _head(writer: asyncio.StreamWriter, status: int, headers: dict[str, str]) -> None:
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    await writer.drain()


async def _send(writer: asyncio.StreamWriter, status: int, headers: dict[str, str], body: bytes) -> None:
    await _head(writer, status, headers | {"content-length": str(len(body))})
    writer.write(body)
    await writer.drain()


@contextmanager
def serving() -> Iterator[FakeProvider]:
    """A fake provider in a thread of this process, until the block ends."""
    provider, loop, ready = FakeProvider(), asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        server = await provider.start()
        ready.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            server.close()

    task = loop.create_task(serve())
    thread = threading.Thread(target=_run, args=(loop, task), name="fake-provider", daemon=True)
    thread.start()
    assert ready.wait(10), "the fake provider did not start"
    try:
        yield provider
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(10)


def _run(loop: asyncio.AbstractEventLoop, task: asyncio.Task[None]) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError:
        pass
    finally:
        for rest in asyncio.all_tasks(loop):
            rest.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()
