"""One cassette for a person: what was asked, what each trial answered, and how its stream arrived."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from canary_replay.cassette import Cassette
from canary_replay.interaction import Interaction
from canary_replay.recording import Recording
from canary_replay.reporters.terminal import printable


def show(cassette: Cassette, *, wire: bool = False) -> Iterator[str]:
    """The lines that describe a cassette.

    :param wire: also the requests and the chunks of every interaction.
    """
    request = cassette.request
    yield f"case {printable(cassette.case)} of {printable(cassette.suite)}/{printable(cassette.target)}"
    yield f"key {printable(cassette.key)}, approved facts {cassette.digest}"
    yield f"model {printable(request.model)}"
    for message in request.messages:
        yield f"{_text(message.get('role', '?'))}: {_text(message.get('content'))}"
    for tool in request.tools:
        yield f"tool: {_text(tool.get('function', tool))}"
    yield f"parameters: {_text(request.parameters)}"
    for recording in cassette.recordings:
        yield ""
        yield from _recording(recording, wire=wire)


def _recording(recording: Recording, *, wire: bool) -> Iterator[str]:
    seed = "" if recording.seed is None else f", seed {recording.seed}"
    yield f"trial {recording.trial}{seed}, {printable(recording.recorded_at) or 'no date'}, {_by(recording.by)}"
    if recording.dropped:
        yield f"  not sent, because the model rejects it: {printable(', '.join(recording.dropped))}"
    if recording.client_drift:
        fields = printable(", ".join(recording.client_drift))
        yield f"  client drift: the client library read another {fields} from the same bytes"
    response = recording.response
    if response is None:
        yield "  no decoder reads this answer; every probe of it is unscored"
    else:
        for line in response.text.split("\n") if response.text else ():
            yield f"  | {printable(line, longest=400)}"
        for call in response.tool_calls:
            yield f"  calls {printable(call.name)} {printable(call.arguments, longest=400)}"
        if response.refusal:
            yield f"  refusal: {printable(response.refusal)}"
        if response.error is not None:
            status = f"HTTP {response.error.status} " if response.error.status else ""
            yield f"  error: {status}{printable(response.error.message, longest=400)}"
        yield f"  {_facts(recording)}"
    if recording.wire:
        yield f"  interactions: {printable(recording.wire)}"
    if wire:
        for number, interaction in enumerate(recording.interactions):
            yield from _interaction(number, interaction)


def _by(by: dict[str, str]) -> str:
    return printable(", ".join(f"{name} {value}" for name, value in sorted(by.items()))) or "nobody said by whom"


def _facts(recording: Recording) -> str:
    response = recording.response
    if response is None:
        return ""
    usage = response.usage
    facts = [
        f"stop reason {printable(response.stop_reason)}" if response.stop_reason else "",
        f"{usage.input_tokens} + {usage.output_tokens} tokens" if usage else "",
        f"first token {response.ttft_ms:.0f} ms" if response.ttft_ms is not None else "",
        f"total {response.total_ms:.0f} ms" if response.total_ms is not None else "",
        f"${response.cost:.6f}" if response.cost is not None else "",
        f"decoded by {printable(recording.decoder)}" if recording.decoder else "",
    ]
    return ", ".join(fact for fact in facts if fact)


def _interaction(number: int, interaction: Interaction) -> Iterator[str]:
    request, response = interaction.request, interaction.response
    timing = response.timing
    retried = " (failed, asked again)" if timing is not None and timing.retried else ""
    asked = f"{printable(request.method)} {printable(request.uri)}"
    yield f"  interaction {number}: {asked} -> {response.status} {printable(response.reason)}{retried}"
    yield f"    sent {printable(request.body.decode('utf-8', 'replace'), longest=2000)}"
    if timing is not None:
        yield f"    headers after {timing.headers_ms:.1f} ms, end {printable(timing.end)} after {timing.end_ms:.1f} ms"
    for at, data in interaction.chunks():
        when = "" if at is None else f"{at:9.1f} ms  "
        yield f"    {when}{printable(data.decode('utf-8', 'replace'), longest=200)}"


def _text(value: object) -> str:
    return printable(value if isinstance(value, str) else msgspec.json.encode(value).decode(), longest=2000)
