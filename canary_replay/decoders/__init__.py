"""The decoders, one file per wire format; importing this package registers them all."""

from __future__ import annotations

from canary_replay.decoders import anthropic_messages, openai_chat

__all__ = ["anthropic_messages", "openai_chat"]
