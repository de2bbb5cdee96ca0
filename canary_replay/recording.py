"""A recording: the answer of one trial of a case, with every HTTP exchange that made it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from canary_replay.digest import digest
from canary_replay.interaction import Interaction
from canary_replay.request import Request
from canary_replay.response import Response


class Recording(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The response and the interactions of one trial.

    :ivar key: digest of the request as it was asked for, before redaction.
    :ivar request: the request after redaction, with the base seed (the trial's own stands in ``seed``).
    :ivar dropped: names of parameters that were asked for and not sent, because the model rejects them.
    :ivar seed: the seed that was sent; None where the model takes none.
    :ivar response: what the bytes mean; None when no decoder reads them.
    :ivar decoder: name and version of the decoder (``openai-chat/1``); empty when there was none.
    :ivar digest: digest of the bytes received; kept because a cassette may leave out the interactions.
    :ivar by: who recorded: versions of ``canary_replay`` and ``litellm``, and ``model``: who really answered to ``default``.
    :ivar client_drift: fields in which the client library's own reading of the same bytes differed from ours.
    :ivar wire: why interactions are missing, if they are (``left out by keep_wire``, ``a secret was cut over events``).
    """

    suite: str
    target: str
    case: str
    trial: int
    key: str
    request: Request
    dropped: tuple[str, ...] = ()
    seed: int | None = None
    response: Response | None = None
    decoder: str = ""
    digest: str = ""
    recorded_at: str = ""
    by: dict[str, str] = msgspec.field(default_factory=dict)
    client_drift: tuple[str, ...] = ()
    wire: str = ""
    interactions: tuple[Interaction, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the provider gave an error, or broke off, instead of an answer."""
        return self.response is not None and self.response.error is not None


def bytes_digest(interactions: Sequence[Interaction]) -> str:
    """The digest of what was received: status, end and body of each interaction, in order."""
    parts: list[bytes] = []
    for interaction in interactions:
        response = interaction.response
        end = "eof" if response.timing is None else response.timing.end
        parts += [str(response.status).encode(), end.encode(), response.body]
    return digest(*parts)
