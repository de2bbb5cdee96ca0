"""Bytes to responses: against real recorded traffic, under laws, and a table of what hosts do."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import canary_replay.decoders  # noqa: F401 - importing registers them
from canary_replay.decoders import sse
from canary_replay.decoding import UndecodableError, decode, known_decoders
from canary_replay.interaction import HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.response import ErrorInfo, Response, ToolCall, Usage
from tests import real_cassettes

CHAT = "https://api.example.com/v1/chat/completions"
MESSAGES = "https://api.example.com/v1/messages"
WIRES = {"openai-chat": CHAT, "anthropic-messages": MESSAGES}
needs_recordings = pytest.mark.skipif(not real_cassettes.available(), reason="the recorded traffic (../shared) is not here")


def exchange(
    body: bytes | str | dict[str, Any] | list[Any],
    *,
    uri: str = CHAT,
    method: str = "POST",
    status: int = 200,
    content_type: str | None = None,
    timing: Timing | None = None,
) -> Interaction:
    """An interaction with this response; a table or a list is sent as JSON."""
    if isinstance(body, dict | list):
        body = json.dumps(body)
    return Interaction(
        request=HttpRequest(method=method, uri=uri),
        response=HttpResponse(
            status=status,
            headers={} if content_type is None else {"Content-Type": [content_type]},
            body=body.encode() if isinstance(body, str) else body,
            timing=timing,
        ),
    )


def stream(*events: object, end: str = "\n\n") -> str:
    """A stream of these events; what is no text is sent as JSON."""
    return "".join(f"data: {event if isinstance(event, str) else json.dumps(event)}{end}" for event in events)


def deltas(*said: dict[str, Any], finish: str | None = "stop") -> str:
    """A chat stream of these deltas."""
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in said]
    last = [] if finish is None else [{"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]
    return stream(*chunks, *last, *([] if finish is None else ["[DONE]"]))


def message(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """A plain chat answer with this message."""
    return {"choices": [{"index": 0, "message": {"role": "assistant", **fields}, "finish_reason": "stop"}]}


def read(interaction: Interaction) -> Response:
    """What the decoders make of one interaction."""
    return decode([interaction]).response


def call_delta(index: int | None, *, id: str | None = None, name: str | None = None, arguments: str = "") -> dict[str, Any]:  # noqa: A002
    """A delta with a piece of one tool call; fields that are None are left out."""
    function = {"name": name, "arguments": arguments} if name is not None else {"arguments": arguments}
    numbered = {} if index is None else {"index": index}
    return {"tool_calls": [numbered | ({} if id is None else {"id": id}) | {"function": function}]}


def cut(interaction: Interaction, at: list[int]) -> Interaction:
    """The same response, having arrived in chunks that end at these positions, one millisecond apart."""
    body = interaction.response.body
    ends = sorted({position % (len(body) + 1) for position in at} | {len(body)})
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    timing = Timing(end_ms=float(len(sizes)), chunks=tuple((float(number), size) for number, size in enumerate(sizes)))
    return msgspec.structs.replace(interaction, response=msgspec.structs.replace(interaction.response, timing=timing))


def timeless(response: Response) -> Response:
    """The response without what the cut of its bytes may change."""
    return msgspec.structs.replace(response, ttft_ms=None, total_ms=None)


# Against what the providers' own clients read.


@pytest.fixture(scope="module")
def expected() -> list[real_cassettes.Row]:
    """The rows of the two wires."""
    return [row for row in real_cassettes.rows("expected") if row["wire"] in real_cassettes.WIRES]


@pytest.fixture(scope="module")
def recorded() -> dict[real_cassettes.Place, Interaction]:
    """Every recorded interaction with a language model, of any wire."""
    return real_cassettes.load(real_cassettes.rows("manifest"))


@needs_recordings
@pytest.mark.xdist_group("recordings")
class TestRecordedTraffic:
    """Two thousand five hundred answers of real providers, decoded by us and by the providers' own clients."""

    def test_own_clients(self, expected: list[real_cassettes.Row], recorded: dict[real_cassettes.Place, Interaction]) -> None:
        """What we read equals what the provider's own client reads, in every field, on every row."""
        first_tier = [row for row in expected if real_cassettes.is_first_tier(row)]

        differing = {place: found for row in first_tier for place, found in differing_fields(row, recorded)}

        assert len(first_tier) > 2000
        assert differing == {}

    def test_other_clients(self, expected: list[real_cassettes.Row], recorded: dict[real_cassettes.Place, Interaction]) -> None:
        """Where another vendor's client was used, each difference is something that this client overlooks."""
        second_tier = [row for row in expected if not real_cassettes.is_first_tier(row)]

        differing = {place: found for row in second_tier for place, found in differing_fields(row, recorded)}

        unexplained = {
            (place, field): pair
            for place, found in differing.items()
            for field, pair in found.items()
            if not real_cassettes.explained(field, *pair)
        }
        assert unexplained == {}
        assert len(differing) < len(second_tier) / 10

    def test_refusals(self, expected: list[real_cassettes.Row], recorded: dict[real_cassettes.Place, Interaction]) -> None:
        """A structured refusal is the text that the client gives."""
        refused = [row for row in expected if row.get("refusal")]

        said = [known_decoders.get(row["wire"]).decode(recorded[real_cassettes.place(row)]).refusal for row in refused]

        assert said == [row["refusal"] for row in refused]

    def test_errors(self, recorded: dict[real_cassettes.Place, Interaction]) -> None:
        """Every recorded error is an error with the provider's message, type and code; also those inside a stream of HTTP 200."""
        failed = [row for row in real_cassettes.rows("expected_errors") if row["wire"] in real_cassettes.WIRES]

        errors = [known_decoders.get(row["wire"]).decode(recorded[real_cassettes.place(row)]).error for row in failed]

        assert [error and (error.message, error.type, error.code) for error in errors] == [
            (row["error"]["message"], row["error"]["type"], row["error"]["code"] and str(row["error"]["code"])) for row in failed
        ]

    def test_wires(self, recorded: dict[real_cassettes.Place, Interaction]) -> None:
        """Each interaction is read by the decoder of its wire and by no other; other wires are refused."""
        mistaken = []
        for row in real_cassettes.rows("manifest"):
            interaction = recorded[real_cassettes.place(row)]
            readers = [name for name in known_decoders if known_decoders.get(name).reads(interaction)]
            if b'"object":"chat.completion"' in interaction.response.body:  # Portkey has chats under a path of its own
                row["wire"] = "openai-chat"
            if readers != ([row["wire"]] if row["wire"] in real_cassettes.WIRES else []):
                mistaken.append((row["file"], row["wire"], readers))

        assert mistaken == []

    @pytest.mark.parametrize("wire", real_cassettes.WIRES)
    def test_any_cut(self, wire: str, recorded: dict[real_cassettes.Place, Interaction]) -> None:
        """A recorded stream means the same however its bytes are cut."""
        streams = [row for row in real_cassettes.rows("manifest") if row["wire"] == wire and row["streaming"]]
        small = [recorded[real_cassettes.place(row)] for row in streams if row["decoded_bytes"] < 20_000]

        @given(interaction=st.sampled_from(small), at=st.lists(st.integers(0, 20_000), max_size=40))
        def law(interaction: Interaction, at: list[int]) -> None:
            decoder = known_decoders.get(wire)

            whole, pieces = decoder.decode(interaction), decoder.decode(cut(interaction, at))

            assert timeless(pieces) == timeless(whole)

        law()


def differing_fields(
    row: real_cassettes.Row, recorded: dict[real_cassettes.Place, Interaction]
) -> list[tuple[real_cassettes.Place, dict[str, tuple[Any, Any]]]]:
    """The place of a row with the fields in which our reading differs; empty when none does."""
    response = known_decoders.get(row["wire"]).decode(recorded[real_cassettes.place(row)])
    found = real_cassettes.differences(row, response)
    return [(real_cassettes.place(row), found)] if found else []


# Laws.

WORDS = st.sampled_from(
    """choices delta message content tool_calls function function_call custom name arguments input id index finish_reason error
    errors code type text thinking reasoning reasoning_content reasoning_details refusal usage prompt_tokens completion_tokens
    model detail prompt_tokens_details cached_tokens stop_reason stop_details role assistant message_start content_block object
    content_block_start content_block_delta message_delta partial_json tool_use content_filter content_filter_results filtered
    """.split()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS | st.just("\ud83d"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=20,
)


def about(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Tables with some of these fields, of any type, as a careless server might send them."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, JSON))


SAID_CALLS = st.lists(
    about("id", "index", "function", "custom") | st.builds(call_delta, JSON, id=JSON, name=JSON, arguments=JSON), max_size=3
)
SAID = st.builds(
    lambda words, calls: words | {"tool_calls": calls}, about("content", "reasoning", "refusal", "function_call"), SAID_CALLS
)
CHOICES = st.builds(
    lambda choice, said: choice | {"delta": said, "message": said}, about("index", "finish_reason", "error", "usage"), SAID
)
BLOCK_EVENTS = st.builds(
    lambda kind, event: event | {"type": kind},
    st.sampled_from(["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "error"]),
    about("index", "message", "content_block", "delta", "usage", "error"),
)
OBJECTS = st.one_of(
    JSON,
    st.builds(lambda frame, choice: frame | {"choices": [choice]}, about("model", "usage", "error", "x_groq"), CHOICES),
    st.builds(lambda block: {"type": "message", "content": [block]}, about("type", "text", "thinking", "input", "name", "id")),
    BLOCK_EVENTS,
)
LINES = st.sampled_from(
    [b"\n", b"\r", b"\r\n", b"\n\n", b"data: ", b"data:", b": ping", b"event: error", b"\xef\xbb\xbf", b"[DONE]"]
)
BODIES = st.one_of(
    st.binary(max_size=200),
    OBJECTS.map(lambda value: json.dumps(value).encode()),
    st.lists(OBJECTS.map(json.dumps), max_size=5).map(lambda values: stream(*values).encode()),
    st.lists(LINES | st.binary(max_size=12) | OBJECTS.map(lambda value: json.dumps(value).encode()), max_size=20).map(b"".join),
)


class TestLaws:
    """What holds for any bytes."""

    @given(
        body=BODIES,
        wire=st.sampled_from(sorted(WIRES)),
        status=st.sampled_from([200, 200, 200, 500]),
        content_type=st.sampled_from([None, "application/json", "text/event-stream; charset=utf-8"]),
        end=st.sampled_from(["eof", "error:ReadError:\ud800", "cap:bytes", ""]),
    )
    @settings(max_examples=200)
    def test_total(self, body: bytes, wire: str, status: int, content_type: str | None, end: str) -> None:
        """Any bytes decode to a response that can be written down and read back; an HTTP error is an error."""
        timing = Timing(end=end, end_ms=1.0, chunks=((1.0, len(body)),))
        interaction = exchange(body, uri=WIRES[wire], status=status, content_type=content_type, timing=timing)

        response = known_decoders.get(wire).decode(interaction)

        assert msgspec.json.decode(msgspec.json.encode(response), type=Response) == response
        assert status == 200 or response.error is not None

    @given(body=BODIES, wire=st.sampled_from(sorted(WIRES)), uri=st.text(max_size=20))
    def test_shape_of_anything(self, body: bytes, wire: str, uri: str) -> None:
        """Whether a decoder reads an interaction can be asked of any bytes and any address."""
        answer = known_decoders.get(wire).reads(exchange(body, uri=f"https://{uri}"))

        assert answer in {True, False}

    @given(body=BODIES, at=st.lists(st.integers(0, 400), max_size=20), wire=st.sampled_from(sorted(WIRES)))
    @settings(max_examples=200)
    def test_any_cut(self, body: bytes, at: list[int], wire: str) -> None:
        """Any bytes mean the same however they are cut into chunks."""
        interaction = exchange(body, uri=WIRES[wire], content_type="text/event-stream")
        decoder = known_decoders.get(wire)

        whole, pieces = decoder.decode(interaction), decoder.decode(cut(interaction, at))

        assert timeless(pieces) == timeless(whole)

    @given(
        text=st.text(min_size=1, max_size=60),
        sizes=st.lists(st.integers(1, 5), min_size=1, max_size=60),
        end=st.sampled_from(["\n\n", "\r\n\r\n", "\r\r", "\n: note\n\n"]),
        escaped=st.booleans(),
        at=st.lists(st.integers(0, 4000), max_size=20),
    )
    def test_deltas(self, *, text: str, sizes: list[int], end: str, escaped: bool, at: list[int]) -> None:
        """A text sent in deltas comes back whole: any cut into deltas, any line ends, escaped or not, any cut into chunks."""
        pieces = []
        for size in sizes:
            pieces.append(text[:size])
            text = text[size:]
        pieces.append(text)
        chunks = [json.dumps({"choices": [{"delta": {"content": piece}}]}, ensure_ascii=escaped) for piece in pieces]
        whole = exchange(stream(*chunks, "[DONE]", end=end))

        response = read(cut(whole, at))

        assert response.text == "".join(pieces)
        assert response.error is None


# Server-sent events.


def parsed(*chunks: bytes) -> list[tuple[str, str]]:
    """Names and data of the events in these chunks."""
    return [(event.name, event.data) for event in sse.events((None, chunk) for chunk in chunks)]


@pytest.mark.parametrize(
    "body, events",
    [
        (b"data: a\n\ndata: b\n\n", [("", "a"), ("", "b")]),
        (b"data: a\r\n\r\ndata: b\r\r", [("", "a"), ("", "b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", "a")]),
        (b": a comment\n\ndata: a\n\n", [("", "a")]),
        (b"data: a\ndata:b\ndata:  c\n\n", [("", "a\nb\n c")]),
        (b"event: error\ndata: a\n\ndata: b\n\n", [("error", "a"), ("", "b")]),
        (b"event: error\r\ndata: a\r\ndata: b\r\n\r\n", [("error", "a\nb")]),
        (b"event: ping\n\ndata: a\n\n", [("", "a")]),
        (b"data: a\n", [("", "a")]),
        (b"data: a", [("", "a")]),
        (b"id: 7\nretry: 10\ndata\n\n", [("", "")]),
        (b"data: Z\xfcrich\n\n", [("", "Z\ufffdrich")]),
        (b'{"error": {}}\n', [("", '{"error": {}}')]),
        (b"", []),
    ],
)
def test_event_stream(body: bytes, events: list[tuple[str, str]]) -> None:
    """Line ends of three kinds, a byte order mark, comments, several data lines, names, and an end without a blank line."""
    whole, bytewise = parsed(body), parsed(*(body[i : i + 1] for i in range(len(body))))

    assert whole == events
    assert bytewise == events


def test_event_arrival() -> None:
    """An event is complete when the chunk arrives that ends its last line, and not when it began."""
    chunks = [(1.0, b"data: a\n"), (2.0, b"\nda"), (3.0, b"ta: b"), (9.0, b"\n\n")]

    events = list(sse.events(chunks))

    assert [(event.data, event.at) for event in events] == [("a", 2.0), ("b", 9.0)]


# Which decoder reads what.


@pytest.mark.parametrize(
    "uri",
    [
        "https://api.openai.com/v1/chat/completions",
        "https://mine.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
        "https://api.groq.com/openai/v1/chat/completions",
        "http://127.0.0.1:8080/chat/completions/",
    ],
)
def test_chat_paths(uri: str) -> None:
    """A host's chat endpoint is known by the end of its path, even when all it gives is an error."""
    found = decode([exchange("Bad Gateway", uri=uri, status=502)])

    assert found.decoder == "openai-chat/1"
    assert found.response.error == ErrorInfo(message="Bad Gateway", status=502)


@pytest.mark.parametrize(
    "body, reader",
    [
        (message(content="hi"), "openai-chat/1"),
        (stream({"choices": [{"delta": {"content": "hi"}}]}), "openai-chat/1"),
        ({"type": "message", "role": "assistant", "content": []}, "anthropic-messages/1"),
        (
            stream({"type": "message_start", "message": {"type": "message", "role": "assistant", "content": []}}),
            "anthropic-messages/1",
        ),
    ],
)
def test_shapes(body: Any, reader: str) -> None:  # noqa: ANN401 - any JSON
    """Under a path that says nothing, the shape of the answer decides."""
    found = decode([exchange(body, uri="https://gateway.example.com/v1/ask")])

    assert found.decoder == reader


@pytest.mark.parametrize(
    "uri, body",
    [
        ("https://api.openai.com/v1/responses", {"object": "response", "output": [{"type": "message", "role": "assistant"}]}),
        ("https://api.openai.com/v1/completions", {"object": "text_completion", "choices": [{"text": "hi"}]}),
        ("https://api.openai.com/v1/threads/t/messages", {"object": "thread.message", "role": "assistant", "content": []}),
        ("https://api.openai.com/v1/embeddings", {"object": "list", "data": []}),
        (
            "https://g.example.com/v1beta/models/gemini:generateContent",
            {"candidates": [{"content": {"parts": [{"text": "hi"}]}}]},
        ),
        ("http://localhost:11434/api/chat", {"message": {"role": "assistant", "content": "hi"}, "done": True}),
        (
            "https://api.cohere.com/v2/chat",
            {"message": {"content": [{"type": "text", "text": "hi"}]}, "finish_reason": "COMPLETE"},
        ),
        ("https://b.example.com/model/anthropic.claude/converse", {"output": {"message": {"content": [{"text": "hi"}]}}}),
        ("https://b.example.com/model/anthropic.claude/invoke", {"type": "message", "role": "assistant", "content": []}),
        ("https://api.anthropic.com/v1/complete", {"type": "completion", "completion": "hi"}),
        ("https://api.anthropic.com/v1/messages/count_tokens", {"input_tokens": 3}),
    ],
)
def test_other_formats(uri: str, body: dict[str, Any]) -> None:
    """A format that no decoder knows is refused, not half read; the message says what was asked."""
    with pytest.raises(UndecodableError) as refused:
        decode([exchange(body, uri=uri)])

    assert uri in str(refused.value)
    assert "known: " in str(refused.value)


def test_listing() -> None:
    """Only a POST asks for an answer: listing stored completions is none."""
    with pytest.raises(UndecodableError):
        decode([exchange(message(content="hi"), method="GET")])


def test_lower_case_method() -> None:
    """Some clients write the method in lower case."""
    response = read(exchange(message(content="hi"), method="post"))

    assert response.text == "hi"


# What hosts do: chat completions.


@pytest.mark.parametrize(
    "body, response",
    [
        (message(content="hi"), Response(text="hi", stop_reason="stop")),
        (message(content=None), Response(stop_reason="stop")),
        (
            message(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "hi"}]),
            Response(text="hi", reasoning="hm", stop_reason="stop"),
        ),
        (message(content={"answer": 4}), Response(text='{"answer":4}', stop_reason="stop")),
        (message(content="hi", reasoning_content="hm", reasoning="hm"), Response(text="hi", reasoning="hm", stop_reason="stop")),
        (
            message(content="hi", reasoning_details=[{"type": "reasoning.text", "text": "hm"}]),
            Response(text="hi", reasoning="hm", stop_reason="stop"),
        ),
        (message(content=None, refusal="I cannot"), Response(refusal="I cannot", stop_reason="stop")),
        (
            message(content="", function_call={"name": "f", "arguments": '{"a": 1}'}),
            Response(tool_calls=(ToolCall(name="f", arguments='{"a": 1}'),), stop_reason="stop"),
        ),
        (message(content="hi", function_call={"name": "", "arguments": ""}), Response(text="hi", stop_reason="stop")),
        (
            message(tool_calls=[{"id": "a", "function": {"name": "f"}}], function_call={"name": "f", "arguments": "{}"}),
            Response(tool_calls=(ToolCall(id="a", name="f"),), stop_reason="stop"),
        ),
        (
            message(tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}]),
            Response(tool_calls=(ToolCall(id="a", name="sql", arguments="select 1"),), stop_reason="stop"),
        ),
        (
            message(
                tool_calls=[{"id": "a", "function": {"name": "f", "arguments": {"é": 1}}, "custom": {"name": "", "input": ""}}]
            ),
            Response(tool_calls=(ToolCall(id="a", name="f", arguments='{"é":1}'),), stop_reason="stop"),
        ),
        (
            message(tool_calls=[{"id": "", "function": {"name": "f", "arguments": "{}"}}] * 2),
            Response(tool_calls=(ToolCall(name="f", arguments="{}"),) * 2, stop_reason="stop"),
        ),
        (
            {"choices": [{"index": 1, "message": {"content": "b"}}, {"index": 0, "message": {"content": "a"}}]},
            Response(text="a"),
        ),
        (
            {
                "choices": [
                    {"message": {}, "finish_reason": "content_filter", "content_filter_results": {"hate": {"filtered": True}}}
                ]
            },
            Response(stop_reason="content_filter", refusal="hate"),
        ),
        ({"choices": [{"message": {"content": "hi"}, "finish_reason": ""}]}, Response(text="hi", stop_reason="")),
    ],
)
def test_chat_message(body: dict[str, Any], response: Response) -> None:
    """Each way in which hosts put text, reasoning, refusals and tool calls into a message."""
    assert read(exchange(body)) == response


CALL = ToolCall(id="a", name="f", arguments='{"x": 1}')


@pytest.mark.parametrize(
    "said, calls",
    [
        ([call_delta(0, id="a", name="f"), call_delta(0, arguments='{"x"'), call_delta(0, arguments=": 1}")], (CALL,)),
        ([call_delta(0, id="a", name="f"), call_delta(0, id="a", name="f", arguments='{"x": 1}')], (CALL,)),
        ([call_delta(0, id="a", name="f"), call_delta(0, id="other", arguments='{"x": 1}')], (CALL,)),
        ([call_delta(0, id="a", name="f"), call_delta(0, id="", name="", arguments='{"x": 1}')], (CALL,)),
        ([call_delta(None, id="a", name="f", arguments='{"x"'), call_delta(None, arguments=": 1}")], (CALL,)),
        (
            [call_delta(0, id="a", name="f"), call_delta(1, id="b", name="g"), call_delta(0, arguments='{"x": 1}')],
            (CALL, ToolCall(id="b", name="g")),
        ),
        (
            [call_delta(0, id="a", name="f", arguments='{"x": 1}'), call_delta(0, id="b", name="f", arguments="{}")],
            (CALL, ToolCall(id="b", name="f", arguments="{}")),
        ),
        (
            [call_delta(None, id="a", name="f", arguments='{"x": 1}'), call_delta(None, id="b", name="f", arguments="{}")],
            (CALL, ToolCall(id="b", name="f", arguments="{}")),
        ),
        (
            [call_delta(None, name="f", arguments="{}"), call_delta(None, name="f", arguments="{}")],
            (ToolCall(name="f", arguments="{}"),) * 2,
        ),
        (
            [{"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": "{}"}}],
            (ToolCall(name="f", arguments="{}"),),
        ),
    ],
)
def test_call_deltas(said: list[dict[str, Any]], calls: tuple[ToolCall, ...]) -> None:
    """Tool calls are put together with and without index, with ids and names that are repeated, invented or left out."""
    response = read(exchange(deltas(*said, finish="tool_calls")))

    assert response == Response(tool_calls=calls, stop_reason="tool_calls", streamed=True)


@pytest.mark.parametrize(
    "body, text",
    [
        (b'{"choices": [{"message": {"content": "a\nb\x00"}}]}', "a\nb\x00"),
        (b'{"choices": [{"message": {"content": "a"}, "logprobs": [NaN, -Infinity]}]}', "a"),
        (b'\xef\xbb\xbf{"choices": [{"message": {"content": "a"}}]}', "a"),
        (b'{"choices": [{"message": {"content": "Z\xfcrich"}}]}', "Z\ufffdrich"),
        (b'{"choices": [{"message": {"content": "\\ud83d!"}}]}', "\ufffd!"),
    ],
)
def test_loose_json(body: bytes, text: str) -> None:
    """Control characters in strings, numbers that are none, a byte order mark, bytes that are not UTF-8, half a character."""
    response = read(exchange(body))

    assert (response.text, response.error) == (text, None)


@pytest.mark.parametrize("depth", [300, 600, 100_000])
@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("begin, end", [("[", "]"), ('{"message":', "}"), ('{"error":', "}"), ('{"detail":[', "]}")])
def test_nested_deeply(depth: int, status: int, begin: str, end: str) -> None:
    """A body nested deeper than Python goes is an error, not a crash."""
    response = read(exchange(begin * depth + "1" + end * depth, status=status))

    assert response.error is not None
    assert response.error.status == status


def test_split_surrogates() -> None:
    """A character whose two halves came in two events is one character; half a character alone becomes U+FFFD."""
    body = stream(*(f'{{"choices":[{{"delta":{{"content":"{half}"}}}}]}}' for half in ("\\ud83d", "\\ude00", "\\ud83d")))

    response = read(exchange(body))

    assert response.text == "\U0001f600\ufffd"


def test_other_choices() -> None:
    """With n > 1 the answer is the choice with index 0, also when another comes first."""
    body = stream(
        *({"choices": [{"index": index, "delta": {"content": text}}]} for index, text in [(1, "b"), (0, "a"), (1, "b")])
    )

    assert read(exchange(body)).text == "a"


@pytest.mark.parametrize(
    "where",
    [
        [{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}}],
        [{"choices": [{"index": 0, "delta": {}}], "usage": {"prompt_tokens": 3, "completion_tokens": 5}}],
        [{"choices": [{"index": 0, "delta": {}, "usage": {"prompt_tokens": 3, "completion_tokens": 5}}]}],
        [{"choices": [], "x_groq": {"usage": {"prompt_tokens": 3, "completion_tokens": 5}}}, {"choices": [], "usage": None}],
        [{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": n}} for n in range(6)],
    ],
)
def test_chat_usage(where: list[dict[str, Any]]) -> None:
    """Usage counts wherever it stands, after the end too; a later report replaces an earlier one."""
    body = deltas({"content": "hi"}) + stream(*where)

    assert read(exchange(body)).usage == Usage(input_tokens=3, output_tokens=5)


def test_usage_details() -> None:
    """Reasoning and cached tokens are read; a count that is no number of tokens is unknown, not zero."""
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": -1,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2.0},
    }

    response = read(exchange({**message(content="hi"), "usage": usage}))

    assert response.usage == Usage(input_tokens=9, reasoning_tokens=2, cached_tokens=4)


def test_empty_finish() -> None:
    """An empty finish reason after a real one says nothing."""
    body = deltas({"content": "hi"}) + stream({"choices": [{"delta": {}, "finish_reason": ""}]})

    assert read(exchange(body)).stop_reason == "stop"


def test_model() -> None:
    """The model is the first that is named; Azure's first event names it ``""``."""
    body = stream({"model": "", "choices": []}, {"model": "gpt-x", "choices": [{"delta": {}}]}, {"model": "y", "choices": []})

    assert read(exchange(body)).model == "gpt-x"


# What Anthropic sends.

TOOL = {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}
SERVER_TOOL = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}


def blocks(*starts_and_deltas: tuple[int, dict[str, Any]], stop: str | None = "end_turn") -> str:
    """A message stream: each start of a block (it has an ``id`` or is no delta) and each delta, with its index."""
    begin = {
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begin}, {"type": "ping"}]
    for index, said in starts_and_deltas:
        if str(said["type"]).endswith("_delta"):
            events.append({"type": "content_block_delta", "index": index, "delta": said})
        else:
            events.append({"type": "content_block_start", "index": index, "content_block": said})
    if stop:
        counted = {"output_tokens": 7, "cache_read_input_tokens": 2}
        events += [{"type": "message_delta", "delta": {"stop_reason": stop}, "usage": counted}, {"type": "message_stop"}]
    return stream(*events)


def json_delta(piece: str) -> dict[str, Any]:
    """A piece of a tool's input."""
    return {"type": "input_json_delta", "partial_json": piece}


def test_message_stream() -> None:
    """Thinking, text and parallel calls come out of their blocks; usage is merged; a tool that ran at Anthropic is no call."""
    body = blocks(
        (0, {"type": "thinking", "thinking": ""}),
        (0, {"type": "thinking_delta", "thinking": "hm"}),
        (0, {"type": "signature_delta", "signature": "c2ln"}),
        (1, {"type": "text", "text": ""}),
        (1, {"type": "text_delta", "text": "hi"}),
        (2, SERVER_TOOL),
        (2, json_delta('{"query": "x"}')),
        (3, TOOL),
        (3, json_delta('{"city":')),
        (4, {**TOOL, "id": "t2"}),
        (3, json_delta(' "Oslo"}')),
        stop="tool_use",
    )

    response = read(exchange(body, uri=MESSAGES))

    assert response == Response(
        text="hi",
        reasoning="hm",
        tool_calls=(
            ToolCall(id="t1", name="weather", arguments='{"city": "Oslo"}'),
            ToolCall(id="t2", name="weather", arguments="{}"),
        ),
        stop_reason="tool_use",
        usage=Usage(input_tokens=3, output_tokens=7, cached_tokens=2),
        model="claude-x",
        streamed=True,
    )


def test_plain_message() -> None:
    """A plain message: its blocks in order, a tool's input as JSON."""
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2ln"},
        {"type": "text", "text": "hi "},
        {**TOOL, "input": {"city": "Tromsø"}},
        SERVER_TOOL,
        {"type": "text", "text": "there"},
    ]
    body = {"type": "message", "role": "assistant", "model": "claude-x", "content": content, "stop_reason": "tool_use"}

    response = read(exchange(body, uri=MESSAGES))

    assert response == Response(
        text="hi there",
        reasoning="hm",
        tool_calls=(ToolCall(id="t1", name="weather", arguments='{"city":"Tromsø"}'),),
        stop_reason="tool_use",
        model="claude-x",
    )


@pytest.mark.parametrize(
    "details, refusal",
    [({"explanation": "not this", "category": "cyber"}, "not this"), ({"category": "cyber"}, "cyber"), (None, "refusal")],
)
def test_refused_message(details: dict[str, Any] | None, refusal: str) -> None:
    """Stop reason ``refusal`` is a refusal, with the best words that Anthropic has for it."""
    body = {"type": "message", "content": [], "stop_reason": "refusal", "stop_details": details}

    response = read(exchange(body, uri=MESSAGES))

    assert (response.stop_reason, response.refusal, response.error) == ("refusal", refusal, None)


# Errors.


@pytest.mark.parametrize(
    "body, error",
    [
        ({"error": {"message": "no", "type": "t", "code": "c"}}, ErrorInfo(message="no", status=400, type="t", code="c")),
        ({"error": {"message": "no", "code": 429}}, ErrorInfo(message="no", status=400, code="429")),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "no"}},
            ErrorInfo(message="no", status=400, type="overloaded_error"),
        ),
        ({"error": "no"}, ErrorInfo(message="no", status=400)),
        ([{"error": {"message": "no", "status": "INVALID"}}], ErrorInfo(message="no", status=400, type="INVALID")),
        ({"object": "error", "message": "no", "code": 40001}, ErrorInfo(message="no", status=400, code="40001")),
        ({"message": "no"}, ErrorInfo(message="no", status=400)),
        ({"detail": "no"}, ErrorInfo(message="no", status=400)),
        (
            {"detail": [{"loc": ["body", "model"], "msg": "Field required"}, {"msg": "no"}]},
            ErrorInfo(message="Field required; no", status=400),
        ),
        ({"errors": [{"message": "no", "code": 7003}]}, ErrorInfo(message="no", status=400, code="7003")),
        ({"errors": ["no", "never"]}, ErrorInfo(message="no; never", status=400)),
        ({"error": {"code": "quota"}}, ErrorInfo(message="quota", status=400, code="quota")),
        ({"unheard": "of"}, ErrorInfo(message='{"unheard": "of"}', status=400)),
        ("<html>\n<h1>502</h1>\n</html>", ErrorInfo(message="<html> <h1>502</h1> </html>", status=400)),
        ("", ErrorInfo(message="HTTP status 400", status=400)),
        (stream({"error": {"message": "no"}}), ErrorInfo(message="no", status=400)),
    ],
)
@pytest.mark.parametrize("uri", [CHAT, MESSAGES])
def test_http_errors(body: Any, error: ErrorInfo, uri: str) -> None:  # noqa: ANN401 - any JSON
    """An HTTP error is an error, in the words of the provider, whatever shape they have."""
    assert read(exchange(body, uri=uri, status=400)).error == error


@pytest.mark.parametrize(
    "body, kept, error",
    [
        (
            deltas({"content": "hi"}, finish=None) + stream({"error": {"message": "no", "code": 400}}),
            "hi",
            ErrorInfo(message="no", code="400"),
        ),
        (
            deltas({"content": "hi"}, finish=None) + 'event: error\ndata: {"message": "no"}\n\n',
            "hi",
            ErrorInfo(message="no"),
        ),
        (deltas({"content": "hi"}, finish=None) + '{"error": {"message": "no"}}', "hi", ErrorInfo(message="no")),
        (
            stream(
                {"choices": [{"delta": {"content": "hi"}, "finish_reason": "error", "error": {"message": "no", "code": 502}}]}
            ),
            "hi",
            ErrorInfo(message="no", code="502"),
        ),
        (
            deltas({"content": "hi"}, finish="error"),
            "hi",
            ErrorInfo(message="the provider ended the answer with finish_reason 'error'"),
        ),
    ],
)
def test_errors_in_a_stream(body: str, kept: str, error: ErrorInfo) -> None:
    """An error inside a stream of HTTP 200 is an error without a status; what came before it is kept."""
    response = read(exchange(body))

    assert (response.text, response.error) == (kept, error)


def test_anthropic_error_event() -> None:
    """Anthropic's ``event: error`` is an error; what came before it is kept."""
    begun = blocks((0, {"type": "text", "text": ""}), (0, {"type": "text_delta", "text": "hi"}), stop=None)
    body = begun + 'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n'

    response = read(exchange(body, uri=MESSAGES))

    assert (response.text, response.model) == ("hi", "claude-x")
    assert response.error == ErrorInfo(message="Overloaded", type="overloaded_error")


@pytest.mark.parametrize("uri", [CHAT, MESSAGES])
@pytest.mark.parametrize(
    "body, content_type, says",
    [
        ("", None, "the body is empty"),
        ("  \n", "application/json", "the body is empty"),
        ("", "text/event-stream", "the stream holds no answer"),
        (": ping\n\n", None, "the stream holds no answer"),
        ("Hello", "text/plain", "the body is not JSON: 'Hello'"),
        ('{"choices": [{"message": {"content": "hi', None, "the body is not JSON: "),
        ('{"hello": 1}', None, "the body holds no answer: "),
        ("[1]", None, "the body holds no answer: "),
    ],
)
def test_no_answer(uri: str, body: str, content_type: str | None, says: str) -> None:
    """HTTP 200 with a body that is no answer is an error that shows the beginning of the body."""
    error = read(exchange(body, uri=uri, content_type=content_type)).error

    assert error is not None
    assert error.message.startswith(says)
    assert error.status == 200


def test_error_with_status_200() -> None:
    """A plain error body is an error, whatever the status says."""
    error = read(exchange({"error": {"message": "no"}})).error

    assert error == ErrorInfo(message="no", status=200)


BROKEN = Timing(end="error:ReadError:peer closed", end_ms=20.0)


@pytest.mark.parametrize(
    "uri, whole",
    [
        (CHAT, deltas({"content": "hello"})),
        (MESSAGES, blocks((0, {"type": "text", "text": "hello"}))),
    ],
)
class TestBrokenConnection:
    """A stream whose end never came."""

    def test_within_an_event(self, uri: str, whole: str) -> None:
        """The connection is the error, not the event that it cut; what came before is kept."""
        body = whole[: whole.index("hello") + 2 + whole[whole.index("hello") :].index("data:") + 10]

        response = read(exchange(body, uri=uri, timing=BROKEN))

        assert response.text == "hello"
        assert response.error == ErrorInfo(message="the connection broke before the answer ended: ReadError:peer closed")

    def test_after_the_end(self, uri: str, whole: str) -> None:
        """An answer that the provider had ended is whole."""
        response = read(exchange(whole, uri=uri, timing=BROKEN))

        assert (response.text, response.error) == ("hello", None)

    def test_after_the_stop_reason(self, uri: str, whole: str) -> None:
        """So is one whose reason to stop came, and only the mark of the end did not."""
        body = whole[: whole.rindex("data:")]

        response = read(exchange(body, uri=uri, timing=BROKEN))

        assert (response.text, response.error) == ("hello", None)

    def test_our_own_limit(self, uri: str, whole: str) -> None:
        """A stream that the recorder cut says so."""
        body = whole[: whole.index("data:", whole.index("hello"))]

        response = read(exchange(body, uri=uri, timing=Timing(end="cap:16 MB")))

        assert response.error == ErrorInfo(message="the recording was cut at its limit '16 MB' before the answer ended")

    def test_no_end_mark(self, uri: str, whole: str) -> None:
        """A stream that ended as streams end, without a finish, is no error: some hosts send none."""
        body = whole[: whole.index("data:", whole.index("hello"))]

        response = read(exchange(body, uri=uri, timing=Timing(end="eof")))

        assert (response.text, response.stop_reason, response.error) == ("hello", None, None)

    def test_cut_without_a_break(self, uri: str, whole: str) -> None:
        """An event that is no JSON is an error, though the connection ended well; the others are kept."""
        body = whole + 'data: {"cut'

        response = read(exchange(body, uri=uri, timing=Timing(end="eof")))

        assert response.text == "hello"
        assert response.error == ErrorInfo(message="""an event of the stream is not JSON: '{"cut'""")


def test_broken_body() -> None:
    """A plain body that the connection cut is the connection's error."""
    error = read(exchange('{"choices": [{"mess', timing=BROKEN)).error

    assert error == ErrorInfo(message="the connection broke before the answer ended: ReadError:peer closed")


# Times.


@pytest.mark.parametrize(
    "uri, silent, speaking",
    [
        (CHAT, {"choices": [{"delta": {"role": "assistant", "content": ""}}]}, {"choices": [{"delta": {"content": "hi"}}]}),
        (CHAT, {"choices": [], "usage": {"prompt_tokens": 1}}, {"choices": [{"delta": {"reasoning": "hm"}}]}),
        (CHAT, {"choices": [{"delta": {}}]}, {"choices": [{"delta": {"refusal": "no"}}]}),
        (CHAT, {"choices": [{"delta": {"tool_calls": None}}]}, {"choices": [{"delta": call_delta(0, id="a", name="f")}]}),
        (MESSAGES, {"type": "ping"}, {"type": "content_block_start", "index": 0, "content_block": TOOL}),
        (
            MESSAGES,
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        ),
    ],
)
def test_time_to_first_token(uri: str, silent: dict[str, Any], speaking: dict[str, Any]) -> None:
    """The first token arrives with the chunk that completes the first event with content."""
    first, second = stream(silent), stream(speaking)
    sizes = [len(first), 5, len(second) - 5, len(second)]
    chunks = tuple(zip([10.0, 20.0, 30.5, 40.0], sizes, strict=True))
    interaction = exchange(first + second + second, uri=uri, timing=Timing(end_ms=55.5, chunks=chunks))

    response = read(interaction)

    assert (response.ttft_ms, response.total_ms) == (30.5, 55.5)


def test_plain_times() -> None:
    """A plain answer has no first token, only an end; one that was not recorded from the wire has neither."""
    body = message(content="hi")

    timed, untimed = read(exchange(body, timing=Timing(end_ms=9.5, chunks=((9.0, 40),)))), read(exchange(body))

    assert (timed.ttft_ms, timed.total_ms) == (None, 9.5)
    assert (untimed.ttft_ms, untimed.total_ms) == (None, None)


# The reader of foreign cassettes.


def test_python_tags(tmp_path: Any) -> None:  # noqa: ANN401 - a path
    """A tag that asks YAML to build a Python object is read as the plain data below it, and nothing is called."""
    file = tmp_path / "cassette.yaml"
    witness = tmp_path / "called"
    file.write_text(
        f"""interactions:
- request:
    method: POST
    uri: {CHAT}
    body: null
    headers:
      ? !!python/object/apply:multidict._multidict.istr
        - X-Key
      : - v
  response:
    status: {{code: 200, message: OK}}
    headers: {{x: !!python/object/apply:os.mkdir ["{witness.as_posix()}"]}}
    body: {{string: hi}}
""",
        encoding="utf-8",
    )

    (read_back,) = real_cassettes.interactions(file)

    assert read_back.request.headers == {"X-Key": ["v"]}
    assert read_back.response.body == b"hi"
    assert not witness.exists()


def test_imports() -> None:
    """Decoding needs no client library and no HTTP library."""
    clients = {"litellm", "vcr", "httpx", "httpx2", "openai", "anthropic", "aiohttp", "requests", "yaml"}
    code = f"import sys, canary_replay.decoders; print(sorted({clients} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
