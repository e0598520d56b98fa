"""How processes tell each other what they have committed. All of it may be lost at any time: the look finds it.

Every process hears everything: one publication per committed group, not one per session, so there is no subscription to
keep per session and none to confirm. A process skips what nobody here follows at the cost of decoding it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
from channels.layers import InMemoryChannelLayer, get_channel_layer  # type: ignore[import-untyped]
from django.conf import settings
from django.db import connection

from sessions_app.changes import Changes, PresenceChanged, ReadMoved, SessionChange, encode_changes

log = logging.getLogger("hub.hints")

GROUP = "hub.changes"
MAX_QUEUED = 500
MAX_BYTES = 512 * 1024
DOORBELL_SECONDS = 0.01
DOORBELL_QUIET_SECONDS = 0.04  # a hub where nobody has written for a while shall cost nothing
DOORBELL_QUIET_AFTER = 1.0

_decoder = msgspec.msgpack.Decoder(
    tuple[list[SessionChange], list[ReadMoved], list[PresenceChanged], list[int], list[dict[str, Any]], list[int]]
)


def decode_changes(data: bytes) -> Changes:
    """What `encode_changes` of another process has made."""
    sessions, reads, presence, revoked, traces, reviewed = _decoder.decode(data)
    return Changes(
        sessions={change.pk: change for change in sessions},
        reads=reads,
        presence=presence,
        revoked_keys=revoked,
        traces=traces,
        reviewed=reviewed,
    )


class LayerHints:
    """Hints over the channel layer. `start` returns once this process is subscribed, or after a moment if it can't be."""

    def __init__(self, on_changes: Callable[[Changes], None], on_frame: Callable[[dict[str, Any]], None]) -> None:
        self._on_changes = on_changes
        self._on_frame = on_frame
        self._layer = get_channel_layer()
        self._me = secrets.token_hex(6)
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_QUEUED)
        self._subscribed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._down = False

    @property
    def alone(self) -> bool:
        """The in-memory layer reaches nobody else: nothing to send."""
        return self._layer is None or isinstance(self._layer, InMemoryChannelLayer)

    @property
    def healthy(self) -> bool:
        return self.alone or (self._subscribed.is_set() and not self._down)

    async def start(self) -> None:
        if self.alone:
            return
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._send())]
        try:
            async with asyncio.timeout(5):
                await self._subscribed.wait()
        except TimeoutError:
            log.warning("no channel layer; this process finds what others do by looking at the database")

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def send(self, changes: Changes) -> None:
        """Queue a hint. Too large a one goes without content, a hopeless queue drops it."""
        if self.alone:
            return
        data = encode_changes(changes)
        if len(data) > MAX_BYTES:
            for change in changes.sessions.values():
                change.messages = []
            data = encode_changes(changes)
        self._put({"type": "hub.changes", "p": self._me, "data": data})

    def send_frame(self, **fields: Any) -> None:
        """A frame that is not stored (a chunk) for those who follow the session elsewhere."""
        if not self.alone:
            self._put({"type": "hub.frame", "p": self._me, "data": msgspec.msgpack.encode(fields)})

    def _put(self, message: dict[str, Any]) -> None:
        if settings.HUB_DROP_HINTS and random.random() < settings.HUB_DROP_HINTS:
            return
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            pass

    async def _send(self) -> None:
        while True:
            message = await self._queue.get()
            try:
                # Not `wait_for`: where the send is done in the moment of a cancellation, Python 3.11's forgets the latter,
                # and who stops us would wait for ever.
                async with asyncio.timeout(2):
                    await self._layer.group_send(GROUP, message)
                self._down = False
            except Exception as error:
                if not self._down:
                    log.warning("hints can't be sent: %r", error)
                self._down = True
                await asyncio.sleep(0.2)

    async def _receive(self) -> None:
        while True:
            try:
                channel = await self._layer.new_channel("hub.")
                await self._layer.group_add(GROUP, channel)
                self._subscribed.set()
                while True:
                    self._take(await self._layer.receive(channel))
            except asyncio.CancelledError:
                raise
            except Exception as error:
                log.warning("hints can't be received: %r", error)
                await asyncio.sleep(1)

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("p") == self._me:
            return
        if settings.HUB_DROP_HINTS and random.random() < settings.HUB_DROP_HINTS:
            return
        if message["type"] == "hub.frame":
            self._on_frame(msgspec.msgpack.decode(message["data"]))
            return
        self._on_changes(decode_changes(message["data"]))


class Doorbell(threading.Thread):
    """SQLite's own bell: `PRAGMA data_version` changes when another connection has committed to the file."""

    def __init__(self, ring: Callable[[], None]) -> None:
        super().__init__(name="hub-doorbell", daemon=True)
        self._ring = ring
        self._stopped = threading.Event()

    @staticmethod
    def fits() -> bool:
        name = str(connection.settings_dict["NAME"])
        return connection.vendor == "sqlite" and ":memory:" not in name and "mode=memory" not in name

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        last = raw = None
        pid = os.getpid()
        pause, moved = DOORBELL_SECONDS, time.monotonic()
        while not self._stopped.wait(pause) and os.getpid() == pid:
            try:
                if raw is None:
                    connection.ensure_connection()
                    raw = connection.connection  # Django's way to it costs more than the question
                version = raw.execute("PRAGMA data_version").fetchone()[0]
            except Exception as error:
                log.warning("the database file can't be watched: %r", error)
                connection.close()
                raw = None
                self._stopped.wait(1)
                continue
            if version != last:
                last = version
                pause, moved = DOORBELL_SECONDS, time.monotonic()
                self._ring()
            elif pause == DOORBELL_SECONDS and time.monotonic() - moved > DOORBELL_QUIET_AFTER:
                pause = DOORBELL_QUIET_SECONDS
        connection.close()
