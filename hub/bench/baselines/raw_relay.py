"""Baseline: the least that an ASGI server can do: parse, relay to the room's other sockets, acknowledge. No store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

Event = MutableMapping[str, Any]
Send = Callable[[Event], Awaitable[None]]
Receive = Callable[[], Awaitable[Event]]


class Incoming(msgspec.Struct):
    sequence: int


_decode = msgspec.json.Decoder(Incoming).decode
_rooms: defaultdict[str, set[Send]] = defaultdict(set)


async def application(scope: Event, receive: Receive, send: Send) -> None:
    """Serve `/ws/<room>/<name>`."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
    elif scope["type"] == "websocket":
        await _relay(scope["path"].split("/")[2], receive, send)


async def _relay(name: str, receive: Receive, send: Send) -> None:
    room = _rooms[name]
    await receive()
    await send({"type": "websocket.accept"})
    room.add(send)
    try:
        while (event := await receive())["type"] == "websocket.receive":
            text = event["text"]
            sequence = _decode(text).sequence
            push = {"type": "websocket.send", "text": text}
            for other in list(room):
                if other is not send:
                    await other(push)
            await send({"type": "websocket.send", "text": f'{{"type":"ack","sequence":{sequence}}}'})
    finally:
        room.discard(send)
        if not room:
            _rooms.pop(name, None)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return
