"""Who is silent is pinged, who answers stays, and who does not is dropped."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from autobahn.twisted.websocket import WebSocketServerFactory
from twisted.internet.testing import StringTransport

from hub.websocket import PING, QuickWebSocket
from tests.unit.web.test_websocket import frame

INTERVAL, PATIENCE = 20.0, 5.0


class Quick(QuickWebSocket):
    """As Daphne would have made it once the handshake is over."""

    dropped = False

    def onAutoPingTimeout(self) -> None:
        self.dropped = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(at=1000.0)
    monkeypatch.setattr(time, "time", lambda: now.at)
    return now


@pytest.fixture
def socket(clock: SimpleNamespace) -> Quick:
    made = Quick()
    made.factory = WebSocketServerFactory()  # type: ignore[no-untyped-call]
    made.server = SimpleNamespace(
        ping_interval=INTERVAL, ping_timeout=PATIENCE, websocket_timeout=86400, websocket_connect_timeout=5
    )
    made.client_addr, made.muted, made.received = "test", False, []
    made.application_queue = SimpleNamespace(put_nowait=made.received.append)
    made.makeConnection(StringTransport())  # type: ignore[no-untyped-call]
    made.state, made.data, made.current_frame, made.inside_message = made.STATE_OPEN, b"", None, False
    made.websocket_version, made._perMessageCompress = 13, None
    made.socket_opened = made.last_ping = clock.at
    return made


def pass_time(socket: Quick, clock: SimpleNamespace, seconds: float) -> None:
    clock.at += seconds
    socket.check_timeouts()


def sent(socket: Quick) -> bytes:
    value: bytes = socket.transport.value()
    socket.transport.clear()
    return value


def test_only_who_is_silent_is_pinged(socket: Quick, clock: SimpleNamespace) -> None:
    pass_time(socket, clock, INTERVAL - 1)
    socket.dataReceived(frame(b"{}"))
    pass_time(socket, clock, 2)
    assert sent(socket) == b""
    pass_time(socket, clock, INTERVAL)
    assert sent(socket) == PING == frame(b"", first=0x89, mask=None)


def answers() -> list[Any]:
    pong = frame(b"", first=0x8A)
    return [
        pytest.param([pong], id="a pong"),
        pytest.param([pong[:3], pong[3:]], id="a pong in pieces"),
        pytest.param([frame(b"{}") + pong], id="a text and a pong"),
        pytest.param([frame(b"{}")], id="a text, though no pong"),
        pytest.param([frame(b"{}", first=0x82)], id="an octet message"),
        pytest.param([frame(b"of my own", first=0x8A)], id="a pong of its own making"),
    ]


@pytest.mark.parametrize("answer", answers())
def test_who_answers_stays(socket: Quick, clock: SimpleNamespace, answer: list[bytes]) -> None:
    pass_time(socket, clock, INTERVAL + 1)
    assert sent(socket) == PING
    for piece in answer:
        socket.dataReceived(piece)
    pass_time(socket, clock, PATIENCE + 1)
    assert not socket.dropped


def test_who_says_nothing_is_dropped_and_not_asked_for_ever(socket: Quick, clock: SimpleNamespace) -> None:
    pass_time(socket, clock, INTERVAL + 1)
    pass_time(socket, clock, PATIENCE - 1)
    assert not socket.dropped
    pass_time(socket, clock, 2)
    assert socket.dropped


def test_a_hub_more_patient_than_its_pings_are_apart_still_loses_patience(
    socket: Quick, clock: SimpleNamespace
) -> None:
    socket.server.ping_timeout = 3 * INTERVAL
    for _ in range(4):
        pass_time(socket, clock, INTERVAL + 1)
    assert socket.dropped
