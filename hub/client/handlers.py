"""Calling handlers: what the current task handles, each handler once per item, failures reported and put off."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import inspect
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from hub.client.core.inbox import Item
from hub.client.errors import ClientClosed, NotFound, SessionClosed
from hub.client.frames import Message, NewSession
from hub.client.wire import encode

log = logging.getLogger("hub.client")

MessageHandler = Callable[[Message], Awaitable[Any] | Any]
SessionHandler = Callable[[str, str], Awaitable[Any] | Any]
ErrorHandler = Callable[[BaseException, Message | NewSession, int], Awaitable[Any] | Any]


@dataclass
class Handling:
    """What the current task is handling: sends made meanwhile get ids that a redelivery will make again."""

    key: str
    session_id: str
    message: Message | None
    recorded: bool = False
    _seen: Counter[str] = field(default_factory=Counter)

    def next_id(self, session_id: str, body: dict[str, Any]) -> str:
        """The same for the same words in answer to the same message, however often that is delivered."""
        digest = hashlib.sha256(encode([session_id, body]).encode()).hexdigest()[:20]
        self._seen[digest] += 1
        return f"re-{self.key[:80]}-{digest}-{self._seen[digest]}"


handling: contextvars.ContextVar[Handling | None] = contextvars.ContextVar("hub_handling", default=None)


class Handlers:
    """The registered handlers. `max_attempts`: see `Dispatcher`; `stopping()`: whether the client is going down."""

    def __init__(self, *, max_attempts: int | None, stopping: Callable[[], bool]) -> None:
        self.max_attempts = max_attempts
        self.message: list[MessageHandler] = []
        self.session: list[SessionHandler] = []
        self.error: list[ErrorHandler] = []
        self._stopping = stopping

    async def call(
        self, item: Item, context: Handling, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]
    ) -> bool:
        """Call those that have not finished this item yet, in order; True when it is done with (or given up)."""
        token = handling.set(context)
        try:
            for handler, arguments in calls:
                if id(handler) in item.finished_by:
                    continue
                try:
                    result = handler(*arguments)
                    if inspect.isawaitable(result):
                        await result
                except asyncio.CancelledError as error:
                    task = asyncio.current_task()
                    if self._stopping() or (task is not None and task.cancelling()):
                        raise
                    return await self._failed(item, context, error)
                except Exception as error:
                    return await self._failed(item, context, error)
                item.finished_by.add(id(handler))
            return True
        finally:
            item.recorded = item.recorded or context.recorded
            handling.reset(token)

    async def _failed(self, item: Item, context: Handling, error: BaseException) -> bool:
        """Report; then True to pass over it, False to deliver it again after a pause."""
        if isinstance(error, ClientClosed):
            return False  # we are going down: nobody's fault, and the next process gets it
        item.attempts += 1
        final = isinstance(error, SessionClosed | NotFound) and error.details.get("session_id") in (
            None,
            context.session_id,
        )
        given_up = final or context.recorded or (self.max_attempts is not None and item.attempts >= self.max_attempts)
        log.error(
            "a handler failed on %s of session %s (attempt %d): %s",
            context.key,
            context.session_id,
            item.attempts,
            "passed over" if given_up else "it will be delivered again",
            exc_info=error,
        )
        for report in self.error:
            try:
                result = report(error, item.payload, item.attempts)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("an error handler failed itself")
        if not given_up:
            pause = min(30.0, 0.25 * 2.0 ** min(item.attempts, 10))
            item.not_before = time.monotonic() + pause * random.uniform(0.5, 1.0)
        return given_up
