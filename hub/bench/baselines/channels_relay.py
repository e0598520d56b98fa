"""Baseline: a stock Channels consumer that relays over a group of the in-memory layer; stores nothing.

Runs as a server process of its own: it configures Django for itself, not with the hub's settings.
"""

from __future__ import annotations

from typing import Any

import django
import msgspec
from django.conf import settings

settings.configure(
    SECRET_KEY="loopback only",
    ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=["channels"],
    # The stock capacity of 100 drops messages silently under this load, and a lost one would end the sender's window.
    CHANNEL_LAYERS={
        "default": {"BACKEND": "channels.layers.InMemoryChannelLayer", "CONFIG": {"capacity": 100_000}},
    },
    LOGGING_CONFIG=None,
)
django.setup()

from channels.generic.websocket import AsyncWebsocketConsumer  # type: ignore[import-untyped,unused-ignore]  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # type: ignore[import-untyped,unused-ignore]  # noqa: E402
from django.urls import re_path  # noqa: E402


class Incoming(msgspec.Struct):
    sequence: int


_decode = msgspec.json.Decoder(Incoming).decode


class Relay(AsyncWebsocketConsumer):  # type: ignore[misc,unused-ignore]
    async def connect(self) -> None:
        self.group = "relay_" + self.scope["url_route"]["kwargs"]["room"]
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.accept()

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(self.group, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if text_data is None:
            return
        sequence = _decode(text_data).sequence
        push = {"type": "relay", "text": text_data, "sender": self.channel_name}
        await self.channel_layer.group_send(self.group, push)
        await self.send(text_data=f'{{"type":"ack","sequence":{sequence}}}')

    async def relay(self, event: dict[str, Any]) -> None:
        if event["sender"] != self.channel_name:
            await self.send(text_data=event["text"])


application = ProtocolTypeRouter(
    {"websocket": URLRouter([re_path(r"^ws/(?P<room>\w+)/(?P<name>\w+)$", Relay.as_asgi())])}
)
