"""Sends: from `send_message` to the ack, over the socket or HTTP, whichever works, under one client_message_id."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hub.client.core.outbox import Entry, Outbox
from hub.client.errors import ClientError, Conflict, HubError, SendTimeout, Unreachable, error_from
from hub.client.frames import Ack, ErrorFrame, Record
from hub.client.journal import Journal
from hub.client.rest import Rest, segment
from hub.client.wire import check_size, encode

log = logging.getLogger("hub.client")


class Sent(Record, kw_only=True):
    """What the hub said of a stored message. `duplicate`: it had been stored before, by an earlier try."""

    message_id: str | None
    session_id: str
    sequence: int
    client_message_id: str
    status: str = "sent"
    kind: str | None = None
    trace_id: str | None = None
    timestamp: str | None = None
    duplicate: bool = False


class Sender:
    """The outbox with its shell: futures for who waits, a task that feeds HTTP while there is no socket, the disk."""

    def __init__(
        self,
        rest: Rest,
        *,
        wake: Callable[[], None],
        stored: Callable[[str, int], None],
        settled: Callable[[str], None],
        size: int = 1000,
        http_after: float = 1.0,
        ack_timeout: float = 20.0,
    ) -> None:
        self.outbox = Outbox(http_after=http_after, ack_timeout=ack_timeout)
        self.journal: Journal | None = None
        self._rest = rest
        self._wake = wake
        self._stored = stored
        self._settled = settled
        self._size = size
        self._waiters: dict[str, asyncio.Future[Sent]] = {}
        self._joined: Counter[str] = Counter()
        self._room: asyncio.Condition | None = None
        self._pump: asyncio.Task[None] | None = None
        self._work = asyncio.Event()
        self._posting: set[asyncio.Task[None]] = set()
        self._error: HubError | ClientError | None = None

    async def start(self, journal: Journal | None) -> None:
        self.journal = journal
        self._room = asyncio.Condition()
        self._work = asyncio.Event()
        self._error = None
        if journal is not None:
            for client_message_id, session_id, body in await journal.queued():
                if self.outbox.get(client_message_id) is None:
                    entry = Entry(client_message_id, session_id, body, time.monotonic(), durable=True)
                    entry.attempts = 1  # the process before us may have sent it
                    self.outbox.add(entry)
        self._pump = asyncio.create_task(self._feed_http(), name="hub outbox")

    async def stop(self) -> None:
        tasks = [task for task in (self._pump, *self._posting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pump = None

    def fail(self, error: HubError | ClientError) -> None:
        """Nothing more will be sent. What is durable stays on the disk."""
        self._error = error
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()
        self._waiters.clear()
        for entry in self.outbox:
            self.outbox.remove(entry.client_message_id)

    async def send(
        self, session_id: str, body: dict[str, Any], *, client_message_id: str | None, timeout: float | None
    ) -> Sent:
        """Store one message; returns when the hub has it. Sending again what is under way joins it."""
        segment(session_id)
        text = encode(body)
        check_size(body, text)
        key = client_message_id or f"c-{secrets.token_hex(12)}"
        self._joined[key] += 1
        try:
            async with asyncio.timeout(timeout):
                waiter = await self._admit(key, session_id, body)
                return await asyncio.shield(waiter)
        except TimeoutError:
            raise SendTimeout(key, queued=self._abandon(key)) from None
        except asyncio.CancelledError:
            self._abandon(key)
            raise
        finally:
            self._joined[key] -= 1
            if not self._joined[key]:
                del self._joined[key]

    async def _admit(self, key: str, session_id: str, body: dict[str, Any]) -> asyncio.Future[Sent]:
        assert self._room is not None
        if (waiter := self._waiters.get(key)) is not None:
            return waiter
        async with self._room:
            await self._room.wait_for(lambda: len(self.outbox) < self._size or self._error is not None)
        if self._error is not None:
            raise self._error
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[key] = waiter
        entry = self.outbox.get(key)
        if entry is not None:
            if (entry.session_id, entry.body) != (session_id, body):
                del self._waiters[key]
                raise Conflict(f"{key} is already on its way with another body.")
            return waiter
        if self.journal is not None:
            await self.journal.queue(key, session_id, body)
        self.outbox.add(Entry(key, session_id, body, time.monotonic(), durable=self.journal is not None))
        self._wake()
        self._work.set()
        return waiter

    def _abandon(self, key: str) -> bool:
        """One who waited has gone: a durable entry is sent all the same, and so is one that others wait for."""
        entry = self.outbox.get(key)
        if self._joined[key] > 1:
            return entry is not None
        self._waiters.pop(key, None)
        if entry is None or entry.durable:
            return entry is not None
        self.outbox.remove(key)
        self._settled(entry.session_id)
        self._freed()
        return False

    async def flush(self, session_id: str | None = None, *, timeout: float | None = None) -> None:
        """Wait until nothing (of one session) is under way."""
        assert self._room is not None
        async with asyncio.timeout(timeout):
            async with self._room:
                await self._room.wait_for(
                    lambda: not (self.outbox.has(session_id) if session_id is not None else len(self.outbox))
                )

    # --- the socket ---

    def socket_opened(self, now: float, *, per_second: float | None, burst: float | None) -> None:
        self.outbox.socket_opened(now, per_second=per_second, burst=burst)
        self._wake()

    def socket_lost(self, now: float) -> None:
        self.outbox.socket_lost(now)
        self._work.set()

    def outgoing(self, now: float) -> list[str]:
        self.outbox.overdue(now)
        texts = []
        for entry in self.outbox.for_socket(now):
            frame = {
                "type": "message",
                "session_id": entry.session_id,
                "client_message_id": entry.client_message_id,
                **entry.body,
            }
            texts.append(encode(frame))
        return texts

    def acked(self, frame: Ack) -> bool:
        key = frame.client_message_id
        entry = self.outbox.get(key) if key else None
        if entry is None:
            return False
        sent = Sent(
            message_id=frame.message_id,
            session_id=entry.session_id,
            sequence=frame.sequence or 0,
            client_message_id=entry.client_message_id,
            kind=frame.kind,
            trace_id=frame.trace_id,
            timestamp=frame.timestamp,
            duplicate=frame.duplicate,
        )
        self._done(entry, sent)
        return True

    def errored(self, frame: ErrorFrame) -> bool:
        key = frame.client_message_id
        entry = self.outbox.get(key) if key else None
        if entry is None:
            return False
        self._refused(entry, error_from(frame.code, frame.message, frame.details))
        return True

    def _done(self, entry: Entry, sent: Sent) -> None:
        self.outbox.remove(entry.client_message_id)
        if sent.sequence:
            self._stored(entry.session_id, sent.sequence)
        waiter = self._waiters.pop(entry.client_message_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(sent)
        self._after(entry)

    def _refused(self, entry: Entry, error: HubError) -> None:
        if self.outbox.refused(entry.client_message_id, error, time.monotonic()):
            log.info("send refused for now (%s); it will be sent again", error.code)
            self._wake()
            self._work.set()
            return
        error.details.setdefault("session_id", entry.session_id)
        waiter = self._waiters.pop(entry.client_message_id, None)
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
            waiter.exception()
        elif waiter is None:
            log.error("a queued message was refused and is dropped: %s: %s", error.code, error)
        self._settled(entry.session_id)
        self._after(entry)

    def _after(self, entry: Entry) -> None:
        if entry.durable and self.journal is not None:
            self._spawn(self.journal.unqueue(entry.client_message_id))
        self._freed()
        self._wake()
        self._work.set()

    def _freed(self) -> None:
        self._spawn(self._notify())

    async def _notify(self) -> None:
        assert self._room is not None
        async with self._room:
            self._room.notify_all()

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._posting.add(task)
        task.add_done_callback(self._posting.discard)

    # --- HTTP, while there is no socket ---

    async def _feed_http(self) -> None:
        while True:
            self._work.clear()
            now = time.monotonic()
            for entry in self.outbox.for_http(now):
                self._spawn(self._post(entry))
            at = self.outbox.next_wakeup(now)
            if at is None or self.outbox.socket_is_open:
                await self._work.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.02, at - time.monotonic())):
                    await self._work.wait()

    async def _post(self, entry: Entry) -> None:
        body = {**entry.body, "client_message_id": entry.client_message_id}
        body.pop("wait_for_response", None)  # over HTTP it would hold the answer back; the ask looks for it itself
        path = f"sessions/{segment(entry.session_id)}/messages"
        try:
            answer = await self._rest.call("POST", path, body=body, retry_for=0.0)
        except Unreachable:
            self.outbox.http_failed(entry.client_message_id, time.monotonic())
        except HubError as error:
            if self.outbox.get(entry.client_message_id) is entry:
                self._refused(entry, error)
        except ClientError:
            self.outbox.http_failed(entry.client_message_id, time.monotonic())
        except asyncio.CancelledError:
            self.outbox.http_failed(entry.client_message_id, time.monotonic())
            raise
        else:
            self.outbox.http_worked(time.monotonic())
            if self.outbox.get(entry.client_message_id) is entry:
                self._done(entry, sent_of(answer, entry.session_id, entry.client_message_id))
        self._work.set()


def sent_of(answer: dict[str, Any], session_id: str, client_message_id: str) -> Sent:
    """The REST answer to a send, as what an ack says."""
    message = answer.get("message") or {}
    return Sent(
        message_id=answer.get("message_id"),
        session_id=session_id,
        sequence=int(answer.get("sequence") or 0),
        client_message_id=client_message_id,
        kind=message.get("kind"),
        trace_id=answer.get("trace_id"),
        timestamp=message.get("timestamp"),
        duplicate=bool(answer.get("duplicate")),
    )
