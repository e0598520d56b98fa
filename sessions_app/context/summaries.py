"""Rolling summaries beside the messages, never instead of them, keyed by who may see what they were made of.

One is due after ten completed rounds, every ten after that, and when what is raw passes 60 % of the window; the last two
rounds stay raw. It continues the one before it. With `HUB_SUMMARISER` a model writes it (decisions, open questions, facts
with message ids); without one, or when that fails, sentences are picked, and the summary says which it is. Goals and
constraints are the session context's, and never taken from here.

A summary of an agent's own history works alike over its entries; there, with `tiered`, blocks stay apart and the oldest of
them are summed up again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import msgspec
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils.module_loading import import_string
from msgspec import Struct

from sessions_app.changes import Committed
from sessions_app.context import viewing
from sessions_app.context.choosing import TALK
from sessions_app.context.extracts import Said, extract
from sessions_app.context.profiles import View
from sessions_app.context.words import cut_to_tokens, token_estimate, with_reserve
from sessions_app.db import utc_now, write_transaction
from sessions_app.models import AgentHistory, Summary

log = logging.getLogger("hub.context")

KEPT_RAW = 2
"""Rounds."""
MOST_BLOCKS = 3
SHARE_OF_WINDOW = 0.6
TEXT_MOST = 64 * 1024


class Remark(Struct, frozen=True):
    """One thing to sum up: a message as its readers see it, or an entry of a history. `place` is its sequence or position."""

    place: int
    round: int
    who: str
    text: str
    role: str = ""
    key: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """What a writer is given: the summary so far, what comes after it, and how long it may get."""

    previous: str
    remarks: Sequence[Remark]
    tokens: int


@dataclass(frozen=True, slots=True)
class Written:
    """What a writer returns: `text`, and the same structured (`decisions`, `open_questions`, `facts` with message ids)."""

    text: str
    data: dict[str, Any] = field(default_factory=dict)


Writer = Callable[[Task], Written | None]
"""`HUB_SUMMARISER` names one. None, nothing, or any exception: the extractive one steps in."""


@cache
def _writer(name: str) -> Writer | None:
    return import_string(name) if name else None


# What is there


@dataclass(frozen=True, slots=True)
class Past:
    """What came before: the summaries that cover it, oldest first and without a gap, and what is raw after them."""

    summaries: tuple[Summary, ...]
    remarks: tuple[Remark, ...]

    @property
    def covered_to(self) -> int:
        return self.summaries[-1].covers_to if self.summaries else 0

    @property
    def rounds_to(self) -> int:
        return self.summaries[-1].rounds_to if self.summaries else -1


class _Body(Struct):
    round: int
    content: str
    parts: list[dict[str, Any]]


_body = msgspec.json.Decoder(_Body)


def remarks_of(messages: Sequence[Committed]) -> list[Remark]:
    """Shown messages to sum up or to put into a history, in the rounds that they belong to."""
    rounds = viewing.rounds_of(messages)
    return [_remark(message, rounds.get(message.key)) for message in messages]


def _remark(message: Committed, answered: int | None) -> Remark:
    """Data without text is named by its types."""
    body = _body.decode(message.body)
    text = body.content
    if not text:
        kinds = ", ".join(sorted({str((part.get("metadata") or {}).get("type") or "data") for part in body.parts}))
        text = f"({kinds})"
    return Remark(message.sequence, body.round if answered is None else answered, message.sender, text, key=message.key)


def chain(rows: Sequence[Summary], through: int | None = None) -> tuple[Summary, ...]:
    """Of these summaries those that together cover the past up to the newest (not above `through`), the widest first."""
    usable = [row for row in rows if through is None or row.covers_to <= through]
    if not usable:
        return ()
    at = max(row.covers_to for row in usable)
    taken: list[Summary] = []
    while True:
        ending = [row for row in usable if row.covers_to == at]
        if not ending:
            break
        widest = min(ending, key=lambda row: row.covers_from)
        taken.append(widest)
        if widest.covers_from <= 1:
            break
        at = widest.covers_from - 1
    return tuple(reversed(taken))


def past_of_session(session_pk: int, view: View, through: int, *, kinds: Sequence[str] = TALK) -> Past:
    """A session's past up to `through` as this reader may get it."""
    rows = Summary.objects.filter(
        session_id=session_pk, history=None, visibility_hash=view.hash, covers_to__lte=through
    ).order_by("-covers_to")
    newest = rows.first()
    summaries = (newest,) if newest is not None else ()
    after = newest.covers_to if newest is not None else 0
    messages = viewing.seen_in(session_pk, view, after=after, through=through)
    return Past(summaries, tuple(remarks_of([message for message in messages if message.kind in kinds])))


# When one is due, and making it


def due_up_to(remarks: Sequence[Remark], rounds_to: int, current: int, *, window: int, told: int = 0) -> int | None:
    """The last round that a new summary shall cover, or None. `current` is the round under way; `told` are the tokens of
    the summaries so far. Rounds up to `rounds_to` are covered already."""
    last = current - 1 - KEPT_RAW
    if last <= max(rounds_to, 0) or not any(remark.round <= last for remark in remarks):
        return None
    already = rounds_to + KEPT_RAW if rounds_to >= 0 else 0
    if current - 1 - already >= settings.HUB_SUMMARY_ROUNDS:
        return last
    tokens = told + sum(token_estimate(remark.text) for remark in remarks)
    return last if with_reserve(tokens) > SHARE_OF_WINDOW * window else None


def keep_up(session_pk: int, view: View, *, through: int, current: int, window: int) -> Past:
    """The past of a session as this reader may get it, summed up where that is due. Call it outside a transaction: a model
    may take a while."""
    past = past_of_session(session_pk, view, through)
    told = sum(token_estimate(row.text) for row in past.summaries)
    last = due_up_to(past.remarks, past.rounds_to, current, window=window, told=told)
    if last is None:
        return past
    old, recent = _split(past.remarks, last)
    previous = past.summaries[-1] if past.summaries else None
    made = _make(
        Task(previous.text if previous else "", old, settings.HUB_SUMMARY_TOKENS),
        Summary(
            session_id=session_pk,
            visibility_hash=view.hash,
            covers_from=previous.covers_from if previous else old[0].place,
            covers_to=old[-1].place,
            rounds_from=previous.rounds_from if previous else old[0].round,
            rounds_to=last,
            source_hash=_hash(previous.source_hash if previous else "", old),
        ),
    )
    return Past((made,), tuple(recent))


def keep_up_history(
    history: AgentHistory, past: Past, *, current: int, window: int, tiered: bool, view_hash: str
) -> Past:
    """The same for an agent's own history. Tiered: each summary is a block of its own, and the oldest blocks become one."""
    told = sum(token_estimate(row.text) for row in past.summaries)
    last = due_up_to(past.remarks, past.rounds_to, current, window=window, told=told)
    summaries, remarks = list(past.summaries), list(past.remarks)
    if last is not None:
        old, remarks = _split(remarks, last)
        rolling = summaries[-1] if summaries and not tiered else None
        before = rolling or (summaries[-1] if summaries else None)
        text = "\n".join(row.text for row in summaries) if rolling else ""
        made = _make(
            Task(text, old, settings.HUB_SUMMARY_TOKENS),
            Summary(
                session_id=history.session_id,
                history=history,
                visibility_hash=view_hash,
                covers_from=summaries[0].covers_from if rolling else (before.covers_to + 1 if before else 1),
                covers_to=old[-1].place,
                rounds_from=summaries[0].rounds_from if rolling else old[0].round,
                rounds_to=last,
                source_hash=_hash(before.source_hash if before else "", old),
            ),
        )
        summaries = [made] if rolling else [*summaries, made]
    if tiered and len(summaries) > MOST_BLOCKS:
        summaries = [_fold(history, summaries[:-1], view_hash), summaries[-1]]
    return Past(tuple(summaries), tuple(remarks))


def _fold(history: AgentHistory, rows: Sequence[Summary], view_hash: str) -> Summary:
    """A summary of summaries."""
    remarks = [
        Remark(row.covers_to, row.rounds_to, f"rounds {row.rounds_from}–{row.rounds_to}", row.text) for row in rows
    ]
    return _make(
        Task("", remarks, settings.HUB_SUMMARY_TOKENS),
        Summary(
            session_id=history.session_id,
            history=history,
            visibility_hash=view_hash,
            tier=2,
            covers_from=rows[0].covers_from,
            covers_to=rows[-1].covers_to,
            rounds_from=rows[0].rounds_from,
            rounds_to=rows[-1].rounds_to,
            source_hash=_hash("", remarks),
        ),
    )


def _split(remarks: Sequence[Remark], last: int) -> tuple[list[Remark], list[Remark]]:
    """Up to the last remark of round `last`, and after it: rounds are cut whole, so no call is parted from its result."""
    cut = max(index for index, remark in enumerate(remarks) if remark.round <= last) + 1
    return list(remarks[:cut]), list(remarks[cut:])


def _make(task: Task, row: Summary) -> Summary:
    """Write and store one; whoever else made the same meanwhile is believed."""
    written, method = _write(task)
    row.text, row.data, row.method = written.text, written.data or None, method
    row.created_at = utc_now()
    try:
        with write_transaction(), transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        same = Summary.objects.filter(
            session_id=row.session_id, history=row.history, tier=row.tier, covers_to=row.covers_to
        )
        if row.history is None:
            same = same.filter(visibility_hash=row.visibility_hash)
        return same.get()
    return row


def _write(task: Task) -> tuple[Written, str]:
    writer = _writer(settings.HUB_SUMMARISER)
    if writer is not None:
        try:
            written = writer(task)
            if written is not None and written.text.strip():
                text = cut_to_tokens(written.text.strip()[:TEXT_MOST], task.tokens * 2)
                return Written(text, written.data), Summary.LLM
        except Exception as error:  # whatever a model or its client does, the conversation goes on
            log.warning("a summary could not be written by the model, sentences are picked: %s", type(error).__name__)
    remarks = [Said("earlier", task.previous)] if task.previous else []
    remarks += [Said(remark.who, remark.text) for remark in task.remarks]
    return Written(extract(remarks, task.tokens)), Summary.EXTRACTIVE


def _hash(before: str, remarks: Sequence[Remark]) -> str:
    hasher = hashlib.sha256(before.encode())
    for remark in remarks:
        hasher.update(f"\n{remark.place}\0{remark.who}\0{remark.text}".encode())
    return hasher.hexdigest()


def headed(row: Summary) -> str:
    """A summary with the line that says what it covers and how it was made."""
    how = "by a model" if row.method == Summary.LLM else "sentences picked"
    what = "messages" if row.history_id is None else "entries"
    rounds = f"rounds {row.rounds_from}–{row.rounds_to}"
    return f"Summary of {rounds} ({what} {row.covers_from}–{row.covers_to}, {how}):\n{row.text}"
