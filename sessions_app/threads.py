"""The two kinds of threads of a process that own database connections: one writer and a few readers.

The event loop never touches the database. What sockets and requests want to write is collected by the writer and committed
as a group: one fsync for many, acked together, so that durability costs almost nothing under load.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import IntegrityError, connection

from sessions_app import sql
from sessions_app.append import Draft, Outcome, Stored, append
from sessions_app.changes import Changes
from sessions_app.cursors import CursorMove, CursorNow, move_cursors
from sessions_app.db import is_outage, on_postgres, write_transaction
from sessions_app.models import Message
from sessions_app.protocol.errors import HubError, Internal, Unavailable
from sessions_app.protocol.ids import message_keys

log = logging.getLogger("hub.writer")
T = TypeVar("T")
MAX_BATCH = 512

Appended = Callable[[Outcome], None]
Moved = Callable[[CursorNow | HubError], None]


class Writer(threading.Thread):
    """The group-commit thread. Callbacks run on the event loop, after the commit and before anybody else is told.

    `on_commit(changes)` is called on the loop once per group, after the callbacks of that group.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_commit: Callable[[Changes], None]) -> None:
        super().__init__(name="hub-writer", daemon=True)
        self._loop = loop
        self._on_commit = on_commit
        self._drafts: deque[tuple[Draft, Appended]] = deque()
        self._moves: deque[tuple[CursorMove, Moved | None]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self.committed_at = 0.0

    def append(self, draft: Draft, done: Appended) -> None:
        """Queue a draft; `done(outcome)` follows on the loop."""
        self._drafts.append((draft, done))
        if not self._wake.is_set():
            self._wake.set()

    def move_cursor(self, move: CursorMove, done: Moved | None = None) -> None:
        """Queue a cursor move; moves of one participant that wait together become one."""
        self._moves.append((move, done))
        if not self._wake.is_set():
            self._wake.set()

    @property
    def backlog(self) -> int:
        return len(self._drafts)

    def stop(self) -> None:
        """Write what is queued, then end."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            while self._drafts or self._moves:
                drafts = _take(self._drafts)
                moves = _take(self._moves)
                try:
                    self._write(drafts, moves)
                except Exception:  # the thread outlives everything: without it nobody could send any more
                    log.exception("a group could not be handed back")
            if self._stopping:
                connection.close()
                return

    def _write(self, drafts: list[tuple[Draft, Appended]], moves: list[tuple[CursorMove, Moved | None]]) -> None:
        changes = Changes()
        outcomes, read = self._commit([d for d, _ in drafts], [m for m, _ in moves], changes)
        self.committed_at = time.monotonic()

        def hand_over() -> None:
            for (_, appended), outcome in zip(drafts, outcomes, strict=True):
                appended(outcome)
            for (_, moved), now in zip(moves, read, strict=True):
                if moved is not None:
                    moved(now)
            if changes:
                self._on_commit(changes)

        try:
            self._loop.call_soon_threadsafe(hand_over)
        except RuntimeError:  # the loop has ended; the rows are there, and that is what counts
            log.info("%d outcomes had no loop left to go to", len(drafts))

    def _commit(
        self, drafts: list[Draft], moves: list[CursorMove], changes: Changes
    ) -> tuple[list[Outcome], list[CursorNow | HubError]]:
        # PostgreSQL locks participants' rows: moves get a transaction of their own there, so that every transaction takes
        # its rows in one sorted pass and no two can wait for each other. What comes of the one does not touch the other.
        if on_postgres():
            outcomes, _ = self._together(drafts, [], changes) if drafts else ([], [])
            _, read = self._together([], moves, changes) if moves else ([], [])
            return outcomes, read
        return self._together(drafts, moves, changes)

    def _together(
        self, drafts: list[Draft], moves: list[CursorMove], changes: Changes
    ) -> tuple[list[Outcome], list[CursorNow | HubError]]:
        """One transaction for all, or, when that fails, one for each: what was wrong with one shall not hit its neighbours."""
        own = Changes()
        try:
            with write_transaction():
                outcomes = append(drafts, own) if drafts else []
                read = move_cursors(moves, own) if moves else []
        except Exception as error:
            if not is_outage(error):
                log.warning("a group of %d failed, retrying one by one: %r", len(drafts) + len(moves), error)
            return [self._alone(draft, changes) for draft in drafts], [self._move(move, changes) for move in moves]
        changes.take_over(own)
        return outcomes, read

    @staticmethod
    def _move(move: CursorMove, changes: Changes) -> CursorNow | HubError:
        own = Changes()
        try:
            with write_transaction():
                now = move_cursors([move], own)[0]
        except Exception as error:
            return _refusal(error, stored=False)
        changes.take_over(own)
        return now

    def _alone(self, draft: Draft, changes: Changes) -> Outcome:
        for attempt in (1, 2):
            own = Changes()
            try:
                with write_transaction():
                    outcome = append([draft], own)[0]
                changes.take_over(own)
                return outcome
            except Exception as error:
                known, message = self._look_up(draft)
                if message is not None:
                    return message
                if not known:
                    return _refusal(error, stored="unknown")
                if attempt == 2:
                    return _refusal(error, stored=False)
                # Under the same key: who sent it knows that one as its own, and a commit that was only late can't be doubled.
                if isinstance(error, IntegrityError):  # unless it is taken, since two processes drew the same node
                    message_keys.redraw()
                    draft.key = message_keys.next()
        raise AssertionError("unreachable")

    @staticmethod
    def _look_up(draft: Draft) -> tuple[bool, Stored | None]:
        """After a failed commit: `(could we look, what is stored)`. The key was chosen before, so the row can be found."""
        try:
            connection.close()
            own = Message.objects.filter(
                pk=draft.key, session_id=draft.session_pk, sender_id=draft.sender_pk, content=draft.content
            )
            if not own.exists():  # nothing, or what another process has stored under the same key
                return True, None
            return True, Stored(sql.messages_by_key([draft.key])[draft.key])
        except Exception:  # whatever it is, the answer is that we do not know
            return False, None


def _take(queue: deque[T]) -> list[T]:
    taken: list[T] = []
    try:
        while len(taken) < MAX_BATCH:
            taken.append(queue.popleft())
    except IndexError:
        pass
    return taken


def _refusal(error: Exception, stored: bool | str) -> HubError:
    if isinstance(error, HubError):
        return error
    if is_outage(error) or stored == "unknown":
        log.warning("the database could not commit: %r", error)
        return Unavailable(stored=stored)
    log.error("a message could not be stored", exc_info=error)
    return Internal()


class Readers:
    """Reader threads; every read of sockets and hot requests runs here."""

    def __init__(self, threads: int = 2) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="hub-reader")
        self._stopped = False

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function` in a reader thread. Raises `Unavailable` when the database can't be read, after one retry, and when
        the process stops."""
        if self._stopped:
            raise Unavailable(stored=False)
        return await asyncio.get_running_loop().run_in_executor(self._pool, _read, function, *arguments)

    def stop(self) -> None:
        """Finish what was asked for, and give the connections back: one left to a dead thread is lost to the driver's pool."""
        self._stopped = True
        together = threading.Barrier(self._threads)  # so that each thread closes once, its own
        for _ in range(self._threads):
            self._pool.submit(_close, together)
        self._pool.shutdown(wait=False)


def _close(together: threading.Barrier) -> None:
    try:
        together.wait(2)
    except threading.BrokenBarrierError:
        pass  # another thread is still reading; it closes after that
    connection.close()


def _read(function: Callable[..., T], *arguments: Any) -> T:
    for attempt in (1, 2):
        try:
            return function(*arguments)
        except Exception as error:
            if not is_outage(error):
                raise
            connection.close()  # the server may have restarted under this connection
            if attempt == 2:
                log.warning("the database could not be read: %r", error)
                raise Unavailable(stored=False) from None
    raise AssertionError("unreachable")
