"""What a worker tells the web processes: text that is being written, and hints of what it has committed.

Dropped when nobody takes it: text is never stored, and the rows say what a hint would have said. Production: over the
channel layer. Embedded: a Unix datagram socket in the data directory (0600).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from django.conf import settings

from sessions_app.changes import Changes, encode_changes
from sessions_app.protocol.frames import encode

log = logging.getLogger("hub.traces")

SOCKET_NAME = "chunks.sock"
TEXT_CHARACTERS = 16 * 1024
MAX_DATAGRAM = 96 * 1024


class Stream:
    """The chunks of one trace's answer, numbered from 0."""

    def __init__(
        self, session_pk: int, session_id: str, agent_id: str, trace_id: str, parent_trace_id: str | None = None
    ) -> None:
        self._session_pk = session_pk
        self._names = {"session_id": session_id, "from": agent_id, "stream_id": trace_id}
        self._trace_id = trace_id
        self._above = {"also": parent_trace_id} if parent_trace_id else {}
        self._index = 0
        self.provenance: dict[str, Any] = {}
        """Whose words the text is made of, from now on; empty where it is the agent's own."""

    @property
    def used(self) -> bool:
        return self._index > 0

    def send(self, text: str) -> None:
        """Pass text on, without waiting for anybody."""
        for start in range(0, len(text), TEXT_CHARACTERS):
            piece = text[start : start + TEXT_CHARACTERS]
            frame = encode("chunk", **self._names, index=self._index, text=piece, trace_id=self._trace_id)
            self._index += 1
            fields = {"session_pk": self._session_pk, "stream_id": self._trace_id, "frame": frame, **self._above}
            send_frame({**fields, "provenance": self.provenance} if self.provenance else fields)


def send_frame(fields: dict[str, Any]) -> None:
    if settings.HUB_EMBEDDED:
        _send_datagram(msgspec.msgpack.encode(fields))
        return
    from traces_app.publisher import publisher

    publisher.send_frame(fields)


def send_changes(changes: Changes) -> None:
    """As a publisher of `sessions_app.changes`, in the embedded hub: the doorbell would have its process look, but later."""
    data = encode_changes(changes)
    if len(data) <= MAX_DATAGRAM:
        _send_datagram(msgspec.msgpack.encode({"changes": data}))


_sender = threading.local()


def _send_datagram(data: bytes) -> None:
    try:
        outbox = getattr(_sender, "socket", None)
        if outbox is None:
            outbox = _sender.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        outbox.sendto(data, _address(_directory()))
    except OSError:  # full, or nobody there
        pass


_directories: dict[str, int] = {}


def _directory() -> int:
    """A descriptor of the data directory: an address has no more than 107 characters, a path may have."""
    name = str(settings.HUB_DATA_DIR)
    if name not in _directories:
        _directories[name] = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return _directories[name]


def _address(directory: int) -> str:
    plain = str(Path(settings.HUB_DATA_DIR) / SOCKET_NAME)
    return plain if len(plain.encode()) < 100 else f"/proc/self/fd/{directory}/{SOCKET_NAME}"


class Inbox:
    """The web process's end of the embedded hub's socket. On the loop: `take(fields)` gets text, `hear(data)` a hint."""

    def __init__(self, take: Callable[[dict[str, Any]], None], hear: Callable[[bytes], None]) -> None:
        self._take = take
        self._hear = hear
        self._socket: socket.socket | None = None

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        path = Path(settings.HUB_DATA_DIR) / SOCKET_NAME
        inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            path.unlink(missing_ok=True)
            old = os.umask(0o177)
            try:
                inbox.bind(_address(_directory()))
            finally:
                os.umask(old)
            loop.add_reader(inbox.fileno(), self._readable)
        except (OSError, NotImplementedError) as error:
            log.warning("live text of workers will not be shown: %r", error)
            inbox.close()
            return
        self._socket = inbox

    def _readable(self) -> None:
        assert self._socket is not None
        for _ in range(100):
            try:
                data = self._socket.recv(256 * 1024)
            except OSError:
                return
            try:
                fields = msgspec.msgpack.decode(data)
            except msgspec.DecodeError:
                continue
            if isinstance(fields, dict) and "changes" in fields:
                self._hear(fields["changes"])
            elif isinstance(fields, dict):
                self._take(fields)

    def close(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._socket is not None:
            loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            (Path(settings.HUB_DATA_DIR) / SOCKET_NAME).unlink(missing_ok=True)
