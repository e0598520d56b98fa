"""A serving process's part of A2A: live text on its way to the streams of tasks that an agent just answers."""

from __future__ import annotations

import asyncio
from typing import Any

from sessions_app.realtime.pieces import Piece
from sessions_app.realtime.runtime import Runtime
from sessions_app.realtime.subscriber import Subscriber

MAX_FRAMES = 1000


class Listener:
    """Somebody who follows a question: woken when its session has moved or text has come."""

    def __init__(self, wake: asyncio.Event) -> None:
        self.wake = wake
        self.frames: list[Piece] = []


class Desk:
    """One of `RUNTIME_PARTS`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._listeners: dict[int, set[Listener]] = {}

    def listen(self, session_pk: int) -> Listener:
        """Give it back with `forget`."""
        listener = Listener(self._runtime.registry.wait_on(session_pk))
        self._listeners.setdefault(session_pk, set()).add(listener)
        return listener

    def forget(self, session_pk: int, listener: Listener) -> None:
        self._runtime.registry.forget_wait(session_pk, listener.wake)
        mine = self._listeners.get(session_pk, set())
        mine.discard(listener)
        if not mine:
            self._listeners.pop(session_pk, None)

    def frame(self, fields: dict[str, Any]) -> None:
        for listener in self._listeners.get(fields["session_pk"], ()):
            if len(listener.frames) < MAX_FRAMES:
                listener.frames.append(Piece(fields))
                listener.wake.set()

    def start(self) -> None:
        pass

    def moved(self, hints: list[dict[str, Any]]) -> None:
        pass

    def joined(self, subscriber: Subscriber) -> None:
        pass

    async def look(self) -> None:
        pass

    def wake(self) -> None:
        """They wait on their sessions, which the registry wakes."""

    def stop(self) -> None:
        pass


def desk_of(runtime: Runtime) -> Desk:
    return next(part for part in runtime.parts if isinstance(part, Desk))
