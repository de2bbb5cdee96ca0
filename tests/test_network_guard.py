"""The guard of conftest.py lets tests reach this machine and nothing else."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

ELSEWHERE = ("192.0.2.1", 9)  # an address that is reserved for examples


def _connect() -> None:
    with socket.socket() as client:
        client.connect(ELSEWHERE)


def _connect_ex() -> object:
    with socket.socket() as client:
        return client.connect_ex(ELSEWHERE)


def _send_a_datagram() -> object:
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        return client.sendto(b"hello", ELSEWHERE)


def _look_up_a_name() -> object:
    return socket.getaddrinfo("example.invalid", 443)


@pytest.mark.parametrize("reach_out", [_connect, _connect_ex, _send_a_datagram, _look_up_a_name])
def test_elsewhere(reach_out: Callable[[], object]) -> None:
    """Whatever way a test takes to another machine, it fails before anything is sent."""
    with pytest.raises(RuntimeError, match="beyond this machine"):
        reach_out()


def test_loopback() -> None:
    """A server on this machine can be reached by address and by name."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        with socket.create_connection(("localhost", port), timeout=5) as client:
            reached = client.getpeername()

    assert reached == ("127.0.0.1", port)
