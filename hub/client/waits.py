"""Waiting for the end of a session or for an answer: a frame tells when to look, the hub's row is what counts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from hub.client.asks import Ask, Asks
from hub.client.dispatch import Dispatcher
from hub.client.errors import ClientError, HubError, NotFound, SessionClosed, Unreachable
from hub.client.frames import Message, ReplayComplete, Session, read
from hub.client.rest import Rest, segment
from hub.client.watchers import Watchers

LOOK_SECONDS = 30.0


class Waits:
    """`error()` is what ended the client for good, or None: whoever waits is then told."""

    def __init__(
        self,
        rest: Rest,
        dispatcher: Dispatcher,
        asks: Asks,
        watchers: Watchers,
        *,
        error: Callable[[], HubError | ClientError | None],
    ) -> None:
        self._rest = rest
        self._dispatcher = dispatcher
        self._asks = asks
        self._watchers = watchers
        self._error = error

    async def ended(self, session_id: str) -> Session:
        """Until the session has ended. A frame only tells when to look; what counts is the hub's row."""
        with self._watchers.watch(session_id) as nudged:
            while True:
                if (error := self._error()) is not None:
                    raise error
                nudged.clear()
                with contextlib.suppress(Unreachable):
                    session = read(Session, await self._rest.get(f"sessions/{segment(session_id)}"))
                    if session.ended:
                        return session
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await nudged.wait()

    async def handled(self, session: Session, *, seconds: float = 30.0) -> None:
        """Until the messages of an ended session were handled; not when nobody would, and not for ever."""
        inbox = self._dispatcher.inboxes.get(session.session_id)
        if inbox is not None and inbox.position is not None:
            self._dispatcher.replayed(ReplayComplete(session_id=session.session_id, sequence=session.last_sequence))
        deadline = time.monotonic() + seconds
        while not self._dispatcher.handled(session.session_id) and time.monotonic() < deadline:
            worker = self._dispatcher.worker_of(session.session_id)
            if worker is not None:
                await asyncio.wait({worker}, timeout=1.0)
            else:
                await asyncio.sleep(0.02)

    def asked(self, ask: Ask, message_id: str | None, sequence: int, kind: str | None, trace_id: str | None) -> None:
        self._asks.sent(ask, message_id=message_id, sequence=sequence, kind=kind, trace_id=trace_id)
        self._dispatcher.settle(ask.session_id)

    async def answer(self, ask: Ask) -> Message:
        """Until the answer is here.

        The hub is asked now and then, after a reconnect and when the session ends: it has the last word.
        """
        path = f"sessions/{segment(ask.session_id)}/messages/{segment(ask.message_id or '')}/response"
        while True:
            nudge = asyncio.ensure_future(ask.nudged.wait())
            either: set[asyncio.Future[Any]] = {nudge, ask.answer}
            try:
                await asyncio.wait(either, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            finally:
                nudge.cancel()
            if ask.answer.done():
                return ask.answer.result()
            if (error := self._error()) is not None:
                raise error
            ask.nudged.clear()
            try:
                found = await self._rest.get(path, timeout=0)
            except (Unreachable, NotFound):
                continue
            if found.get("status") == "answered":
                message = read(Message, found["response"])
                self._asks.take(message)
                return message
            if found.get("status") == "ended":
                raise SessionClosed("The session ended before an answer came.", session_id=ask.session_id)
