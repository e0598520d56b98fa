"""Who takes part in a session: remembered per process, and never believed without the revision that the row shows."""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from sessions_app.changes import Changes

MAX_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class Member:
    agent_pk: int
    agent_id: str
    role: str
    first_sequence: int


@dataclass(frozen=True, slots=True)
class Members:
    """The present participants of a session at one revision, in order of joining.

    `talkers` are those for whom the hub itself talks (`HUB_TALKING_EXECUTORS`): whatever is said to them is work.
    """

    revision: int
    by_key: dict[int, Member]
    by_name: dict[str, Member]
    keys: list[int]
    talkers: frozenset[int] = frozenset()


_remembered: dict[int, Members] = {}


def members_of(session_pk: int, revision: int, changes: Changes | None = None) -> Members:
    """The members at `revision`, which the caller has read from the session's row.

    A transaction that is itself changing the membership reads past the memory and leaves nothing in it: its revision may
    yet be rolled back and then be given to another membership.
    """
    touched = changes is not None and session_pk in changes.touched_members
    known = None if touched else _remembered.get(session_pk)
    if known is not None and known.revision == revision:
        return known
    fresh = load_members(session_pk, revision)
    if not touched:
        if len(_remembered) >= MAX_REMEMBERED:
            _remembered.clear()
        _remembered[session_pk] = fresh
    return fresh


def load_members(session_pk: int, revision: int) -> Members:
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT p.agent_id, a.agent_id, p.role, p.first_sequence, a.executor FROM sessions_app_participant p
                 JOIN sessions_app_agent a ON a.id = p.agent_id
                WHERE p.session_id = %s AND p.left_at IS NULL ORDER BY p.id""",
            [session_pk],
        )
        rows = cursor.fetchall()
    found = [Member(*row[:4]) for row in rows]
    return Members(
        revision,
        {member.agent_pk: member for member in found},
        {member.agent_id: member for member in found},
        [member.agent_pk for member in found],
        frozenset(row[0] for row in rows if row[4] in settings.HUB_TALKING_EXECUTORS),
    )


def forget_everything() -> None:
    """For tests that replace the database under a running process."""
    _remembered.clear()
