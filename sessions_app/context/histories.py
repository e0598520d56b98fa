"""Agents' own histories, kept by the hub: `{session_id}_{agent_id}`. An agent's exchange enters it as a whole or not at all.

An exchange is what was injected, the question, the tool calls with their results, and the reply, in this order, written in
one transaction. Entries stay separate rows; towards a model neighbouring entries of the user's become one turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings

from sessions_app.context import summaries, viewing
from sessions_app.context.profiles import View
from sessions_app.context.summaries import Past, Remark, chain
from sessions_app.context.words import cut_to_tokens, token_estimate, with_reserve
from sessions_app.db import utc_now
from sessions_app.models import AgentHistory, Delivery, HistoryEntry, Message, Session, Summary

WINDOW, SUMMARY, TIERED = "window", "summary", "tiered"
USER, ASSISTANT, TOOL = "user", "assistant", "tool"
WINDOW_ROUNDS = 10
REBUILT_EXCHANGES = 50
ENTRY_CHARACTERS = 256 * 1024


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry to be written. `data` of a tool call is `{call_id, name, arguments}`, of its result `{call_id, name, ok}`."""

    kind: str
    role: str
    content: str
    source_agent: str = ""
    message_key: int | None = None
    data: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """An entry as a model shall see it. `kind` is `summary` or one of `HistoryEntry.KINDS`."""

    role: str
    content: str
    kind: str
    round: int
    agent_name: str = ""
    data: dict[str, Any] | None = None


def history_name(session_id: str, agent_id: str) -> str:
    """The public name of an agent's own history."""
    return f"{session_id}_{agent_id}"


def lock(session_pk: int, agent_pk: int) -> AgentHistory:
    """The history's row, made if need be, locked to the end of the caller's transaction.

    Order of locks: sessions, traces, then histories in the order of their keys.
    """
    AgentHistory.objects.get_or_create(session_id=session_pk, agent_id=agent_pk, defaults={"used_at": utc_now()})
    return AgentHistory.objects.select_for_update().get(session_id=session_pk, agent_id=agent_pk)


def has_expired(history: AgentHistory) -> bool:
    """Whether it was not used for too long: it is forgotten then, and the next question rebuilds it from the messages."""
    seconds = settings.HUB_HISTORY_SECONDS
    return bool(seconds) and history.used_at < utc_now() - timedelta(seconds=seconds)


def forget(history: AgentHistory) -> None:
    """Forget all entries and their summaries, under the history's lock; positions go on."""
    HistoryEntry.objects.filter(history=history).delete()
    Summary.objects.filter(history=history).delete()
    history.used_at = utc_now()
    history.save(update_fields=["used_at"])


def write(history: AgentHistory, entries: Sequence[NewEntry], *, round: int, delivery: Delivery | None = None) -> None:
    """Add entries at the end, inside a transaction that holds the history's row."""
    now = utc_now()
    HistoryEntry.objects.bulk_create(
        HistoryEntry(
            history=history,
            position=history.last_position + number,
            kind=entry.kind,
            role=entry.role,
            source_agent=entry.source_agent,
            round=round,
            content=entry.content[:ENTRY_CHARACTERS],
            data=entry.data,
            message_key=entry.message_key,
            delivery=delivery,
            created_at=now,
        )
        for number, entry in enumerate(entries, 1)
    )
    history.last_position += len(entries)
    history.used_at = now
    history.save(update_fields=["last_position", "used_at"])


def learn_usage(history: AgentHistory, text_bytes: int, tokens: int) -> None:
    """Remember what a model counted for so many bytes; later estimates are corrected by the proportion."""
    if text_bytes > 0 and tokens > 0:
        AgentHistory.objects.filter(pk=history.pk).update(bytes_told=text_bytes, tokens_told=tokens)


def correction(history: AgentHistory | None) -> float:
    """By what to multiply estimates for this agent: what its model counted over what we would have said."""
    if history is None or not history.tokens_told:
        return 1.0
    return min(max(history.tokens_told / max(1.0, history.bytes_told / 4), 0.25), 4.0)


# Rebuilding


def rebuild(history: AgentHistory, view: View, agent_id: str, initiator_pk: int, through: int) -> list[int]:
    """Write an empty history anew from the messages: the agent's own answers, each with the question it belongs to.

    Returns the keys of the questions, which the agent knows by that. What else was said comes by injection, as ever.
    """
    rows = list(
        Message.objects.filter(
            session_id=history.session_id,
            sender_id=history.agent_id,
            kind__in=("chat", "result"),
            sequence__lte=through,
            sequence__gte=view.floor,
        ).order_by("-sequence")[:REBUILT_EXCHANGES]
    )
    questions: list[int] = []
    for answer in reversed(rows):
        asked = _question_of(answer, initiator_pk)
        shown = viewing.by_key(history.session_id, [asked] if asked is not None else [], view)
        entries = []
        for key, message in shown.items():
            questions.append(key)
            text = summaries.remarks_of([message])[0].text
            entries.append(NewEntry(HistoryEntry.QUERY, USER, text, message.sender, key))
        entries.append(NewEntry(HistoryEntry.REPLY, ASSISTANT, answer.content, agent_id, answer.pk))
        write(history, entries, round=answer.round)
    return questions


def _question_of(answer: Message, initiator_pk: int) -> int | None:
    if answer.reply_to is not None:
        return answer.reply_to
    rows = Message.objects.filter(
        session_id=answer.session_id, sender_id=initiator_pk, round=answer.round, sequence__lt=answer.sequence
    )
    return rows.order_by("-sequence").values_list("pk", flat=True).first()


# Reading


def find_history(session_pk: int, agent_pk: int) -> AgentHistory | None:
    """The history, unless there is none or it has expired."""
    history = AgentHistory.objects.filter(session_id=session_pk, agent_id=agent_pk).first()
    return None if history is None or has_expired(history) else history


def entries_of(history: AgentHistory, after: int = 0) -> list[HistoryEntry]:
    return list(HistoryEntry.objects.filter(history=history, position__gt=after).order_by("position"))


def turns(
    session_pk: int,
    agent_pk: int,
    *,
    mode: str = TIERED,
    rounds: int = WINDOW_ROUNDS,
    window: int | None = None,
    current: int | None = None,
    view_hash: str = "",
) -> list[Turn]:
    """What of an agent's own history goes to its model, within 60 % of `window` tokens; summed up where that is due.

    `mode` window: the last `rounds` exchanges; summary: one summary, then what is raw; tiered: a summary of summaries, the
    latest summaries, then what is raw. `current` is the round under way (default: the session's). Call it outside a
    transaction: a model may be asked for a summary.
    """
    history = find_history(session_pk, agent_pk)
    if history is None:
        return []
    window = window or settings.HUB_CONTEXT_WINDOW
    if current is None:
        current = Session.objects.values_list("round", flat=True).get(pk=session_pk)
    if mode == WINDOW:
        raw = _last_exchanges(entries_of(history), rounds)
        return _fitted([], raw, window, correction(history))
    rows = chain(list(Summary.objects.filter(history=history)))
    raw = entries_of(history, rows[-1].covers_to if rows else 0)
    past = summaries.keep_up_history(
        history,
        Past(rows, tuple(_remark(entry) for entry in raw)),
        current=current,
        window=window,
        tiered=mode == TIERED,
        view_hash=view_hash,
    )
    raw = [entry for entry in raw if entry.position > past.covered_to]
    told = [Turn(USER, summaries.headed(row), "summary", row.rounds_to) for row in past.summaries]
    return _fitted(told, raw, window, correction(history))


def _remark(entry: HistoryEntry) -> Remark:
    who = entry.source_agent or entry.role
    text = entry.content
    if entry.kind == HistoryEntry.TOOL_CALL and entry.data:
        text = text or f"called {entry.data.get('name', '')}"
    return Remark(entry.position, entry.round, who, text, entry.role, entry.message_key)


def exchanges(entries: Sequence[HistoryEntry]) -> list[list[HistoryEntry]]:
    """Entries by exchange: one begins with what is injected or asked, and holds its calls, results and reply."""
    found: list[list[HistoryEntry]] = []
    asking = False
    for entry in entries:
        begins = entry.kind in (HistoryEntry.INJECTION, HistoryEntry.QUERY)
        if not found or (begins and not asking):
            found.append([])
        found[-1].append(entry)
        asking = begins
    return found


def _last_exchanges(entries: Sequence[HistoryEntry], number: int) -> list[HistoryEntry]:
    return [entry for exchange in exchanges(entries)[-number:] for entry in exchange]


def _fitted(told: list[Turn], raw: Sequence[HistoryEntry], window: int, factor: float) -> list[Turn]:
    """As many whole exchanges as fit, the newest first; one that is too large alone is cut, not dropped."""
    room = int(window * summaries.SHARE_OF_WINDOW) - _cost(told, factor)
    most = max(room // 2, 50)
    taken: list[list[Turn]] = []
    for exchange in reversed(exchanges(raw)):
        shown = [_turn(entry, most) for entry in exchange]
        cost = _cost(shown, factor)
        if taken and cost > room:
            break
        taken.append(shown)
        room -= cost
    return told + [turn for exchange in reversed(taken) for turn in exchange]


def _turn(entry: HistoryEntry, most: int) -> Turn:
    text = cut_to_tokens(entry.content, most)
    return Turn(entry.role, text, entry.kind, entry.round, entry.source_agent, entry.data)


def _cost(told: Iterable[Turn], factor: float) -> int:
    return sum(with_reserve(token_estimate(turn.content), factor) for turn in told)


def merged(told: Sequence[Turn]) -> list[Turn]:
    """Neighbouring turns of the user's as one, so that user and assistant alternate on a model's wire."""
    found: list[Turn] = []
    for turn in told:
        last = found[-1] if found else None
        if last is not None and turn.role == last.role == USER:
            found[-1] = Turn(USER, f"{last.content}\n\n{turn.content}", turn.kind, turn.round, turn.agent_name)
        else:
            found.append(turn)
    return found
