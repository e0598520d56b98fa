"""The raw relay, but a new socket is greeted as the hub greets it: frames that nobody asked for, before anything is sent."""

from __future__ import annotations

from hub.bench.baselines import raw_relay
from hub.bench.baselines.raw_relay import Event, Receive, Send


async def application(scope: Event, receive: Receive, send: Send) -> None:
    async def greet(event: Event) -> None:
        await send(event)
        if event["type"] == "websocket.accept":
            await send({"type": "websocket.send", "text": '{"type":"welcome","protocol":1}'})
            await send({"type": "websocket.send", "text": '{"type":"replay_complete","sequence":0}'})

    await raw_relay.application(scope, receive, greet)
