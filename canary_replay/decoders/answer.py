"""What a decoder gathers of an answer, event by event, and the `Response` that it comes to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from canary_replay.decoders import sse
from canary_replay.decoders.failures import broken_off, failure_in, http_failure, unreadable
from canary_replay.decoders.loose_json import loads, mended
from canary_replay.interaction import Interaction
from canary_replay.response import ErrorInfo, Response, ToolCall, Usage


class Call:
    """A tool call under construction.

    :ivar index: the provider's number of the call (or of its block) within the answer; None when it gave none.
    :ivar given: the arguments as they stood where the call began; they count unless ``arguments`` arrive.
    :ivar arguments: pieces of the arguments' text.
    """

    def __init__(
        self,
        *,
        index: int | None = None,
        id: str = "",  # noqa: A002 - the field's own name
        name: str = "",
        given: str = "",
    ) -> None:
        self.index = index
        self.id = id
        self.name = name
        self.given = given
        self.arguments: list[str] = []

    def finished(self) -> ToolCall:
        """The call as a value."""
        arguments = "".join(self.arguments) or self.given
        return ToolCall(id=mended(self.id) or None, name=mended(self.name), arguments=mended(arguments))


class Answer:
    """An answer under construction. Pieces are appended in the order they arrive.

    :ivar usage: fields of `Usage` that were reported; a later report of a field replaces an earlier one.
    :ivar found: whether anything in the shape of an answer was seen, even an empty one.
    :ivar ended: whether the provider said that the answer is over.
    :ivar first_content_ms: when the first piece of content was complete; None when there was none or no times are known.
    """

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.calls: list[Call] = []
        self.stop_reason: str | None = None
        self.usage: dict[str, int] = {}
        self.model = ""
        self.error: ErrorInfo | None = None
        self.found = False
        self.ended = False
        self.first_content_ms: float | None = None

    def fail(self, error: ErrorInfo | None) -> None:
        """Take an error, unless there is one already: the first is the cause, later ones follow from it."""
        self.error = self.error or error

    def count(self, **counted: int | None) -> None:
        """Take what was reported of the usage; None says nothing."""
        self.usage.update({name: number for name, number in counted.items() if number is not None})

    def has_content(self) -> bool:
        """Whether any text, reasoning, refusal or tool call has arrived."""
        return bool(self.calls) or any(map(any, (self.text, self.reasoning, self.refusal)))

    def finished(self, interaction: Interaction, *, streamed: bool) -> Response:
        """The answer as a value."""
        timing = interaction.response.timing
        return Response(
            text=mended("".join(self.text)),
            reasoning=mended("".join(self.reasoning)),
            tool_calls=tuple(call.finished() for call in self.calls),
            stop_reason=None if self.stop_reason is None else mended(self.stop_reason),
            refusal=mended("".join(self.refusal)) or None,
            usage=Usage(**self.usage) if self.usage else None,
            model=mended(self.model) or None,
            streamed=streamed,
            ttft_ms=self.first_content_ms,
            total_ms=None if timing is None else timing.end_ms,
            error=self.error,
        )


Take = Callable[[Answer, dict[str, Any]], None]
"""Takes into an answer what one JSON object says: a whole body, or the data of one event."""


def read_answer(interaction: Interaction, *, take_body: Take, take_event: Take) -> Response:
    """Read a response, plain or streamed; an error, a broken connection and bytes that mean nothing become `Response.error`.

    :param take_body: reads the JSON object of a plain response; it takes objects of any shape and does not raise.
    :param take_event: reads the JSON object of one event of a stream, likewise.
    """
    answer = Answer()
    response = interaction.response
    streamed = sse.is_event_stream(response)
    if not 200 <= response.status < 300:
        answer.fail(http_failure(interaction))
    elif streamed:
        _read_stream(answer, interaction, take_event)
    else:
        _read_body(answer, interaction, take_body)
    return answer.finished(interaction, streamed=streamed)


def _read_body(answer: Answer, interaction: Interaction, take: Take) -> None:
    response = interaction.response
    try:
        body = loads(response.body.decode("utf-8-sig", "replace"))
    except ValueError:
        if interaction.ended_well:
            answer.fail(unreadable(response, "the body is not JSON" if response.body.strip() else "the body is empty"))
        else:
            answer.fail(_broken(interaction))
        return
    answer.fail(failure_in(body, status=response.status))
    if isinstance(body, dict):
        take(answer, body)
    if not answer.found:
        answer.fail(failure_in(body, status=response.status, anywhere=True))
        answer.fail(unreadable(response, "the body holds no answer"))


def _read_stream(answer: Answer, interaction: Interaction, take: Take) -> None:
    garbled: ErrorInfo | None = None
    waiting = True
    for event in sse.events(interaction.chunks()):
        data = event.data.strip()
        if data == "[DONE]":
            answer.ended = True
            continue
        try:
            said = loads(data)
        except ValueError:
            garbled = garbled or ErrorInfo(message=f"an event of the stream is not JSON: {data[:200]!r}")
            continue
        answer.fail(failure_in(said, anywhere=event.name == "error"))
        if isinstance(said, dict):
            take(answer, said)
        if waiting and answer.has_content():
            waiting = False
            answer.first_content_ms = event.at
    if not answer.ended and not interaction.ended_well:
        answer.fail(_broken(interaction))
    answer.fail(garbled)
    if not answer.found:
        answer.fail(unreadable(interaction.response, "the stream holds no answer"))


def _broken(interaction: Interaction) -> ErrorInfo:
    timing = interaction.response.timing
    return broken_off("" if timing is None else timing.end)
