"""Hypothesis strategies for what is stored: requests, interactions, recordings of one case, accepted outcomes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from canary_replay.interaction import HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.outcome import AcceptedOutcome, Outcome
from canary_replay.recording import Recording, bytes_digest
from canary_replay.request import Request, request_key
from canary_replay.response import ErrorInfo, Response, ToolCall, Usage

texts = st.text(max_size=30) | st.sampled_from(
    ["", "\n", "a\n\nb", "[ 1.0, 2 ]", "[\n 1,\n 2\n]", "\r\n", "\x00\x1b[31m", "é日本🙂", "\u2028", '"\\', "$base64"]
)
words = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
case_ids = st.text(min_size=1, max_size=6) | st.sampled_from(
    ["a", "A", "é", "日本", "🙂", "\uffff", "\U00010000", "a b", "\u2028", "-"]
)
bodies = st.binary(max_size=40) | texts.map(str.encode) | st.just(b"data: [ 1, 2 ]\n\n")
milliseconds = st.floats(min_value=0, max_value=1e6, allow_nan=False)
whole_numbers = st.integers(min_value=-(2**63), max_value=2**63 - 1)

json_leaves = st.none() | st.booleans() | whole_numbers | st.floats(allow_nan=False, allow_infinity=False) | texts
json_values: st.SearchStrategy[Any] = st.recursive(
    json_leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
tables = st.dictionaries(words, json_values, max_size=3)
requests = st.builds(
    Request,
    model=texts,
    messages=st.lists(tables, max_size=3).map(tuple),
    tools=st.lists(tables, max_size=2).map(tuple),
    parameters=tables,
)

headers = st.dictionaries(words, st.lists(texts, min_size=1, max_size=2), max_size=3)
http_requests = st.builds(
    HttpRequest,
    method=st.sampled_from(["GET", "POST"]),
    uri=words.map(lambda word: f"http://embedded.invalid/{word}"),
    headers=headers,
    body=bodies,
)


@st.composite
def timings(draw: st.DrawFn, body: bytes) -> Timing:
    """How a body arrived: any cuts, in the order of their times."""
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=4)))
    sizes = [after - before for before, after in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    times = sorted(draw(st.lists(milliseconds, min_size=len(sizes), max_size=len(sizes))))
    return Timing(
        started=draw(milliseconds),
        headers_ms=draw(milliseconds),
        end=draw(st.sampled_from(["eof", "error:ReadError:peer closed", "cap:bytes"])),
        end_ms=draw(milliseconds),
        chunks=tuple(zip(times, sizes, strict=True)),
        encoding=draw(st.none() | st.just("gzip")),
        retried=draw(st.booleans()),
    )


@st.composite
def http_responses(draw: st.DrawFn) -> HttpResponse:
    """A response with or without a chunk table; a body of any bytes."""
    body = draw(bodies)
    return HttpResponse(
        status=draw(st.sampled_from([200, 429, 500])),
        reason=draw(st.sampled_from(["", "OK"])),
        headers=draw(headers),
        body=body,
        timing=draw(st.none() | timings(body)),
    )


interactions = st.builds(Interaction, request=http_requests, response=http_responses())
counts = st.none() | st.integers(0, 10**6)
responses = st.builds(
    Response,
    text=texts,
    reasoning=texts,
    tool_calls=st.lists(st.builds(ToolCall, name=texts, arguments=texts, id=st.none() | texts), max_size=2).map(tuple),
    stop_reason=st.none() | texts,
    refusal=st.none() | texts,
    usage=st.none() | st.builds(Usage, input_tokens=counts, output_tokens=counts, reasoning_tokens=counts, cached_tokens=counts),
    model=st.none() | texts,
    cost=st.none() | milliseconds,
    streamed=st.booleans(),
    ttft_ms=st.none() | milliseconds,
    total_ms=st.none() | milliseconds,
    error=st.none() | st.builds(ErrorInfo, message=texts, status=st.none() | st.integers(100, 599), type=st.none() | texts),
)


@st.composite
def recordings_of_one_case(draw: st.DrawFn) -> list[Recording]:
    """All trials of one case of one target, in the order of their trials."""
    request = draw(requests)
    case, dropped = draw(texts), tuple(sorted(draw(st.sets(words, max_size=2))))
    found = []
    for trial in sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=3))):
        wire = tuple(draw(st.lists(interactions, max_size=2)))
        found.append(
            Recording(
                suite="support",
                target="current",
                case=case,
                trial=trial,
                key=request_key(request),
                request=request,
                dropped=dropped,
                seed=draw(st.none() | st.integers(0, 2**31)),
                response=draw(st.none() | responses),
                decoder=draw(st.sampled_from(["", "openai-chat/1"])),
                digest=bytes_digest(wire),
                recorded_at=draw(st.sampled_from(["", "2026-05-01T12:00:00+00:00"])),
                by=draw(st.dictionaries(words, texts, max_size=2)),
                client_drift=tuple(draw(st.lists(words, max_size=2))),
                wire=draw(st.sampled_from(["", "a secret was cut over events"])),
                interactions=wire,
            )
        )
    return found


kinds = st.sampled_from(["passed", "failed", "crashed", "unscored"])
short_digests = st.sampled_from(["aa", "bb"])


@st.composite
def outcomes(draw: st.DrawFn, *, case: str = "greeting", probe: str = "polite") -> list[Outcome]:
    """What one probe said of the trials of one case, in the order of the trials."""
    found = []
    for trial in range(draw(st.integers(1, 5))):
        kind = draw(kinds)
        score = draw(st.floats(0, 1)) if kind in {"passed", "failed"} else None
        facts = {"response": draw(short_digests), "rule": draw(short_digests), "decoder": draw(short_digests)}
        found.append(Outcome(case=case, trial=trial, probe=probe, outcome=kind, score=score, **facts))
    return found


accepted_outcomes = st.builds(
    AcceptedOutcome,
    case=case_ids,
    trial=st.integers(0, 3),
    probe=st.sampled_from(["expect.json", "polite", "é"]),
    outcome=kinds,
    score=st.none() | st.floats(0, 1),
    response=short_digests,
    rule=short_digests,
    decoder=st.sampled_from(["", "openai-chat/1"]),
)
scorecards = st.lists(accepted_outcomes, max_size=25, unique_by=lambda one: (one.case, one.probe, one.trial))
