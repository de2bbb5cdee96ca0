"""What a provider's answer meant: text, reasoning, tool calls, stop reason, usage, model, timing."""

from __future__ import annotations

from typing import Any

import msgspec


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One tool call of an answer.

    ``arguments`` is the text exactly as the provider sent it (for providers that send an object: its JSON).
    """

    name: str
    arguments: str = ""
    id: str | None = None

    def parsed(self) -> Any:  # noqa: ANN401 - a tool's arguments may be any JSON
        """The arguments as JSON; an empty string counts as ``{}``, as every provider means it.

        :raises ValueError: the text is not JSON.
        """
        if not self.arguments.strip():
            return {}
        return msgspec.json.decode(self.arguments)


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Token counts as the provider reported them; None where it said nothing."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An answer that is an error: HTTP status (None inside a 200 stream or before any), the provider's type, its message."""

    message: str
    status: int | None = None
    type: str | None = None
    code: str | None = None


class Response(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The normalised answer of one trial; derived from the recorded bytes, never from a client library's object.

    :ivar text: the answer's text; empty when there is none.
    :ivar stop_reason: the provider's own word (``stop``, ``end_turn``, ``tool_calls``); None when it sent none.
    :ivar refusal: a structured refusal's text (``message.refusal``) or the name of the filter that fired.
    :ivar cost: US dollars; None when unknown.
    :ivar ttft_ms: milliseconds from the request to the first chunk that carried content; None when not streamed.
    :ivar total_ms: milliseconds from the request to the end of the response; None when not recorded from the wire.
    :ivar error: set when the answer is an error or broke off; the fields above hold what did arrive.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str | None = None
    refusal: str | None = None
    usage: Usage | None = None
    model: str | None = None
    cost: float | None = None
    streamed: bool = False
    ttft_ms: float | None = None
    total_ms: float | None = None
    error: ErrorInfo | None = None
