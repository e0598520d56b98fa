"""The short ways of a WebSocket: plain text frames and pongs are read without Autobahn's general machine, and what an idle
socket takes is written without a turn of the loop.

Measured, the machine (a state per octet group, logging arguments made for nobody) costs as much as the rest of a message.
What is not a whole, unfragmented, masked text frame of less than 64 KiB with valid UTF-8 is left to Autobahn untouched, so
that fragments, limits, protocol errors and control frames (but for our own pings and their pongs) are still its own.
"""

from __future__ import annotations

import time
from typing import Any

from daphne.ws_protocol import WebSocketProtocol
from twisted.internet.tcp import Connection

FIN_TEXT = 0x81
MASKED = 0x80
PING = b"\x89\x00"
PONG = b"\x8a\x80"
"""Our ping holds nothing, so that its pong is six octets: these, and a mask."""
PONG_SIZE = 6


def take_text_frames(data: bytes) -> tuple[list[str], int]:
    """The plain text frames at the start of `data` (RFC 6455, section 5.2), and how many octets they took."""
    texts: list[str] = []
    at, end = 0, len(data)
    while end - at >= 6 and data[at] == FIN_TEXT:
        size = data[at + 1] - MASKED
        if size < 0 or size == 127:
            break
        key = at + 2
        if size == 126:
            size = data[at + 2] << 8 | data[at + 3]
            if size < 126:  # not the shortest form: Autobahn's to refuse
                break
            key = at + 4
        body = key + 4
        stop = body + size
        if stop > end:
            break
        mask = data[key:body]
        plain = int.from_bytes(data[body:stop], "little") ^ int.from_bytes((mask * (size // 4 + 1))[:size], "little")
        try:
            texts.append(plain.to_bytes(size, "little").decode("utf-8"))
        except UnicodeDecodeError:
            break
        at = stop
    return texts, at


def write_now(transport: Any, data: bytes) -> None:
    """Write what the socket takes at once; the transport does the rest.

    Twisted would ask the loop to tell when the socket can be written to, and write in its next turn: two system calls and a
    turn of the loop per send, although an idle socket always takes a frame. Only where nothing waits before it, or it would
    overtake.
    """
    if isinstance(transport, Connection) and not transport.TLS and _is_drained(transport):
        written = transport.writeSomeData(data)
        if isinstance(written, int):  # else the connection is lost, which the transport finds out below
            if written == len(data):
                return
            data = data[written:]
    transport.write(data)


def _is_drained(transport: Connection) -> bool:
    # Twisted has no public word for it; where it names these differently one day, all goes the ordinary way.
    return bool(
        transport.connected
        and not transport.disconnecting
        and not getattr(transport, "_tempDataBuffer", True)
        and len(getattr(transport, "dataBuffer", b"-")) == 0
    )


class QuickWebSocket(WebSocketProtocol):  # type: ignore[misc]
    """Daphne's protocol with the short way in front; in the middle of a frame or message there is only the long one."""

    pinged_at: float | None = None
    """When the ping was sent that nothing has come after."""

    def _sendAutoPing(self) -> None:
        if self.pinged_at is None:
            self.pinged_at = time.time()
        write_now(self.transport, PING)

    def check_timeouts(self) -> None:
        """Daphne's round through all connections, which pings who is silent, also finds who stayed silent.

        Autobahn would keep a timer, a payload of random octets and a trip through its machine for every ping and pong, which
        with thousands of idle sockets is most of what they cost.
        """
        asked, patience = self.pinged_at, self.server.ping_timeout
        if asked is not None and patience and self.state == self.STATE_OPEN and time.time() - asked > patience:
            self.onAutoPingTimeout()
        else:
            super().check_timeouts()

    def _onPong(self, payload: bytes) -> None:
        """A pong that came in pieces, or together with something else."""
        self.pinged_at = None
        super()._onPong(payload)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        self.pinged_at = None
        super().onMessage(payload, isBinary)

    def _dataReceived(self, data: bytes) -> None:
        if (
            self.state == self.STATE_OPEN
            and not self.data
            and self.current_frame is None
            and not self.inside_message
            and not self.muted
            and self._perMessageCompress is None
        ):
            if len(data) == PONG_SIZE and data.startswith(PONG):
                self.pinged_at = None
                return
            texts, taken = take_text_frames(data)
            if texts:
                self.last_ping = time.time()
                self.pinged_at = None
                for text in texts:
                    self.application_queue.put_nowait({"type": "websocket.receive", "text": text})
                data = data[taken:]
                if not data:
                    return
        super()._dataReceived(data)
