"""The built-in probes, one file per family; importing this package registers them all."""

from canary_replay.probes import faults, patterns, refusals, structure, texts, timings, tools

__all__ = ["faults", "patterns", "refusals", "structure", "texts", "timings", "tools"]
