"""The composition of the web side: Django for HTTP, Channels for WebSockets, whatever ASGI server runs it."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "hub.settings")

from channels.routing import ProtocolTypeRouter, URLRouter  # type: ignore[import-untyped]
from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from hub.a2a.mount import A2AMount  # noqa: E402
from hub.server import adopt_daphne  # noqa: E402
from sessions_app.rest.express import Express  # noqa: E402
from sessions_app.sockets.routing import websocket_urlpatterns  # noqa: E402

adopt_daphne()

application = ProtocolTypeRouter(
    {
        "http": A2AMount(Express(django_application)),
        # Keys authenticate sockets, not cookies, so no origin has to be checked here (a key is never sent by itself).
        "websocket": URLRouter(websocket_urlpatterns),
    }
)
