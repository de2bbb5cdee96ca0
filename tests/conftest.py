"""What holds for every test: the same examples each time, no key of the caller's, and no network beyond this machine."""

from __future__ import annotations

import ipaddress
import os
import sys

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

for name in [name for name in os.environ if name.endswith(("_API_KEY", "_PROXY", "_proxy")) or name == "CANARY_MODEL"]:
    del os.environ[name]  # a caller's key or proxy would change who answers


class BeyondThisMachineError(RuntimeError):
    """A test tried to reach the network; it is no OSError, so that no retry takes it for a provider's trouble."""


def refuse_the_network(event: str, arguments: tuple[object, ...]) -> None:
    """Let Python's sockets reach loopback addresses and nothing else.

    An audit hook sees ``connect``, ``connect_ex``, ``sendto`` and name look-ups of every library, during collection too.
    """
    if event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # anything else is a Unix socket
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        host = arguments[0]
    else:
        return
    if not is_this_machine(host):
        raise BeyondThisMachineError(f"a test tried to reach {host!r}, which is beyond this machine ({event})")


def is_this_machine(host: object) -> bool:
    """Whether a host is a loopback address or names one."""
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if text in {None, "", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(str(text)).is_loopback
    except ValueError:
        return False


sys.addaudithook(refuse_the_network)
