"""A provider on 127.0.0.1 that speaks many dialects and has every fault, so that tests see real bytes.

What it does is read from the model's name: ``openai/gpt-plain`` answers, ``openai/gpt-err429`` does not (see `SCENARIOS`).
"""

from __future__ import annotations

from tests.loopback.dialects import ARGUMENTS, PACED, TEXT
from tests.loopback.server import SCENARIOS, FakeProvider, Received, serving

__all__ = ["ARGUMENTS", "PACED", "SCENARIOS", "TEXT", "FakeProvider", "Received", "serving"]
