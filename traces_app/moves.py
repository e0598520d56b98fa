"""The only code that moves a trace: compare-and-set on the status (and the attempt), with its event, in one transaction.

Every event of a trace is numbered here, under the lock of its row, so sequences have no gaps. Lock order, everywhere:
sessions, then traces; nobody locks more than one session in a transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sessions_app.changes import Changes
from sessions_app.db import on_postgres, prepared_cursor, utc_now
from traces_app import sql
from traces_app.models import Trace
from traces_app.redaction import storable
from traces_app.states import EVENT_TYPES, MOVES


class Lost(Exception):
    """The attempt that wanted to write is not the one that runs (any more): stop, nothing was written."""


@dataclass(frozen=True, slots=True)
class Note:
    """An event before it is numbered. `span_id` is what it is about, `parent_id` what that is part of."""

    type: str
    data: Mapping[str, Any]
    span_id: str | None = None
    parent_id: str | None = None


def database_now() -> datetime:
    """Leases of several machines are compared by one clock. On SQLite there is one machine."""
    if not on_postgres():
        return utc_now()
    with prepared_cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def new_span() -> str:
    """16 hexadecimal digits, as OpenTelemetry has them."""
    return secrets.token_hex(8)


def move(
    trace: Trace,
    action: str,
    changes: Changes,
    *,
    fence: int | None = None,
    where: sql.Condition | None = None,
    note: Mapping[str, Any] | None = None,
    notes: Sequence[Note] = (),
    now: datetime | None = None,
    **columns: Any,
) -> bool:
    """Apply one of `MOVES`; False when another was faster (then nothing was written). `trace` is brought up to date.

    With `fence` only the attempt of that number may; `where` is a further condition on the row. `note` is added to the
    `status` event; `notes` are events that come before it.
    """
    sources, target = MOVES[action]
    moment = now or database_now()
    attempt = fence if fence is not None else trace.attempt
    if action == "claim":
        # Whoever claims names the attempt that it saw: of two that saw the same, one wins.
        fence, attempt = trace.attempt, trace.attempt + 1
        columns["attempt"] = attempt
    columns = {**columns, "status": target, "changed_at": moment}
    sequence = sql.move_row(trace.pk, sorted(sources), columns, events=len(notes) + 1, attempt=fence, where=where)
    if sequence is None:
        return False
    for name, value in columns.items():
        setattr(trace, name, value)
    trace.last_sequence = sequence
    data = {"status": target, "action": action, **(note or {})}
    _insert(trace, attempt, [*notes, Note("status", data)], moment)
    tell(trace, changes, len(notes) + 1)
    return True


def first_event(trace: Trace, changes: Changes) -> None:
    """The `status` event of a trace that was just made (with `last_sequence` 1)."""
    _insert(trace, 0, [Note("status", {"status": trace.status, "action": "create"})], trace.created_at)
    tell(trace, changes, 1)


def append_events(
    trace: Trace, attempt: int, notes: Sequence[Note], changes: Changes, *, statuses: Sequence[str]
) -> list[sql.EventRow]:
    """Number and store `notes`, in order, if this attempt is still in one of `statuses`; raises `Lost`."""
    moment = utc_now()
    sequence = sql.move_row(trace.pk, statuses, {"changed_at": moment}, events=len(notes), attempt=attempt)
    if sequence is None:
        raise Lost()
    trace.last_sequence = sequence
    events = _insert(trace, attempt, notes, moment)
    tell(trace, changes, len(events))
    return events


def _insert(trace: Trace, attempt: int, notes: Sequence[Note], moment: datetime) -> list[sql.EventRow]:
    first = trace.last_sequence - len(notes) + 1
    events = [
        sql.EventRow(
            trace_id=trace.pk,
            sequence=first + index,
            type=note.type if note.type in EVENT_TYPES else "log",
            span_id=(note.span_id or new_span())[:32],
            parent_id=note.parent_id[:32] if note.parent_id else None,
            attempt=attempt,
            timestamp=moment,
            data=storable(note.data),
        )
        for index, note in enumerate(notes)
    ]
    sql.insert_events(events)
    return events


def tell(trace: Trace, changes: Changes, new: int) -> None:
    """Have those who follow the trace look at its rows; `new` events are the latest. The hint names who may be offered it."""
    changes.traces.append(
        {
            "pk": trace.pk,
            "session_pk": trace.session_id,
            "trace_id": trace.public_id,
            "last_sequence": trace.last_sequence,
            "new": new,
            "status": trace.status,
            "delegate": trace.agent_id if trace.executor == "delegate" else None,
        }
    )
