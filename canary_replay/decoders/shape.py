"""What tells wire formats apart: the path that was posted to, and the first JSON object that came back."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urlsplit

from canary_replay.decoders import sse
from canary_replay.decoders.loose_json import loads, table_of
from canary_replay.interaction import Interaction

_BEDROCK = re.compile(r"/model/.+/(invoke|converse)(-with-response-stream|-stream)?$")


def posted_path(interaction: Interaction) -> str:
    """The path of a POST without query and final slash; empty for any other method, which asks for no answer."""
    request = interaction.request
    if request.method.upper() != "POST":
        return ""
    try:
        return unquote(urlsplit(request.uri).path).rstrip("/")
    except ValueError:
        return ""


def first_object(interaction: Interaction) -> dict[str, Any]:
    """The JSON object of a plain body, or the first one of a stream; empty when there is none.

    It is empty for Bedrock too: what passes through it looks like its model's own format in places, and is not.
    """
    if _BEDROCK.search(posted_path(interaction)):
        return {}
    response = interaction.response
    if not sse.is_event_stream(response):
        return _object(response.body.decode("utf-8-sig", "replace"))
    objects = (_object(event.data) for event in sse.events(interaction.chunks()))
    return next(filter(None, objects), {})


def _object(text: str) -> dict[str, Any]:
    try:
        return table_of(loads(text))
    except ValueError:
        return {}
