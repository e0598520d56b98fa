"""The hot statements, as SQL through Django's cursor. The models are the schema's only source; a test holds both together.

SQL and not the ORM because it was measured: `bulk_create` 900 rows/s against 9,300 in batches of 64 (SQLite), 1,800
against 5,700 (PostgreSQL).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import connection
from django.db.backends.utils import CursorWrapper

from sessions_app.changes import Committed
from sessions_app.db import column_time, from_column, on_postgres, prepared_cursor, time_as_text
from sessions_app.protocol.frames import message_body
from sessions_app.protocol.ids import message_id
from sessions_app.protocol.jsontext import dumps, loads

MESSAGE_COLUMNS = {
    "id": "bigint",
    "session_id": "bigint",
    "sequence": "bigint",
    "sender_id": "bigint",
    "round": "bigint",
    "kind": "text",
    "content": "text",
    "parts": "text",
    '"to"': "text",
    "reply_to": "bigint",
    "trace_id": "text",
    "client_message_id": "text",
    "requires_execution": "boolean",
    "metadata": "text",
    "classified_by": "text",
    "created_at": "timestamptz",
}
_INSERT = f"INSERT INTO sessions_app_message ({','.join(MESSAGE_COLUMNS)})"


class LockedSession(NamedTuple):
    """A session's row while we hold its lock; JSON columns as text, times as wire times."""

    pk: int
    public_id: str
    status: str
    initiator_pk: int
    initiator: str
    last_sequence: int
    round: int
    current_speaker: str | None
    open_questions: str
    open_traces: str
    close_reason: str | None
    last_activity: str
    state_revision: int
    members_revision: int
    context_revision: int
    busy_policy: str


class MessageRow(NamedTuple):
    """A row to insert; `parts`, `to` and `metadata` are JSON text or None."""

    id: int
    session_id: int
    sequence: int
    sender_id: int
    round: int
    kind: str
    content: str
    parts: str | None
    to: str | None
    reply_to: int | None
    trace_id: str | None
    client_message_id: str | None
    requires_execution: bool | None
    metadata: str | None
    classified_by: str | None
    created_at: str


def marks(values: Collection[Any]) -> str:
    return ",".join(["%s"] * len(values))


def table(rows: Sequence[Sequence[Any]], **columns: str) -> tuple[str, list[Any]]:
    """Rows as something to select from, and its parameters: one statement for many rows.

    On SQLite a statement per row would give up the interpreter lock per row and wait for it again, which under load costs
    more than the row; rows as JSON cost twice as much as these. `columns` are names and PostgreSQL types. Rows of NULL may
    follow the given ones there: join on them, or leave them out.
    """
    if on_postgres():
        return _arrays(tuple(columns.items())), [list(column) for column in zip(*rows, strict=True)]
    padded = _padded(len(rows))
    parameters = [value for row in rows for value in row]
    parameters.extend([None] * ((padded - len(rows)) * len(columns)))
    return _values(padded, tuple(columns)), parameters


def _padded(number: int) -> int:
    """The next power of two: with ten texts instead of 512 the driver keeps them prepared, which halves an insert's cost."""
    return 1 << (number - 1).bit_length()


@lru_cache(256)
def _values(number: int, columns: tuple[str, ...]) -> str:
    renamed = ", ".join(f"column{index} AS {name}" for index, name in enumerate(columns, 1))
    return f"(SELECT {renamed} FROM (VALUES {','.join([f'({marks(columns)})'] * number)})) AS r"


@lru_cache
def _arrays(columns: tuple[tuple[str, str], ...]) -> str:
    arrays = ", ".join(f"%s::{kind}[]" for _, kind in columns)
    return f"unnest({arrays}) AS r({', '.join(name for name, _ in columns)})"


def lock_sessions(cursor: CursorWrapper, keys: Iterable[int]) -> dict[int, LockedSession]:
    """Lock these sessions in id order, so that no two writers wait for each other; SQLite's lock is the transaction itself."""
    wanted = sorted(set(keys))
    wanted.extend(wanted[-1:] * (_padded(len(wanted)) - len(wanted)))  # asked twice is found once
    lock = "FOR NO KEY UPDATE OF s" if on_postgres() else ""
    cursor.execute(
        f"""SELECT s.id, s.public_id, s.status, s.initiator_id, a.agent_id, s.last_sequence, s.round, s.current_speaker,
                   s.open_questions, s.open_traces, s.close_reason, {time_as_text("s.last_activity")}, s.state_revision,
                   s.members_revision, s.context_revision, s.busy_policy
              FROM sessions_app_session s JOIN sessions_app_agent a ON a.id = s.initiator_id
             WHERE s.id IN ({marks(wanted)}) ORDER BY s.id {lock}""",
        wanted,
    )
    rows = (LockedSession(*row) for row in cursor.fetchall())
    return {row.pk: row._replace(last_activity=from_column(row.last_activity)) for row in rows}


def find_duplicates(cursor: CursorWrapper, wanted: Sequence[tuple[int, int, str]]) -> dict[tuple[int, int, str], int]:
    """Keys of messages already stored under these `(session, sender, client_message_id)`. Ask only once the lock is held."""
    source, parameters = table(wanted, session_id="bigint", sender_id="bigint", client_message_id="text")
    cursor.execute(
        f"""SELECT m.session_id, m.sender_id, m.client_message_id, m.id FROM {source}
              JOIN sessions_app_message m ON m.session_id = r.session_id AND m.sender_id = r.sender_id
               AND m.client_message_id = r.client_message_id""",
        parameters,
    )
    return {(row[0], row[1], row[2]): row[3] for row in cursor.fetchall()}


def insert_messages(cursor: CursorWrapper, rows: Sequence[MessageRow]) -> None:
    source, parameters = table([(*row[:-1], column_time(row.created_at)) for row in rows], **MESSAGE_COLUMNS)
    cursor.execute(f"{_INSERT} SELECT * FROM {source} WHERE r.id IS NOT NULL", parameters)


class SessionUpdate(NamedTuple):
    status: str
    last_sequence: int
    round: int
    current_speaker: str | None
    open_questions: str
    open_traces: str
    last_activity: str
    changed_at: str
    state_revision: int
    pk: int


def update_sessions(cursor: CursorWrapper, updates: Sequence[SessionUpdate]) -> None:
    """Move `last_sequence` and the turn state."""
    if not updates:
        return
    source, parameters = table(
        [
            update._replace(last_activity=column_time(update.last_activity), changed_at=column_time(update.changed_at))
            for update in updates
        ],
        status="text",
        last_sequence="bigint",
        round="bigint",
        current_speaker="text",
        open_questions="text",
        open_traces="text",
        last_activity="timestamptz",
        changed_at="timestamptz",
        state_revision="bigint",
        pk="bigint",
    )
    cursor.execute(
        f"""UPDATE sessions_app_session SET status = r.status, last_sequence = r.last_sequence, round = r.round,
                  current_speaker = r.current_speaker, open_questions = r.open_questions, open_traces = r.open_traces,
                  last_activity = r.last_activity, changed_at = r.changed_at, state_revision = r.state_revision
             FROM {source} WHERE sessions_app_session.id = r.pk""",
        parameters,
    )


def count_sent(cursor: CursorWrapper, counts: dict[tuple[int, int], int]) -> None:
    """Add to the senders' own totals: `{(session, agent): messages}`; unread is derived from them."""
    source, parameters = table(
        [(session, agent, number) for (session, agent), number in counts.items()],
        session_id="bigint",
        agent_id="bigint",
        number="bigint",
    )
    cursor.execute(
        f"""UPDATE sessions_app_participant SET sent = sent + r.number FROM {source}
             WHERE sessions_app_participant.session_id = r.session_id AND sessions_app_participant.agent_id = r.agent_id""",
        parameters,
    )


def read_cursor(cursor: CursorWrapper, session: int, agent: int) -> tuple[int, int, int, int, int] | None:
    """`(cursor, last_sequence, sent, sent_read, first_sequence)` of a present participant."""
    cursor.execute(
        """SELECT p.cursor, s.last_sequence, p.sent, p.sent_read, p.first_sequence FROM sessions_app_participant p
             JOIN sessions_app_session s ON s.id = p.session_id
            WHERE p.session_id = %s AND p.agent_id = %s AND p.left_at IS NULL""",
        [session, agent],
    )
    row = cursor.fetchone()
    return None if row is None else (row[0], row[1], row[2], row[3], row[4])


def move_cursor(cursor: CursorWrapper, session: int, agent: int, up_to: int) -> None:
    """Move a cursor forward, never back. Counts only own messages inside the step, and none where all are read."""
    cursor.execute(
        """UPDATE sessions_app_participant SET acknowledged = %s,
              sent_read = CASE WHEN sent = sent_read THEN sent_read ELSE sent_read + (
                SELECT count(*) FROM sessions_app_message m
                 WHERE m.session_id = sessions_app_participant.session_id
                   AND m.sequence > sessions_app_participant.cursor AND m.sequence <= %s
                   AND m.sender_id = sessions_app_participant.agent_id) END,
              cursor = %s
            WHERE session_id = %s AND agent_id = %s AND cursor < %s""",
        [True, up_to, up_to, session, agent, up_to],
    )


_HISTORY = """SELECT m.id, m.session_id, s.public_id, m.sequence, m.round, a.agent_id, m."to", m.kind, m.content, m.parts,
                     m.reply_to, m.trace_id, m.client_message_id, m.metadata, m.classified_by, {time}
                FROM sessions_app_message m
                JOIN sessions_app_session s ON s.id = m.session_id
                JOIN sessions_app_agent a ON a.id = m.sender_id"""


def _history() -> str:
    return _HISTORY.format(time=time_as_text("m.created_at"))


def messages_after(session_pk: int, after: int, limit: int, up_to: int | None = None) -> list[Committed]:
    """The page of messages after `after`, ascending; by the index on (session, sequence)."""
    bound = "AND m.sequence <= %s" if up_to is not None else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"{_history()} WHERE m.session_id = %s AND m.sequence > %s {bound} ORDER BY m.sequence LIMIT %s",
            [session_pk, after, *([up_to] if up_to is not None else []), limit],
        )
        return [committed(row) for row in cursor.fetchall()]


def messages_before(session_pk: int, before: int, floor: int, limit: int) -> list[Committed]:
    """The highest `limit` messages below `before` and not below `floor`, ascending."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""{_history()} WHERE m.session_id = %s AND m.sequence < %s AND m.sequence >= %s
                ORDER BY m.sequence DESC LIMIT %s""",
            [session_pk, before, floor, limit],
        )
        return [committed(row) for row in reversed(cursor.fetchall())]


def messages_by_key(keys: Collection[int]) -> dict[int, Committed]:
    if not keys:
        return {}
    with prepared_cursor() as cursor:
        cursor.execute(f"{_history()} WHERE m.id IN ({marks(keys)})", list(keys))
        return {row[0]: committed(row) for row in cursor.fetchall()}


def committed(row: Sequence[Any]) -> Committed:
    """A row of `_history` as what is delivered."""
    return encode_message(*row)


def encode_message(
    key: int,
    session_pk: int,
    session_id: str,
    sequence: int,
    round_: int,
    sender: str,
    to: str | None,
    kind: str,
    content: str,
    parts: str | None,
    reply_to: int | None,
    trace_id: str | None,
    client_message_id: str | None,
    metadata: str | None,
    classified_by: str | None,
    timestamp: str,
) -> Committed:
    """Encode a message once for all its readers: a row just written, or one that was read (`timestamp` as the column has it)."""
    timestamp = from_column(timestamp)
    body = message_body(
        message_id(key),
        session_id,
        sequence,
        round_,
        sender,
        to,
        kind,
        content,
        parts,
        None if reply_to is None else message_id(reply_to),
        trace_id,
        client_message_id,
        metadata if classified_by is None else _metadata(metadata, classified_by),
        timestamp,
    )
    stream_id = None if metadata is None else stream_id_of(metadata)
    return Committed(key, session_pk, sequence, sender, kind, body, reply_to, trace_id, stream_id, timestamp)


def _metadata(metadata: str | None, classified_by: str) -> str:
    extra = f'"classified_by":{dumps(classified_by)}}}'
    return f"{{{extra}" if metadata is None else f"{metadata.rstrip()[:-1]},{extra}"


def stream_id_of(metadata: str) -> str | None:
    """The `stream_id` whose chunks this message completes."""
    if '"stream_id"' not in metadata:
        return None
    value = loads(metadata).get("stream_id")
    return value if isinstance(value, str) else None
