"""What an attempt reports, stored: the event, and what it adds up to (goals, tool calls, usage), in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.changes import Changes
from traces_app import sql
from traces_app.models import ToolCall, Trace
from traces_app.moves import Note, append_events
from traces_app.redaction import storable, storable_text
from traces_app.states import GOAL_STATUSES, RUNNING

REPORTABLE = ("message", "tool_call", "tool_result", "goal", "artifact", "context", "usage", "log")
MAX_GOALS = 2000


def record(trace: Trace, attempt: int, notes: list[Note], changes: Changes) -> list[sql.EventRow]:
    """Store `notes` of the running attempt; raises `moves.Lost` when it does not run any more."""
    events = append_events(trace, attempt, [_normal(note) for note in notes], changes, statuses=[RUNNING])
    for event in events:
        _take_in(trace, attempt, event)
    return events


def _normal(note: Note) -> Note:
    """The same names whoever reports: goals have `goal_id`, `parent_id`, `title`, `status`; calls have `call_id`, `name`."""
    data = dict(note.data)
    if note.type == "goal":
        goal_id = storable_text(str(data.pop("id", None) or data.get("goal_id") or note.span_id or "goal"), 64)
        parent = data.pop("parent_goal_id", None) or data.pop("parent", None) or data.get("parent_id")
        data["goal_id"] = goal_id
        data["parent_id"] = storable_text(str(parent), 64) if parent else None
        data["title"] = storable_text(str(data.get("title") or goal_id), 500)
        data["status"] = data.get("status") if data.get("status") in GOAL_STATUSES else "open"
        return Note("goal", data, note.span_id, note.parent_id)
    if note.type in ("tool_call", "tool_result"):
        data["call_id"] = storable_text(str(data.get("call_id") or data.pop("id", None) or note.span_id or "call"), 64)
        data["name"] = storable_text(str(data.get("name") or ""), 200)
        return Note(note.type, data, note.span_id, note.parent_id)
    if note.type not in REPORTABLE:
        return Note("log", {"level": "info", "type": note.type, **data}, note.span_id, note.parent_id)
    return note


def _take_in(trace: Trace, attempt: int, event: sql.EventRow) -> None:
    data = event.data
    if event.type == "goal":
        sql.put_goal(trace.pk, data["goal_id"], data["parent_id"], data["title"], data["status"], limit=MAX_GOALS)
    elif event.type == "tool_call":
        arguments = data.get("arguments") or {}
        sql.put_call(trace.pk, data["call_id"], attempt, data["name"], arguments, started_at=event.timestamp)
    elif event.type == "tool_result":
        failed = data.get("ok") is False or bool(data.get("error"))
        sql.put_call_result(
            trace.pk,
            data["call_id"],
            attempt,
            data["name"],
            status=ToolCall.FAILED if failed else ToolCall.DONE,
            result=data.get("error") if failed else data.get("result"),
            ended_at=event.timestamp,
        )
    elif event.type == "usage":
        add_usage(trace, data)


def add_usage(trace: Trace, data: Mapping[str, Any]) -> None:
    """Numbers add up over the attempts; anything else is the latest."""
    usage = dict(Trace.objects.values_list("usage", flat=True).get(pk=trace.pk))
    for name, value in data.items():
        known = usage.get(name, 0)
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        usage[name] = known + value if numeric and isinstance(known, int | float) else value
    Trace.objects.filter(pk=trace.pk).update(usage=storable(usage))
