"""The life of a client: in which loop it runs, when it opens by itself, how it ends. What it says is in `client.py`."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Self

from hub.client.background import Background, run_until_signal
from hub.client.calls import Calls
from hub.client.engine import Engine
from hub.client.errors import ClientClosed
from hub.client.handlers import handling


class Life(Calls):
    """Starts, stops and moves the engine between loops; `A2ASessionClient` makes it."""

    _engine: Engine

    def __init__(self, base_url: str, agent_id: str, api_key: str, *, close_grace: float, **options: Any) -> None:
        super().__init__(base_url, agent_id, api_key, **options)
        self.close_grace = close_grace
        self._starting: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._background = Background(self)

    async def start(self) -> None:
        """Open the agent's socket (in the background: this does not wait for the hub). Called for you when needed."""
        self._closed = False
        await self._ensure()

    async def connect(self, timeout: float | None = 30.0) -> None:
        """Start, and wait until the hub has welcomed us; raises what makes that impossible."""
        await self.start()
        async with asyncio.timeout(timeout):
            await self._engine.connected()

    async def close(self) -> None:
        """Let running handlers end (for `close_grace` seconds), acknowledge what they did, say good-bye.

        Called from a handler it happens right after that handler has returned.
        """
        if handling.get() is not None and self._loop is asyncio.get_running_loop():
            handling_done = asyncio.get_running_loop().create_task(self._close_outside())
            self._engine.keep(handling_done)
            return
        await self._close()

    async def _close_outside(self) -> None:
        handling.set(None)
        await self._close()

    async def _close(self) -> None:
        self._closed = True
        await self._background.stop()
        await self.release()
        await self.rest.aclose()

    async def release(self) -> None:
        """Stop in this loop without closing the client: another loop is about to take it over."""
        if self._starting is not None and self._loop is asyncio.get_running_loop():
            with contextlib.suppress(Exception):
                await self._starting
            await self._engine.stop(self.close_grace)
            self._starting = None
            await self.rest.aclose()

    async def run_forever(self) -> None:
        """Start and stay until `close()`; raises the error that made going on pointless (a revoked key)."""
        await self.start()
        await self._engine.over()

    def run(self) -> None:
        """`run_forever` for a program that is nothing but this agent; ends cleanly on SIGINT and SIGTERM."""
        run_until_signal(self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def connected(self) -> bool:
        return self._engine.socket_open

    @property
    def error(self) -> BaseException | None:
        """What ended the connection for good, or None."""
        return self._engine.error

    async def _ensure(self) -> None:
        if self._closed:
            raise ClientClosed("this client was closed")
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._starting is None:
            if not self._background.is_mine():
                await self._background.stop()
            self._begin(loop)
        assert self._starting is not None
        await asyncio.shield(self._starting)
        if self._engine.error is not None:
            raise self._engine.error

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._starting = loop.create_task(self._engine.start(), name="hub client start")

    def _autostart(self) -> None:
        """A handler was registered: it wants messages, so the socket opens; in a thread of its own if no loop runs yet."""
        if self._closed:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._background.start()
            return
        if self._loop is loop and self._starting is not None:
            self._engine.poke()
        elif not self._background.running:
            self._begin(loop)
