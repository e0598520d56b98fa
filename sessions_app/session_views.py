"""A session as every door shows it. SQL, because every connect of a socket shows one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from django.db import connection

from sessions_app.context.shared import from_columns
from sessions_app.context.viewing import VIEW_COLUMNS, view_from
from sessions_app.cursors import unread
from sessions_app.db import column_time, from_column, time_as_text, utc_now, wire_time
from sessions_app.sql import marks
from sessions_app.turn import Turn

AT_ONCE = 5_000  # SQLite takes 32,766 parameters


def session_view(session_pk: int, reader_pk: int | None) -> dict[str, Any]:
    """A session as every door shows it (`protocol.md`, `GET sessions/{id}`) to an agent; None is an operator."""
    return session_views([session_pk], reader_pk)[0]


def session_views(session_pks: Sequence[int], reader_pk: int | None) -> list[dict[str, Any]]:
    """Sessions as every door shows them to this reader, in the order asked for; two statements for up to 5,000."""
    views: dict[int, dict[str, Any]] = {}
    for start in range(0, len(session_pks), AT_ONCE):
        some = session_pks[start : start + AT_ONCE]
        views |= _sessions(some, reader_pk)
        for session_pk, place in _places(some):
            view = views[session_pk]
            last, at, sent, sent_read = (place.pop(name) for name in ("last", "at", "sent", "sent_read"))
            place["unread"] = unread(last, at, sent, sent_read) if place["left_at"] is None else 0
            view["participants"].append(place)
    return [views[pk] for pk in session_pks if pk in views]


def _sessions(session_pks: Sequence[int], reader_pk: int | None) -> dict[int, dict[str, Any]]:
    times = ", ".join(time_as_text(f"s.{name}") for name in ("created_at", "last_activity", "closed_at"))
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT s.id, s.public_id, s.title, s.status, i.agent_id, s.context, s.current_speaker, s.open_questions,
                       s.open_traces, s.round, s.last_sequence, s.first_sequence, q.public_id, s.branched_at,
                       s.timeout_seconds, s.busy_policy, s.context_strategy, {times}, s.close_reason,
                       s.context_provenance,
                       {VIEW_COLUMNS}
                  FROM sessions_app_session s JOIN sessions_app_agent i ON i.id = s.initiator_id
                  LEFT JOIN sessions_app_session q ON q.id = s.parent_id
                  LEFT JOIN sessions_app_participant p ON p.session_id = s.id AND p.agent_id = %s
                  LEFT JOIN sessions_app_agent a ON a.id = p.agent_id WHERE s.id IN ({marks(session_pks)})""",
            [reader_pk or 0, *session_pks],
        )
        rows = cursor.fetchall()
    return {row[0]: _view(row) for row in rows}


def _view(row: Sequence[Any]) -> dict[str, Any]:
    (_, public_id, title, status, initiator, context, speaker, questions, traces, round_, last, first) = row[:12]
    (parent, branched_at, timeout_seconds, busy_policy, strategy, created, activity, closed, reason) = row[12:21]
    reader = view_from(row[22:]) if row[22] is not None else None
    shared: dict[str, Any] = reader.context(from_columns(context, row[21])) if reader else msgspec.json.decode(context)
    return {
        "session_id": public_id,
        "title": title,
        "status": status,
        "initiator": initiator,
        "participants": [],
        "context": shared,
        "current_speaker": speaker,
        "waiting_for": Turn.load(status, initiator, speaker, round_, questions, traces).waiting_for,
        "round": round_,
        "last_sequence": last,
        "first_sequence": first,
        "parent_session_id": parent,
        "branched_at": branched_at,
        "timeout_seconds": timeout_seconds,
        "busy_policy": busy_policy,
        "context_strategy": strategy,
        "created_at": from_column(created),
        "last_activity": from_column(activity),
        "closed_at": from_column(closed) if closed is not None else None,
        "close_reason": reason,
    }


def _places(session_pks: Sequence[int]) -> list[tuple[int, dict[str, Any]]]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT p.session_id, a.agent_id, p.role, p.cursor, p.first_sequence, {time_as_text("p.joined_at")},
                       {time_as_text("p.left_at")}, s.last_sequence, p.sent, p.sent_read,
                       EXISTS (SELECT 1 FROM sessions_app_presence o
                                 JOIN sessions_app_hubprocess h ON h.id = o.process_id
                                WHERE o.agent_id = p.agent_id AND h.lease_until > %s)
                  FROM sessions_app_participant p JOIN sessions_app_agent a ON a.id = p.agent_id
                  JOIN sessions_app_session s ON s.id = p.session_id
                 WHERE p.session_id IN ({marks(session_pks)}) ORDER BY p.id""",
            [column_time(wire_time(utc_now()) or ""), *session_pks],
        )
        rows = cursor.fetchall()
    return [
        (
            session_pk,
            {
                "agent_id": agent_id,
                "role": role,
                "online": bool(online) and left is None,
                "cursor": at,
                "unread": 0,
                "first_sequence": first,
                "joined_at": from_column(joined),
                "left_at": from_column(left) if left is not None else None,
                "last": last,
                "at": at,
                "sent": sent,
                "sent_read": sent_read,
            },
        )
        for session_pk, agent_id, role, at, first, joined, left, last, sent, sent_read, online in rows
    ]
