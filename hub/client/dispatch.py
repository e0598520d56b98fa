"""From inboxes to handlers: one worker per session that has something to do, in order, with redelivery and back-pressure."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

from hub.client.asks import Asks
from hub.client.core.inbox import Gauge, Item, Offer, SessionInbox
from hub.client.errors import ClientError, HubError, NotFound
from hub.client.frames import Message, NewSession, ReplayComplete, SessionUnread
from hub.client.handlers import Handlers, Handling
from hub.client.iterators import EventStream
from hub.client.journal import Journal

log = logging.getLogger("hub.client")


class Log(Protocol):
    """The hub's log of a session."""

    async def __call__(self, session_id: str, after: int, limit: int) -> tuple[list[Message], bool, int]:
        """`(messages, has_more, last_sequence)` after a sequence."""


class Dispatcher:
    """Owns the inboxes and the workers of one client.

    limit: messages held per session; limit_total: in all sessions together; beyond, sessions fall behind and are read from
    the log again. parallel: sessions handled at once. max_attempts: after so many failures a message is given up, reported
    and passed over (None: never).
    """

    def __init__(
        self,
        agent_id: str,
        *,
        read_log: Log,
        wake: Callable[[], None],
        own_in_flight: Callable[[str], int],
        asks: Asks,
        limit: int = 1000,
        limit_total: int = 10_000,
        parallel: int = 64,
        max_attempts: int | None = None,
    ) -> None:
        self.agent_id = agent_id
        self.limit = limit
        self.limit_total = limit_total
        self.parallel = parallel
        self.handlers = Handlers(max_attempts=max_attempts, stopping=lambda: self._slots is None)
        self.journal: Journal | None = None
        self.inboxes: dict[str, SessionInbox] = {}
        self.streams: list[EventStream] = []
        self._read_log = read_log
        self._wake = wake
        self._own_in_flight = own_in_flight
        self._asks = asks
        self._known: dict[str, tuple[int, bool]] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._slots: asyncio.Semaphore | None = None
        self._due: set[str] = set()
        self._gauge = Gauge()

    # --- life ---

    async def start(self, journal: Journal | None) -> None:
        self.journal = journal
        self._slots = asyncio.Semaphore(self.parallel)
        if journal is not None:
            self._known = await journal.cursors()
        self.poke()

    async def drain(self, seconds: float) -> None:
        """Let handlers that run come to their end, but start nothing new."""
        slots, self._slots = self._slots, None
        workers = [task for task in self._workers.values() if task is not asyncio.current_task()]
        if slots is not None and workers and seconds > 0:
            await asyncio.wait(workers, timeout=seconds)

    async def stop(self) -> None:
        self._slots = None
        me = asyncio.current_task()
        tasks = [task for task in (*self._workers.values(), *self._readers.values()) if task is not me]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workers.clear()
        self._readers.clear()

    # --- what arrives ---

    def inbox(self, session_id: str) -> SessionInbox:
        inbox = self.inboxes.get(session_id)
        if inbox is None:
            known = self._known.get(session_id)
            done = known[0] if known is not None and known[0] > 0 else None
            inbox = SessionInbox(session_id, agent_id=self.agent_id, limit=self.limit, done=done, gauge=self._gauge)
            inbox.announced = known is not None and known[1]
            self.inboxes[session_id] = inbox
        return inbox

    def message(self, frame: Message) -> bool:
        """A message from any socket; True when it is the first time that it is seen."""
        inbox = self.inbox(frame.session_id)
        offer = inbox.offer(frame, own_in_flight=self._own_in_flight(frame.session_id), room=self._room() > 0)
        self._next_step(inbox)
        return offer is not Offer.DUPLICATE

    def new_session(self, frame: NewSession) -> None:
        inbox = self.inbox(frame.session_id)
        if frame.session.initiator == self.agent_id:
            return
        inbox.announce(frame)
        self._next_step(inbox)

    def event(self, session_id: str, frame: Any) -> None:
        """A passing event, for those who iterate."""
        if any(stream.wants(session_id) for stream in self.streams):
            inbox = self.inbox(session_id)
            inbox.note(frame)
            self._next_step(inbox)

    def own_stored(self, session_id: str, sequence: int) -> None:
        inbox = self.inbox(session_id)
        inbox.own_stored(sequence)
        inbox.settle(self._own_in_flight(session_id))
        self._next_step(inbox)

    def settle(self, session_id: str) -> None:
        """A send into this session was refused or given up."""
        inbox = self.inboxes.get(session_id)
        if inbox is not None:
            inbox.settle(self._own_in_flight(session_id))
            self._next_step(inbox)

    def replayed(self, frame: ReplayComplete) -> None:
        if frame.session_id is None or frame.sequence is None:
            return
        inbox = self.inbox(frame.session_id)
        if not frame.recovered:
            log.warning("session %s: messages were removed by retention before this agent saw them", frame.session_id)
        inbox.reached(frame.sequence, recovered=frame.recovered, own_in_flight=self._own_in_flight(frame.session_id))
        self._next_step(inbox)

    def welcomed(self, sessions: list[SessionUnread]) -> None:
        for entry in sessions:
            inbox = self.inbox(entry.session_id)
            if inbox.reconcile(cursor=entry.cursor, last_sequence=entry.last_sequence):
                log.warning("session %s: our cursor was impossible; starting from the hub's", entry.session_id)
                if self.journal is not None:
                    task = asyncio.ensure_future(self.journal.reset(entry.session_id, entry.cursor))
                    self._readers[f"reset {entry.session_id}"] = task
                self._next_step(inbox)
        self._due.update(key for key, inbox in self.inboxes.items() if inbox.ack_due() is not None)
        self._wake()

    def disconnected(self) -> None:
        for inbox in self.inboxes.values():
            inbox.disconnected()
            self._next_step(inbox)

    def ended(self, session_id: str) -> None:
        inbox = self.inboxes.get(session_id)
        if inbox is not None:
            inbox.ended = True
            self._forget(inbox)

    def gone(self, session_id: str) -> None:
        """We are no longer in this session: what was not handled can no longer be acknowledged."""
        inbox = self.inboxes.pop(session_id, None)
        if inbox is not None:
            inbox.clear()
            self._due.discard(session_id)

    # --- acknowledgements ---

    def acks(self, only: str | None = None) -> list[tuple[str, int]]:
        """`(session_id, sequence)` to tell the hub now; they count as sent."""
        acks = []
        for session_id in [only] if only is not None else list(self._due):
            inbox = self.inboxes.get(session_id)
            self._due.discard(session_id)
            if inbox is not None and (sequence := inbox.ack_due()) is not None:
                inbox.ack_sent(sequence)
                acks.append((session_id, sequence))
        return acks

    def confirmed(self, session_id: str, cursor: int) -> None:
        inbox = self.inboxes.get(session_id)
        if inbox is not None:
            inbox.ack_confirmed(cursor)
            self._forget(inbox)

    def _forget(self, inbox: SessionInbox) -> None:
        if inbox.ended and inbox.idle and inbox.session_id not in self._workers:
            self._known[inbox.session_id] = (inbox.done, True)
            self.inboxes.pop(inbox.session_id, None)

    # --- workers ---

    def poke(self) -> None:
        """Handlers were added, or a stream: look at what was held back."""
        for inbox in list(self.inboxes.values()):
            self._next_step(inbox)

    def handled(self, session_id: str) -> bool:
        """Whether nothing of the session waits for a handler that would take it, or only what a handler has refused."""
        inbox = self.inboxes.get(session_id)
        if inbox is None or (inbox.head() is None and not inbox.behind):
            return True
        head = inbox.head()
        return head is not None and (head.attempts > 0 or not self._takes(inbox, head))

    def worker_of(self, session_id: str) -> asyncio.Task[None] | None:
        return self._workers.get(session_id)

    def _room(self) -> int:
        return self.limit_total - self._gauge.held

    def _next_step(self, inbox: SessionInbox) -> None:
        if self._slots is None:
            return
        key = inbox.session_id
        if inbox.behind and key not in self._readers and inbox.page_wanted(room=self._room()) is not None:
            self._readers[key] = asyncio.create_task(self._catch_up(inbox), name=f"hub log {key}")
        head = inbox.head()
        if head is not None and key not in self._workers and self._takes(inbox, head):
            self._workers[key] = asyncio.create_task(self._work(inbox), name=f"hub session {key}")

    async def _catch_up(self, inbox: SessionInbox) -> None:
        key = inbox.session_id
        try:
            while (wanted := inbox.page_wanted(room=self._room())) is not None:
                messages, has_more, last_sequence = await self._read_log(key, *wanted)
                for message in messages:
                    if message.sender != self.agent_id:
                        self._asks.saw(message)
                inbox.page(messages, has_more=has_more, last_sequence=last_sequence)
                if self._slots is None:
                    return
                self._next_step(inbox)
        except NotFound:
            self.gone(key)
        except (HubError, ClientError) as error:
            # Rest has already tried for a while; the next message, ack or connection brings us here again.
            log.warning("session %s: its log could not be read: %s", key, error)
        finally:
            self._readers.pop(key, None)

    def _takes(self, inbox: SessionInbox, item: Item) -> bool:
        if not item.durable:
            return True
        if self.handlers.message or any(stream.wants(inbox.session_id) for stream in self.streams):
            return True
        if isinstance(item.payload, NewSession):
            return bool(self.handlers.session)
        return self._asks.may_claim(item.payload)

    async def _work(self, inbox: SessionInbox) -> None:
        key = inbox.session_id
        try:
            while self._slots is not None and (item := inbox.head()) is not None and self._takes(inbox, item):
                if (delay := item.not_before - time.monotonic()) > 0:
                    await asyncio.sleep(delay)
                    continue
                async with self._slots:
                    handled = await self._handle(inbox, item)
                if handled and inbox.head() is item:  # else the queue was reset meanwhile
                    await self._finish(inbox, item)
                elif inbox.head() is None:
                    return
        finally:
            self._workers.pop(key, None)
            if self._slots is not None and self.inboxes.get(key) is inbox:
                self._next_step(inbox)
                self._forget(inbox)

    async def _finish(self, inbox: SessionInbox, item: Item) -> None:
        cursor = inbox.finish(item)
        if self.journal is not None:
            if isinstance(item.payload, NewSession) or (item.sequence is None and item.durable):
                await self.journal.announced(inbox.session_id)
            if cursor is not None and not item.recorded:
                await self.journal.move(inbox.session_id, cursor)
        if cursor is not None:
            # Only now: the hub may forget what it is told that we have.
            self._due.add(inbox.session_id)
            self._wake()
        if inbox.behind:
            self._next_step(inbox)

    async def _handle(self, inbox: SessionInbox, item: Item) -> bool:
        payload = item.payload
        if not item.durable:
            for stream in self._streams_of(inbox):
                await stream.offer(payload)
            return True
        if isinstance(payload, NewSession):
            return await self._handle_new(inbox, item, payload)
        await self._asks.settled(inbox.session_id)
        if self._asks.claim(payload):
            return True
        return await self._handle_message(inbox, item, payload)

    async def _handle_new(self, inbox: SessionInbox, item: Item, frame: NewSession) -> bool:
        first = frame.initial_message
        for stream in self._streams_of(inbox):
            if id(stream) not in item.finished_by:
                await stream.offer(frame)
                item.finished_by.add(id(stream))
        if self.handlers.session:
            key = first.message_id if first is not None else f"new-{frame.session_id}"
            context = Handling(key, frame.session_id, first)
            calls = [
                (handler, (frame.session_id, first.content if first is not None else ""))
                for handler in self.handlers.session
            ]
            return await self.handlers.call(item, context, calls)
        if first is None or item.sequence is None:
            return True
        item.payload = first  # nobody asked for new sessions as such: it is a message like others
        return await self._handle_message(inbox, item, first)

    async def _handle_message(self, inbox: SessionInbox, item: Item, message: Message) -> bool:
        context = Handling(message.message_id, message.session_id, message)
        # As they are now: a handler that is registered meanwhile has not seen this message.
        handlers = list(self.handlers.message)
        if not await self.handlers.call(item, context, [(handler, (message,)) for handler in handlers]):
            return False
        read = False
        for stream in self._streams_of(inbox):
            if id(stream) not in item.finished_by and await stream.offer(message):
                item.finished_by.add(id(stream))
            read = read or id(stream) in item.finished_by
        return bool(handlers) or read  # else the one who read it left before it was done

    def _streams_of(self, inbox: SessionInbox) -> list[EventStream]:
        return [stream for stream in self.streams if stream.wants(inbox.session_id)]
