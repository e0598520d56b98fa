"""Handlers turned inside out: `async for event in client.events()` takes the place of a handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

Finished = asyncio.Future[bool]


class EventStream:
    """One reader of events. A message counts as handled when the reader asks for the next thing, not when it gets it.

    Hand-over is one by one: whoever offers waits until the reader is through, so nothing piles up here. Leaving the loop
    leaves the message that was in hand unhandled: it stays, for whoever reads next.
    """

    def __init__(self, session_id: str | None, *, leave: Callable[[EventStream], None]) -> None:
        self.session_id = session_id
        self.closed = False
        self._leave = leave
        self._offers: list[tuple[Any, Finished]] = []
        self._there = asyncio.Event()
        self._in_hand: Finished | None = None
        self._error: BaseException | None = None

    def wants(self, session_id: str) -> bool:
        return not self.closed and self.session_id in (None, session_id)

    async def offer(self, event: Any) -> bool:
        """Hand over and wait until the reader is through with it; False when it left instead."""
        if self.closed:
            return False
        finished: Finished = asyncio.get_running_loop().create_future()
        self._offers.append((event, finished))
        self._there.set()
        try:
            return await finished
        finally:
            self._offers = [entry for entry in self._offers if entry[1] is not finished]

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._in_hand is not None and not self._in_hand.done():
            self._in_hand.set_result(True)
        self._in_hand = None
        while not self._offers:
            if self._error is not None:
                raise self._error
            if self.closed:
                raise StopAsyncIteration
            self._there.clear()
            await self._there.wait()
        event, self._in_hand = self._offers.pop(0)
        return event

    def end(self, error: BaseException | None = None) -> None:
        """No more events: the loop ends, or raises `error`."""
        if self.closed:
            return
        self.closed = True
        self._error = error
        self._leave(self)
        for _, finished in self._offers:
            if not finished.done():
                finished.set_result(False)
        self._offers.clear()
        if self._in_hand is not None and not self._in_hand.done():
            self._in_hand.set_result(False)
        self._there.set()

    async def aclose(self) -> None:
        self.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A body that came to its end by itself (`break`) has dealt with what it had in hand; one that raised has not.
        if kind is None and self._in_hand is not None and not self._in_hand.done():
            self._in_hand.set_result(True)
        self.end()
