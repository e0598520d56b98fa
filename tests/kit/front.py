"""The hub as the kit sees it: `daphne tests.kit.front:application` with `HUB_KIT_KEY`, a key of the scope `agent`.

The kit sends no credentials, and the hub has no door without them; so this stands in front and adds the key. Requests that
bring credentials of their own pass untouched, and so does the one call of the 0.3 branch that must be refused without any.
"""

from __future__ import annotations

import os
from typing import Any

from hub.asgi import application as hub

OPEN_TO_NOBODY = b"getAuthenticatedExtendedCard"
KEY = f"Bearer {os.environ['HUB_KIT_KEY']}".encode()


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http" or any(name.lower() == b"authorization" for name, _ in scope["headers"]):
        await hub(scope, receive, send)
        return
    first = await receive()
    if OPEN_TO_NOBODY not in first.get("body", b""):
        scope = {**scope, "headers": [*scope["headers"], (b"authorization", KEY)]}
    given = False

    async def again() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return first

    await hub(scope, again, send)
