"""The fake provider as a process of its own: ``python -m tests.loopback`` prints its address and serves until it is ended."""

from __future__ import annotations

import asyncio

from tests.loopback.server import FakeProvider


async def main() -> None:
    """Serve for ever."""
    provider = FakeProvider()
    server = await provider.start()
    print(provider.base, flush=True)  # noqa: T201 - how the one who started it learns the port
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
