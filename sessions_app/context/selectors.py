"""What the doors show of context: the conversation as a reader may see it, own histories, deliveries, summaries. Reading only."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from sessions_app.changes import Committed
from sessions_app.context import histories, viewing
from sessions_app.context.choosing import TALK
from sessions_app.context.profiles import View
from sessions_app.db import wire_time
from sessions_app.models import Agent, Delivery, Session, Summary
from sessions_app.protocol import limits
from sessions_app.protocol.ids import message_id
from sessions_app.sql import messages_before

READ_AT_ONCE = 500


class Entry(Struct):
    """One entry of the conversation store, as the first seed has it, with where it stands."""

    is_user_input: bool
    agent_name: str
    round: int
    message: dict[str, str]
    message_id: str
    sequence: int


class _Body(Struct):
    message_id: str
    round: int
    content: str


_body = msgspec.json.Decoder(_Body)


def conversation(
    session: Session, view: View, reader_pk: int, *, through: int | None = None, limit: int = 2_000
) -> dict[str, Any]:
    """The conversation store as of `through`, through a reader's eyes; what is withheld is not in it.

    The newest `limit` entries, and not more than a page of the log may hold; `has_more` says that there are older ones.
    """
    last = session.last_sequence if through is None else min(through, session.last_sequence)
    floor = max(view.floor, session.first_sequence)
    entries: list[Entry] = []
    size, before, more = 0, last + 1, False
    while before > floor and not more:
        page = messages_before(session.pk, before, floor, READ_AT_ONCE)
        if not page:
            break
        shown = viewing.show_all(page, view, session.pk, reader_pk)
        rounds = viewing.rounds_of(shown)
        for message in reversed(shown):
            if message.withheld or message.kind not in TALK:
                continue
            size += len(message.body)
            more = len(entries) >= limit or (bool(entries) and size > limits.PAGE_BYTES)
            if more:
                break
            entries.append(_entry(message, session.initiator.agent_id, rounds.get(message.key)))
        before = page[0].sequence
    return {
        "session_id": session.public_id,
        "current_round": session.round,
        "through_sequence": last,
        "entries": entries[::-1],
        "has_more": more,
    }


def _entry(message: Committed, initiator: str, answered: int | None) -> Entry:
    body = _body.decode(message.body)
    mine = message.sender == initiator
    said = {"role": histories.USER if mine else histories.ASSISTANT, "content": body.content}
    round_ = body.round if answered is None else answered
    return Entry(mine, message.sender, round_, said, body.message_id, message.sequence)


def own_history(session_pk: int, agent_pk: int) -> dict[str, Any]:
    """An agent's own history as the first seed writes it: nothing in it but roles and texts."""
    session_id = Session.objects.values_list("public_id", flat=True).get(pk=session_pk)
    agent_id = Agent.objects.values_list("agent_id", flat=True).get(pk=agent_pk)
    history = histories.find_history(session_pk, agent_pk)
    entries = histories.entries_of(history) if history is not None else []
    return {
        "session_id": histories.history_name(session_id, agent_id),
        "agent_name": agent_id,
        "messages": [_message(entry.role, entry.content, entry.data) for entry in entries],
    }


def _message(role: str, content: str, data: dict[str, Any] | None) -> dict[str, Any]:
    return {"role": role, "content": content, **({"data": data} if data else {})}


def deliveries_of(
    session_pk: int, agent_pk: int | None, before: int | None, limit: int
) -> tuple[list[Delivery], int | None]:
    """Deliveries of a session (to one agent), latest first, and where the next page begins."""
    rows = Delivery.objects.filter(session_id=session_pk).select_related("session", "agent").order_by("-id")
    if agent_pk is not None:
        rows = rows.filter(agent_id=agent_pk)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    taken: list[Delivery] = []
    size = 0
    for row in rows[: limit + 1].iterator(chunk_size=20):
        size += len(row.parts) + len(row.sent or "")
        if len(taken) == limit or (taken and size > limits.PAGE_BYTES):
            return taken, taken[-1].pk
        taken.append(row)
    return taken, None


def delivery_view(row: Delivery) -> dict[str, Any]:
    """A delivery as every door shows it; `parts` and `metadata` are the very bytes that were sent."""
    return {
        "delivery_id": row.public_id,
        "session_id": row.session.public_id,
        "agent_id": row.agent.agent_id,
        "strategy": row.strategy,
        "status": row.status,
        "asked_by": row.asked_by or None,
        "round": row.round,
        "message_id": message_id(row.message_key) if row.message_key is not None else None,
        "through_sequence": row.through_sequence,
        "query": row.query,
        "parts": Raw(row.parts.encode()),
        "metadata": Raw(row.metadata.encode()),
        "sent": row.sent,
        "reasons": row.reasons,
        "estimated_tokens": row.estimated_tokens,
        "policy_hash": row.visibility_hash,
        "rebuilt": row.rebuilt,
        "error": row.error or None,
        "created_at": wire_time(row.created_at),
        "settled_at": wire_time(row.settled_at),
    }


def summaries_of(
    session_pk: int, view: View | None, agent_pk: int, before: int | None, limit: int
) -> tuple[list[Summary], int | None]:
    """Summaries of a session, latest first: those of what this reader sees, and of its own history; all for `view` None."""
    rows = Summary.objects.filter(session_id=session_pk).select_related("history__agent").order_by("-id")
    if view is not None:
        mine = rows.filter(history__agent_id=agent_pk) | rows.filter(history=None, visibility_hash=view.hash)
        rows = mine.order_by("-id")
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows[: limit + 1])
    return found[:limit], found[limit - 1].pk if len(found) > limit else None


def summary_view(row: Summary) -> dict[str, Any]:
    return {
        "covers_from": row.covers_from,
        "covers_to": row.covers_to,
        "rounds_from": row.rounds_from,
        "rounds_to": row.rounds_to,
        "of": "session" if row.history is None else "history",
        "agent_id": row.history.agent.agent_id if row.history is not None else None,
        "tier": row.tier,
        "method": row.method,
        "text": row.text,
        "data": row.data,
        "source_hash": row.source_hash,
        "visibility_hash": row.visibility_hash,
        "created_at": wire_time(row.created_at),
    }
