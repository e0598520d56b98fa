"""Read cursors: everything up to one is acknowledged. They move forward, never back."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from sessions_app import sql
from sessions_app.changes import Changes, ReadMoved
from sessions_app.protocol.errors import HubError, Invalid, NotFound


@dataclass(frozen=True, slots=True)
class CursorMove:
    session_pk: int
    agent_pk: int
    agent_id: str
    up_to: int
    members: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CursorNow:
    """Where a cursor stands after a move, and how many messages of others lie after it."""

    cursor: int
    unread: int


def move_cursors(moves: list[CursorMove], changes: Changes) -> list[CursorNow | HubError]:
    """Apply moves inside the caller's transaction; one outcome each, in the order given.

    Runs in (session, agent) order whatever the order given: on PostgreSQL these rows are locked one after another.
    """
    outcomes: dict[int, CursorNow | HubError] = {}
    with connection.cursor() as cursor:
        for index, move in sorted(enumerate(moves), key=lambda item: (item[1].session_pk, item[1].agent_pk)):
            before = sql.read_cursor(cursor, move.session_pk, move.agent_pk)
            if before is None:
                outcomes[index] = NotFound()
                continue
            at, last_sequence, sent, sent_read, _ = before
            if move.up_to > last_sequence or move.up_to < 0:
                outcomes[index] = Invalid(
                    "That sequence does not exist yet.", field="sequence", last_sequence=last_sequence
                )
                continue
            if move.up_to > at:
                sql.move_cursor(cursor, move.session_pk, move.agent_pk, move.up_to)
                after = sql.read_cursor(cursor, move.session_pk, move.agent_pk)
                if after is not None:
                    at, last_sequence, sent, sent_read, _ = after
                changes.reads.append(ReadMoved(move.session_pk, move.agent_pk, move.agent_id, at, list(move.members)))
            outcomes[index] = CursorNow(at, unread(last_sequence, at, sent, sent_read))
    return [outcomes[index] for index in range(len(moves))]


def unread(last_sequence: int, cursor: int, sent: int, sent_read: int) -> int:
    """Messages after the cursor that others sent."""
    return max(0, (last_sequence - cursor) - (sent - sent_read))
