"""What is asked, in no provider's dialect: model, messages, tools, parameters; its key, and how two of them differ."""

from __future__ import annotations

from typing import Any

import msgspec

from canary_replay.digest import canonical, digest_of


class Request(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The provider-neutral request of a case: everything that may change an answer, and nothing else.

    :ivar model: a LiteLLM model name, ``embedded/<name>`` or ``default``.
    :ivar messages: OpenAI-shaped messages, the system prompt first.
    :ivar tools: OpenAI-shaped tool definitions.
    :ivar parameters: ``temperature``, ``seed``, ``max_tokens``, ``stream``, ``response_format`` and whatever else the target
        and the case ask for, including what the model will turn out to reject.
    """

    model: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)


class Change(msgspec.Struct, frozen=True):
    """One field in which two requests differ.

    A side that lacks the field is ``None`` (shown as ``absent``); one that holds JSON's null is the word ``null``.
    """

    field: str
    then: Any
    now: Any


_ABSENT = object()


def request_key(request: Request) -> str:
    """The key of a recording: the digest of the request before redaction, without host, headers, timeout or trial."""
    return digest_of(request)


def changes(then: Request, now: Request) -> tuple[Change, ...]:
    """Every field that differs, by its path (``messages[0].content``, ``parameters.temperature``), in a fixed order."""
    return tuple(_walk("", msgspec.structs.asdict(then), msgspec.structs.asdict(now)))


def _walk(path: str, then: Any, now: Any) -> list[Change]:  # noqa: ANN401 - any JSON
    if isinstance(then, dict) and isinstance(now, dict):
        found: list[Change] = []
        for name in sorted(then.keys() | now.keys()):
            found += _walk(f"{path}.{name}" if path else name, then.get(name, _ABSENT), now.get(name, _ABSENT))
        return found
    if isinstance(then, list | tuple) and isinstance(now, list | tuple):
        found = []
        for index in range(max(len(then), len(now))):
            one = then[index] if index < len(then) else _ABSENT
            other = now[index] if index < len(now) else _ABSENT
            found += _walk(f"{path}[{index}]", one, other)
        return found
    if then is not _ABSENT and now is not _ABSENT and canonical(then) == canonical(now):
        return []  # equal for the key; Python's own equality would take 1, 1.0 and True for one value
    return [Change(path, _side(then), _side(now))]


def _side(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if value is _ABSENT:
        return None
    return "null" if value is None else value


def likeness(one: Request, other: Request) -> int:
    """How near two requests are, for finding the nearest recorded one on a miss: fewer differing fields, larger number."""
    return -len(changes(one, other))
