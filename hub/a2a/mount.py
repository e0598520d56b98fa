"""A2A beside Django: what is below /a2a/agents/ goes to its door, everything else goes on. The SDK is loaded on first use."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from django.conf import settings

from sessions_app.rest.express import Application, Receive, Scope, Send

PREFIX = "/a2a/agents/"
WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json")


class A2AMount:
    """`A2AMount(application)` answers A2A itself and passes on everything else."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._door: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not is_a2a(scope["path"]):
            await self._application(scope, receive, send)
            return
        if self._door is None:
            # A second of imports, in a thread, so that the sockets of this process don't wait for them.
            module = await asyncio.to_thread(import_module, "hub.a2a.door")
            if self._door is None:
                self._door = module.Door()
        await self._door(scope, receive, send)


def is_a2a(path: str) -> bool:
    return path.startswith(PREFIX) or (bool(settings.HUB_A2A_ROOT_AGENT) and path in WELL_KNOWN)
