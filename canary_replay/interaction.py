"""What was sent and what came back: one HTTP request and its response, with the boundaries and times of its chunks."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

Headers = dict[str, list[str]]


class Timing(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How a response arrived; it stands under ``canary`` in the cassette, where plain VCR.py ignores it.

    :ivar started: when the request began, seconds since 1970 (UTC).
    :ivar headers_ms: milliseconds from the request to the response's headers.
    :ivar chunks: ``(milliseconds since the request, number of bytes)`` of each network read, in order.
    :ivar end: ``eof``; ``error:<exception>:<message>`` where the connection broke; ``cap:<limit>`` where we cut it.
    :ivar end_ms: milliseconds from the request to the end.
    :ivar encoding: the content-encoding that the bytes had on the wire, if we decompressed them.
    :ivar retried: this attempt failed and was asked again; the answer is in a later interaction.
    """

    started: float = 0.0
    headers_ms: float = 0.0
    end: str = "eof"
    end_ms: float = 0.0
    chunks: tuple[tuple[float, int], ...] = ()
    encoding: str | None = None
    retried: bool = False


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request as it went out (after redaction)."""

    method: str
    uri: str
    headers: Headers = msgspec.field(default_factory=dict)
    body: bytes = b""


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP response as it came in (decompressed, after redaction)."""

    status: int
    reason: str = ""
    headers: Headers = msgspec.field(default_factory=dict)
    body: bytes = b""
    timing: Timing | None = None


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request and its response."""

    request: HttpRequest
    response: HttpResponse

    def chunks(self) -> Iterator[tuple[float | None, bytes]]:
        """The body cut as it arrived: ``(milliseconds since the request or None when unknown, bytes)``."""
        timing, body = self.response.timing, self.response.body
        if timing is None or not timing.chunks:
            if body:
                yield None, body
            return
        position = 0
        for at, size in timing.chunks:
            yield at, body[position : position + size]
            position += size
        if position < len(body):  # a body that somebody lengthened by hand still decodes whole
            yield timing.end_ms, body[position:]

    @property
    def ended_well(self) -> bool:
        """Whether the body arrived to its end."""
        return self.response.timing is None or self.response.timing.end == "eof"


def header(headers: Headers, name: str) -> str | None:
    """The first value of a header, whatever the case of its name; None when absent."""
    wanted = name.lower()
    for key, values in headers.items():
        if key.lower() == wanted and values:
            return values[0]
    return None
