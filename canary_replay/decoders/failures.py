"""What an error says, whatever shape the provider, a gateway or a web server gave it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from canary_replay.decoders import sse
from canary_replay.decoders.loose_json import loads, mended, text_of
from canary_replay.interaction import HttpResponse, Interaction
from canary_replay.response import ErrorInfo

_SHOWN = 500  # characters of a body that is no JSON: enough to recognise a proxy's page


def http_failure(interaction: Interaction) -> ErrorInfo:
    """The error that a response with an HTTP status other than 2xx carries."""
    response = interaction.response
    for body in _bodies(interaction):
        if found := failure_in(body, status=response.status, anywhere=True):
            return found
    return ErrorInfo(message=_excerpt(response) or response.reason or f"HTTP status {response.status}", status=response.status)


def unreadable(response: HttpResponse, problem: str) -> ErrorInfo:
    """The error of a response that says it is an answer and is none."""
    excerpt = _excerpt(response)
    return ErrorInfo(message=f"{problem}: {excerpt!r}" if excerpt else problem, status=response.status)


def broken_off(end: str) -> ErrorInfo:
    """The error of an answer whose connection ended before it did.

    :param end: `Timing.end`: ``error:<exception>:<message>`` or ``cap:<which limit>``.
    """
    kind, _, detail = end.partition(":")
    if kind == "cap":
        return ErrorInfo(message=f"the recording was cut at its limit {detail!r} before the answer ended")
    return ErrorInfo(message=mended(f"the connection broke before the answer ended: {detail or end}"))


def failure_in(body: object, *, status: int | None = None, anywhere: bool = False) -> ErrorInfo | None:
    """The error that a JSON value says it is; None when it is none.

    :param status: the HTTP status to report; None inside a stream.
    :param anywhere: the value is known to be an error, so that its own ``message`` or ``detail`` is one too.
    """
    if isinstance(body, list):
        found = (failure_in(item, status=status, anywhere=anywhere) for item in body if isinstance(item, dict))
        return next(filter(None, found), None)
    if not isinstance(body, dict):
        return None
    said = _said(body)
    if said is None and (anywhere or "error" in (body.get("object"), body.get("type"))):
        said = body
    return None if said is None else _info(said, body, status)


def _said(body: dict[str, Any]) -> dict[str, Any] | None:
    """The part of an error's body that speaks of the error; None when the body does not say that it is one."""
    error, errors = body.get("error"), body.get("errors")
    if isinstance(error, dict) and error:
        return error
    if isinstance(error, str) and error:
        return {**body, "message": body.get("message") or error}
    if isinstance(errors, list) and errors:
        return errors[0] if isinstance(errors[0], dict) else {"message": errors}
    return None


def _info(said: dict[str, Any], around: dict[str, Any], status: int | None) -> ErrorInfo | None:
    kind = _word(said.get("type")) or _word(said.get("status")) or _word(around.get("error_type"))
    code = _word(said.get("code")) or _word(around.get("code"))
    message = next(filter(None, map(_sentence, _sayings(said))), "") or kind or code
    return ErrorInfo(message=message, status=status, type=kind, code=code) if message else None


def _sayings(said: dict[str, Any]) -> Iterator[object]:
    for name in ("message", "detail", "msg", "Message", "error_description", "reason", "title"):
        yield said.get(name)


def _sentence(value: object, *, depth: int = 3) -> str:
    """An error's words; validation errors come as lists or objects, whose own words are looked for first."""
    if isinstance(value, str):
        return mended(value.strip())
    if depth and isinstance(value, list):
        return "; ".join(filter(None, (_sentence(item, depth=depth - 1) for item in value)))
    if depth and isinstance(value, dict):
        return next(filter(None, (_sentence(said, depth=depth - 1) for said in _sayings(value))), "")
    return ""


def _word(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return mended(text_of(value)) or None


def _bodies(interaction: Interaction) -> Iterator[object]:
    response = interaction.response
    if sse.is_event_stream(response):
        texts = [event.data for event in sse.events(interaction.chunks())]
    else:
        texts = [response.body.decode("utf-8-sig", "replace")]
    for text in texts:
        try:
            yield loads(text)
        except ValueError:
            continue


def _excerpt(response: HttpResponse) -> str:
    text = response.body[: 4 * _SHOWN].decode("utf-8", "replace")
    return " ".join(text.split())[:_SHOWN]
