from __future__ import annotations

from typing import Any

from django.urls import re_path

from sessions_app.protocol.errors import NotFound
from sessions_app.protocol.frames import encode
from sessions_app.realtime.subscriber import GONE
from sessions_app.sockets.connection import Receive, Send
from sessions_app.sockets.consumers import AgentConsumer, SessionConsumer


async def nowhere(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Any other path: the same answer as for a session that is not yours."""
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": encode("error", **NotFound().body(), retry=False)})
    await send({"type": "websocket.close", "code": GONE})


websocket_urlpatterns = [
    re_path(r"^api/a2a/sessions/(?P<session_id>[^/]{1,100})/stream/?$", SessionConsumer.as_asgi()),
    re_path(r"^api/a2a/stream/?$", AgentConsumer.as_asgi()),
    re_path(r"", nowhere),  # type: ignore[arg-type]
]
