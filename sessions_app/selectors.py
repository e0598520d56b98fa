"""What the doors show of the rows: nouns, reading only, a constant number of queries each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import connection

from sessions_app.context.profiles import View, open_view
from sessions_app.context.viewing import VIEW_COLUMNS, view_from
from sessions_app.cursors import unread
from sessions_app.db import column_time, from_column, time_as_text, utc_now, wire_time
from sessions_app.keys import Principal
from sessions_app.models import Agent, Participant, Presence, Session
from sessions_app.protocol.errors import NotFound
from sessions_app.protocol.ids import SESSION_ID

NAMES_AT_ONCE = 10_000  # SQLite takes 32,766 parameters


class Access(NamedTuple):
    """What a principal may see of a session: nothing below `first_sequence`, and of the rest what its `view` shows.

    `member` is False for a watching operator.
    """

    session_pk: int
    session_id: str
    status: str
    last_sequence: int
    first_sequence: int
    parent_pk: int | None
    branched_at: int | None
    member: bool
    reader_pk: int = 0
    view: View = open_view()


_ACCESS = f"""SELECT s.id, s.public_id, s.status, s.last_sequence, s.first_sequence, s.parent_id, s.branched_at,
                    {VIEW_COLUMNS}
               FROM sessions_app_session s
               LEFT JOIN sessions_app_participant p ON p.session_id = s.id AND p.agent_id = %s AND p.left_at IS NULL
               LEFT JOIN sessions_app_agent a ON a.id = p.agent_id"""


def find_access(session_id: str, principal: Principal) -> Access:
    """The session, if it is this principal's to read; `NotFound` for a foreign and an unknown one alike."""
    if SESSION_ID.fullmatch(session_id) is None:
        raise NotFound()
    access = _access("s.public_id = %s", session_id, principal)
    if access is None:
        raise NotFound()
    return access


def parent_access(parent_pk: int, principal: Principal) -> Access | None:
    """A branch's parent by the principal's own rights there; None for an outsider."""
    return _access("s.id = %s", parent_pk, principal)


def _access(condition: str, value: str | int, principal: Principal) -> Access | None:
    with connection.cursor() as cursor:
        cursor.execute(f"{_ACCESS} WHERE {condition}", [principal.agent_pk, value])
        row = cursor.fetchone()
    if row is None:
        return None
    floor = row[-1]
    member = floor is not None
    view = view_from(row[7:]) if member and not principal.is_operator else open_view()
    pk, session_id, status, last, first, parent, branched_at = row[:7]
    access = Access(pk, session_id, status, last, first, parent, branched_at, member, principal.agent_pk, view)
    if principal.is_operator:
        return access
    return access._replace(first_sequence=max(access.first_sequence, floor)) if access.member else None


def has_left(session_id: str, agent_pk: int) -> bool:
    """Whether this agent took part in the session of this public id and left it."""
    if SESSION_ID.fullmatch(session_id) is None:
        return False
    return Participant.objects.filter(session__public_id=session_id, agent_id=agent_pk, left_at__isnull=False).exists()


def recipients(session_pk: int, sender_pk: int) -> list[dict[str, Any]]:
    """Who gets a message besides its sender, in order of joining; one query, whatever the number."""
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT a.agent_id, a.last_seen, s.last_sequence, p.cursor, p.sent, p.sent_read,
                      EXISTS (SELECT 1 FROM sessions_app_presence o
                                JOIN sessions_app_hubprocess h ON h.id = o.process_id
                               WHERE o.agent_id = a.id AND h.lease_until > %s)
                 FROM sessions_app_participant p
                 JOIN sessions_app_session s ON s.id = p.session_id
                 JOIN sessions_app_agent a ON a.id = p.agent_id
                WHERE p.session_id = %s AND p.agent_id <> %s AND p.left_at IS NULL ORDER BY p.id""",
            [column_time(wire_time(utc_now()) or ""), session_pk, sender_pk],
        )
        rows = cursor.fetchall()
    return [
        {
            "agent_id": name,
            "online": bool(online),
            "last_seen": _time_of(seen),
            "unread": unread(last, at, sent, sent_read),
        }
        for name, seen, last, at, sent, sent_read, online in rows
    ]


def _time_of(value: Any) -> str | None:
    """A time column as a raw statement gives it: text on SQLite, a datetime on PostgreSQL."""
    return from_column(value) if isinstance(value, str) else wire_time(value)


def online_names(agent_pks: Sequence[int]) -> set[int]:
    """Which of these agents have a live socket or stream, in any process whose lease runs."""
    found: set[int] = set()
    for start in range(0, len(agent_pks), NAMES_AT_ONCE):
        some = agent_pks[start : start + NAMES_AT_ONCE]
        rows = Presence.objects.filter(agent_id__in=some, process__lease_until__gt=utc_now())
        found.update(rows.values_list("agent_id", flat=True))
    return found


def may_name_an_agent(text: str) -> bool:
    """Whether to ask the database at all; people's names are less strict than those of agents."""
    return 0 < len(text) <= 64 and text.isprintable()


def find_agent(agent_id: str) -> Agent:
    """An agent by its name, whatever its kind; raises `NotFound`."""
    agent = Agent.objects.filter(agent_id=agent_id).first() if may_name_an_agent(agent_id) else None
    if agent is None:
        raise NotFound()
    return agent


def agents_after(name: str, limit: int, *, inactive_too: bool) -> list[Agent]:
    """The directory by name, from after `name`; the hub itself is not in it."""
    rows = Agent.objects.filter(agent_id__gt=name).exclude(kind=Agent.SYSTEM).order_by("agent_id")
    return list((rows if inactive_too else rows.filter(is_active=True))[:limit])


def agent_view(agent: Agent, reader: Principal) -> dict[str, Any]:
    """An agent's card. What others need not know of it (whom it accepts, what runs it) is shown to itself and operators."""
    return agent_views([agent], reader)[0]


def agent_views(agents: Sequence[Agent], reader: Principal) -> list[dict[str, Any]]:
    online = online_names([agent.pk for agent in agents])
    return [_card(agent, agent.pk in online, reader) for agent in agents]


def _card(agent: Agent, online: bool, reader: Principal) -> dict[str, Any]:
    card = {
        "agent_id": agent.agent_id,
        "kind": agent.kind,
        "name": agent.name,
        "description": agent.description,
        "skills": agent.skills,
        "online": online,
        "last_seen": wire_time(agent.last_seen),
        "created_at": wire_time(agent.created_at),
    }
    if reader.is_operator or reader.agent_pk == agent.pk:
        card |= {
            "accepts": "anyone" if agent.accepts is None else agent.accepts,
            "executor": agent.executor,
            "executor_config": agent.executor_config,
            "context_strategy": agent.context_strategy,
            "visibility": agent.visibility,
            "is_active": agent.is_active,
        }
    return card


def participant_view(place: Participant, last_sequence: int, online: bool) -> dict[str, Any]:
    return {
        "agent_id": place.agent.agent_id,
        "role": place.role,
        "online": online,
        "cursor": place.cursor,
        "unread": unread(last_sequence, place.cursor, place.sent, place.sent_read) if place.left_at is None else 0,
        "first_sequence": place.first_sequence,
        "joined_at": wire_time(place.joined_at),
        "left_at": wire_time(place.left_at),
    }


class SessionFilter(NamedTuple):
    """Which sessions to list; `participant` and `parent` are public ids."""

    status: str | None = None
    participant: str | None = None
    parent: str | None = None


# Where an agent, or a status, has fewer sessions than this, they are sorted; else all are walked in order of activity.
# Either way a page costs milliseconds: the first reads few rows, the second finds what it wants soon.
SORTED_AT_MOST = 5_000
LIST_BYTES = 4 * 1024 * 1024
PARTICIPANT_BYTES = 250


def latest_sessions(
    reader: Principal, wanted: SessionFilter, before: tuple[str, int] | None, limit: int
) -> tuple[list[int], tuple[str, int] | None]:
    """Keys of the reader's sessions (an operator's: of all), latest activity first, and where the next page begins.

    Positions are (time of activity, key), so that no session is given twice; one that becomes active between two pages moves
    to the front, which the reader has behind it. A page ends early when it would grow beyond 4 MiB.
    """
    named: list[int] = [] if reader.is_operator else [reader.agent_pk]
    if wanted.participant is not None:
        pk = _agent_key(wanted.participant)
        if pk is None:
            return [], None
        named += [pk] if pk not in named else []
    conditions, values = _conditions(wanted, before)
    fewest, driver = min(((_places_of(pk), pk) for pk in named), default=(SORTED_AT_MOST, 0))
    if wanted.status is not None and wanted.parent is None and _alike(wanted.status) < fewest:
        source = f"sessions_app_session s {_by_index('session_by_status')}"
    elif fewest < SORTED_AT_MOST:
        source = "sessions_app_participant d CROSS JOIN sessions_app_session s"
        conditions.append("d.session_id = s.id AND d.agent_id = %s AND d.left_at IS NULL")
        values.append(driver)
        named.remove(driver)
    else:
        source = f"sessions_app_session s {_by_index('session_latest') if wanted.parent is None else ''}"
    for pk in named:
        conditions.append(
            """EXISTS (SELECT 1 FROM sessions_app_participant p
                        WHERE p.session_id = s.id AND p.agent_id = %s AND p.left_at IS NULL)"""
        )
        values.append(pk)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT k.id, {time_as_text("k.last_activity")}, length(k.context) +
                       (SELECT count(*) FROM sessions_app_participant c WHERE c.session_id = k.id) * {PARTICIPANT_BYTES}
                  FROM (SELECT s.id AS pk FROM {source} {where}
                         ORDER BY s.last_activity DESC, s.id DESC LIMIT %s) page
                  JOIN sessions_app_session k ON k.id = page.pk ORDER BY k.last_activity DESC, k.id DESC""",
            [*values, limit + 1],
        )
        rows = cursor.fetchall()
    taken: list[int] = []
    size = 0
    for number, (pk, _, length) in enumerate(rows):
        size += length
        if number == limit or (taken and size > LIST_BYTES):
            return taken, (rows[number - 1][1], rows[number - 1][0])
        taken.append(pk)
    return taken, None


def _conditions(wanted: SessionFilter, before: tuple[str, int] | None) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    if wanted.status is not None:
        conditions.append("s.status = %s")
        values.append(wanted.status)
    if wanted.parent is not None:
        conditions.append("s.parent_id = (SELECT id FROM sessions_app_session WHERE public_id = %s)")
        values.append(wanted.parent)
    if before is not None:
        conditions.append("(s.last_activity, s.id) < (%s, %s)")
        values += before
    return conditions, values


def _agent_key(agent_id: str) -> int | None:
    if not may_name_an_agent(agent_id):
        return None
    return Agent.objects.filter(agent_id=agent_id).values_list("pk", flat=True).first()


def _places_of(agent_pk: int) -> int:
    """How many sessions an agent is in, counted no further than it matters."""
    return Participant.objects.filter(agent_id=agent_pk)[:SORTED_AT_MOST].count()


def _alike(status: str) -> int:
    """How many sessions have this status, counted no further than it matters."""
    return Session.objects.filter(status=status)[:SORTED_AT_MOST].count()


def _by_index(name: str) -> str:
    """SQLite knows no frequencies, so it is told; PostgreSQL chooses by itself."""
    return f"INDEXED BY {name}" if connection.vendor == "sqlite" else ""
