"""Transactions and times, the same for SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache

from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper

_files = threading.local()


@cache
def on_postgres() -> bool:
    """Asked many times per message, and a connection's attributes are costly to reach."""
    return connection.vendor == "postgresql"


@contextmanager
def write_transaction(*, synced: bool = True) -> Iterator[None]:
    """One write transaction; joins the caller's when there is one.

    On SQLite the writers of all processes queue at a file lock first: without it they find each other by polling, and p99
    rises from 40 ms to seconds. Without `synced` it is on the disk only with the next one that is: when the machine loses
    power in between it is as if it had not been, and whoever did it has gone, too. (A process that is killed loses nothing.
    PostgreSQL syncs always: there it may go down alone.)
    """
    if connection.in_atomic_block:
        yield
        return
    with _file_lock(), contextlib.nullcontext() if synced or on_postgres() else _unsynced(), transaction.atomic():
        yield


@contextmanager
def _unsynced() -> Iterator[None]:
    """Only around a transaction: inside one SQLite refuses the change."""
    connection.ensure_connection()
    file = connection.connection
    file.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        file.execute("PRAGMA synchronous = FULL")


@contextmanager
def _file_lock() -> Iterator[None]:
    name = str(connection.settings_dict["NAME"])
    if connection.vendor != "sqlite" or ":memory:" in name or "mode=memory" in name:
        yield
        return
    held = getattr(_files, "held", None)
    if held is None or held[0] != (name, os.getpid()):
        # One descriptor per thread: flock is per open file, so it orders threads of one process too.
        descriptor = os.open(name + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        held = _files.held = ((name, os.getpid()), descriptor)
    fcntl.flock(held[1], fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(held[1], fcntl.LOCK_UN)


def lend_connection() -> None:
    """A thread that is about to wait for something else gives its connection back to the pool; a file stays open."""
    if on_postgres() and not connection.in_atomic_block:
        connection.close()


def prepared_cursor() -> CursorWrapper:
    """A cursor for statements that run again and again: PostgreSQL keeps them prepared, parsed and planned, per connection.

    Django's own has the values in the text, and to parse and plan that costs the server more than to carry it out. So here
    values are parameters, and the texts are few. (SQLite's driver keeps statements by itself.)
    """
    if not on_postgres():
        return connection.cursor()
    from psycopg import Cursor  # an embedded hub does without

    connection.ensure_connection()
    # As `connection.cursor()` does it, which takes a class that writes the values into the text.
    wrapped: CursorWrapper = connection._prepare_cursor(Cursor(connection.connection))  # type: ignore[attr-defined]
    return wrapped


def is_outage(error: BaseException) -> bool:
    """Whether the database could not do it now (as opposed to: our statement or data was wrong)."""
    return isinstance(error, OperationalError | InterfaceError) or (
        isinstance(error, DatabaseError) and connection.connection is not None and not connection.is_usable()
    )


def utc_now() -> datetime:
    return datetime.now(UTC)


def wire_time(moment: datetime | None) -> str | None:
    """RFC 3339, UTC, microseconds, `Z`."""
    if moment is None:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def column_time(text: str) -> str:
    """A wire time as this database's time columns take it in a raw statement."""
    return text if on_postgres() else text[:10] + " " + text[11:-1]


def time_as_text(column: str) -> str:
    """SQL that reads a time column as text, without a parse per row; `from_column` makes it a wire time."""
    if on_postgres():
        return f"""to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
    return f"({column} || '')"


def from_column(text: str) -> str:
    """What `time_as_text` read, as a wire time."""
    if text[-1] == "Z":
        return text
    return f"{text[:10]}T{text[11:]}Z" if len(text) > 19 else f"{text[:10]}T{text[11:]}.000000Z"
