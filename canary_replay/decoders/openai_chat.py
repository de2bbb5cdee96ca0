"""OpenAI's chat completions, plain and streamed, as OpenAI, Azure and the many hosts that speak like them send them."""

from __future__ import annotations

from typing import Any

from canary_replay.decoders.answer import Answer, Call, read_answer
from canary_replay.decoders.failures import failure_in
from canary_replay.decoders.loose_json import count_of, dumps, list_of, table_of, text_of
from canary_replay.decoders.shape import first_object, posted_path
from canary_replay.decoding import decoder
from canary_replay.interaction import Interaction
from canary_replay.response import ErrorInfo, Response

_FILTERED = "content_filter"


def reads(interaction: Interaction) -> bool:
    """Whether a request was posted to ``.../chat/completions``, or its answer has the shape of such a one."""
    path = posted_path(interaction)
    if not path:
        return False
    if path.endswith("/chat/completions"):
        return True
    choices = list_of(first_object(interaction).get("choices"))
    first = table_of(choices[0]) if choices else {}
    return isinstance(first.get("message"), dict) or isinstance(first.get("delta"), dict)


@decoder("openai-chat", version=1, reads=reads)
def openai_chat(interaction: Interaction) -> Response:
    """The answer of a chat completion: the choice with index 0, whatever host it came from."""
    return read_answer(interaction, take_body=_take_body, take_event=_take_event)


def _take_body(answer: Answer, body: dict[str, Any]) -> None:
    _take_frame(answer, body)
    choices = [choice for choice in list_of(body.get("choices")) if isinstance(choice, dict)]
    if not choices:
        return
    choice = min(choices, key=lambda choice: count_of(choice.get("index")) or 0)
    message = table_of(choice.get("message"))
    _take_words(answer, message)
    answer.calls += [_extended(Call(), said) for said in list_of(message.get("tool_calls")) if isinstance(said, dict)]
    _take_legacy_call(answer, message)
    _take_finish(answer, choice)


def _take_event(answer: Answer, event: dict[str, Any]) -> None:
    _take_frame(answer, event)
    for choice in list_of(event.get("choices")):
        if not isinstance(choice, dict) or count_of(choice.get("index")):
            continue  # another index is another answer to the same request (n > 1)
        delta = table_of(choice.get("delta")) or table_of(choice.get("message"))
        _take_words(answer, delta)
        for said in list_of(delta.get("tool_calls")):
            if isinstance(said, dict):
                _take_call_delta(answer.calls, said)
        _take_legacy_call(answer, delta)
        _take_finish(answer, choice)


def _take_frame(answer: Answer, frame: dict[str, Any]) -> None:
    """Take what stands beside the choices. Azure's first event names the model ``""``; Groq's usage stood in ``x_groq``."""
    answer.model = answer.model or text_of(frame.get("model"))
    _take_usage(answer, table_of(table_of(frame.get("x_groq")).get("usage")))
    _take_usage(answer, table_of(frame.get("usage")))


def _take_usage(answer: Answer, usage: dict[str, Any]) -> None:
    prompt, completion = table_of(usage.get("prompt_tokens_details")), table_of(usage.get("completion_tokens_details"))
    answer.count(
        input_tokens=count_of(usage.get("prompt_tokens")),
        output_tokens=count_of(usage.get("completion_tokens")),
        reasoning_tokens=count_of(completion.get("reasoning_tokens")),
        cached_tokens=count_of(prompt.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))),
    )


def _take_words(answer: Answer, message: dict[str, Any]) -> None:
    """Take text, reasoning and refusal of a message or of a delta."""
    answer.reasoning.append(_reasoning(message))
    answer.refusal.append(text_of(message.get("refusal")))
    content = message.get("content")
    if isinstance(content, dict):  # structured output that a host did not put back into text
        answer.text.append(dumps(content))
    for part in content if isinstance(content, list) else [content]:
        _take_part(answer, part)


def _take_part(answer: Answer, part: object) -> None:
    """Take one part of a content that is a list (Mistral), or the text that a content usually is."""
    if isinstance(part, str):
        answer.text.append(part)
    elif isinstance(part, dict):
        answer.text.append(text_of(part.get("text")))
        answer.refusal.append(text_of(part.get("refusal")))
        thinking = part.get("thinking")
        for thought in thinking if isinstance(thinking, list) else [{"text": thinking}]:
            answer.reasoning.append(text_of(table_of(thought).get("text")))


def _reasoning(message: dict[str, Any]) -> str:
    """The reasoning under the first of the names that hosts have for it; some send the same words under two."""
    said = text_of(message.get("reasoning_content")) or text_of(message.get("reasoning"))
    if said:
        return said
    details = message.get("reasoning_details")
    parts = [table_of(part) for part in (details if isinstance(details, list) else [details])]
    return "".join(text_of(part.get("text")) or text_of(part.get("summary")) for part in parts)


def _take_call_delta(calls: list[Call], said: dict[str, Any]) -> None:
    call = _continued(calls, said)
    if call is None:
        call = Call(index=count_of(said.get("index")))
        calls.append(call)
    _extended(call, said)


def _continued(calls: list[Call], said: dict[str, Any]) -> Call | None:
    """The call that a delta goes on with; None when it begins another.

    A name begins a call. Hosts differ in the rest: some repeat id and name in every delta, some invent a new id for each, some
    send no index, and some give parallel calls one index and tell them apart by id.
    """
    index, identity, named = count_of(said.get("index")), text_of(said.get("id")), bool(_function(said).get("name"))
    candidates = [call for call in calls if index is None or call.index == index]
    if not candidates:
        return None
    for call in reversed(candidates):
        if identity and call.id == identity:
            return call
    last = candidates[-1]
    begins = named and (index is None or bool(identity and last.id))
    return None if begins else last


def _function(said: dict[str, Any]) -> dict[str, Any]:
    """The part of a tool call with name and arguments; hosts fill the kind that does not apply with empty strings."""
    function, custom = table_of(said.get("function")), table_of(said.get("custom"))
    if function.get("name") or not (custom.get("name") or custom.get("input")):
        return function
    return {"name": custom.get("name"), "arguments": custom.get("input")}


def _extended(call: Call, said: dict[str, Any]) -> Call:
    function = _function(said)
    name, arguments = text_of(function.get("name")), function.get("arguments")
    call.id = call.id or text_of(said.get("id"))
    call.name = name if name.startswith(call.name) else call.name + name
    call.arguments.append(dumps(arguments) if isinstance(arguments, dict) else text_of(arguments))
    return call


def _take_legacy_call(answer: Answer, message: dict[str, Any]) -> None:
    """Take a ``function_call``, which came before tool calls: one per answer, with no id."""
    said = table_of(message.get("function_call"))
    if not (said.get("name") or said.get("arguments")) or message.get("tool_calls"):
        return
    if not answer.calls:
        answer.calls.append(Call())
    _extended(answer.calls[0], {"function": said})


def _take_finish(answer: Answer, choice: dict[str, Any]) -> None:
    _take_usage(answer, table_of(choice.get("usage")))
    answer.found = True
    answer.fail(failure_in(choice))
    reason = choice.get("finish_reason")
    if not isinstance(reason, str):
        return
    answer.stop_reason = reason or answer.stop_reason or reason
    answer.ended = answer.ended or bool(reason)
    if reason == "error":
        answer.fail(ErrorInfo(message="the provider ended the answer with finish_reason 'error'"))
    if reason == _FILTERED and not any(answer.refusal):
        answer.refusal.append(_filters_that_fired(choice))


def _filters_that_fired(choice: dict[str, Any]) -> str:
    """Azure says which filter it was (``hate, violence``); others only that there was one."""
    results = table_of(choice.get("content_filter_results"))
    return ", ".join(name for name, result in results.items() if table_of(result).get("filtered") is True) or _FILTERED
