"""The hot statements of a trace's life, as SQL through Django's cursor. The models are the schema's only source.

SQL and not the ORM because it was measured: of the 40 ms of processor time that an empty trace took from claim to result,
the building of 36 statements was 30.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from django.db import DEFAULT_DB_ALIAS

from sessions_app.context.profiles import View
from sessions_app.context.shared import Shared, from_columns, from_stored
from sessions_app.context.viewing import VIEW_COLUMNS, view_from
from sessions_app.db import on_postgres, prepared_cursor, utc_now
from sessions_app.sql import marks, messages_by_key
from traces_app.columns import prepared
from traces_app.models import ToolCall, Trace, TraceEvent
from traces_app.states import CREATED, OPEN

_WANTED = frozenset(
    """id public_id session_id message_key message_sequence agent_id executor task parent_id called provenance status attempt
       losses last_sequence""".split()  # noqa: SIM905
)
COLUMNS = tuple(field.attname for field in Trace._meta.concrete_fields if field.attname in _WANTED)
_PROVENANCE = COLUMNS.index("provenance")
_SELECTED = ", ".join(f"t.{name}" for name in COLUMNS)
# Literally as in the partial index on open traces: SQLite uses that only where it recognises the condition.
_OPEN = ", ".join(f"'{status}'" for status in ("created", "running", "waiting"))
assert set(_OPEN.replace("'", "").split(", ")) == OPEN

Condition = tuple[str, datetime]
"""A further condition of a move: a column with its comparison, and the time it is compared with."""


def load(trace_pk: int) -> Trace:
    """A trace with the columns that its moves need; any other is read when it is asked for. Raises `DoesNotExist`."""
    row = _first(f"SELECT {_SELECTED} FROM traces_app_trace t WHERE t.id = %s", [trace_pk])
    if row is None:
        raise Trace.DoesNotExist
    return _made(row)


def _made(row: Sequence[Any]) -> Trace:
    return Trace.from_db(
        DEFAULT_DB_ALIAS, COLUMNS, [*row[:_PROVENANCE], json_value(row[_PROVENANCE]), *row[_PROVENANCE + 1 :]]
    )


def _first(query: str, parameters: Sequence[Any]) -> Sequence[Any] | None:
    with prepared_cursor() as cursor:
        cursor.execute(query, parameters)
        row: Sequence[Any] | None = cursor.fetchone()
    return row


# What may begin

CLAIMABLE = f"""t.status = '{CREATED}' AND (NOT t.in_line OR NOT EXISTS (
    SELECT 1 FROM traces_app_trace e WHERE e.session_id = t.session_id AND e.id < t.id AND e.parent_id IS NULL
       AND e.status IN ({_OPEN})))"""
"""Traces that may begin: `created`, and nobody stands before them in their session's line."""


def claimable(
    columns: str, where: str, parameters: Sequence[Any] = (), *, order: str = "t.id", limit: int
) -> list[tuple[Any, ...]]:
    """Columns of traces that may begin; `t` is the trace."""
    with prepared_cursor() as cursor:
        cursor.execute(
            f"SELECT {columns} FROM traces_app_trace t WHERE {CLAIMABLE} AND {where} ORDER BY {order} LIMIT %s",
            [*parameters, limit],
        )
        return list(cursor.fetchall())


class Loaded(NamedTuple):
    """A trace, its session's context, and the database's clock as they were read: leases are compared by that."""

    trace: Trace
    shared: Shared
    now: datetime


def load_with_context(trace_pk: int) -> Loaded:
    """The trace and its session's context, which is as it will stay where the session's lock is held already."""
    found = _with_context("t.id = %s", trace_pk)
    if found is None:
        raise Trace.DoesNotExist
    return found


def load_claimable(trace_pk: int) -> Loaded | None:
    """The trace if it may begin, and its session's context."""
    return _with_context(f"t.id = %s AND {CLAIMABLE}", trace_pk)


def _with_context(where: str, trace_pk: int) -> Loaded | None:
    clock = "clock_timestamp()" if on_postgres() else "NULL"
    row = _first(
        f"""SELECT {_SELECTED}, s.context, s.context_provenance, {clock} FROM traces_app_trace t
              JOIN sessions_app_session s ON s.id = t.session_id WHERE {where}""",
        [trace_pk],
    )
    return None if row is None else Loaded(_made(row[:-3]), from_columns(*row[-3:-1]), row[-1] or utc_now())


def session_if_created(trace_pk: int) -> int | None:
    """Most rings come for what somebody else has taken already: those cost this one read, and no transaction."""
    row = _first(f"SELECT session_id FROM traces_app_trace WHERE id = %s AND status = '{CREATED}'", [trace_pk])
    return None if row is None else int(row[0])


def states_of(trace_pks: Sequence[int]) -> dict[int, tuple[str, int]]:
    """`{trace: (status, attempt)}`."""
    with prepared_cursor() as cursor:
        cursor.execute(
            f"SELECT id, status, attempt FROM traces_app_trace WHERE id IN ({marks(trace_pks)})", list(trace_pks)
        )
        return {row[0]: (row[1], row[2]) for row in cursor.fetchall()}


# Moves and events


def move_row(
    trace_pk: int,
    sources: Sequence[str],
    columns: Mapping[str, Any],
    *,
    events: int,
    attempt: int | None = None,
    where: Condition | None = None,
) -> int | None:
    """Compare and set: the row's new `last_sequence`, `events` higher, or None where it is in none of `sources`."""
    names = list(columns)
    assigned = "".join(f", {name} = %s" for name in names)
    query = f"UPDATE traces_app_trace SET last_sequence = last_sequence + %s{assigned} WHERE id = %s"
    query += f" AND status IN ({marks(sources)})"
    parameters = [events, *(prepared(Trace, name, columns[name]) for name in names), trace_pk, *sources]
    if attempt is not None:
        query += " AND attempt = %s"
        parameters.append(attempt)
    if where is not None:
        query += f" AND {where[0]} %s"
        parameters.append(prepared(Trace, where[0].split()[0], where[1]))
    with prepared_cursor() as cursor:
        cursor.execute(f"{query} RETURNING last_sequence", parameters)
        rows = cursor.fetchall()
    return int(rows[0][0]) if rows else None


class EventRow(NamedTuple):
    """An event to insert; the fields are the columns, `data` is a value."""

    trace_id: int
    sequence: int
    type: str
    span_id: str
    parent_id: str | None
    attempt: int
    timestamp: datetime
    data: Any


_EVENT = EventRow._fields


def insert_events(events: Sequence[EventRow]) -> None:
    values = [prepared(TraceEvent, name, value) for event in events for name, value in zip(_EVENT, event, strict=True)]
    rows = ",".join([f"({marks(_EVENT)})"] * len(events))
    with prepared_cursor() as cursor:
        cursor.execute(f"INSERT INTO traces_app_traceevent ({','.join(_EVENT)}) VALUES {rows}", values)


def end_parts(trace_pk: int, goals: str, goals_open: Sequence[str], moment: datetime) -> bool:
    """What a trace that has ended leaves: no goal under way, no call without an outcome, no question unanswered.

    Most leave none of these, so it is asked first. Returns whether the trace has children.
    """
    with prepared_cursor() as cursor:
        cursor.execute(
            f"""SELECT EXISTS (SELECT 1 FROM traces_app_goal WHERE trace_id = %s AND status IN ({marks(goals_open)})),
                       EXISTS (SELECT 1 FROM traces_app_toolcall WHERE trace_id = %s AND status = 'running'),
                       EXISTS (SELECT 1 FROM traces_app_approval WHERE trace_id = %s AND status = 'asked'),
                       EXISTS (SELECT 1 FROM traces_app_trace WHERE parent_id = %s)""",
            [trace_pk, *goals_open, trace_pk, trace_pk, trace_pk],
        )
        goals_left, calls_left, question_left, children = cursor.fetchone()
        if goals_left:
            cursor.execute(
                f"UPDATE traces_app_goal SET status = %s WHERE trace_id = %s AND status IN ({marks(goals_open)})",
                [goals, trace_pk, *goals_open],
            )
        if question_left:
            cursor.execute(
                "UPDATE traces_app_approval SET status = 'refused' WHERE trace_id = %s AND status = 'asked'", [trace_pk]
            )
    if calls_left:
        end_calls(trace_pk, moment)
    return bool(children)


def end_calls(trace_pk: int, moment: datetime) -> None:
    """Calls that will never get a result."""
    with prepared_cursor() as cursor:
        cursor.execute(
            "UPDATE traces_app_toolcall SET status = 'failed', ended_at = %s WHERE trace_id = %s AND status = 'running'",
            [prepared(Trace, "ended_at", moment), trace_pk],
        )


def put_goal(trace_pk: int, goal_id: str, parent_goal: str | None, title: str, status: str, *, limit: int) -> None:
    """Change a goal of the trace, or add it after the others, `limit` at the most."""
    with prepared_cursor() as cursor:
        cursor.execute(
            "UPDATE traces_app_goal SET title = %s, status = %s, parent_goal = %s WHERE trace_id = %s AND goal_id = %s",
            [title, status, parent_goal, trace_pk, goal_id],
        )
        if cursor.rowcount == 0:
            cursor.execute("SELECT coalesce(max(position), 0) FROM traces_app_goal WHERE trace_id = %s", [trace_pk])
            place = cursor.fetchone()[0] + 1
            if place <= limit:
                cursor.execute(
                    """INSERT INTO traces_app_goal (trace_id, goal_id, parent_goal, title, status, position)
                       VALUES (%s, %s, %s, %s, %s, %s)""",
                    [trace_pk, goal_id, parent_goal, title, status, place],
                )


def put_call(trace_pk: int, call_id: str, attempt: int, name: str, arguments: Any, *, started_at: datetime) -> None:
    """A call begins; of the same id in the same attempt, anew."""
    with prepared_cursor() as cursor:
        cursor.execute(
            """INSERT INTO traces_app_toolcall (trace_id, call_id, attempt, name, arguments, status, started_at)
               VALUES (%s, %s, %s, %s, %s, 'running', %s)
               ON CONFLICT (trace_id, call_id, attempt) DO UPDATE SET name = excluded.name, status = 'running',
                  arguments = excluded.arguments, started_at = excluded.started_at, result = NULL, ended_at = NULL""",
            [trace_pk, call_id, attempt, name, *_of_call(arguments=arguments, started_at=started_at)],
        )


def put_call_result(
    trace_pk: int, call_id: str, attempt: int, name: str, *, status: str, result: Any, ended_at: datetime
) -> None:
    """A call has its result; one that nobody announced is taken for begun at that moment."""
    given = _of_call(result=result, ended_at=ended_at)
    with prepared_cursor() as cursor:
        cursor.execute(
            """UPDATE traces_app_toolcall SET status = %s, result = %s, ended_at = %s
                WHERE trace_id = %s AND call_id = %s AND attempt = %s""",
            [status, *given, trace_pk, call_id, attempt],
        )
        if cursor.rowcount == 0:
            cursor.execute(
                """INSERT INTO traces_app_toolcall
                     (trace_id, call_id, attempt, name, arguments, status, result, ended_at, started_at)
                   VALUES (%s, %s, %s, %s, '{}', %s, %s, %s, %s)""",
                [trace_pk, call_id, attempt, name, status, *given, given[-1]],
            )


def _of_call(**columns: Any) -> list[Any]:
    return [prepared(ToolCall, name, value) for name, value in columns.items()]


_GIVEN = tuple(field.attname for field in Trace._meta.concrete_fields if not field.primary_key)


def insert_trace(trace: Trace) -> None:
    """Store a new trace; it knows its key from then on."""
    with prepared_cursor() as cursor:
        cursor.execute(
            f"INSERT INTO traces_app_trace ({', '.join(_GIVEN)}) VALUES ({marks(_GIVEN)}) RETURNING id",
            [prepared(Trace, name, getattr(trace, name)) for name in _GIVEN],
        )
        trace.pk = cursor.fetchall()[0][0]
    trace._state.adding = False


# What an attempt is given


class Asked(NamedTuple):
    """The request of a trace, as the agent that runs it may get it; JSON columns as values."""

    session_pk: int
    session_id: str
    agent_pk: int
    agent_id: str
    requested_by: str
    task: str
    message_sequence: int
    kind: str | None
    parts: Any
    metadata: Any
    context: Any
    inputs: Any
    config: Any
    continue_from: Any
    called: bool
    context_words: Any
    view: View


_JSON_COLUMNS = ("parts", "metadata", "context", "inputs", "config", "continue_from", "context_words")


def load_asked(trace_pk: int) -> Asked:
    row = _first(
        f"""SELECT t.message_key, t.session_id, s.public_id, t.agent_id, a.agent_id, r.agent_id, t.task, t.message_sequence,
                  m.kind, m.parts, m.metadata, t.context, t.inputs, a.executor_config, t.continue_from, t.called,
                  t.context_provenance, {VIEW_COLUMNS}
             FROM traces_app_trace t
             JOIN sessions_app_session s ON s.id = t.session_id
             JOIN sessions_app_agent a ON a.id = t.agent_id
             JOIN sessions_app_agent r ON r.id = t.requested_by_id
             LEFT JOIN sessions_app_participant p
               ON p.session_id = t.session_id AND p.agent_id = t.agent_id AND p.left_at IS NULL
             LEFT JOIN sessions_app_message m ON m.id = t.message_key
            WHERE t.id = %s""",
        [trace_pk],
    )
    if row is None:
        raise Trace.DoesNotExist
    view = view_from((*row[17:22], row[22] or 1))  # one that has left keeps the agent's own profile
    asked = Asked(*(*row[1:17], view))
    asked = asked._replace(**{name: json_value(getattr(asked, name)) for name in _JSON_COLUMNS})
    return _shown(asked, row[0]) if view else asked


def _shown(asked: Asked, message_key: int) -> Asked:
    """What a called agent is asked stands in its delivery, and that was filtered; else the message says it."""
    message = messages_by_key([message_key]).get(message_key)
    said = msgspec.json.decode(asked.view.injectable(message).body) if message is not None else {}
    return asked._replace(
        task=asked.task if asked.called else said.get("content", ""),
        parts=said.get("parts") or [{"text": ""}],
        metadata=said.get("metadata"),
        context=asked.view.context(Shared(asked.context, from_stored(asked.context_words))),
    )


def json_value(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def talk_before(
    session_pk: int, sequence: int, floor: int, kinds: Sequence[str], characters: int, limit: int
) -> list[tuple[int, str, str, int]]:
    """The latest messages of these kinds before `sequence` and not below `floor`, ascending.

    Shapes: sender's key, its name, the head of the text, sequence.
    """
    with prepared_cursor() as cursor:
        cursor.execute(
            f"""SELECT m.sender_id, a.agent_id, substr(m.content, 1, %s), m.sequence
                  FROM sessions_app_message m JOIN sessions_app_agent a ON a.id = m.sender_id
                 WHERE m.session_id = %s AND m.sequence < %s AND m.sequence >= %s AND m.kind IN ({marks(kinds)})
                 ORDER BY m.sequence DESC LIMIT %s""",
            [characters, session_pk, sequence, floor, *kinds, limit],
        )
        return list(reversed(cursor.fetchall()))


def executor_of(agent_pk: int) -> str | None:
    """What runs the requests to an agent; None where nothing does, or the agent is not active."""
    row = _first("SELECT executor FROM sessions_app_agent WHERE id = %s AND is_active", [agent_pk])
    return row[0] if row is not None else None


def agent_name(agent_pk: int) -> str:
    row = _first("SELECT agent_id FROM sessions_app_agent WHERE id = %s", [agent_pk])
    return str(row[0]) if row is not None else ""
