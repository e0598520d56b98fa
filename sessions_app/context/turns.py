"""A delivery as its receiver's model sees it, and as the first seed writes it down."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from sessions_app.context import histories, summaries, viewing
from sessions_app.context import parts as typed
from sessions_app.context.fences import fenced
from sessions_app.context.histories import ASSISTANT, USER, NewEntry, Turn
from sessions_app.context.strategies import PER_AGENT, SHARED, conversation_history
from sessions_app.models import Delivery, HistoryEntry
from sessions_app.protocol.ids import message_key
from sessions_app.protocol.jsontext import dumps, loads


def parts_of(delivery: Delivery) -> list[dict[str, Any]]:
    """What is sent, as values."""
    return list(loads(delivery.parts))


def injections_of(delivery: Delivery) -> list[dict[str, Any]]:
    """`[{source_agent, round, content, message_id}]`, in order of time; empty when nothing was injected."""
    for part in typed.registry.read_all(parts_of(delivery)):
        if part.type == typed.CONTEXT_INJECTIONS:
            return list(part.data)
    return []


def request_document(delivery: Delivery) -> dict[str, Any]:
    """The request of the first seed: `context_injections` is left out when there are none."""
    document: dict[str, Any] = {"session_id": delivery.session.public_id, "current_query": delivery.query}
    injected = injections_of(delivery)
    if injected:
        names = ("source_agent", "round", "content")
        document["context_injections"] = [{name: item[name] for name in names} for item in injected]
    return document | {"round": delivery.round}


def question_entries(delivery: Delivery) -> list[NewEntry]:
    """What a question adds to the agent's history: each injection in its fence, then the question."""
    entries = [
        NewEntry(
            HistoryEntry.INJECTION,
            USER,
            fenced(item["message_id"], item["source_agent"], item["content"]),
            item["source_agent"],
            message_key(item["message_id"]),
        )
        for item in injections_of(delivery)
    ]
    return [*entries, NewEntry(HistoryEntry.QUERY, USER, delivery.query, delivery.asked_by, delivery.message_key)]


def model_turns(delivery: Delivery, *, mode: str = histories.TIERED, window: int | None = None) -> list[Turn]:
    """Everything that the receiving agent's model is to see of the conversation, the question last; the system prompt (with
    `fences.NOTE`) is the caller's. Not merged; see `histories.merged`. Call it outside a transaction."""
    agent_id = delivery.agent.agent_id
    if delivery.strategy == PER_AGENT:
        told = histories.turns(
            delivery.session_id,
            delivery.agent_id,
            mode=mode,
            window=window,
            current=delivery.round,
            view_hash=delivery.visibility_hash,
        )
    elif delivery.strategy == SHARED:
        told = _pulled(delivery, window)
    else:
        told = [turn for part in typed.registry.read_all(parts_of(delivery)) for turn in _told_by(part, agent_id)]
    asked = [
        Turn(entry.role, entry.content, entry.kind, delivery.round, entry.source_agent)
        for entry in question_entries(delivery)
    ]
    return [*told, *asked]


def _told_by(part: typed.Typed, agent_id: str) -> list[Turn]:
    if part.type == typed.CONVERSATION_HISTORY:
        return _history_turns(part.data, agent_id)
    if part.type == typed.USER_CONTEXT:
        return [Turn(USER, fenced("context", "hub", dumps(part.data)), "context", 0, "hub")]
    return []  # injections stand before the question


def _history_turns(history: list[dict[str, Any]], agent_id: str) -> list[Turn]:
    """The agent's own words are the assistant's, the user's are the user's; everybody else's are data in a fence."""
    told = []
    for entry in history:
        name, content = entry["name"], entry["content"]
        if name == agent_id:
            told.append(Turn(ASSISTANT, content, HistoryEntry.REPLY, 0, name))
        elif entry["role"] == USER:
            told.append(Turn(USER, content, HistoryEntry.QUERY, 0, name))
        else:
            told.append(Turn(USER, fenced("history", name, content), HistoryEntry.INJECTION, 0, name))
    return told


def _pulled(delivery: Delivery, window: int | None) -> list[Turn]:
    """What an agent run by the hub pulls for itself: its filtered view, as of the delivery."""
    view = viewing.find_view(delivery.session_id, delivery.agent_id)
    past = summaries.past_of_session(delivery.session_id, view, delivery.through_sequence)
    remarks = tuple(remark for remark in past.remarks if remark.key != delivery.message_key)
    initiator = delivery.session.initiator.agent_id
    history = conversation_history(
        summaries.Past(past.summaries, remarks), initiator, window or settings.HUB_CONTEXT_WINDOW
    )
    return _history_turns(history, delivery.agent.agent_id)
