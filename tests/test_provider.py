"""One trial of any provider becomes a recording that says what was really sent and received, whatever went wrong."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

if not find_spec("litellm"):  # importorskip would import it before what keeps it off the network is set
    pytest.skip("asking providers needs the extra 'live'", allow_module_level=True)

from canary_replay import cassette, runs
from canary_replay.capture import CassetteMissError, Limits, cassette_miss, offline, playing
from canary_replay.errors import ProviderError, UsageError
from canary_replay.interaction import HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.provider import (
    Answer,
    Call,
    LiteLLM,
    Provider,
    ask_trial,
    client_drift,
    import_litellm,
    load_provider,
    pause_before,
    rejected,
    worth_repeating,
)
from canary_replay.recording import Recording, bytes_digest
from canary_replay.redact import KEPT_REQUEST_HEADERS, Redactor
from canary_replay.request import Request, request_key
from canary_replay.response import ErrorInfo, Response, ToolCall, Usage
from tests import loopback
from tests.loopback import FakeProvider

pytestmark = pytest.mark.filterwarnings("ignore")  # LiteLLM's own warnings are not ours to mend

KEY = "made-up/key+0123456789-abcdefghij"
QUESTION: Any = ({"role": "user", "content": "Say hello – 日本語"},)  # noqa: RUF001 - not ASCII on purpose
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def provider() -> Iterator[FakeProvider]:
    """A fake provider for the whole file."""
    with loopback.serving() as fake:
        yield fake


@pytest.fixture(autouse=True)
def _amazon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAMADEUPKEY0123456")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("AWS_REGION_NAME", "eu-west-1")


def where(provider: FakeProvider, dialect: str, scenario: str) -> tuple[str, str]:
    """The model's LiteLLM name and the address for a dialect and a scenario."""
    base = provider.base
    return {
        "openai": (f"openai/gpt-{scenario}", f"{base}/v1"),
        "azure": (f"azure/gpt-{scenario}", base),
        "anthropic": (f"anthropic/claude-{scenario}", f"{base}/v1/messages"),
        "gemini": (f"gemini/gemini-{scenario}", f"{base}/v1beta/models/gemini-{scenario}"),
        "ollama": (f"ollama_chat/llama-{scenario}", base),
        "mistral": (f"mistral/mistral-{scenario}", f"{base}/v1"),
        "bedrock": (f"bedrock/converse/anthropic.claude-3-{scenario}", f"{base}/model/anthropic.claude-3-{scenario}"),
    }[dialect]


def question(model: str, *, stream: bool = False, tools: bool = False, **parameters: object) -> Request:
    """A question to a model."""
    parameters = {"temperature": 0, "max_tokens": 50, **({"stream": True} if stream else {}), **parameters}
    return Request(model=model, messages=QUESTION, tools=(TOOL,) if tools else (), parameters=parameters)


def ask(
    provider: FakeProvider,
    scenario: str,
    *,
    dialect: str = "openai",
    stream: bool = False,
    asker: Provider | None = None,
    **options: Any,  # noqa: ANN401 - of several types
) -> Recording:
    """Ask for a trial without waiting between attempts; ``options`` go to `ask_trial`, or to the call if they are its own."""
    model, api_base = where(provider, dialect, scenario)
    request = options.pop("request", None) or question(model, stream=stream, tools="tools" in scenario)
    of_call = {name: options.pop(name) for name in list(options) if name in Call.__struct_fields__}
    call = Call(**{"request": request, "api_base": api_base, "api_key": KEY, "timeout": 20, **of_call})
    keep = {"sleep": lambda _seconds: None, "redactor": Redactor([KEY]), "retries": 1}
    place = {"suite": "s", "target": "t", "case": "c", "trial": 0}
    return ask_trial(asker or LiteLLM(), call, request=request, key=request_key(request), **{**place, **keep, **options})


def answer_of(recording: Recording) -> Response:
    """The response of a recording that has one."""
    assert recording.response is not None
    return recording.response


def error_of(recording: Recording) -> ErrorInfo:
    """The error of a recording that has one."""
    error = answer_of(recording).error
    assert error is not None
    return error


def end_of(recording: Recording) -> str:
    """How the last response ended."""
    timing = recording.interactions[-1].response.timing
    assert timing is not None
    return timing.end


# ------------------------------------------------------------------------------------------------ answers
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["openai", "azure", "anthropic", "mistral"])
def test_answer(provider: FakeProvider, dialect: str, stream: bool) -> None:  # noqa: FBT001 - a matrix
    """An answer is recorded, decoded by our own decoder, and LiteLLM reads the same bytes alike."""
    recording = ask(provider, "plain", dialect=dialect, stream=stream)

    assert answer_of(recording).text == loopback.TEXT
    assert answer_of(recording).error is None
    assert answer_of(recording).streamed is stream
    assert recording.decoder
    assert recording.client_drift == ()
    assert recording.digest == bytes_digest(recording.interactions)
    assert recording.by.keys() == {"canary_replay", "litellm"}
    assert len(recording.interactions) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["openai", "anthropic", "mistral"])
def test_tool_calls(provider: FakeProvider, dialect: str, stream: bool) -> None:  # noqa: FBT001 - a matrix
    """Tool calls are recorded, plain and streamed, and LiteLLM reads the same."""
    recording = ask(provider, "tools", dialect=dialect, stream=stream)

    calls = answer_of(recording).tool_calls
    assert {call.name for call in calls} == {"get_weather"}
    assert all(call.parsed() == json.loads(loopback.ARGUMENTS) for call in calls)
    assert recording.client_drift == ()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["openai", "azure", "anthropic", "gemini", "ollama", "mistral", "bedrock"])
def test_what_was_sent(provider: FakeProvider, dialect: str, stream: bool) -> None:  # noqa: FBT001 - a matrix
    """What the recording says was sent is what the server received: target, body, and every header that is kept."""
    before = len(provider.received)

    recording = ask(provider, "tools", dialect=dialect, stream=stream)

    (received,) = provider.received[before:]
    (interaction,) = recording.interactions
    sent = interaction.request
    assert sent.method == received.method
    assert sent.uri == provider.base + received.target
    assert sent.body == received.body
    kept = {name: [value] for name, value in received.headers.items() if name in KEPT_REQUEST_HEADERS}
    assert sent.headers == kept
    assert kept
    assert KEY not in repr(recording)


def test_usage_is_asked_for(provider: FakeProvider) -> None:
    """Streams are always asked for their usage."""
    recording = ask(provider, "plain", stream=True)

    assert answer_of(recording).usage == Usage(input_tokens=11, output_tokens=9)


def test_dropped_parameters(provider: FakeProvider) -> None:
    """Parameters that a model rejects are recorded as dropped and are not sent; the seed is then none."""
    model, _base = where(provider, "anthropic", "plain")
    request = question(model, seed=7, logit_bias={"1": 2}, top_k=3)

    recording = ask(provider, "plain", dialect="anthropic", request=request)

    sent = json.loads(recording.interactions[0].request.body)
    assert recording.dropped == ("logit_bias", "seed")
    assert not {"seed", "logit_bias"} & sent.keys()
    assert sent["top_k"] == 3
    assert recording.seed is None
    assert recording.request.parameters["seed"] == 7


def test_dropped_by_value() -> None:
    """A parameter whose value the model rejects is dropped; the same model takes another value."""
    asked = question("openai/gpt-5-mini-2025-08-07")

    cold = LiteLLM().dropped(asked)
    warm = LiteLLM().dropped(msgspec.structs.replace(asked, parameters={"temperature": 1}))

    assert cold == ("temperature",)
    assert warm == ()


@pytest.mark.parametrize(
    "accepts, out",
    [
        (lambda _given: True, set()),
        (lambda given: "a" not in given, {"a"}),
        (lambda given: not {"a", "b"} <= given.keys(), {"a"}),
        (lambda given: "c" not in given and not {"a", "b"} <= given.keys(), {"c", "a"}),
    ],
    ids=["all accepted", "one alone", "two together", "both"],
)
def test_which_to_drop(accepts: Any, out: set[str]) -> None:  # noqa: ANN401 - a predicate
    """What is rejected alone is dropped, then what is rejected in company, and no more."""
    assert rejected({"a": 1, "b": 2, "c": 3}, accepts) == out


def test_seed(provider: FakeProvider) -> None:
    """The seed of the trial is sent and stands beside the request, which keeps the base seed."""
    model, _base = where(provider, "openai", "plain")
    base = question(model, seed=100)
    trial = msgspec.structs.replace(base, parameters={**base.parameters, "seed": 102})

    recording = ask_trial(
        LiteLLM(),
        Call(request=trial, api_base=f"{provider.base}/v1", api_key=KEY),
        suite="s",
        target="t",
        case="c",
        trial=2,
        key="k",
        request=base,
        redactor=Redactor(),
    )

    assert json.loads(recording.interactions[0].request.body)["seed"] == 102
    assert recording.seed == 102
    assert recording.request.parameters["seed"] == 100


def test_stored_host(provider: FakeProvider) -> None:
    """A server whose address means nothing is stored under another name, and plays from there."""
    import openai

    recording = ask(
        provider,
        "plain",
        request=question("embedded/small"),
        model_override="openai/gpt-plain",
        stored_host="http://embedded.invalid",
    )

    assert recording.interactions[0].request.uri == "http://embedded.invalid/v1/chat/completions"
    assert recording.request.model == "embedded/small"
    with playing(recording.interactions), offline():
        client = openai.OpenAI(base_url=f"{provider.base}/v1", api_key="another key", max_retries=0)
        again = client.chat.completions.create(model="gpt-plain", messages=list(QUESTION), temperature=0, max_tokens=50)
    assert again.choices[0].message.content == loopback.TEXT


def test_headers_and_metadata(provider: FakeProvider) -> None:
    """Extra headers reach the provider and, if they may hold a key, not the recording."""
    before = len(provider.received)

    recording = ask(
        provider,
        "err401",
        headers={"x-source": "canary-eval", "helicone-auth": f"Bearer {KEY[::-1]}"},
        metadata={"source": "eval"},
    )

    received = provider.received[before]
    assert received.headers["x-source"] == "canary-eval"
    assert received.headers["helicone-auth"] == f"Bearer {KEY[::-1]}"
    assert KEY[::-1] not in repr(recording)


def test_price(provider: FakeProvider) -> None:
    """The cost is LiteLLM's price where it has one, and unknown, not zero, where it has none."""
    priced = ask(provider, "plain", request=question("openai/gpt-4o-mini", stream=True))
    unknown = [answer_of(ask(provider, "plain", stream=stream)).cost for stream in (False, True, True)]

    assert answer_of(priced).cost == pytest.approx(11 * 0.15e-6 + 9 * 0.6e-6)
    assert unknown == [None, None, None]


# ------------------------------------------------------------------------------------------------ faults
def test_busy_then_an_answer(provider: FakeProvider) -> None:
    """A 429 is asked again after the time that the provider names; both exchanges are kept, the first as repeated."""
    waits: list[float] = []

    recording = ask(provider, f"retry429-{time.time_ns()}", sleep=waits.append)

    first, second = (interaction.response for interaction in recording.interactions)
    assert waits == [0.05]
    assert (first.status, second.status) == (429, 200)
    assert first.headers["retry-after"] == ["2"]
    assert first.timing is not None
    assert first.timing.retried
    assert second.timing is not None
    assert not second.timing.retried
    assert answer_of(recording).text == loopback.TEXT


def test_broken_then_an_answer(provider: FakeProvider) -> None:
    """A 500 is asked again after a pause of our own."""
    waits: list[float] = []

    recording = ask(provider, f"retry500-{time.time_ns()}", stream=True, sleep=waits.append)

    assert [interaction.response.status for interaction in recording.interactions] == [500, 200]
    assert len(waits) == 1
    assert 0.25 <= waits[0] <= 0.5
    assert answer_of(recording).text == loopback.TEXT


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "gemini", "ollama", "bedrock"])
@pytest.mark.parametrize("scenario, status", [("err429", 429), ("err500", 500), ("err401", 401)])
def test_http_error(provider: FakeProvider, dialect: str, scenario: str, status: int) -> None:
    """An HTTP error of any provider is an error with its status; what may pass is asked as often as allowed."""
    recording = ask(provider, scenario, dialect=dialect, retries=2)

    error = error_of(recording)
    assert error.status == status
    assert error.message
    assert recording.failed
    assert len(recording.interactions) == (1 if status == 401 else 3)
    assert recording.client_drift == ()


@pytest.mark.parametrize("name", ["default", "embedded/smollm2-135m-instruct"])
def test_http_error_of_a_model_with_another_name(provider: FakeProvider, name: str) -> None:
    """A suite may name a model as LiteLLM does not know it; the provider's error is then recorded like any other."""
    model, _base = where(provider, "openai", "err500")

    recording = ask(provider, "err500", request=question(name, seed=7), model_override=model)

    assert error_of(recording).status == 500
    assert recording.seed == 7


@pytest.mark.parametrize("stream", [False, True])
def test_key_in_the_error(provider: FakeProvider, tmp_path: Path, stream: bool) -> None:  # noqa: FBT001 - a matrix
    """A key that the provider repeats in its error is nowhere on disk, in no file and no form."""
    recording = ask(provider, "err401", stream=stream)
    writer = runs.RunWriter(tmp_path, "record", guard=lambda _data: None, by={})
    writer.append(recording)
    writer.close()
    cassette.write(tmp_path / "c.json", [recording], guard=lambda _data: None)

    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]

    assert len(written) >= 2
    assert any(b"REDACTED" in data for data in written)
    assert not any(Redactor([KEY]).leaks(data) for data in written)
    assert not any(KEY.encode() in data for data in written)


def test_key_cut_over_events(provider: FakeProvider) -> None:
    """A key that was streamed in pieces costs the recording its bytes; the masked answer stays."""
    recording = ask(provider, "tellskey", stream=True)

    assert recording.interactions == ()
    assert recording.wire == "left out: a secret was cut over events"
    assert answer_of(recording).text.startswith("REDACTED")
    assert recording.digest
    assert KEY not in repr(recording)


@pytest.mark.parametrize("stream", [False, True])
def test_disconnect(provider: FakeProvider, stream: bool) -> None:  # noqa: FBT001 - a matrix
    """A connection that breaks is asked again; the last attempt's beginning is kept, with the error."""
    recording = ask(provider, "disconnect", stream=stream)

    assert len(recording.interactions) == 2
    assert end_of(recording).startswith("error:RemoteProtocolError:")
    assert "broke" in error_of(recording).message
    assert answer_of(recording).text == ("Hello, wor" if stream else "")


def test_no_response(provider: FakeProvider) -> None:
    """A server that hangs up leaves no interaction, and an error that says so."""
    recording = ask(provider, "hangup")

    assert recording.interactions == ()
    assert recording.wire == "there was no HTTP response"
    assert error_of(recording).type == "RemoteProtocolError"
    assert "disconnected" in error_of(recording).message


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_malformed(provider: FakeProvider, dialect: str) -> None:
    """Half a JSON with status 200 is kept as it is, is an error, and is not asked again."""
    recording = ask(provider, "malformed", dialect=dialect)

    (interaction,) = recording.interactions
    assert interaction.response.body.endswith(b'[{"ind')
    assert error_of(recording).status == 200


def test_bad_event(provider: FakeProvider) -> None:
    """An event that is no JSON is an error; the rest of the answer is kept."""
    recording = ask(provider, "badsse", stream=True)

    assert "not JSON" in error_of(recording).message
    assert answer_of(recording).text == loopback.TEXT


def test_endless(provider: FakeProvider) -> None:
    """An endless stream is cut at its limit, kept, and not asked again."""
    recording = ask(provider, "endless", stream=True, limits=Limits(max_bytes=3000))

    assert len(recording.interactions) == 1
    assert end_of(recording) == "cap:bytes"
    assert error_of(recording).message


@pytest.mark.parametrize("stream", [False, True])
def test_gzip(provider: FakeProvider, stream: bool) -> None:  # noqa: FBT001 - a matrix
    """A compressed answer is stored readable."""
    recording = ask(provider, "gzip", stream=stream)

    response = recording.interactions[0].response
    assert response.timing is not None
    assert response.timing.encoding == "gzip"
    assert "content-encoding" not in response.headers
    assert answer_of(recording).text == loopback.TEXT


@pytest.mark.parametrize("scenario, dialect, stream", [("latin1", "openai", False), ("plain", "bedrock", True)])
def test_bytes_that_are_not_utf8(provider: FakeProvider, tmp_path: Path, scenario: str, dialect: str, stream: bool) -> None:  # noqa: FBT001 - a matrix
    """Bytes that are not UTF-8 come back from the file as they came from the wire."""
    recording = ask(provider, scenario, dialect=dialect, stream=stream)
    body = recording.interactions[0].response.body
    with pytest.raises(UnicodeDecodeError):
        body.decode()

    cassette.write(tmp_path / "c.json", [recording], guard=lambda _data: None)

    read = cassette.read_whole(tmp_path / "c.json")
    assert read is not None
    assert read.recordings[0].interactions == recording.interactions


def test_patience(provider: FakeProvider) -> None:
    """No attempt is begun that would have to wait longer than there is patience."""
    waits: list[float] = []

    recording = ask(provider, "err500", retries=50, patience=1.5, sleep=waits.append)

    assert len(recording.interactions) == len(waits) + 1
    assert len(waits) < 6


# ------------------------------------------------------------------------------------------------ retries, as rules
def ended(status: int = 200, end: str = "eof", **headers: str) -> Interaction:
    """An interaction that ended in some way."""
    kept = {name.replace("_", "-"): [value] for name, value in headers.items()}
    response = HttpResponse(status=status, headers=kept, timing=Timing(end=end))
    return Interaction(request=HttpRequest(method="POST", uri="http://h/"), response=response)


@pytest.mark.parametrize(
    "interaction, again",
    [
        (ended(), False),
        (ended(400), False),
        (ended(401), False),
        (ended(408), True),
        (ended(429), True),
        (ended(500), True),
        (ended(529), True),
        (ended(200, "error:ReadError:gone"), True),
        (ended(200, "cap:bytes"), False),
    ],
)
def test_worth_repeating(interaction: Interaction, again: bool) -> None:  # noqa: FBT001 - a table
    """What may be over soon is worth another attempt; a wrong request, a wrong key and an endless answer are not."""
    assert worth_repeating([interaction]) is again
    assert worth_repeating([ended(500), interaction]) is again
    assert not worth_repeating([])


@pytest.mark.parametrize(
    "interaction, seconds",
    [
        (ended(429, retry_after="3"), 3.0),
        (ended(429, retry_after="3", retry_after_ms="250"), 0.25),
        (ended(429, retry_after="Thu, 01 Jan 1970 00:00:00 GMT"), 0.0),
        (ended(429, retry_after="soon"), 2.0),
        (ended(429, retry_after="-1"), 2.0),
        (ended(429, retry_after="nan"), 2.0),
        (ended(500), 2.0),
    ],
)
def test_pause(interaction: Interaction, seconds: float) -> None:
    """The provider's own wish counts, in milliseconds first; without a readable one the pause doubles each time."""
    assert pause_before(3, [interaction], jitter=lambda: 1.0) == seconds


def test_pauses_grow_and_vary() -> None:
    """Pauses double up to a minute, and half of each is chance."""
    longest = [pause_before(attempt, [], jitter=lambda: 1.0) for attempt in range(1, 11)]
    shortest = [pause_before(attempt, [], jitter=lambda: 0.0) for attempt in range(1, 11)]

    assert longest == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert shortest == [pause / 2 for pause in longest]


# ------------------------------------------------------------------------------------------------ playing to clients
def text_of(chunks: list[Any]) -> str:
    """The text of streamed chunks of the OpenAI shape."""
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "gemini", "ollama", "mistral", "bedrock"])
def test_litellm_replays(provider: FakeProvider, dialect: str) -> None:
    """LiteLLM replays what it recorded, synchronously and asynchronously, plain and streamed, with no request to anybody."""
    litellm = import_litellm()
    recordings = [ask(provider, "plain", dialect=dialect, stream=stream) for stream in (False, True)]
    model, api_base = where(provider, dialect, "plain")
    arguments: dict[str, Any] = {"model": model, "api_base": api_base, "api_key": KEY, "messages": list(QUESTION)}
    arguments |= {"temperature": 0, "max_tokens": 50, "num_retries": 0, "max_retries": 0}
    streamed = arguments | {"stream": True, "stream_options": {"include_usage": True}}
    before = len(provider.received)

    async def asynchronously() -> tuple[str, str]:
        plain = await litellm.acompletion(**arguments)
        return plain.choices[0].message.content, text_of([chunk async for chunk in await litellm.acompletion(**streamed)])

    stored = [interaction for recording in recordings for interaction in recording.interactions]
    with playing([*stored, *stored], redactor=Redactor([KEY])) as player, offline() as refused:
        plain = litellm.completion(**arguments).choices[0].message.content
        stream = text_of(list(litellm.completion(**streamed)))
        plain_async, stream_async = asyncio.run(asynchronously())

    assert [plain, stream, plain_async, stream_async] == [loopback.TEXT] * 4
    assert player.unplayed == ()
    assert refused == []
    assert len(provider.received) == before


def test_miss_under_litellm(provider: FakeProvider) -> None:
    """LiteLLM reports a miss as the provider's error; the miss is found under it and names the field that differs."""
    litellm = import_litellm()
    recording = ask(provider, "plain")

    with playing(recording.interactions), pytest.raises(litellm.exceptions.InternalServerError) as caught:
        litellm.completion(
            model="openai/gpt-plain",
            api_base=f"{provider.base}/v1",
            api_key=KEY,
            messages=[{"role": "user", "content": "never recorded"}],
            temperature=0,
            max_tokens=50,
            max_retries=0,
        )

    miss = cassette_miss(caught.value)
    assert isinstance(miss, CassetteMissError)
    assert "differs in body.messages[0].content" in str(miss)


@pytest.mark.parametrize("scenario", ["plain", "utf8", "paced-5"])
def test_official_client_under_plain_vcr(provider: FakeProvider, tmp_path: Path, scenario: str) -> None:
    """The official OpenAI client replays our cassette under plain VCR.py: same text, no request to anybody."""
    import openai
    import vcr

    recording = ask(provider, scenario, stream=True)
    cassette.write(tmp_path / "c.json", [recording], guard=lambda _data: None)
    before = len(provider.received)

    client = openai.OpenAI(base_url=f"{provider.base}/v1", api_key="another key", max_retries=0)
    match_on = ("method", "scheme", "host", "port", "path", "query", "body")
    with vcr.use_cassette(str(tmp_path / "c.json"), serializer="json", record_mode="none", match_on=match_on) as played, client:
        chunks = client.chat.completions.create(
            model=f"gpt-{scenario}",
            messages=list(QUESTION),
            temperature=0,
            max_tokens=50,
            stream=True,
            stream_options={"include_usage": True},
        )
        text = text_of(list(chunks))

    assert text == answer_of(recording).text == ("".join(loopback.PACED) if scenario == "paced-5" else loopback.TEXT)
    assert played.play_count == 1
    assert len(provider.received) == before


# ------------------------------------------------------------------------------------------------ at once
def test_in_threads(provider: FakeProvider) -> None:
    """Twenty-four trials at once hold their own exchange each."""

    def one(number: int) -> Recording:
        model, _base = where(provider, "openai", "plain")
        request = msgspec.structs.replace(
            question(model, stream=bool(number % 2)), messages=({"role": "user", "content": str(number)},)
        )
        return ask(provider, "plain", request=request)

    with ThreadPoolExecutor(24) as pool:
        recordings = list(pool.map(one, range(24)))

    sent = [[json.loads(i.request.body)["messages"][0]["content"] for i in recording.interactions] for recording in recordings]
    assert sent == [[str(number)] for number in range(24)]


def test_background_requests(provider: FakeProvider) -> None:
    """What LiteLLM asks in threads of its own lands in no recording."""
    import threading

    class Busy(LiteLLM):
        def ask(self, call: Call) -> Answer:
            import contextvars

            import httpx

            context = contextvars.copy_context()
            behind = threading.Thread(target=context.run, args=(httpx.get, f"{provider.base}/side"))
            behind.start()
            answer = super().ask(call)
            behind.join()
            return answer

    recording = ask(provider, "plain", asker=Busy())

    assert [interaction.request.method for interaction in recording.interactions] == ["POST"]
    assert any(received.target == "/side" for received in provider.received)


def test_ollama_is_not_asked_about_models(provider: FakeProvider) -> None:
    """LiteLLM does not ask an Ollama server what a model can do; only the question goes out."""
    before = len(provider.received)

    recording = ask(provider, f"plain-{time.time_ns()}", dialect="ollama")
    time.sleep(0.1)  # LiteLLM's logging thread would ask after the answer

    assert [received.target for received in provider.received[before:]] == ["/api/chat"]
    assert len(recording.interactions) == 1


# ------------------------------------------------------------------------------------------------ who can be asked
@pytest.mark.parametrize(
    "model, message",
    [
        ("openai/gpt-4o-mini", "model 'openai/gpt-4o-mini' needs a key; LiteLLM looks for OPENAI_API_KEY in the environment"),
        (
            "opnai/gpt",
            "LiteLLM does not know the provider of model 'opnai/gpt'; write 'provider/model', for example 'openai/...'",
        ),
    ],
)
def test_cannot_be_asked(provider: FakeProvider, model: str, message: str) -> None:
    """A model that LiteLLM does not know, or has no key for, is the user's mistake, said in one line."""
    with pytest.raises(UsageError) as caught:
        ask(provider, "plain", request=question(model), api_key=None)

    assert str(caught.value) == message


def test_native_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A LiteLLM that may answer through its native client, where nothing can be recorded, is refused by its version."""
    import_litellm()
    from litellm.rust_bridge import catalog
    from litellm.rust_bridge.configuration import Rollout

    rules = (catalog.RouteRule(catalog.Route.CHAT_COMPLETIONS, Rollout.RUST_OPT_OUT),)
    monkeypatch.setattr(catalog, "RULES", rules)
    import_litellm.cache_clear()

    with pytest.raises(ProviderError, match=r"LiteLLM \d+\.\d+\.\d+ may answer chat completions through its native client"):
        import_litellm()


def test_answer_past_the_capture(provider: FakeProvider) -> None:
    """An answer that LiteLLM gives without an exchange that we saw is refused."""
    with pytest.raises(ProviderError, match="past the capture"):
        ask(provider, "plain", request=question("openai/gpt-plain", mock_response="made up"))


def test_litellm_stays_off_the_network_and_quiet() -> None:
    """Importing LiteLLM sets what keeps it off the network, and a failed call prints nothing."""
    script = """
import os, sys
sys.path.insert(0, os.getcwd())
from canary_replay.capture import offline
from canary_replay.provider import import_litellm
with offline() as refused:
    litellm = import_litellm()
    try:
        litellm.completion(model="openai/x", api_key="k", api_base="http://127.0.0.1:9/v1", messages=[], max_retries=0)
    except Exception:
        pass
print(sorted(name for name in os.environ if name.startswith("LITELLM_")), len(refused))
"""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LITELLM_")}

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environ, timeout=100)

    assert done.stdout == "['LITELLM_LOCAL_MODEL_COST_MAP', 'LITELLM_OFFLINE_MODE', 'LITELLM_RUST'] 1\n", done.stderr
    assert done.stderr == ""


# ------------------------------------------------------------------------------------------------ other providers
PARROT = """
from canary_replay.provider import Answer
from canary_replay.response import Response

class Parrot:
    def dropped(self, request):
        return ("seed",)

    def ask(self, call):
        text = call.request.messages[-1]["content"]
        if "fail" in text:
            raise RuntimeError("no idea")
        return Answer(response=Response(text=text), dropped=("seed",), by={"parrot": "1"})

class Mute:
    pass
"""


def test_provider_of_the_project(tmp_path: Path) -> None:
    """A class of the project's own, found by path, answers without HTTP; what it says is the fact that is kept."""
    (tmp_path / "parrot.py").write_text(PARROT, encoding="utf-8")
    parrot = load_provider("parrot.py:Parrot", tmp_path)

    def say(text: str) -> Recording:
        request = Request(model="parrot", messages=({"role": "user", "content": text},), parameters={"seed": 1})
        return ask_trial(
            parrot,
            Call(request=request),
            suite="s",
            target="t",
            case="c",
            trial=0,
            key="k",
            request=request,
            redactor=Redactor([KEY]),
        )

    said, failed = say(f"hello {KEY}"), say("fail")

    assert answer_of(said).text == f"hello {'REDACTED'.ljust(len(KEY), 'x')}"
    assert (said.dropped, said.seed, said.by["parrot"]) == (("seed",), None, "1")
    assert said.digest
    assert said.digest != failed.digest
    assert error_of(failed) == ErrorInfo(message="no idea", type="RuntimeError")


@pytest.mark.parametrize(
    "spec, message",
    [
        ("nowhere.py:Parrot", "provider 'nowhere.py:Parrot': nowhere.py does not exist in the project"),
        ("parrot.py:Parot", "parrot.py: there is no class 'Parot'; did you mean 'Parrot'? known: Mute, Parrot"),
        ("parrot.py:Mute", "provider 'parrot.py:Mute' must have the methods 'dropped(request)' and 'ask(call)'"),
        (
            "litelm",
            "there is no provider 'litelm'; did you mean 'litellm'? known: litellm; the project's own: 'path.py:Class'",
        ),
    ],
)
def test_no_such_provider(tmp_path: Path, spec: str, message: str) -> None:
    """A provider that does not exist is the user's mistake, said with the nearest name."""
    (tmp_path / "parrot.py").write_text(PARROT, encoding="utf-8")

    with pytest.raises(UsageError) as caught:
        load_provider(spec, tmp_path)

    assert str(caught.value) == message


def test_default_provider(tmp_path: Path) -> None:
    """Without a name it is LiteLLM."""
    assert isinstance(load_provider(None, tmp_path), LiteLLM)
    assert isinstance(load_provider("litellm", tmp_path), LiteLLM)


# ------------------------------------------------------------------------------------------------ client drift
CALL = ToolCall(name="f", arguments='{"a": 1, "b": 2}')


@pytest.mark.parametrize(
    "ours, clients, drift",
    [
        (Response(text="a"), Response(text="a"), ()),
        (Response(text="a"), Response(text="b"), ("text",)),
        (Response(stop_reason="end_turn"), Response(stop_reason="stop"), ()),
        (Response(stop_reason="tool_use"), Response(stop_reason="tool_calls"), ()),
        (Response(stop_reason="STOP"), Response(stop_reason="tool_calls"), ()),
        (Response(stop_reason="max_tokens"), Response(stop_reason="stop"), ("stop_reason",)),
        (Response(tool_calls=(CALL,)), Response(tool_calls=(ToolCall(name="f", arguments='{"b":2,"a":1}', id="x"),)), ()),
        (Response(tool_calls=(CALL,)), Response(), ("tool_calls",)),
        (
            Response(usage=Usage(input_tokens=1, output_tokens=2)),
            Response(usage=Usage(input_tokens=1, output_tokens=3)),
            ("usage",),
        ),
        (Response(), Response(usage=Usage(input_tokens=1, output_tokens=3)), ()),
        (Response(error=ErrorInfo(message="x")), Response(), ("error",)),
        (Response(text="a"), None, ()),
        (None, Response(text="a"), ()),
    ],
)
def test_client_drift(ours: Response | None, clients: Response | None, drift: tuple[str, ...]) -> None:
    """Fields that the client reads differently are named; other words for the same stop are no difference."""
    assert client_drift(ours, clients) == drift
