"""The views of participants, read from the rows, and a session's messages read through them.

Most readers see everything: for them this costs the columns in a query that is made anyway, and nothing per message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection

from sessions_app import sql
from sessions_app.changes import Committed
from sessions_app.context.profiles import EXTERNAL_EXECUTORS, EXTERNAL_KIND, View, open_view, view_of
from sessions_app.context.provenance import Provenance, joined, of_message
from sessions_app.models import Injection, Message
from sessions_app.protocol.errors import NotFound
from sessions_app.protocol.jsontext import loads
from sessions_app.sql import marks, messages_after, messages_before

VIEW_COLUMNS = "a.agent_id, p.visibility, a.visibility, a.kind, a.executor, p.first_sequence"
"""Of a participant `p` and its agent `a`, in the order that `view_from` takes them."""
PAGE = 500
AT_ONCE = 5_000  # SQLite takes 32,766 parameters
SEQUENCE_MAX = (1 << 63) - 1


def view_from(row: Sequence[Any]) -> View:
    """The view of a row of `VIEW_COLUMNS`."""
    agent_id, own, agents, kind, executor, floor = row
    return view_of(agent_id, own, agents, kind=kind, executor=executor, floor=floor)


def find_views(session_pk: int, agent_pks: Sequence[int]) -> dict[int, View]:
    """The views of those of these agents that take part in the session, by their keys; one query."""
    if not agent_pks:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            f"""SELECT p.agent_id, {VIEW_COLUMNS} FROM sessions_app_participant p
                  JOIN sessions_app_agent a ON a.id = p.agent_id
                 WHERE p.session_id = %s AND p.left_at IS NULL AND p.agent_id IN ({marks(agent_pks)})""",
            [session_pk, *agent_pks],
        )
        return {row[0]: view_from(row[1:]) for row in cursor.fetchall()}


def find_view(session_pk: int, agent_pk: int) -> View:
    """The view of a participant; raises `NotFound` for one that takes no part."""
    view = find_views(session_pk, [agent_pk]).get(agent_pk)
    if view is None:
        raise NotFound()
    return view


def own_profiles(agent_pks: Sequence[int]) -> dict[int, str]:
    """Those of these agents that don't see everything by default, with what that depends on; most have nothing here."""
    found: dict[int, str] = {}
    for start in range(0, len(agent_pks), AT_ONCE):
        some = agent_pks[start : start + AT_ONCE]
        with connection.cursor() as cursor:
            cursor.execute(
                f"""SELECT id, visibility, kind, executor FROM sessions_app_agent
                     WHERE id IN ({marks(some)}) AND (visibility IS NOT NULL OR kind = %s OR executor IS NOT NULL)""",
                [*some, EXTERNAL_KIND],
            )
            for pk, visibility, kind, executor in cursor.fetchall():
                if visibility is not None or kind == EXTERNAL_KIND or executor in EXTERNAL_EXECUTORS:
                    found[pk] = visibility or kind
    return found


def show_all(messages: Sequence[Committed], view: View, session_pk: int, agent_pk: int) -> list[Committed]:
    """What a reader gets of these messages of one session, each in its place. Reads more rows only for `scope: addressed`:
    an answer to what the reader said is addressed to it, and what was injected is known to it."""
    if not view:
        return list(messages)
    injected = _meant_for(session_pk, agent_pk, messages) if view.looks_up else ()
    return [view.show(message, injected) for message in messages]


def _meant_for(session_pk: int, agent_pk: int, messages: Sequence[Committed]) -> set[int]:
    asked = {message.reply_to for message in messages if message.reply_to is not None}
    mine = (
        set(Message.objects.filter(pk__in=asked, sender_id=agent_pk).values_list("pk", flat=True)) if asked else set()
    )
    keys = [message.key for message in messages]
    rows = Injection.objects.filter(
        session_id=session_pk, agent_id=agent_pk, message_key__in=keys, state=Injection.SEEN
    )
    answers = {message.key for message in messages if message.reply_to in mine}
    return answers | set(rows.values_list("message_key", flat=True))


def shown_to(message: Committed, agent_pk: int) -> Committed:
    """One message as this participant gets it; raises `NotFound` for one that takes no part."""
    view = find_view(message.session_pk, agent_pk)
    return show_all([message], view, message.session_pk, agent_pk)[0]


def page_after(session_pk: int, after: int, limit: int, view: View, agent_pk: int) -> list[Committed]:
    """`sql.messages_after` as this reader gets it."""
    return show_all(messages_after(session_pk, after, limit), view, session_pk, agent_pk)


def seen_in(
    session_pk: int, view: View, *, after: int = 0, through: int | None = None, most: int | None = None
) -> list[Committed]:
    """The messages that may be given to this reader, ascending: withheld ones are not among them.

    `most`: only the newest so many. Nothing below the reader's first sequence.
    """
    floor = max(after + 1, view.floor)
    if most is not None:
        top = (through + 1) if through is not None else SEQUENCE_MAX
        rows = messages_before(session_pk, top, floor, most)
    else:
        rows = []
        at = floor - 1
        while True:
            page = messages_after(session_pk, at, PAGE, up_to=through)
            rows += page
            if len(page) < PAGE:
                break
            at = page[-1].sequence
    shown = [view.injectable(message) for message in rows]
    return [message for message in shown if not message.withheld]


def rounds_of(messages: Sequence[Committed]) -> dict[int, int]:
    """The rounds of those of these messages that answer another: an answer belongs to the round it answers, although the
    next may have begun when it came. `{message key: round}`."""
    asked = {message.reply_to for message in messages if message.reply_to is not None}
    if not asked:
        return {}
    rounds = dict(Message.objects.filter(pk__in=asked).values_list("pk", "round"))
    return {
        message.key: rounds[message.reply_to]
        for message in messages
        if message.reply_to is not None and message.reply_to in rounds
    }


def question_for(view: View, query: str, message_key: int | None, made_of: Provenance | None = None) -> str:
    """The question that stands in a message, as this reader may be asked it; empty where nothing of it may be passed on.

    `made_of` is given where somebody put it in his own words, out of the message and of what he had read: those words go
    only to readers who could get all of that. Everybody else is asked what the message says, as far as he may get it.
    """
    if not view:
        return query
    message = sql.messages_by_key([message_key]).get(message_key) if message_key is not None else None
    if message is None:
        return str(view.redact(query)) if view.may_get(made_of) else ""
    body = loads(message.body)
    if made_of is not None:
        request = of_message(message.sender, body["metadata"], body["parts"])
        # Who asked is no matter here: being asked is what makes him known.
        if view.may_get(joined([made_of, Provenance(labels=request.labels, part_types=request.part_types)])):
            return str(view.redact(query))
    return str(loads(view.injectable(message).body)["content"])


def by_key(session_pk: int, keys: Sequence[int], view: View) -> dict[int, Committed]:
    """Those of these messages that belong to the session and may be given to this reader."""
    found = {}
    for key, message in sql.messages_by_key(keys).items():
        if message.session_pk == session_pk and message.sequence >= view.floor:
            shown = view.injectable(message)
            if not shown.withheld:
                found[key] = shown
    return found


__all__ = [
    "VIEW_COLUMNS",
    "by_key",
    "find_view",
    "find_views",
    "open_view",
    "own_profiles",
    "page_after",
    "question_for",
    "rounds_of",
    "seen_in",
    "show_all",
    "shown_to",
    "view_from",
]
