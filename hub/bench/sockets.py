"""The generator's WebSocket client: picows, because it must cost less than any server that it measures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

OPEN_TIMEOUT = 30.0
MAX_FRAME = 64 * 1024 * 1024


class Frame(msgspec.Struct, frozen=True, gc=False):
    """The part of a frame that the generator looks at: `sequence` of `message` and `ack`, `code` of `error`."""

    type: str
    sequence: int | None = None
    code: str | None = None


class Address(msgspec.Struct, frozen=True):
    """Where and as whom to connect. `ready` is the type of the frame after which the socket is live; None: at once."""

    url: str
    headers: Mapping[str, str] = {}
    ready: str | None = None


Handler = Callable[[list[Frame]], None]

_one = msgspec.json.Decoder(Frame).decode
_many = msgspec.json.Decoder(list[Frame]).decode


def decode(payload: bytes) -> list[Frame]:
    """The frames of one WebSocket message, which holds one frame or an array of them."""
    return _many(payload) if payload[:1] == b"[" else [_one(payload)]


Decode = Callable[[bytes], list[Any]]


class Socket(WSListener):  # type: ignore[misc,unused-ignore]
    """One connected client. `handler` gets the frames of each WebSocket message, on the loop, in order."""

    def __init__(self, handler: Handler, ready: str | None, decode: Decode) -> None:
        self._handler = handler
        self._decode = decode
        self._ready_type = ready
        self.ready = asyncio.get_running_loop().create_future()
        self.is_open = False
        self._transport: WSTransport | None = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport
        self.is_open = True
        if self._ready_type is None:
            self.ready.set_result(None)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.is_open = False
        if not self.ready.done():
            self.ready.set_exception(ConnectionError("closed before it was ready"))

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type is WSMsgType.TEXT:
            frames = self._decode(frame.get_payload_as_bytes())
            if not self.ready.done() and any(each.type == self._ready_type for each in frames):
                self.ready.set_result(None)
            self._handler(frames)
        elif frame.msg_type is WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()

    def send(self, text: bytes) -> None:
        assert self._transport is not None
        self._transport.send(WSMsgType.TEXT, text)

    def close(self) -> None:
        """Say goodbye with a close frame (for the hub: everything was read)."""
        if self._transport is not None and self.is_open:
            self._transport.send_close()
            self._transport.disconnect()

    def cut(self) -> None:
        """Drop the connection without a close frame (for the hub: nothing was read)."""
        if self._transport is not None and self.is_open:
            self._transport.disconnect(False)


async def connect(address: Address, handler: Handler, *, decode: Decode = decode) -> Socket:
    """A socket that is live; `decode` is for who looks at more of the frames.

    Raises OSError, picows' handshake error, or TimeoutError when it does not get there."""
    _, listener = await ws_connect(
        lambda: Socket(handler, address.ready, decode),
        address.url,
        extra_headers=dict(address.headers),
        websocket_handshake_timeout=OPEN_TIMEOUT,
        max_frame_size=MAX_FRAME,
    )
    assert isinstance(listener, Socket)
    async with asyncio.timeout(OPEN_TIMEOUT):
        await listener.ready
    return listener
