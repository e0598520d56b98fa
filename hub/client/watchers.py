"""Who waits for news of a session. News only tells when to look; what counts is the hub's row."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class Watchers:
    """Events by session, each set at the next news of it."""

    def __init__(self) -> None:
        self._events: dict[str, set[asyncio.Event]] = {}

    @contextlib.contextmanager
    def watch(self, session_id: str) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        self._events.setdefault(session_id, set()).add(event)
        try:
            yield event
        finally:
            self._events[session_id].discard(event)
            if not self._events[session_id]:
                del self._events[session_id]

    def nudge(self, session_id: str) -> None:
        for event in self._events.get(session_id, ()):
            event.set()

    def nudge_all(self) -> None:
        for session_id in self._events:
            self.nudge(session_id)
