"""A worker's hints to the web processes, over the channel layer, from a thread of their own. Losing one costs delay only."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
from typing import Any

import msgspec
from channels.layers import InMemoryChannelLayer, get_channel_layer  # type: ignore[import-untyped]

from sessions_app.changes import Changes, encode_changes
from sessions_app.realtime.hints import GROUP, MAX_BYTES, MAX_QUEUED

log = logging.getLogger("hub.traces")

SEND_SECONDS = 2.0


class Publisher:
    """Started with the first hint of a process, so after any fork."""

    def __init__(self) -> None:
        self._queue: queue.Queue[dict[str, Any]] = queue.Queue(MAX_QUEUED)
        self._pid = 0
        self._lock = threading.Lock()

    def __call__(self, changes: Changes) -> None:
        """As a publisher of `sessions_app.changes`: called after each commit, in the thread that committed."""
        data = encode_changes(changes)
        if len(data) > MAX_BYTES:
            for change in changes.sessions.values():
                change.messages = []
            data = encode_changes(changes)
        self._put({"type": "hub.changes", "p": f"w{os.getpid()}", "data": data})

    def send_frame(self, fields: dict[str, Any]) -> None:
        self._put({"type": "hub.frame", "p": f"w{os.getpid()}", "data": msgspec.msgpack.encode(fields)})

    def _put(self, message: dict[str, Any]) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._queue = queue.Queue(MAX_QUEUED)
                threading.Thread(target=self._run, args=(self._queue,), name="hub-hints", daemon=True).start()
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            pass

    def _run(self, messages: queue.Queue[dict[str, Any]]) -> None:
        layer = get_channel_layer()
        if layer is None or isinstance(layer, InMemoryChannelLayer):
            while True:
                messages.get()
        # One loop for the life of the thread: the layer keeps its connections per loop.
        loop = asyncio.new_event_loop()
        complained = 0.0
        while True:
            message = messages.get()
            try:
                loop.run_until_complete(asyncio.wait_for(layer.group_send(GROUP, message), SEND_SECONDS))
            except Exception as error:
                if time.monotonic() - complained > 30:
                    complained = time.monotonic()
                    log.warning("hints can't be sent: %r", error)
                time.sleep(0.2)


publisher = Publisher()
