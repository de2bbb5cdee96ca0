"""One way to name content: 128 bits of SHA-256 over canonical JSON or bytes, as 32 hexadecimal digits."""

from __future__ import annotations

import hashlib

import msgspec

_canonical = msgspec.json.Encoder(order="deterministic")


def digest(*parts: bytes) -> str:
    """The digest of byte strings; each is preceded by its length, so that parts never run together."""
    total = hashlib.sha256()
    for part in parts:
        total.update(b"%d:" % len(part))
        total.update(part)
    return total.hexdigest()[:32]


def digest_of(value: object) -> str:
    """The digest of a JSON-like value (or Struct); key order does not matter, nothing else is forgiven."""
    return digest(_canonical.encode(value))


def canonical(value: object) -> bytes:
    """A JSON-like value as compact JSON, keys sorted (a Struct's fields in their own order): equal values give equal bytes."""
    return _canonical.encode(value)
