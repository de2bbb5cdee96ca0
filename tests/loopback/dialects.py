"""The same answer in the dialects of OpenAI, Anthropic, Gemini, Ollama and Bedrock, plain and streamed."""

from __future__ import annotations

import binascii
import json
import struct
from typing import Any

PIECES = ["Hel", "lo", ", ", "wor", "ld", " \N{EN DASH} ", "日本語", " 🎉", " done"]
TEXT = "".join(PIECES)
ARGUMENTS = '{"city": "Zürich", "unit": "celsius", "days": [1, 2, 3]}'
PACED = [f"{number}日 " for number in range(18)]
"""The pieces of the paced stream: with a last one that stops it and the end mark they make 20 events."""


def split(text: str, size: int) -> list[str]:
    """A text in pieces of ``size`` characters."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def encoded(value: object) -> bytes:
    """A value as JSON with its characters as they are."""
    return json.dumps(value, ensure_ascii=False).encode()


def event(value: object, name: str | None = None) -> bytes:
    """A server-sent event."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + encoded(value) + b"\n\n"


# ------------------------------------------------------------------------------------------------ OpenAI, Azure, Mistral
def openai_plain(model: str, number: int, *, tools: bool) -> dict[str, Any]:
    """A chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": TEXT, "refusal": None}
    if tools:
        function = {"name": "get_weather", "arguments": ARGUMENTS}
        message |= {"content": None, "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if tools else "stop", "logprobs": None}
    usage = {"prompt_tokens": 11, "completion_tokens": 9, "total_tokens": 20}
    return {**_openai(model, number, "chat.completion"), "choices": [choice], "usage": usage}


def openai_stream(model: str, number: int, *, tools: bool, usage: bool, pieces: list[str]) -> list[bytes]:
    """The events of a streamed chat completion."""
    base = _openai(model, number, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
        return {**base, "choices": choices, **({"usage": None} if usage else {})}

    chunks = [chunk({"role": "assistant", "content": None if tools else ""})]
    if tools:
        for index, name in enumerate(("a", "b")):
            function = {"name": "get_weather", "arguments": ""}
            call = {"index": index, "id": f"call_{number}_{name}", "type": "function", "function": function}
            chunks.append(chunk({"tool_calls": [call]}))
            deltas = [{"tool_calls": [{"index": index, "function": {"arguments": piece}}]} for piece in split(ARGUMENTS, 7)]
            chunks += map(chunk, deltas)
    else:
        chunks += [chunk({"content": piece}) for piece in pieces]
    chunks.append(chunk({}, "tool_calls" if tools else "stop"))
    if usage:
        counts = {"prompt_tokens": 11, "completion_tokens": 9, "total_tokens": 20}
        chunks.append({**base, "choices": [], "usage": counts})
    return [*map(event, chunks), b"data: [DONE]\n\n"]


def paced_stream(model: str, number: int) -> list[bytes]:
    """Twenty events, cut one byte into the character 日 of the eighth, so that a character stands in two chunks."""
    base = _openai(model, number, "chat.completion.chunk")
    events = [event({**base, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}) for piece in PACED]
    events.append(event({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
    events.append(b"data: [DONE]\n\n")
    cut = events[7].index("日".encode()) + 1
    events[7], events[8] = events[7][:cut], events[7][cut:] + events[8]
    return events


def _openai(model: str, number: int, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{number}",
        "object": kind,
        "created": 1700000000 + number,
        "model": model,
        "system_fingerprint": "fp",
    }


# ------------------------------------------------------------------------------------------------ Anthropic
def anthropic_plain(model: str, number: int, *, tools: bool) -> dict[str, Any]:
    """A message."""
    content: list[dict[str, Any]] = [{"type": "text", "text": TEXT}]
    if tools:
        content.append({"type": "tool_use", "id": f"toolu_{number}", "name": "get_weather", "input": json.loads(ARGUMENTS)})
    usage = {"input_tokens": 11, "output_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {**_anthropic(model, number), "content": content, "stop_reason": "tool_use" if tools else "end_turn", "usage": usage}


def anthropic_stream(model: str, number: int, *, tools: bool) -> list[bytes]:
    """The events of a streamed message."""
    events: list[bytes] = []

    def say(kind: str, **fields: object) -> None:
        events.append(event({"type": kind, **fields}, kind))

    empty: dict[str, Any] = {"content": [], "stop_reason": None, "usage": {"input_tokens": 11, "output_tokens": 1}}
    say("message_start", message={**_anthropic(model, number), **empty})
    say("content_block_start", index=0, content_block={"type": "text", "text": ""})
    say("ping")
    for piece in PIECES:
        say("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    say("content_block_stop", index=0)
    if tools:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": "get_weather", "input": {}}
        say("content_block_start", index=1, content_block=block)
        for piece in split(ARGUMENTS, 7):
            say("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": piece})
        say("content_block_stop", index=1)
    stop = {"stop_reason": "tool_use" if tools else "end_turn", "stop_sequence": None}
    say("message_delta", delta=stop, usage={"output_tokens": 9})
    say("message_stop")
    return events


def _anthropic(model: str, number: int) -> dict[str, Any]:
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "stop_sequence": None}


# ------------------------------------------------------------------------------------------------ Gemini
def gemini_plain(model: str, number: int, *, tools: bool) -> dict[str, Any]:
    """A generateContent response."""
    call = {"functionCall": {"name": "get_weather", "args": json.loads(ARGUMENTS)}}
    return _gemini(model, number, call if tools else {"text": TEXT}, "STOP")


def gemini_stream(model: str, number: int, *, tools: bool) -> list[bytes]:
    """The events of a streamGenerateContent response."""
    if tools:
        return [event(gemini_plain(model, number, tools=True))]
    events = [event(_gemini(model, number, {"text": piece}, None)) for piece in PIECES]
    return [*events, event(_gemini(model, number, {"text": ""}, "STOP"))]


def _gemini(model: str, number: int, part: dict[str, Any], finish: str | None) -> dict[str, Any]:
    candidate = {"content": {"parts": [part], "role": "model"}, "index": 0, **({"finishReason": finish} if finish else {})}
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 9, "totalTokenCount": 20}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": f"gem_{number}"}


# ------------------------------------------------------------------------------------------------ Ollama
def ollama_plain(model: str, *, tools: bool) -> dict[str, Any]:
    """A response of /api/chat."""
    calls = [{"function": {"name": "get_weather", "arguments": json.loads(ARGUMENTS)}}]
    message = {"role": "assistant", "content": ""} | ({"tool_calls": calls} if tools else {"content": TEXT})
    return {**_ollama(model), "message": message, "done": True, **_OLLAMA_END}


def ollama_stream(model: str, *, tools: bool) -> list[bytes]:
    """The lines of a streamed response of /api/chat."""
    if tools:
        messages = [ollama_plain(model, tools=True)["message"]]
    else:
        messages = [{"role": "assistant", "content": piece} for piece in PIECES]
    lines = [{**_ollama(model), "message": message, "done": False} for message in messages]
    lines.append({**_ollama(model), "message": {"role": "assistant", "content": ""}, "done": True, **_OLLAMA_END})
    return [encoded(line) + b"\n" for line in lines]


_OLLAMA_END = {"done_reason": "stop", "prompt_eval_count": 11, "eval_count": 9}


def _ollama(model: str) -> dict[str, Any]:
    return {"model": model, "created_at": "2026-01-01T00:00:00Z"}


# ------------------------------------------------------------------------------------------------ Bedrock
def converse_plain() -> dict[str, Any]:
    """A response of Bedrock's converse."""
    message = {"role": "assistant", "content": [{"text": TEXT}]}
    return {"output": {"message": message}, "stopReason": "end_turn", "usage": _BEDROCK_USAGE, "metrics": {"latencyMs": 12}}


def converse_stream() -> list[bytes]:
    """The frames of Bedrock's converse-stream, which are not UTF-8."""
    deltas = [_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": piece}}) for piece in PIECES]
    end = [
        _frame("contentBlockStop", {"contentBlockIndex": 0}),
        _frame("messageStop", {"stopReason": "end_turn"}),
        _frame("metadata", {"usage": _BEDROCK_USAGE, "metrics": {"latencyMs": 12}}),
    ]
    return [_frame("messageStart", {"role": "assistant"}), *deltas, *end]


_BEDROCK_USAGE = {"inputTokens": 11, "outputTokens": 9, "totalTokens": 20}


def _frame(kind: str, payload: dict[str, Any]) -> bytes:
    """A frame of AWS's event stream: lengths, their checksum, headers, payload, the checksum of it all."""

    def field(name: str, value: str) -> bytes:
        return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()

    headers = field(":event-type", kind) + field(":content-type", "application/json") + field(":message-type", "event")
    body = encoded(payload)
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    frame = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + body
    return frame + struct.pack(">I", binascii.crc32(frame))
