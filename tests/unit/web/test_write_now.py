"""What the socket takes is on the wire at once; what it does not take follows, in order."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.protocol import Protocol
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactor, StringTransport

from hub.websocket import write_now

Ends = tuple[Any, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    protocol: Any = Protocol()
    reactor: Any = MemoryReactor()  # type: ignore[no-untyped-call]
    transport: Any = Connection(ours, protocol, reactor)
    transport.connected = True
    yield transport, theirs
    ours.close()
    theirs.close()


def read(theirs: socket.socket) -> bytes:
    data = b""
    try:
        while chunk := theirs.recv(1 << 20):
            data += chunk
    except BlockingIOError:
        pass
    return data


def test_an_idle_socket_gets_it_at_once(ends: Ends) -> None:
    transport, theirs = ends
    write_now(transport, b"one")
    write_now(transport, b"two")
    assert read(theirs) == b"onetwo"
    assert transport not in transport.reactor.getWriters()


def test_nothing_overtakes_what_waits(ends: Ends) -> None:
    transport, theirs = ends
    transport.write(b"one")
    write_now(transport, b"two")
    assert read(theirs) == b""
    transport.doWrite()
    assert read(theirs) == b"onetwo"


def test_what_a_full_socket_does_not_take_follows_in_order(ends: Ends) -> None:
    transport, theirs = ends
    pieces = [bytes([65 + number]) * 100_000 for number in range(20)]
    for piece in pieces:
        write_now(transport, piece)
    received = read(theirs)
    assert 0 < len(received) < 2_000_000
    assert transport in transport.reactor.getWriters()
    while len(received) < 2_000_000:
        transport.doWrite()
        more = read(theirs)
        assert more
        received += more
    assert received == b"".join(pieces)
    write_now(transport, b"and again at once")
    assert read(theirs) == b"and again at once"


def test_a_lost_connection_is_left_to_the_transport(ends: Ends) -> None:
    transport, theirs = ends
    theirs.close()
    write_now(transport, b"one")
    write_now(transport, b"two")
    assert transport in transport.reactor.getWriters()


def test_any_other_transport_is_written_to_as_ever() -> None:
    transport: Any = StringTransport()  # type: ignore[no-untyped-call]
    write_now(transport, b"one")
    assert transport.value() == b"one"
