"""From the recorded bytes to a `Response`: what a decoder is, which one reads an interaction, and the loop over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from canary_replay.errors import CanaryError
from canary_replay.interaction import Interaction
from canary_replay.registry import Registry
from canary_replay.response import Response

Decode = Callable[[Interaction], Response]


class UndecodableError(CanaryError):
    """No decoder reads this interaction; it is kept, and every probe of it is unscored."""


class Decoder(msgspec.Struct, frozen=True, kw_only=True):
    """A registered decoder of one wire format, plain and streamed.

    :ivar version: raised whenever the same bytes decode to another response.
    :ivar reads: whether it understands this interaction, judged from path, headers and shape.
    """

    name: str
    version: int
    reads: Callable[[Interaction], bool]
    decode: Decode


known_decoders: Registry[Decoder] = Registry("decoder", entry_points="canary_replay.decoders")


def decoder(name: str, *, version: int, reads: Callable[[Interaction], bool]) -> Callable[[Decode], Decode]:
    """Register a function from an `Interaction` to a `Response` as the decoder of a wire format.

    The function must not raise on any bytes: what cannot be read becomes ``Response.error``. Where the body is cut into chunks
    may change nothing but the timings.
    """

    def register(function: Decode) -> Decode:
        known_decoders.add(name, Decoder(name=name, version=version, reads=reads, decode=function))
        return function

    return register


class Decoded(msgspec.Struct, frozen=True):
    """A response and the decoder (``openai-chat/1``) that read it."""

    response: Response
    decoder: str


def decode(interactions: Sequence[Interaction]) -> Decoded:
    """The answer of a trial: what its last interaction that was not retried says.

    :raises UndecodableError: there is no interaction, or no decoder reads it.
    """
    answered = [interaction for interaction in interactions if not _was_retried(interaction)]
    if not answered:
        raise UndecodableError("nothing was recorded to decode")
    last = answered[-1]
    for name in known_decoders:
        found = known_decoders.get(name)
        if found.reads(last):
            return Decoded(found.decode(last), f"{found.name}/{found.version}")
    raise UndecodableError(f"no decoder reads {last.request.method} {last.request.uri}; known: {', '.join(known_decoders)}")


def _was_retried(interaction: Interaction) -> bool:
    timing = interaction.response.timing
    return timing is not None and timing.retried
