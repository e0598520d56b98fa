"""The hub as the kit sees it: `daphne tests.kit.front:application` with `HUB_KIT_KEY`, a key of the scope `agent`.

The kit sends no credentials, and the hub has no door without them; so this stands in front and adds the key. Requests that
bring credentials of their own pass untouched.
"""

from __future__ import annotations

import os
from typing import Any

from hub.asgi import application as hub

KEY = f"Bearer {os.environ['HUB_KIT_KEY']}".encode()


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http" and not any(name.lower() == b"authorization" for name, _ in scope["headers"]):
        scope = {**scope, "headers": [*scope["headers"], (b"authorization", KEY)]}
    await hub(scope, receive, send)
