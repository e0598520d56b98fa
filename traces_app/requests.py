"""What an executor, or the agent that a trace is delegated to, is given of the session."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from sessions_app.context import turns
from sessions_app.context.profiles import View
from sessions_app.context.viewing import seen_in
from sessions_app.models import Delivery
from sessions_app.protocol.jsontext import loads
from traces_app import sql
from traces_app.executors.contract import Request
from traces_app.lifecycle import Claimed
from traces_app.models import Trace, TraceEvent
from traces_app.moves import Note
from traces_app.selectors import log_of

CONTENT_CHARACTERS = 4000
TALK_KINDS = ("chat", "task", "tool_call", "result")
CONTINUED_EVENTS = 500
MAX_CHAIN = 20


def load_request(claimed: Claimed, deadline: float | None) -> tuple[Request, Note]:
    """The request of an attempt, and the `context` event that says what was injected into it."""
    asked = sql.load_asked(claimed.pk)
    delivery = delivery_of(asked, claimed.trace_id)
    history = history_of(asked) if delivery is None else told_history(delivery)
    request = Request(
        trace_id=claimed.trace_id,
        session_id=asked.session_id,
        attempt=claimed.attempt,
        task=asked.task,
        agent_id=asked.agent_id,
        requested_by=asked.requested_by,
        kind=asked.kind or "task",
        parts=asked.parts or [{"text": asked.task}],
        metadata=asked.metadata or {},
        context=asked.context,
        history=history,
        inputs=asked.inputs,
        config=asked.config or {},
        continue_from=asked.continue_from,
        resumed=earlier(claimed.pk, claimed.attempt),
        asked=turns.request_document(delivery) if delivery is not None else None,
        deadline=deadline,
    )
    injected = {
        "context_keys": sorted(asked.context),
        "history_sequences": [entry["sequence"] for entry in history if "sequence" in entry],
        "history_entries": len(history),
        "inputs": len(asked.inputs),
    }
    if asked.continue_from:
        injected["continue_from"] = asked.continue_from
    return request, Note("context", injected)


def history_of(asked: sql.Asked) -> list[dict[str, Any]]:
    """The talk before the request, as far as the executing agent may read it, then the history of the trace it continues."""
    if asked.view:
        return _shown_talk(asked) + continued(asked.continue_from, asked.view)
    talk = sql.talk_before(
        asked.session_pk,
        asked.message_sequence,
        asked.view.floor,
        TALK_KINDS,
        CONTENT_CHARACTERS,
        settings.HUB_TRACE_HISTORY,
    )
    said = [
        {
            "role": "assistant" if sender_pk == asked.agent_pk else "user",
            "name": name,
            "content": head,
            "sequence": sequence,
        }
        for sender_pk, name, head, sequence in talk
    ]
    return said + continued(asked.continue_from, asked.view)


def _shown_talk(asked: sql.Asked) -> list[dict[str, Any]]:
    """The same for an agent with a visibility profile."""
    most = settings.HUB_TRACE_HISTORY
    shown = seen_in(asked.session_pk, asked.view, through=asked.message_sequence - 1, most=most * 2)
    talk = [message for message in shown if message.kind in TALK_KINDS]
    return [
        {
            "role": "assistant" if message.sender == asked.agent_id else "user",
            "name": message.sender,
            "content": loads(message.body)["content"][:CONTENT_CHARACTERS],
            "sequence": message.sequence,
        }
        for message in (talk[-most:] if most else [])
    ]


def delivery_of(asked: sql.Asked, trace_id: str) -> Delivery | None:
    """What a called agent is told."""
    return Delivery.objects.filter(key=trace_id).first() if asked.called else None


def told_history(delivery: Delivery) -> list[dict[str, Any]]:
    """For a called agent: its own history, then what is injected, each in its fence; the question itself is the task."""
    return [
        {"role": turn.role, "name": turn.agent_name, "content": turn.content}
        for turn in turns.model_turns(delivery)[:-1]
    ]


def continued(source: dict[str, Any] | None, view: View, depth: int = 0) -> list[dict[str, Any]]:
    """The history of a trace up to `after_sequence`, repaired: no tool call lacks its result, and no result its call."""
    if not source or depth >= MAX_CHAIN:
        return []
    rows = Trace.objects.select_related("agent", "requested_by", "parent")
    trace = rows.filter(public_id=source["trace_id"]).first()
    if trace is None or not log_of(trace).may_be_read(view):
        return []
    events = TraceEvent.objects.filter(
        trace_id=trace.pk, sequence__lte=source["after_sequence"], type__in=("message", "tool_call", "tool_result")
    ).order_by("sequence")[:CONTINUED_EVENTS]
    entries: list[dict[str, Any]] = [
        {"type": "message", "role": "user", "content": trace.task, "trace_id": trace.public_id}
    ]
    entries += [{"type": row.type, "trace_id": trace.public_id, "attempt": row.attempt, **row.data} for row in events]
    if trace.result is not None and source["after_sequence"] >= trace.last_sequence:
        text = str(trace.result.get("summary", ""))
        entries.append({"type": "message", "role": "assistant", "content": text, "trace_id": trace.public_id})
    own: list[dict[str, Any]] = view.redact(repaired(entries))
    return continued(trace.continue_from, view, depth + 1) + own


def earlier(trace_pk: int, attempt: int) -> list[dict[str, Any]]:
    """What the attempts before this one said, did and used up, as their events have it."""
    if attempt <= 1:
        return []
    rows = TraceEvent.objects.filter(
        trace_id=trace_pk, attempt__lt=attempt, type__in=("message", "tool_call", "tool_result", "usage")
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
