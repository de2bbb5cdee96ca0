"""Server-sent events from bytes that may be cut anywhere, each with the time at which it was complete.

Follows the event stream format of the HTML standard (section 9.2.6), with two differences that real providers need: an event at
the end of the stream counts without its blank line, and a line that begins with ``{`` counts as data, because some servers write
an error into a stream with no ``data:`` before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from canary_replay.interaction import HttpResponse, header

_BOM = b"\xef\xbb\xbf"
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


class Event(msgspec.Struct, frozen=True):
    """One event of a stream.

    :ivar name: the ``event`` field; empty when it was not given.
    :ivar data: the ``data`` lines joined with line feeds; bytes that are not UTF-8 are U+FFFD.
    :ivar at: milliseconds from the request to the chunk that completed it; None when unknown.
    """

    name: str
    data: str
    at: float | None


def is_event_stream(response: HttpResponse) -> bool:
    """Whether a body is an event stream; the body's first line decides, then the content type, which recordings often lack."""
    start = response.body[:4096].removeprefix(_BOM).lstrip()
    if start.startswith(_FIELDS):
        return True
    if start.startswith((b"{", b"[")):
        return False
    return "text/event-stream" in (header(response.headers, "content-type") or "").lower()


def events(chunks: Iterable[tuple[float | None, bytes]]) -> Iterator[Event]:
    """The events of a stream; where its bytes are cut into chunks changes nothing but ``Event.at``.

    :param chunks: ``(milliseconds or None, bytes)`` in order, as `Interaction.chunks` gives them.
    """
    name = ""
    data: list[str] = []
    at: float | None = None
    for at, line in _lines(chunks):
        if not line:
            if data:
                yield Event(name, "\n".join(data), at)
            name = ""
            data.clear()
            continue
        field, value = _field(line)
        if field == b"data":
            data.append(value.decode("utf-8", "replace"))
        elif field == b"event":
            name = value.decode("utf-8", "replace")
    if data:
        yield Event(name, "\n".join(data), at)


def _field(line: bytes) -> tuple[bytes, bytes]:
    if line.startswith(b"{"):
        return b"data", line
    field, _, value = line.partition(b":")
    return field, value.removeprefix(b" ")


def _lines(chunks: Iterable[tuple[float | None, bytes]]) -> Iterator[tuple[float | None, bytes]]:
    """Each line without its end (CR, LF or CRLF), with the time of the chunk that ended it.

    An event may end at a CR whose LF comes in the next chunk, so a CR ends a line at once and a LF that follows it is dropped.
    """
    unfinished: list[bytes] = []
    at: float | None = None
    ended_with_cr = False
    first = True
    for at, chunk in chunks:
        if not chunk:
            continue
        fresh = chunk[1:] if ended_with_cr and chunk.startswith(b"\n") else chunk
        ended_with_cr = chunk.endswith(b"\r")
        for part in fresh.splitlines(keepends=True):
            unfinished.append(part)
            if part.endswith((b"\n", b"\r")):
                line = b"".join(unfinished).rstrip(b"\r\n")
                unfinished.clear()
                yield at, line.removeprefix(_BOM) if first else line
                first = False
    if unfinished:
        line = b"".join(unfinished)
        yield at, line.removeprefix(_BOM) if first else line
