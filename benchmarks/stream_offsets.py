"""How true are the recorded times of chunks: recorded offsets against the notes of the server that sent them.

    python benchmarks/stream_offsets.py [--streams 48] [--at-once 1 8] [--pause 100]

A server in a process of its own sends 20 events for each stream and notes when it handed each to the network. The error of a
stamp is the recorded time of a chunk less the server's. Both clocks are this machine's; the rounding is at most 0.5 ms.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from canary_replay.provider import Call, LiteLLM, ask_trial
from canary_replay.recording import Recording
from canary_replay.redact import Redactor
from canary_replay.request import Request

ROOT = Path(__file__).parents[1]


@contextmanager
def server() -> Iterator[str]:
    """The address of a fake provider, in a process of its own."""
    process = subprocess.Popen([sys.executable, "-m", "tests.loopback"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def record(base: str, model: str) -> Recording:
    """Record one stream."""
    request = Request(model=f"openai/{model}", messages=({"role": "user", "content": "count"},), parameters={"stream": True})
    call = Call(request=request, api_base=f"{base}/v1", api_key="a made-up key")
    return ask_trial(
        LiteLLM(), call, suite="bench", target="t", case=model, trial=0, key="", request=request, redactor=Redactor(), retries=0
    )


def errors(recording: Recording, sent: list[list[float]]) -> list[float]:
    """The error of each stamp, in milliseconds; the cuts must be the server's."""
    (interaction,) = recording.interactions
    timing = interaction.response.timing
    if timing is None or [size for _at, size in timing.chunks] != [size for _at, size in sent]:
        raise SystemExit(f"{recording.case}: chunks were not cut as they were sent: {timing}")
    return [(timing.started - then) * 1000 + at for (at, _size), (then, _) in zip(timing.chunks, sent, strict=True)]


def measure(base: str, *, streams: int, at_once: int, pause: float) -> list[float]:
    """The errors of all stamps of so many streams, so many at once, in rising order without their signs."""
    models = [f"gpt-{at_once}x{number}-paced-{pause:g}" for number in range(streams)]
    with ThreadPoolExecutor(at_once) as pool:
        recordings = list(pool.map(lambda model: record(base, model), models))
    with urllib.request.urlopen(f"{base}/_sent") as answer:  # noqa: S310 - our own server on this machine
        sent = json.load(answer)
    return sorted(abs(error) for recording in recordings for error in errors(recording, sent[recording.case]))


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--streams", type=int, default=48)
    options.add_argument("--at-once", type=int, nargs="+", default=[1, 8])
    options.add_argument("--pause", type=float, default=100, help="milliseconds between events")
    chosen = options.parse_args()
    with server() as base:
        record(base, "gpt-warm-plain")
        for at_once in chosen.at_once:
            streams = max(at_once, chosen.streams * at_once // max(chosen.at_once))
            found = measure(base, streams=streams, at_once=at_once, pause=chosen.pause)
            median, high = found[len(found) // 2], found[int(len(found) * 0.95)]
            print(
                f"{at_once} at once: {len(found)} stamps, error median {median:.1f} ms, p95 {high:.1f} ms, max {found[-1]:.1f} ms"
            )


if __name__ == "__main__":
    main()
