"""What the page of a session shows: selectors that read a bounded piece, whatever the session holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, QuerySet, TextField, Window
from django.db.models.functions import Left, RowNumber

from sessions_app.admin import text
from sessions_app.cursors import unread
from sessions_app.db import utc_now
from sessions_app.models import Message, Participant, Presence, Session
from sessions_app.protocol import jsontext
from sessions_app.protocol.errors import HubError
from sessions_app.protocol.ids import HUB, message_id

PAGE = 50
CONTENT_CHARACTERS = 2000
JSON_CHARACTERS = 4000
NAMES = 8
PARTICIPANTS = 200
FARTHEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Line:
    """One message as the conversation shows it: foreign text visible, and cut where it is long."""

    key: int
    public_id: str
    sequence: int
    round: int
    sender: str
    to: str
    kind: str
    content: str
    is_cut: bool
    parts: str
    parts_cut: bool
    reply_to: str | None
    reply_to_key: int | None
    trace_id: str | None
    created_at: datetime

    @property
    def is_hub(self) -> bool:
        return self.sender == HUB


@dataclass(frozen=True, slots=True)
class Page:
    """Messages in order; `older` and `newer` are the bounds (exclusive) of the pages beside it, where there are any."""

    lines: list[Line]
    older: int | None
    newer: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """A participant as the session's page shows it."""

    agent_pk: int
    agent_id: str
    role: str
    cursor: int
    unread: int
    first_sequence: int
    online: bool
    joined_at: datetime
    left_at: datetime | None


def with_heads(messages: QuerySet[Message], characters: int) -> QuerySet[Message, Any]:
    """The columns of a line, and of the long ones no more than is shown: a message may hold a megabyte."""
    return messages.annotate(
        head=Left("content", characters + 1),
        parts_head=Left("parts", JSON_CHARACTERS + 1, output_field=TextField()),
        to_head=Left("to", JSON_CHARACTERS, output_field=TextField()),
    ).values(
        "id", "sequence", "round", "sender__agent_id", "kind", "reply_to", "trace_id", "created_at", "head", "parts_head",
        "to_head",
    )  # fmt: skip


def line_from(row: dict[str, Any]) -> Line:
    head: str = row["head"]
    parts: str = row["parts_head"] or ""
    reply_to: int | None = row["reply_to"]
    parts_cut = len(parts) > JSON_CHARACTERS
    return Line(
        key=row["id"],
        public_id=message_id(row["id"]),
        sequence=row["sequence"],
        round=row["round"],
        sender=row["sender__agent_id"],
        to=names(row["to_head"]),
        kind=row["kind"],
        content=text.cut(head, CONTENT_CHARACTERS),
        is_cut=len(head) > CONTENT_CHARACTERS,
        parts=text.cut(parts, JSON_CHARACTERS) if parts_cut else text.pretty_text(parts) if parts else "",
        parts_cut=parts_cut,
        reply_to=message_id(reply_to) if reply_to is not None else None,
        reply_to_key=reply_to,
        trace_id=row["trace_id"],
        created_at=row["created_at"],
    )


def names(to: str | None) -> str:
    """Addressees as stored (JSON text, perhaps cut off), for people."""
    if to is None:
        return "all"
    try:
        found = jsontext.loads(to)
    except HubError:  # cut off: it names hundreds
        return text.cut(to, 100)
    if not isinstance(found, list):
        return text.cut(to, 100)
    shown = ", ".join(text.cut(str(name), 64) for name in found[:NAMES])
    return f"{shown} and {len(found) - NAMES} more" if len(found) > NAMES else shown


def page_of(session: Session, *, before: int | None = None, after: int | None = None) -> Page:
    """The messages next to a bound, by default the last ones; one query by the index on (session, sequence)."""
    messages = with_heads(Message.objects.filter(session_id=session.pk), CONTENT_CHARACTERS)
    if after is not None:
        rows = list(messages.filter(sequence__gt=after).order_by("sequence")[: PAGE + 1])
        more_after, more_before = len(rows) > PAGE, after >= session.first_sequence
        rows = rows[:PAGE]
    else:
        below = messages if before is None else messages.filter(sequence__lt=before)
        rows = list(below.order_by("-sequence")[: PAGE + 1])
        more_before, more_after = len(rows) > PAGE, before is not None and before <= session.last_sequence
        rows = rows[:PAGE][::-1]
    lines = [line_from(row) for row in rows]
    if not lines:
        return Page([], None, None)
    return Page(
        lines,
        older=lines[0].sequence if more_before else None,
        newer=lines[-1].sequence if more_after else None,
    )


def places_of(session: Session) -> list[Place]:
    """The participants, those who are there first, in order of joining; no more than `PARTICIPANTS` + 1. Two queries."""
    rows = list(
        Participant.objects.filter(session_id=session.pk)
        .select_related("agent")
        .order_by(F("left_at").desc(nulls_first=True), "id")[: PARTICIPANTS + 1]
    )
    online = online_agents([row.agent_id for row in rows])
    return [
        Place(
            agent_pk=row.agent_id,
            agent_id=row.agent.agent_id,
            role=text.visible(row.role),
            cursor=row.cursor,
            unread=unread(session.last_sequence, row.cursor, row.sent, row.sent_read),
            first_sequence=row.first_sequence,
            online=row.agent_id in online,
            joined_at=row.joined_at,
            left_at=row.left_at,
        )
        for row in rows
    ]


def online_agents(pks: list[int]) -> set[int]:
    """Which of these have a live socket or stream: in a process whose lease still runs."""
    live = Presence.objects.filter(agent_id__in=pks, process__lease_until__gt=utc_now())
    return set(live.values_list("agent_id", flat=True))


def bound(given: str | None) -> int | None:
    """A sequence from the address, or None for what is none."""
    if given is None or not given.isascii() or not given.isdigit() or len(given) > 30:
        return None
    return min(int(given), FARTHEST)


def shown_names(session_pks: list[int]) -> dict[int, tuple[list[str], int]]:
    """`{session: (the first names, how many are there)}` of the present participants, in one query."""
    here = Participant.objects.filter(session_id__in=session_pks, left_at=None).annotate(
        place=Window(RowNumber(), partition_by="session_id", order_by="id"),
        total=Window(Count("id"), partition_by="session_id"),
    )
    found: dict[int, tuple[list[str], int]] = {}
    for pk, name, total in (
        here.filter(place__lte=3).order_by("session_id", "id").values_list("session_id", "agent__agent_id", "total")
    ):
        found.setdefault(pk, ([], total))[0].append(name)
    return found
