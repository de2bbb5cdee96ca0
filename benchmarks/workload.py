"""A project of n cases as a recording would leave it: suite, cassettes with their wire, scorecard; the same for each n."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from canary_replay import cassette as cassettes
from canary_replay import ledger
from canary_replay.expectations import expectations
from canary_replay.interaction import HttpRequest, HttpResponse, Interaction, Timing
from canary_replay.outcome import AcceptedOutcome, accepted
from canary_replay.project import load_project, request_for
from canary_replay.recording import Recording, bytes_digest
from canary_replay.request import request_key
from canary_replay.response import Response, ToolCall, Usage
from canary_replay.scoring import score_recording

SUITE = """\
name = "load"

[targets.current]
model = "openai/load-test-1"
system = "You are the support desk of a shop. Always repeat the order number."

[[cases_from]]
file = "cases.jsonl"

[[probes_inline]]
name = "order-number"
use = "regex"
pattern = 'A-\\d{5}'

[[probes_inline]]
name = "json-keys"
use = "json"
scope = "json"
keys = ["order_id", "city", "total", "items", "summary"]

[[probes_inline]]
name = "length"
use = "length"
max = 1600

[[probes_inline]]
name = "no-refusal"
use = "refusal"
expected = false
"""

CITIES = ("Lisbon", "Kyoto", "Nairobi", "Quito", "Oslo", "Perth", "Tallinn", "Hanoi", "Lima", "Zagreb")
WORDS = (
    "the parcel left our warehouse this morning and should reach you within three working days please keep the reference at "
    "hand since the driver may ask for it refunds go back to the card that paid returns are free for thirty days “gift wrap” "
    "can be added before dispatch naïve résumé façade – exchange of size or colour depends on what the store has in stock"
).split()


def prose(dice: random.Random, size: int) -> str:
    """Sentences of about ``size`` characters."""
    sentences: list[str] = []
    length = 0
    while length < size:
        sentence = " ".join(dice.choice(WORDS) for _ in range(dice.randint(7, 18))).capitalize() + "."
        sentences.append(sentence)
        length += len(sentence) + 1
    return "\n\n".join(" ".join(sentences[i : i + 4]) for i in range(0, len(sentences), 4))


def case(number: int) -> tuple[dict[str, object], str, ToolCall | None]:
    """Case ``number``: its line in the case file, its answer's text and tool call. 30 % JSON, 20 % tool calls; some fail."""
    dice = random.Random(f"canary:{number}")
    kind = "json" if (share := dice.random()) < 0.3 else "tool" if share < 0.5 else "prose"
    city, order = dice.choice(CITIES), f"A-{dice.randint(10000, 99999)}"
    named = "unknown" if dice.random() < 0.03 else city
    shown = "pending" if dice.random() < 0.05 else order
    size = dice.randint(1700, 2000) if dice.random() < 0.04 else dice.randint(900, 1300)
    sorry = "I'm sorry, but I can't help with that request. " if dice.random() < 0.02 else ""
    call = None
    if kind == "json":
        items = [{"sku": f"S{dice.randint(100, 999)}", "qty": dice.randint(1, 9)} for _ in range(3)]
        answer: dict[str, object] = {
            "order_id": shown,
            "city": named,
            "total": 12.5,
            "items": items,
            "summary": prose(dice, size - 250),
        }
        if dice.random() < 0.05:
            del answer["total"]
        text = json.dumps(answer, ensure_ascii=False, indent=2)
    else:
        text = f"{sorry}{prose(dice, size)} Order {shown} goes to {named}."
        if kind == "tool":
            call = ToolCall(id=f"call_{number}", name="lookup_order", arguments=json.dumps({"order_id": order, "city": city}))
    line = {
        "id": f"c{number:07d}",
        "tags": [kind, "en"],
        "input": f"[{number}] Where is order {order} for {city}? {prose(dice, 100)}",
        "expect": {"contains": city},
    }
    return line, text, call


def answer_of(recording_request: object, text: str, call: ToolCall | None, number: int) -> Interaction:
    """The wire of an answer, in the shape of OpenAI's chat completions."""
    message: dict[str, object] = {"role": "assistant", "content": text}
    if call is not None:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        ]
    body = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "model": "load-test-1",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}],
        "usage": {"prompt_tokens": 60, "completion_tokens": len(text) // 4, "total_tokens": 60 + len(text) // 4},
    }
    data = json.dumps(body, ensure_ascii=False).encode()
    return Interaction(
        request=HttpRequest(
            method="POST",
            uri="https://api.openai.com/v1/chat/completions",
            headers={"content-type": ["application/json"]},
            body=json.dumps(recording_request, ensure_ascii=False).encode(),
        ),
        response=HttpResponse(
            status=200,
            reason="OK",
            headers={"content-type": ["application/json"]},
            body=data,
            timing=Timing(started=1_790_000_000.0 + number, headers_ms=800.0, end_ms=801.5, chunks=((801.0, len(data)),)),
        ),
    )


def build(folder: Path, n: int) -> None:
    """Write the project of n cases into ``folder``; nothing is done when it is there already."""
    if (folder / "done").exists():
        return
    (folder / "suites").mkdir(parents=True, exist_ok=True)
    (folder / "suites" / "load.toml").write_text(SUITE, encoding="utf-8")
    made = [case(number) for number in range(n)]
    lines = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line, _text, _call in made)
    (folder / "suites" / "cases.jsonl").write_text(lines, encoding="utf-8")
    suite = load_project(folder).suites[0]
    target = suite.targets["current"]
    outcomes: list[AcceptedOutcome] = []
    cassettes.cassette_path(folder, "load", "current", "c").parent.mkdir(parents=True, exist_ok=True)
    for number, (_ref, one) in enumerate(suite.cases()):
        _line, text, call = made[number]
        request = request_for(one, target, suite)
        wire = answer_of({"model": "load-test-1", "messages": request.messages}, text, call, number)
        recording = Recording(
            suite="load",
            target="current",
            case=one.id,
            trial=0,
            key=request_key(request),
            request=request,
            seed=0,
            response=Response(
                text=text,
                tool_calls=() if call is None else (call,),
                stop_reason="tool_calls" if call else "stop",
                usage=Usage(input_tokens=60, output_tokens=len(text) // 4),
                model="load-test-1",
                total_ms=801.5,
            ),
            decoder="openai-chat/1",
            digest=bytes_digest([wire]),
            recorded_at="2026-11-30T12:00:00+00:00",
            by={"canary_replay": "0.1.0"},
            interactions=(wire,),
        )
        cassettes.cassette_path(folder, "load", "current", one.id).write_bytes(cassettes.encode([recording]))
        outcomes += [accepted(outcome) for outcome in score_recording((*suite.probes, *expectations(one)), one, recording)]
    ledger.write_scorecard(ledger.scorecard_path(folder, "load", "current"), outcomes)
    (folder / "done").touch()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("n", type=int)
    arguments.add_argument("folder", type=Path)
    given = arguments.parse_args()
    build(given.folder, given.n)
