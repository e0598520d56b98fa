"""Baseline: the Channels tutorial's chat, storing each message with `objects.create` before it relays it.

Runs as a server process of its own: it configures Django for itself, not with the hub's settings. Environment:
`BENCH_DATABASE` (path of an SQLite file), `BENCH_CONN_MAX_AGE` (`0` as the tutorial has it, or `none`), `BENCH_BACKLOG`
(so many are stored in the room `replay` before it serves). SQLite commits with `synchronous=FULL`, like the hub.
"""

from __future__ import annotations

import json
import os
from typing import Any
from urllib.parse import parse_qs

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="loopback only",
    ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=["channels"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ["BENCH_DATABASE"],
            "CONN_MAX_AGE": None if os.environ.get("BENCH_CONN_MAX_AGE") == "none" else 0,
            "OPTIONS": {
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
            },
        }
    },
    # As for the bare relay: the stock capacity of 100 drops messages silently under this load.
    CHANNEL_LAYERS={
        "default": {"BACKEND": "channels.layers.InMemoryChannelLayer", "CONFIG": {"capacity": 100_000}},
    },
    LOGGING_CONFIG=None,
    USE_TZ=True,
)
django.setup()

from channels.db import database_sync_to_async  # type: ignore[import-untyped,unused-ignore]  # noqa: E402
from channels.generic.websocket import AsyncWebsocketConsumer  # type: ignore[import-untyped,unused-ignore]  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # type: ignore[import-untyped,unused-ignore]  # noqa: E402
from django.db import connection, models  # noqa: E402
from django.urls import re_path  # noqa: E402


class ChatMessage(models.Model):
    room = models.CharField(max_length=64, db_index=True)
    sender = models.CharField(max_length=64)
    body = models.TextField()
    created = models.DateTimeField(auto_now_add=True)

    objects: models.Manager[ChatMessage] = models.Manager()

    class Meta:
        app_label = "bench_tutorial_chat"


def prepare(backlog: int) -> None:
    """Create the table and store `backlog` messages of about 200 bytes in the room `replay`."""
    with connection.schema_editor() as editor:
        editor.create_model(ChatMessage)
    stored = [ChatMessage(room="replay", sender="sender", body="x" * 150) for _ in range(backlog)]
    ChatMessage.objects.bulk_create(stored, batch_size=500)
    connection.close()


class Chat(AsyncWebsocketConsumer):  # type: ignore[misc,unused-ignore]
    async def connect(self) -> None:
        self.room = self.scope["url_route"]["kwargs"]["room"]
        self.name = self.scope["url_route"]["kwargs"]["name"]
        self.group = f"chat_{self.room}"
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.accept()
        after = parse_qs(self.scope["query_string"].decode()).get("after")
        if after:
            stored = ChatMessage.objects.filter(room=self.room, id__gt=int(after[0])).order_by("id")
            async for message in stored:
                await self.send(text_data=frame(message))

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(self.group, self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if text_data is None:
            return
        incoming = json.loads(text_data)
        create = database_sync_to_async(ChatMessage.objects.create)
        await create(room=self.room, sender=self.name, body=incoming["content"])
        push = {"type": "chat.message", "message": incoming, "sender": self.channel_name}
        await self.channel_layer.group_send(self.group, push)
        await self.send(text_data=json.dumps({"type": "ack", "sequence": incoming["sequence"]}))

    async def chat_message(self, event: dict[str, Any]) -> None:
        if event["sender"] != self.channel_name:
            await self.send(text_data=json.dumps(event["message"]))


def frame(message: ChatMessage) -> str:
    return json.dumps({"type": "message", "sequence": message.pk, "sender": message.sender, "content": message.body})


prepare(int(os.environ.get("BENCH_BACKLOG", "0")))
application = ProtocolTypeRouter(
    {"websocket": URLRouter([re_path(r"^ws/(?P<room>\w+)/(?P<name>\w+)$", Chat.as_asgi())])}
)
