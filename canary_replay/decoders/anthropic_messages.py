"""Anthropic's messages, plain and streamed."""

from __future__ import annotations

from typing import Any

from canary_replay.decoders.answer import Answer, Call, read_answer
from canary_replay.decoders.loose_json import count_of, dumps, list_of, table_of, text_of
from canary_replay.decoders.shape import first_object, posted_path
from canary_replay.decoding import decoder
from canary_replay.interaction import Interaction
from canary_replay.response import Response


def reads(interaction: Interaction) -> bool:
    """Whether a request was posted to ``.../v1/messages``, or its answer has the shape of such a one."""
    path = posted_path(interaction)
    if not path:
        return False
    if path.endswith("/v1/messages"):
        return True
    said = first_object(interaction)
    message = table_of(said.get("message")) if said.get("type") == "message_start" else said
    return message.get("type") == "message" and message.get("role") == "assistant" and isinstance(message.get("content"), list)


@decoder("anthropic-messages", version=1, reads=reads)
def anthropic_messages(interaction: Interaction) -> Response:
    """The answer of a message. Tools that ran at the provider (``server_tool_use``) were answered there and are no tool calls."""
    return read_answer(interaction, take_body=_take_message, take_event=_take_event)


def _take_message(answer: Answer, message: dict[str, Any]) -> None:
    """Take a whole message, or the beginning of one, which is what ``message_start`` holds."""
    answer.model = answer.model or text_of(message.get("model"))
    _take_usage(answer, table_of(message.get("usage")))
    content = message.get("content")
    answer.found = answer.found or isinstance(content, list)
    for index, block in enumerate(list_of(content)):
        _take_block(answer, table_of(block), index)
    _take_stop(answer, message)


def _take_event(answer: Answer, event: dict[str, Any]) -> None:
    kind = event.get("type")
    if kind == "message_start":
        _take_message(answer, table_of(event.get("message")))
    elif kind == "content_block_start":
        _take_block(answer, table_of(event.get("content_block")), count_of(event.get("index")))
    elif kind == "content_block_delta":
        _take_delta(answer, table_of(event.get("delta")), count_of(event.get("index")))
    elif kind == "message_delta":
        _take_usage(answer, table_of(event.get("usage")))
        _take_stop(answer, table_of(event.get("delta")))
    elif kind == "message_stop":
        answer.ended = True


def _take_block(answer: Answer, block: dict[str, Any], index: int | None) -> None:
    """Take a content block: a whole one, or the start of one (empty, as a rule) that deltas fill."""
    kind = block.get("type")
    if kind == "text":
        answer.text.append(text_of(block.get("text")))
    elif kind == "thinking":
        answer.reasoning.append(text_of(block.get("thinking")))
    elif kind == "tool_use":
        arguments = dumps(block["input"]) if "input" in block else ""
        name, identity = text_of(block.get("name")), text_of(block.get("id"))
        answer.calls.append(Call(index=index, id=identity, name=name, given=arguments))


def _take_delta(answer: Answer, delta: dict[str, Any], index: int | None) -> None:
    """Take a piece of a block. A tool's input whose block is not among the calls belongs to a tool that ran at the provider."""
    answer.text.append(text_of(delta.get("text")))
    answer.reasoning.append(text_of(delta.get("thinking")))
    piece = text_of(delta.get("partial_json"))
    for call in answer.calls if piece else ():
        if call.index == index:
            call.arguments.append(piece)


def _take_usage(answer: Answer, usage: dict[str, Any]) -> None:
    """Take token counts; those of ``message_delta`` are running totals, so they replace those of ``message_start``."""
    answer.count(
        input_tokens=count_of(usage.get("input_tokens")),
        output_tokens=count_of(usage.get("output_tokens")),
        cached_tokens=count_of(usage.get("cache_read_input_tokens")),
    )


def _take_stop(answer: Answer, said: dict[str, Any]) -> None:
    reason = text_of(said.get("stop_reason"))
    if not reason:
        return
    answer.stop_reason = reason
    answer.ended = True
    if reason == "refusal":
        details = table_of(said.get("stop_details"))
        answer.refusal.append(text_of(details.get("explanation")) or text_of(details.get("category")) or reason)
