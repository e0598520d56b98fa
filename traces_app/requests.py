"""What an executor, or the agent that a trace is delegated to, is given of the session."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Left

from sessions_app.context import turns
from sessions_app.models import Delivery, Message, Participant
from traces_app.executors.contract import Request
from traces_app.lifecycle import Claimed
from traces_app.models import Trace, TraceEvent
from traces_app.moves import Note

CONTENT_CHARACTERS = 4000
TALK_KINDS = ("chat", "task", "tool_call", "result")
CONTINUED_EVENTS = 500
MAX_CHAIN = 20


def load_request(claimed: Claimed, deadline: float | None) -> tuple[Request, Note]:
    """The request of an attempt, and the `context` event that says what was injected into it."""
    trace = Trace.objects.select_related("agent", "session", "requested_by").get(pk=claimed.pk)
    row = Message.objects.filter(pk=trace.message_key).values("kind", "parts", "metadata").first()
    message: dict[str, Any] = dict(row) if row is not None else {}
    delivery = Delivery.objects.filter(key=trace.public_id).first() if trace.called else None
    history = history_of(trace) if delivery is None else told_history(delivery)
    request = Request(
        trace_id=trace.public_id,
        session_id=trace.session.public_id,
        attempt=claimed.attempt,
        task=trace.task,
        agent_id=trace.agent.agent_id,
        requested_by=trace.requested_by.agent_id,
        kind=message.get("kind") or "task",
        parts=message.get("parts") or [{"text": trace.task}],
        metadata=message.get("metadata") or {},
        context=trace.context,
        history=history,
        inputs=trace.inputs,
        config=trace.agent.executor_config or {},
        continue_from=trace.continue_from,
        resumed=earlier(trace, claimed.attempt),
        asked=turns.request_document(delivery) if delivery is not None else None,
        deadline=deadline,
    )
    injected = {
        "context_keys": sorted(trace.context),
        "history_sequences": [entry["sequence"] for entry in history if "sequence" in entry],
        "history_entries": len(history),
        "inputs": len(trace.inputs),
    }
    if trace.continue_from:
        injected["continue_from"] = trace.continue_from
    return request, Note("context", injected)


def history_of(trace: Trace) -> list[dict[str, Any]]:
    """The talk before the request, as far as the executing agent may read it, then the history of the trace it continues."""
    floor = (
        Participant.objects.filter(session_id=trace.session_id, agent_id=trace.agent_id, left_at=None)
        .values_list("first_sequence", flat=True)
        .first()
    )
    rows = (
        Message.objects.filter(
            session_id=trace.session_id,
            sequence__lt=trace.message_sequence,
            sequence__gte=floor or 1,
            kind__in=TALK_KINDS,
        )
        .order_by("-sequence")
        .annotate(head=Left("content", CONTENT_CHARACTERS), name=F("sender__agent_id"))
        .values("sender_id", "name", "head", "sequence")[: settings.HUB_TRACE_HISTORY]
    )
    talk = [
        {
            "role": "assistant" if row["sender_id"] == trace.agent_id else "user",
            "name": row["name"],
            "content": row["head"],
            "sequence": row["sequence"],
        }
        for row in reversed(rows)
    ]
    return talk + continued(trace.continue_from)


def told_history(delivery: Delivery) -> list[dict[str, Any]]:
    """For a called agent: its own history, then what is injected, each in its fence; the question itself is the task."""
    return [
        {"role": turn.role, "name": turn.agent_name, "content": turn.content}
        for turn in turns.model_turns(delivery)[:-1]
    ]


def continued(source: dict[str, Any] | None, depth: int = 0) -> list[dict[str, Any]]:
    """The history of a trace up to `after_sequence`, repaired: no tool call lacks its result, and no result its call."""
    if not source or depth >= MAX_CHAIN:
        return []
    trace = Trace.objects.filter(public_id=source["trace_id"]).first()
    if trace is None:
        return []
    rows = TraceEvent.objects.filter(
        trace_id=trace.pk, sequence__lte=source["after_sequence"], type__in=("message", "tool_call", "tool_result")
    ).order_by("sequence")[:CONTINUED_EVENTS]
    entries: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": trace.task, "trace_id": trace.public_id}
    ]
    entries += [{"type": row.type, "trace_id": trace.public_id, "attempt": row.attempt, **row.data} for row in rows]
    if trace.result is not None and source["after_sequence"] >= trace.last_sequence:
        text = str(trace.result.get("summary", ""))
        entries.append({"type": "message", "role": "assistant", "content": text, "trace_id": trace.public_id})
    return continued(trace.continue_from, depth + 1) + repaired(entries)


def earlier(trace: Trace, attempt: int) -> list[dict[str, Any]]:
    """What the attempts before this one said, did and used up, as their events have it."""
    if attempt <= 1:
        return []
    rows = TraceEvent.objects.filter(
        trace_id=trace.pk, attempt__lt=attempt, type__in=("message", "tool_call", "tool_result", "usage")
    ).order_by("sequence")[:CONTINUED_EVENTS]
    return [{"type": row.type, "attempt": row.attempt, **row.data} for row in rows]


def repaired(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each call directly answered: calls without a result get one that says so, results without a call are dropped."""
    results = {_call(e): e for e in entries if e["type"] == "tool_result"}
    calls = {_call(e) for e in entries if e["type"] == "tool_call"}
    whole: list[dict[str, Any]] = []
    for entry in entries:
        if entry["type"] == "tool_result" and _call(entry) not in calls:
            continue
        whole.append(entry)
        if entry["type"] == "tool_call" and _call(entry) not in results:
            error = {"code": "interrupted", "message": "The run ended before this call returned."}
            whole.append({**entry, "type": "tool_result", "ok": False, "result": None, "error": error})
    return whole


def _call(entry: dict[str, Any]) -> tuple[Any, Any]:
    return entry.get("call_id"), entry.get("attempt")
