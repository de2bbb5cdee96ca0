"""The tee in the HTTP transports: what a context sends and receives is recorded, answered from recordings, or refused.

There is one capture per process, because the transports are the process's own; a context variable says to which recording an
exchange belongs, so that tasks and threads can each hold their own.
"""

from __future__ import annotations

import asyncio
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from itertools import zip_longest
from types import ModuleType
from typing import Any

import msgspec

from canary_replay.errors import CanaryError
from canary_replay.interaction import Headers, HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.redact import Redactor


class CassetteMissError(CanaryError):
    """A request that was never recorded, or recorded fewer times than it is made; it did not go to the network."""


class OfflineError(CanaryError):
    """A request that would have reached the network where nothing may."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """When a response is cut, so that an endless one ends; looked at after each network read.

    :ivar seconds: since the request. A silent connection is the client's read timeout's business.
    :ivar max_bytes: of one body, as it came and after decompression.
    """

    seconds: float = 600.0
    max_bytes: int = 64 * 1024 * 1024


class FailedExchange(msgspec.Struct, frozen=True, kw_only=True):
    """A request that died before the headers of a response: nothing that a cassette could hold.

    :ivar error: ``<exception>:<message>``, as in `Timing.end`.
    :ivar after_ms: milliseconds from the request to its death.
    """

    request: HttpRequest
    error: str
    after_ms: float


# ------------------------------------------------------------------------------------------------ recording
class _Exchange:
    """One request on its way: its clock, and what has come back so far."""

    def __init__(self, request: HttpRequest, limits: Limits) -> None:
        self.request = request
        self.outcome: Interaction | FailedExchange | None = None
        self._limits = limits
        self._chunks: list[tuple[float, bytes]] = []
        self._size = 0
        self._started = time.time()
        self._clock = time.perf_counter()

    def _ms(self) -> float:
        return round((time.perf_counter() - self._clock) * 1000, 3)

    def head(self, response: Any) -> None:  # noqa: ANN401 - httpx's or httpx2's
        self._status, self._reason = response.status_code, response.reason_phrase
        self._headers = _headers(response.headers)
        self._headers_ms = self._ms()

    def chunk(self, data: bytes) -> str | None:
        """Stamp and keep one network read; the name of the limit that it reached, if it did."""
        at = self._ms()
        if data:
            self._chunks.append((at, bytes(data)))
            self._size += len(data)
        if self._size > self._limits.max_bytes:
            return "bytes"
        return "seconds" if at > self._limits.seconds * 1000 else None

    def done(self, end: str) -> Interaction:
        """The exchange as it may be kept, once the body is over."""
        end_ms = self._ms()
        plain = decompressed(self._headers, self._chunks, limit=self._limits.max_bytes)
        chunks = self._chunks if plain is None else plain.chunks
        headers = self._headers if plain is None else plain.headers
        timing = Timing(
            started=round(self._started, 3),
            headers_ms=self._headers_ms,
            chunks=tuple((at, len(data)) for at, data in chunks),
            end="cap:bytes" if plain is not None and plain.cut else end,
            end_ms=end_ms,
            encoding=None if plain is None else plain.encoding,
        )
        body = b"".join(data for _, data in chunks)
        response = HttpResponse(status=self._status, reason=self._reason, headers=headers, body=body, timing=timing)
        interaction = Interaction(request=self.request, response=response)
        self.outcome = interaction
        return interaction

    def died(self, error: BaseException) -> None:
        self.outcome = FailedExchange(request=self.request, error=_named(error), after_ms=self._ms())


class Recorder:
    """What one recording has seen; nothing is added to it once it is closed.

    :param own_thread: take only requests of the thread that opened it, so that what a client library does in its own threads
        (which inherit the context) stays out.
    """

    def __init__(self, limits: Limits, *, own_thread: bool = False) -> None:
        self._limits = limits
        self._thread = threading.get_ident() if own_thread else None
        self._exchanges: list[_Exchange] = []
        self._lock = threading.Lock()
        self._open = True

    @property
    def exchanges(self) -> tuple[Interaction | FailedExchange, ...]:
        """Every request that came to an end, with a response or without, in the order in which they started."""
        with self._lock:
            return tuple(exchange.outcome for exchange in self._exchanges if exchange.outcome is not None)

    @property
    def interactions(self) -> tuple[Interaction, ...]:
        """The exchanges that got a response, in the order in which their requests started."""
        return tuple(outcome for outcome in self.exchanges if isinstance(outcome, Interaction))

    @property
    def failures(self) -> tuple[FailedExchange, ...]:
        """The requests that died before a response, in the order in which they started."""
        return tuple(outcome for outcome in self.exchanges if isinstance(outcome, FailedExchange))

    def takes_part(self) -> bool:
        """Whether a request of the running thread belongs here."""
        return self._open and self._thread in {None, threading.get_ident()}

    def close(self) -> None:
        """Keep what has ended; what is still under way belongs nowhere."""
        with self._lock:
            self._open = False
            self._exchanges = [exchange for exchange in self._exchanges if exchange.outcome is not None]

    def answer(self, transport: _Transport, instance: object, request: Any) -> Any:  # noqa: ANN401 - httpx's or httpx2's
        """Send a request, read its response to the end, and give the caller the response from memory."""
        request.read()
        exchange = self._begin(request)
        try:
            response = transport.real(instance, request)
        except BaseException as error:
            exchange.died(error)
            raise
        exchange.head(response)
        end = "eof"
        try:
            for data in response.stream:
                if limit := exchange.chunk(data):
                    end = f"cap:{limit}"
                    break
        except transport.module.TransportError as error:
            end = f"error:{_named(error)}"
        finally:
            response.close()
        return _served(transport, request, exchange.done(end), speed=0.0)

    async def answer_async(self, transport: _Transport, instance: object, request: Any) -> Any:  # noqa: ANN401 - the same
        """The same for asynchronous clients."""
        await request.aread()
        exchange = self._begin(request)
        try:
            response = await transport.real(instance, request)
        except BaseException as error:
            exchange.died(error)
            raise
        exchange.head(response)
        end = "eof"
        try:
            async for data in response.stream:
                if limit := exchange.chunk(data):
                    end = f"cap:{limit}"
                    break
        except transport.module.TransportError as error:
            end = f"error:{_named(error)}"
        finally:
            await response.aclose()
        return _served(transport, request, exchange.done(end), speed=0.0)

    def _begin(self, request: Any) -> _Exchange:  # noqa: ANN401 - httpx's or httpx2's
        if "accept-encoding" in request.headers:
            request.headers["accept-encoding"] = "gzip, deflate"  # what everybody can undo, so that bodies are readable on disk
        exchange = _Exchange(_stored(request), self._limits)
        with self._lock:
            if self._open:
                self._exchanges.append(exchange)
        return exchange


@contextmanager
def recording(limits: Limits | None = None, *, own_thread: bool = False) -> Iterator[Recorder]:
    """Record every exchange of this context, and of tasks and copies of it, until the block ends.

    Each response is read to its end at once and each network read is stamped, so that the times do not depend on how fast the
    caller reads; the caller then gets the stream from memory, cut as it arrived, with the same fault at its end.

    :param own_thread: take only requests of this thread.
    """
    install()
    recorder = Recorder(limits or Limits(), own_thread=own_thread)
    token = _here.set(recorder)
    try:
        yield recorder
    finally:
        recorder.close()
        _here.reset(token)


def seen() -> bool:
    """Whether the recording of this context has seen a request, answered or not."""
    session = _here.get()
    return isinstance(session, Recorder) and bool(session.exchanges)


# ------------------------------------------------------------------------------------------------ decompressing
class Decompressed(msgspec.Struct, frozen=True):
    """A body without its content encoding: chunks at the same times, and headers that are true for them.

    :ivar cut: whether it was longer than allowed.
    """

    chunks: list[tuple[float, bytes]]
    headers: Headers
    encoding: str
    cut: bool


def decompressed(headers: Headers, chunks: Sequence[tuple[float, bytes]], *, limit: int) -> Decompressed | None:
    """The body as gzip or deflate hid it; None when it has another encoding or none, or is not what its header says.

    :param limit: the most bytes to give, against a small body that becomes an enormous one.
    """
    encoding = ",".join(headers.get("content-encoding", ())).strip().lower()
    if encoding not in {"gzip", "x-gzip", "deflate"}:
        return None
    for window in (47, -15) if encoding == "deflate" else (47,):  # some servers send deflate without its envelope
        try:
            plain, cut = _inflate(chunks, window, limit)
        except zlib.error:
            continue
        kept = {name: values for name, values in headers.items() if name != "content-encoding"}
        if "content-length" in kept:
            kept["content-length"] = [str(sum(len(data) for _, data in plain))]
        return Decompressed(plain, kept, encoding, cut)
    return None


def _inflate(chunks: Sequence[tuple[float, bytes]], window: int, limit: int) -> tuple[list[tuple[float, bytes]], bool]:
    machine = zlib.decompressobj(wbits=window)
    plain: list[tuple[float, bytes]] = []
    left = limit
    for at, chunk in chunks:
        rest, pieces = chunk, []
        while rest:
            if machine.eof:  # gzip may hold several members, one after the other
                machine = zlib.decompressobj(wbits=window)
            piece = machine.decompress(rest, left + 1)
            pieces.append(piece[:left])
            if len(piece) > left:
                return [*plain, (at, b"".join(pieces))], True
            left -= len(piece)
            rest = machine.unused_data
        if data := b"".join(pieces):
            plain.append((at, data))
    return plain, False


# ------------------------------------------------------------------------------------------------ playing
class Player:
    """Stored interactions that wait to be played; equal requests are answered first in, first out.

    :ivar misses: the requests that nothing answered.
    """

    def __init__(self, interactions: Sequence[Interaction], *, speed: float = 0.0, redactor: Redactor | None = None) -> None:
        self._waiting = list(interactions)
        self._played: list[Interaction] = []
        self._speed = speed
        self._redactor = redactor
        self._lock = threading.Lock()
        self.misses: list[HttpRequest] = []

    @property
    def unplayed(self) -> tuple[Interaction, ...]:
        """The interactions that nobody asked for."""
        with self._lock:
            return tuple(self._waiting)

    def takes_part(self) -> bool:
        """A player answers, or refuses, every request of its context."""
        return True

    def answer(self, transport: _Transport, instance: object, request: Any) -> Any:  # noqa: ANN401, ARG002 - a transport's shape
        """The stored response to a request.

        :raises CassetteMissError: none is left.
        """
        request.read()
        return _served(transport, request, self._take(_stored(request)), speed=self._speed)

    async def answer_async(self, transport: _Transport, instance: object, request: Any) -> Any:  # noqa: ANN401, ARG002 - the same
        """The same for asynchronous clients."""
        await request.aread()
        return _served(transport, request, self._take(_stored(request)), speed=self._speed)

    def _take(self, asked: HttpRequest) -> Interaction:
        if self._redactor is not None:
            asked = self._redactor.request(asked)
        with self._lock:
            for place, interaction in enumerate(self._waiting):
                if not _differences(interaction.request, asked, first=True):
                    self._played.append(self._waiting.pop(place))
                    return interaction
            self.misses.append(asked)
            message = _miss(asked, self._waiting, self._played)
        raise CassetteMissError(message)


@contextmanager
def playing(interactions: Sequence[Interaction], speed: float = 0.0, *, redactor: Redactor | None = None) -> Iterator[Player]:
    """Answer every request of this context from stored interactions, cut as they arrived and with the fault they ended in.

    A request matches by method, path, query and body (as JSON where it is JSON), as VCR.py's matchers of those names do; never
    by host or headers. A request without a match raises `CassetteMissError` in the client and never goes to the network.

    :param speed: 0 plays at once, 1 with the recorded pauses, 0.1 ten times as fast.
    :param redactor: what the stored requests were masked with, so that a live one is masked before it is compared.
    """
    install()
    player = Player(interactions, speed=speed, redactor=redactor)
    token = _here.set(player)
    try:
        yield player
    finally:
        _here.reset(token)


def cassette_miss(error: BaseException | None) -> CassetteMissError | None:
    """The miss that a client library hid under an error of its own; None when there is none.

    LiteLLM reports a miss as the provider's status 500.
    """
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, CassetteMissError):
            return one
        seen.add(id(one))
        waiting += [one.__context__, one.__cause__]
    return None


def _differences(then: HttpRequest, now: HttpRequest, *, first: bool = False) -> list[str]:
    """The parts in which two requests differ, by VCR.py's matchers and then by the paths of their JSON's fields.

    :param first: stop at the first part, because only whether they differ is asked.
    """
    from vcr import matchers

    one, other = _for_vcr(then), _for_vcr(now)
    found: list[str] = []
    for matcher in (matchers.method, matchers.path, matchers.query, matchers.body):
        try:
            matcher(one, other)
        except AssertionError:
            found += _body_differences(then.body, now.body) if matcher is matchers.body and not first else [matcher.__name__]
            if first:
                break
    return found


def _for_vcr(request: HttpRequest) -> Any:  # noqa: ANN401 - vcrpy has no types
    from vcr.request import Request

    # VCR.py compares bodies as JSON only when the content type says so, and HTTP clients differ in how they spell it.
    kind = "application/json" if _json_of(request.body) is not None else "application/octet-stream"
    return Request(request.method, request.uri, request.body, {"Content-Type": kind})


def _json_of(body: bytes) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _body_differences(then: bytes, now: bytes) -> list[str]:
    one, other = _json_of(then), _json_of(now)
    if one is None or other is None:
        return ["body"]
    return list(_fields("body", one, other))


def _fields(path: str, then: Any, now: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(then, dict) and isinstance(now, dict):
        for name in sorted(then.keys() | now.keys()):
            yield from _fields(f"{path}.{name}", then.get(name), now.get(name))
    elif isinstance(then, list) and isinstance(now, list):
        for index, (one, other) in enumerate(zip_longest(then, now)):
            yield from _fields(f"{path}[{index}]", one, other)
    elif then != now:
        yield path


def _miss(asked: HttpRequest, waiting: Sequence[Interaction], played: Sequence[Interaction]) -> str:
    message = f"{asked.method} {asked.uri} is not in the cassette"
    if any(not _differences(interaction.request, asked, first=True) for interaction in played):
        times = sum(not _differences(interaction.request, asked, first=True) for interaction in played)
        return f"{message} once more: it was recorded {times} time{'s' * (times != 1)} and is asked again; record the case again"
    if not waiting:
        return f"{message}, which holds no more interactions; record the case again"
    near = min((_differences(interaction.request, asked) for interaction in waiting), key=len)
    nearest = next(interaction.request for interaction in waiting if _differences(interaction.request, asked) == near)
    shown = ", ".join(near[:5]) + (f" and {len(near) - 5} more" if len(near) > 5 else "")
    return f"{message}; the nearest recorded one, {nearest.method} {nearest.uri}, differs in {shown}; record the case again"


# ------------------------------------------------------------------------------------------------ serving from memory
def _served(transport: _Transport, request: Any, interaction: Interaction, *, speed: float) -> Any:  # noqa: ANN401 - httpx's or httpx2's
    """A response of the client's own kind that streams a stored one."""
    response, module = interaction.response, transport.module
    stream = (_async_stream if transport.asynchronous else _stream)(module, request, interaction, speed)
    return module.Response(
        response.status,
        headers=[(name, value) for name, values in response.headers.items() for value in values],
        stream=stream,
        extensions={"http_version": b"HTTP/1.1", "reason_phrase": response.reason.encode("ascii", "replace")},
        request=request,
    )


def _pieces(interaction: Interaction) -> Iterator[tuple[float, bytes]]:
    """Each chunk with the seconds that passed before it came."""
    timing = interaction.response.timing
    before = 0.0 if timing is None else timing.headers_ms
    for at, data in interaction.chunks():
        now = before if at is None else at
        yield max(0.0, now - before) / 1000, data
        before = now


def _fault(module: ModuleType, request: Any, interaction: Interaction) -> Exception | None:  # noqa: ANN401 - the same
    """The exception that a body ends with, if it did not end well."""
    timing = interaction.response.timing
    kind, _, rest = ("eof" if timing is None else timing.end).partition(":")
    if kind == "cap":
        return module.ReadError(f"the recording was cut at its limit of {rest}", request=request)  # type: ignore[no-any-return]
    if kind != "error":
        return None
    name, _, message = rest.partition(":")
    known = getattr(module, name, None)
    is_fault = isinstance(known, type) and issubclass(known, module.TransportError)
    return (known if is_fault else module.ReadError)(message, request=request)  # type: ignore[no-any-return, misc]


def _stream(module: ModuleType, request: Any, interaction: Interaction, speed: float) -> Any:  # noqa: ANN401 - the same
    class Stream(module.SyncByteStream):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[bytes]:
            for pause, data in _pieces(interaction):
                if speed:
                    time.sleep(pause * speed)
                yield data
            if fault := _fault(module, request, interaction):
                raise fault

    return Stream()


def _async_stream(module: ModuleType, request: Any, interaction: Interaction, speed: float) -> Any:  # noqa: ANN401 - the same
    class Stream(module.AsyncByteStream):  # type: ignore[misc, name-defined]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for pause, data in _pieces(interaction):
                if speed:
                    await asyncio.sleep(pause * speed)
                yield data
            if fault := _fault(module, request, interaction):
                raise fault

    return Stream()


def _headers(headers: Any) -> Headers:  # noqa: ANN401 - httpx's or httpx2's
    found: Headers = {}
    for name, value in headers.multi_items():
        found.setdefault(name.lower(), []).append(value)
    return found


def _stored(request: Any) -> HttpRequest:  # noqa: ANN401 - httpx's or httpx2's
    return HttpRequest(
        method=request.method, uri=str(request.url), headers=_headers(request.headers), body=bytes(request.content)
    )


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}:{error}"


# ------------------------------------------------------------------------------------------------ the one capture
class _Transport(msgspec.Struct, frozen=True):
    """A transport class of a client library.

    :ivar module: the library, whose requests, responses and errors it speaks (httpx or httpx2).
    :ivar real: the method that it had before ours.
    """

    module: ModuleType
    real: Callable[..., Any]
    asynchronous: bool


# Every transport that LiteLLM and the official clients use: where it is defined, its class, its method, whose types it speaks.
_TRANSPORTS = (
    ("httpx", "HTTPTransport", "handle_request", "httpx"),
    ("httpx", "AsyncHTTPTransport", "handle_async_request", "httpx"),
    ("httpx2", "HTTPTransport", "handle_request", "httpx2"),
    ("httpx2", "AsyncHTTPTransport", "handle_async_request", "httpx2"),
    ("litellm.llms.custom_httpx.aiohttp_transport", "LiteLLMAiohttpTransport", "handle_async_request", "httpx"),
)
_WATCHED = frozenset(module for module, *_ in _TRANSPORTS)
_here: ContextVar[Recorder | Player | None] = ContextVar("canary_replay_recording", default=None)
_install_lock = threading.RLock()
_offline: list[list[str]] = []


def install() -> None:
    """Put the capture into the transports, of libraries that are imported and of those that will be; again is nothing.

    It stays for the life of the process and lets every request pass untouched that belongs to no recording.
    """
    with _install_lock:
        if not any(isinstance(finder, _PatchOnImport) for finder in sys.meta_path):
            sys.meta_path.insert(0, _PatchOnImport())
        for name in _WATCHED & sys.modules.keys():
            _patch(name)


def _patch(module_name: str) -> None:
    with _install_lock:
        for name, class_name, method, library in _TRANSPORTS:
            kind = getattr(sys.modules.get(module_name), class_name, None) if name == module_name else None
            if kind is None or getattr(getattr(kind, method), "is_canary_capture", False):
                continue
            asynchronous = method == "handle_async_request"
            transport = _Transport(sys.modules[library], getattr(kind, method), asynchronous)
            setattr(kind, method, (_async_tee if asynchronous else _tee)(transport))


def _tee(transport: _Transport) -> Callable[..., Any]:
    @wraps(transport.real)
    def handle_request(instance: object, request: Any) -> Any:  # noqa: ANN401 - httpx's or httpx2's
        if (session := _session(request)) is None:
            return transport.real(instance, request)
        return session.answer(transport, instance, request)

    handle_request.is_canary_capture = True  # type: ignore[attr-defined]
    return handle_request


def _async_tee(transport: _Transport) -> Callable[..., Any]:
    @wraps(transport.real)
    async def handle_async_request(instance: object, request: Any) -> Any:  # noqa: ANN401 - httpx's or httpx2's
        if (session := _session(request)) is None:
            return await transport.real(instance, request)
        return await session.answer_async(transport, instance, request)

    handle_async_request.is_canary_capture = True  # type: ignore[attr-defined]
    return handle_async_request


def _session(request: Any) -> Recorder | Player | None:  # noqa: ANN401 - httpx's or httpx2's
    """Who takes a request; None when nobody does and it may go its way."""
    session = _here.get()
    if isinstance(session, Player):
        return session
    if _offline:
        shown = f"{request.method} {Redactor().uri(str(request.url))}"
        for refused in _offline:
            refused.append(shown)
        raise OfflineError(f"{shown} was refused: nothing may reach the network here")
    return session if session is not None and session.takes_part() else None


@contextmanager
def offline() -> Iterator[list[str]]:
    """Refuse every request of the whole process that is not played; gives the list of what was refused.

    The whole process, because client libraries ask in threads of their own.
    """
    install()
    refused: list[str] = []
    _offline.append(refused)
    try:
        yield refused
    finally:
        _offline[:] = [other for other in _offline if other is not refused]


class _PatchOnImport(importlib.abc.MetaPathFinder):
    """Patches a library's transports at the end of its import, so that it does not matter what is imported first."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the other finders give, with a loader that patches."""
        if name not in _WATCHED:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next((spec for finder in others if (spec := finder.find_spec(name, path, target)) is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            spec.loader.exec_module = partial(_load_and_patch, load)  # type: ignore[method-assign]
        return spec


def _load_and_patch(load: Callable[[ModuleType], None], module: ModuleType) -> None:
    load(module)
    _patch(module.__name__)
