"""One task's events over as many connections as it takes. A cut is not an end: only a state is.

A message goes out; what answers it is a stream, or a task that is looked at again and again. When a connection ends early,
is silent for too long or can't be had, the task is taken up by its id (subscribe, and where that is refused, get). Without
an id the same message is sent again: its id makes it the same one for a remote that keeps to the standard.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from a2a.types import GetTaskRequest, SendMessageRequest, StreamResponse, SubscribeToTaskRequest

from hub.a2a.outbound.transcript import FINAL, INTERRUPTED
from hub.a2a.outbound.trouble import EXPECTED, Trouble, trouble_of

if TYPE_CHECKING:
    from a2a.client import Client

Events = AsyncGenerator[StreamResponse, None]

SENDS = 3  # of one message, after it may have been received
PAUSE_SECONDS = (0.2, 5.0)
LOOK_SECONDS = (0.3, 5.0)


class Talk:
    """`send`, `take_up`, then `events()` until the task rests. `retry_seconds`: how long no event may be had at all."""

    def __init__(self, client: Client, *, streaming: bool, retry_seconds: float) -> None:
        self._client = client
        self.streaming = streaming
        self._retry_seconds = retry_seconds
        self._task_id = ""
        self._request: SendMessageRequest | None = None
        self._sends = 0
        self._rests = False
        self.connections = 0
        self.resumed = False
        """Whether what could have been a stream was taken up in its middle."""
        self.sending = False
        """Whether the request under way carries the message."""
        self._unheard = False
        """Whether the last subscription told nothing. Some servers of 0.3 never answer one to a task that has ended."""

    def send(self, request: SendMessageRequest) -> Events:
        """Send a message and follow what comes of it."""
        self._request = request
        return self._events()

    def take_up(self, task_id: str, request: SendMessageRequest | None = None) -> Events:
        """Follow a task that is there. With `request`: the answer that it may not have got; sent if it still waits for it."""
        self._task_id = task_id
        return self._look_first(request) if request is not None else self._events()

    async def _look_first(self, request: SendMessageRequest) -> Events:
        waits = False
        async with aclosing(self._patiently(self._get, once=True)) as events:
            async for event in events:
                waits = event.task.status.state in INTERRUPTED
                if not waits:
                    yield event
        if waits:
            self._request, self._rests = request, False
        if not self._rests:
            async with aclosing(self._events()) as events:
                async for event in events:
                    yield event

    def _events(self) -> Events:
        return self._patiently(self._connect)

    async def _patiently(self, connect: Callable[[], Events], *, once: bool = False) -> Events:
        """Connect until the task rests. Raises `Trouble` that does not pass, or has not passed in time."""
        failures, heard_at = 0, time.monotonic()
        while True:
            trouble = None
            heard = 0
            try:
                async with aclosing(connect()) as events:
                    async for event in events:
                        heard, heard_at = heard + 1, time.monotonic()
                        self._note(event)
                        yield event
                        if self._rests or once:
                            return
            except EXPECTED as error:
                trouble = trouble_of(error)
            if trouble is None and self._request is not None:  # it answered, and named no task
                trouble = Trouble("remote_unreachable", "The remote agent's answer broke off at once.", retry=True)
            if trouble is not None and not self._passes(trouble):
                raise trouble
            if time.monotonic() - heard_at > self._retry_seconds:
                raise trouble or Trouble("remote_unreachable", "The remote agent cuts its answers again and again.")
            # One that is cut after its first event each time is not asked faster and faster.
            failures = 0 if heard > 1 else failures + 1
            await asyncio.sleep(_pause(failures, PAUSE_SECONDS, trouble.after if trouble is not None else None))

    def _passes(self, trouble: Trouble) -> bool:
        if not trouble.retry:
            return False
        if trouble.unsent or self._request is None:
            return True
        return self._sends < SENDS

    def _note(self, event: StreamResponse) -> None:
        kind = event.WhichOneof("payload")
        if kind == "message":
            self._rests = True
            return
        if kind == "task":
            state, task_id = event.task.status.state, event.task.id
        elif kind == "status_update":
            state, task_id = event.status_update.status.state, event.status_update.task_id
        elif kind == "artifact_update":
            state, task_id = None, event.artifact_update.task_id
        else:
            raise Trouble("remote_protocol", "What the remote agent answered is not A2A (an event without content).")
        if task_id:
            self._task_id = task_id
            self._request = None  # it has arrived
        self._rests = state in FINAL or state in INTERRUPTED

    async def _connect(self) -> Events:
        """One connection, as far as it goes."""
        self.connections += 1
        if self._request is not None:
            self._sends += 1
            self.sending = True
            try:
                async with aclosing(_generator(self._client.send_message(self._request))) as events:
                    async for event in events:
                        self.sending = False
                        yield event
            finally:
                self.sending = False
            return
        self.resumed = self.resumed or self.streaming
        if self.streaming:
            if self._unheard:
                async for event in self._get():
                    yield event
                if self._rests:
                    return
            self._unheard = True
            try:
                async with aclosing(
                    _generator(self._client.subscribe(SubscribeToTaskRequest(id=self._task_id)))
                ) as events:
                    async for event in events:
                        self._unheard = False
                        yield event
                return
            except EXPECTED as error:
                if trouble_of(error).retry:
                    raise
                self.streaming = False  # the task has ended, or this remote does not do it: look
        looks = 0
        while not self._rests:
            if looks or self.connections > 1:
                await asyncio.sleep(_pause(looks, LOOK_SECONDS, None))
            looks += 1
            async for event in self._get():
                yield event

    async def _get(self) -> Events:
        yield StreamResponse(task=await self._client.get_task(GetTaskRequest(id=self._task_id, history_length=0)))


def _pause(number: int, bounds: tuple[float, float], after: float | None) -> float:
    """Seconds: grows from the first bound to the second, with jitter, and never less than the remote asked for."""
    base, cap = bounds
    return random.uniform(0.5, 1.0) * min(cap, base * 1.7 ** min(number, 20)) + (after or 0.0)


def _generator(events: Any) -> Events:
    """The SDK calls its generators iterators."""
    return events  # type: ignore[no-any-return]
