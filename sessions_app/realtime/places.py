"""What a subscriber must know when it starts: read in one go, in a reader thread."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from sessions_app import sql
from sessions_app.changes import SessionState
from sessions_app.context.profiles import View, open_view
from sessions_app.context.shared import Shared
from sessions_app.context.viewing import VIEW_COLUMNS, view_from
from sessions_app.cursors import unread
from sessions_app.models import Session
from sessions_app.protocol.errors import NotFound
from sessions_app.services.sessions import STATE_COLUMNS, state_from
from sessions_app.session_views import session_view


@dataclass(frozen=True, slots=True)
class Place:
    """An agent's place in a session: where it stands and what it may read. `member` is False for a watching operator."""

    state: SessionState
    cursor: int
    first_sequence: int
    retained_from: int
    unread: int
    initiated: bool
    acknowledged: bool
    view: View
    member: bool = True


_PLACES = f"""SELECT p.cursor, p.first_sequence, p.sent, p.sent_read, p.acknowledged, s.first_sequence,
                     s.initiator_id, p.agent_id, {VIEW_COLUMNS}, q.* FROM sessions_app_participant p
                JOIN sessions_app_agent a ON a.id = p.agent_id
                JOIN ({STATE_COLUMNS}) q ON q.id = p.session_id
                JOIN sessions_app_session s ON s.id = p.session_id"""


def _place(row: tuple[object, ...]) -> Place:
    cursor, first, sent, sent_read, acknowledged, retained, initiator, agent = row[:8]
    state = state_from(row[14:])
    return Place(
        state,
        cursor,  # type: ignore[arg-type]
        first,  # type: ignore[arg-type]
        retained,  # type: ignore[arg-type]
        unread(state.last_sequence, cursor, sent, sent_read),  # type: ignore[arg-type]
        initiator == agent,
        bool(acknowledged),
        view_from(row[8:14]),
    )


def find_place(session_pk: int, agent_pk: int) -> Place | None:
    """This agent's place in this session, or None when it takes no part."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"{_PLACES} WHERE p.session_id = %s AND p.agent_id = %s AND p.left_at IS NULL", [session_pk, agent_pk]
        )
        row = cursor.fetchone()
    return None if row is None else _place(row)


def enter(session_id: str, agent_pk: int, is_operator: bool) -> Place:
    """The place in the session of this public id; raises `NotFound`, alike for unknown and foreign ones."""
    with connection.cursor() as cursor:
        if is_operator:
            cursor.execute(f"{STATE_COLUMNS} WHERE s.public_id = %s", [session_id])
            row = cursor.fetchone()
            if row is None:
                raise NotFound()
            state = state_from(row)
            retained = Session.objects.values_list("first_sequence", flat=True).get(pk=state.pk)
            return Place(state, state.last_sequence, 1, retained, 0, True, True, open_view(), member=False)
        cursor.execute(
            f"{_PLACES} WHERE s.public_id = %s AND p.agent_id = %s AND p.left_at IS NULL", [session_id, agent_pk]
        )
        row = cursor.fetchone()
    if row is None:
        raise NotFound()
    return _place(row)


def enter_and_show(session_id: str, agent_pk: int, is_operator: bool) -> tuple[Place, dict[str, object]]:
    """The place, and the session as it is shown, in one go."""
    place = enter(session_id, agent_pk, is_operator)
    return place, session_view(place.state.pk, None if is_operator else agent_pk)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """All of an agent: sessions with something unread or never acknowledged, and where its other live sessions stand."""

    open: list[Place]
    standing: dict[int, int]


def whereabouts(agent_pk: int) -> Whereabouts:
    with connection.cursor() as cursor:
        cursor.execute(
            f"""{_PLACES} WHERE p.agent_id = %s AND p.left_at IS NULL
                  AND (s.last_sequence - p.cursor - p.sent + p.sent_read > 0
                       OR (NOT p.acknowledged AND s.initiator_id <> p.agent_id
                           AND s.status IN ('created', 'active', 'waiting')))
                ORDER BY s.last_activity DESC""",
            [agent_pk],
        )
        places = [_place(row) for row in cursor.fetchall()]
        cursor.execute(
            """SELECT s.id, s.last_sequence FROM sessions_app_participant p
                 JOIN sessions_app_session s ON s.id = p.session_id
                WHERE p.agent_id = %s AND p.left_at IS NULL AND s.status IN ('created', 'active', 'waiting')""",
            [agent_pk],
        )
        standing = dict(cursor.fetchall())
    return Whereabouts(places, standing)


def moved_since(changed_at: str, limit: int) -> list[SessionState]:
    """States of the sessions that changed after this moment (as this database's columns take it)."""
    with connection.cursor() as cursor:
        cursor.execute(f"{STATE_COLUMNS} WHERE s.changed_at > %s ORDER BY s.changed_at LIMIT %s", [changed_at, limit])
        return [state_from(row) for row in cursor.fetchall()]


def present_among(session_pks: list[int], agent_pks: list[int]) -> dict[int, list[int]]:
    """Which of these agents take part in which of these sessions: `{session: [agent]}`."""
    found: dict[int, list[int]] = {}
    if session_pks and agent_pks:
        with connection.cursor() as cursor:
            cursor.execute(
                f"""SELECT session_id, agent_id FROM sessions_app_participant WHERE left_at IS NULL
                      AND session_id IN ({sql.marks(session_pks)}) AND agent_id IN ({sql.marks(agent_pks)})""",
                [*session_pks, *agent_pks],
            )
            for session_pk, agent_pk in cursor.fetchall():
                found.setdefault(session_pk, []).append(agent_pk)
    return found


def shared_sessions(some: list[int], others: list[int], limit: int = 2000) -> list[tuple[int, str, int, int]]:
    """Live sessions that one of `some` and one of `others` take part in: `(session, its id, the one, the other)`."""
    if not some or not others:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT s.id, s.public_id, p.agent_id, q.agent_id FROM sessions_app_participant p
                  JOIN sessions_app_participant q ON q.session_id = p.session_id AND q.agent_id <> p.agent_id
                  JOIN sessions_app_session s ON s.id = p.session_id
                 WHERE p.agent_id IN ({sql.marks(some)}) AND q.agent_id IN ({sql.marks(others)})
                   AND p.left_at IS NULL AND q.left_at IS NULL AND s.status IN ('created', 'active', 'waiting')
                 LIMIT %s""",
            [*some, *others, limit],
        )
        return list(cursor.fetchall())


def context_of(session_pk: int) -> Shared:
    return Session.objects.only("context", "context_provenance").get(pk=session_pk).shared
