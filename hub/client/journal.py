"""The client's memory on disk: one SQLite file with the cursor of each session and what is still to be sent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from hub.client.errors import StateInUse
from hub.client.threads import SerialThread
from hub.client.wire import encode

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS hub_owner (hub TEXT NOT NULL, agent_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS hub_cursor (
    session_id TEXT PRIMARY KEY, done INTEGER NOT NULL, announced INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS hub_outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, client_message_id TEXT NOT NULL UNIQUE, session_id TEXT NOT NULL,
    body TEXT NOT NULL
);
"""
_MOVE = (
    "INSERT INTO hub_cursor (session_id, done) VALUES (?, ?) "
    "ON CONFLICT (session_id) DO UPDATE SET done = max(done, excluded.done)"
)
_RESET = "INSERT INTO hub_cursor (session_id, done) VALUES (?, ?) ON CONFLICT (session_id) DO UPDATE SET done = excluded.done"
_ANNOUNCED = (
    "INSERT INTO hub_cursor (session_id, done, announced) VALUES (?, 0, 1) "
    "ON CONFLICT (session_id) DO UPDATE SET announced = 1"
)
_QUEUE = "INSERT INTO hub_outbox (client_message_id, session_id, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_UNQUEUE = "DELETE FROM hub_outbox WHERE client_message_id = ?"


class Journal:
    """State of one agent at one hub, in one file that one process holds at a time (`StateInUse` for a second one).

    What is written is on the disk when the call returns; writes that wait for each other share a transaction. The file may
    also hold tables of the program: `once` commits them together with the cursor.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._db: sqlite3.Connection | None = None
        self._thread: SerialThread | None = None
        self._lock: asyncio.Lock | None = None
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []
        self._taken = 0
        self._written = 0

    async def open(self, hub: str, agent_id: str) -> None:
        if self._db is not None:
            return
        self._thread = SerialThread("hub journal")
        self._lock = asyncio.Lock()
        try:
            self._db = await self._run(lambda: _connect(self.path, hub, agent_id))
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def close(self) -> None:
        if self._db is not None and self._lock is not None:
            async with self._lock:
                await self._flush()
        db, thread = self._db, self._thread
        self._db = self._thread = None
        if db is not None and thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, db.close)
            thread.shutdown(wait=True)

    async def cursors(self) -> dict[str, tuple[int, bool]]:
        """`{session_id: (done, announced)}`"""
        rows = await self._run(
            lambda: self._connection.execute("SELECT session_id, done, announced FROM hub_cursor").fetchall()
        )
        return {session_id: (done, bool(announced)) for session_id, done, announced in rows}

    async def queued(self) -> list[tuple[str, str, dict[str, Any]]]:
        """`(client_message_id, session_id, body)`, oldest first."""
        sql = "SELECT client_message_id, session_id, body FROM hub_outbox ORDER BY number"
        rows = await self._run(lambda: self._connection.execute(sql).fetchall())
        return [(row[0], row[1], msgspec.json.decode(row[2])) for row in rows]

    async def move(self, session_id: str, done: int) -> None:
        await self._write(_MOVE, (session_id, done))

    async def reset(self, session_id: str, done: int) -> None:
        """The hub was restored from an older copy: the cursor may go back."""
        await self._write(_RESET, (session_id, done))

    async def announced(self, session_id: str) -> None:
        await self._write(_ANNOUNCED, (session_id,))

    async def queue(self, client_message_id: str, session_id: str, body: dict[str, Any]) -> None:
        await self._write(_QUEUE, (client_message_id, session_id, encode(body)))

    async def unqueue(self, client_message_id: str) -> None:
        await self._write(_UNQUEUE, (client_message_id,))

    @contextlib.asynccontextmanager
    async def once(self, session_id: str, done: int) -> AsyncIterator[sqlite3.Connection]:
        """A transaction of the program's own that also moves the cursor: both happen, or neither."""
        assert self._lock is not None
        async with self._lock:
            await self._flush()
            db = self._connection
            await self._run(lambda: db.execute("BEGIN IMMEDIATE"))
            try:
                yield db
                await self._run(lambda: (db.execute(_MOVE, (session_id, done)), db.execute("COMMIT")))
            except BaseException:
                # Shielded from a second cancellation: a transaction left open would take the next writer's rows with it.
                await asyncio.shield(self._run(lambda: db.rollback()))
                raise

    async def _write(self, sql: str, values: tuple[Any, ...]) -> None:
        assert self._lock is not None
        self._waiting.append((sql, values))
        self._taken += 1
        mine = self._taken
        async with self._lock:
            if self._written < mine:  # else a neighbour's transaction has taken this one along
                await self._flush()

    async def _flush(self) -> None:
        """Write what waits, under the lock. The list changes hands on the loop's thread only."""
        rows, self._waiting = self._waiting, []
        if not rows:
            return
        try:
            await self._run(lambda: _execute(self._connection, rows))
        except BaseException:
            self._waiting = rows + self._waiting  # every statement may be run twice without harm
            raise
        self._written += len(rows)

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise RuntimeError("the journal is closed")
        return self._db

    async def _run(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise RuntimeError("the journal is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _execute(db: sqlite3.Connection, rows: list[tuple[str, tuple[Any, ...]]]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        for sql, values in rows:
            db.execute(sql, values)
        db.execute("COMMIT")
    except BaseException:
        db.rollback()
        raise


def _connect(path: Path, hub: str, agent_id: str) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # messages on their way are nobody else's to read
    db = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
    try:
        # Exclusive: the lock is the operating system's, so that a killed process leaves none behind.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("BEGIN EXCLUSIVE")
        for statement in _SCHEMA.split(";"):
            if statement.strip():
                db.execute(statement)
        owner = db.execute("SELECT hub, agent_id FROM hub_owner").fetchone()
        if owner is None:
            db.execute("INSERT INTO hub_owner VALUES (?, ?)", (hub, agent_id))
        elif owner != (hub, agent_id):
            raise StateInUse(f"{path} belongs to {owner[1]} at {owner[0]}")
        db.execute("COMMIT")
    except sqlite3.OperationalError as error:
        db.close()
        if "locked" in str(error):
            raise StateInUse(f"{path} is held by another process") from None
        raise
    except BaseException:
        db.close()
        raise
    return db
