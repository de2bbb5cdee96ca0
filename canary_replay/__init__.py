"""Offline, replay-based regression tests for LLM prompts and APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canary_replay.errors import CanaryError, DamagedFileError, ProviderError, UsageError
    from canary_replay.modes.record import record_project as record
    from canary_replay.modes.record import record_project_async as arecord
    from canary_replay.modes.replay import replay_project as replay
    from canary_replay.outcome import Outcome, Score, Span, unscored
    from canary_replay.probing import probe
    from canary_replay.project import load_project
    from canary_replay.response import ErrorInfo, Response, ToolCall, Usage
    from canary_replay.suite import Case, Suite

__version__ = "0.1.0"

_HOME = {
    "CanaryError": "errors",
    "Case": "suite",
    "DamagedFileError": "errors",
    "ErrorInfo": "response",
    "Outcome": "outcome",
    "ProviderError": "errors",
    "Response": "response",
    "Score": "outcome",
    "Span": "outcome",
    "Suite": "suite",
    "ToolCall": "response",
    "Usage": "response",
    "UsageError": "errors",
    "arecord": "modes.record:record_project_async",
    "load_project": "project",
    "probe": "probing",
    "record": "modes.record:record_project",
    "replay": "modes.replay:replay_project",
    "unscored": "outcome",
}

__all__ = [
    "CanaryError",
    "Case",
    "DamagedFileError",
    "ErrorInfo",
    "Outcome",
    "ProviderError",
    "Response",
    "Score",
    "Span",
    "Suite",
    "ToolCall",
    "Usage",
    "UsageError",
    "__version__",
    "arecord",
    "load_project",
    "probe",
    "record",
    "replay",
    "unscored",
]


def __getattr__(name: str) -> object:
    """Import a public name where it lives, the first time it is used: ``canary-replay --help`` pays for none of them."""
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOME[name].partition(":")
    found = getattr(importlib.import_module(f"{__name__}.{module}"), attribute or name)
    globals()[name] = found
    return found
