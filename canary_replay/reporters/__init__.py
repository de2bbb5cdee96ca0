"""The reporters, one file per output format; importing this package registers them all."""

from canary_replay.reporters import json_report, terminal

__all__ = ["json_report", "terminal"]
