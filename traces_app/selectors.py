"""What the doors show of traces: nouns, reading only, a constant number of queries each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sessions_app.context.profiles import View, open_view
from sessions_app.context.provenance import read as read_provenance
from sessions_app.context.shared import from_stored
from sessions_app.context.viewing import find_view
from sessions_app.db import wire_time
from sessions_app.keys import Principal
from sessions_app.protocol import limits
from sessions_app.protocol.errors import NotFound
from sessions_app.protocol.ids import message_id
from sessions_app.protocol.jsontext import dumps
from sessions_app.sql import messages_by_key
from traces_app.models import Goal, Trace, TraceEvent
from traces_app.sight import Log, shown_event, shown_trace

READ_AT_ONCE = 100


class TraceAccess(NamedTuple):
    """A trace that a principal may see."""

    pk: int
    session_pk: int
    agent_pk: int
    trace_id: str
    view: View


def find_trace(trace_id: str, principal: Principal) -> TraceAccess:
    """The trace, if its request is this principal's to read; `NotFound` for a foreign and an unknown one alike."""
    row = (
        Trace.objects.filter(public_id=trace_id)
        .values_list("pk", "session_id", "agent_id", "public_id", "message_sequence")
        .first()
        if len(trace_id) <= 40 and "\0" not in trace_id
        else None
    )
    if row is None:
        raise NotFound()
    pk, session_pk, agent_pk, public_id, sequence = row
    view = open_view()
    if not principal.is_operator:
        view = find_view(session_pk, principal.agent_pk)
        if view.floor > sequence:
            raise NotFound()
    return TraceAccess(pk, session_pk, agent_pk, public_id, view)


def trace_view(pk: int, view: View) -> dict[str, Any]:
    """A trace as every door shows it to this reader."""
    return trace_views([pk], view)[0]


def trace_views(pks: Sequence[int], view: View) -> list[dict[str, Any]]:
    """Traces as every door shows them to this reader, in the order asked for; two queries however many."""
    rows = Trace.objects.select_related("session", "agent", "requested_by", "parent").in_bulk(pks)
    goals: dict[int, list[dict[str, Any]]] = {pk: [] for pk in pks}
    for goal in Goal.objects.filter(trace_id__in=pks).order_by("trace_id", "position"):
        goals[goal.trace_id].append(
            {"goal_id": goal.goal_id, "parent_id": goal.parent_goal, "title": goal.title, "status": goal.status}
        )
    shapes = [_view(rows[pk], goals[pk]) for pk in pks if pk in rows]
    return shapes if not view else _shown(shapes, [rows[pk] for pk in pks if pk in rows], view)


def _shown(shapes: list[dict[str, Any]], traces: list[Trace], view: View) -> list[dict[str, Any]]:
    asked = messages_by_key({trace.message_key for trace in traces})
    shown = []
    for shape, trace in zip(shapes, traces, strict=True):
        request = asked.get(trace.message_key)
        if request is not None:
            # Who is asked gets the request as it would be injected; others only as they find it in the log.
            runs_it = shape["agent_id"] == view.agent_id
            request = view.injectable(request) if runs_it else view.show(request)
        shown.append(
            shown_trace(
                shape,
                view,
                request,
                called=trace.called,
                log=log_of(trace),
                context_words=from_stored(trace.context_provenance),
            )
        )
    return shown


def log_of(trace: Trace) -> Log:
    """Whose words its log holds; `agent`, `requested_by` and `parent` are read with it."""
    asked_with = read_provenance(trace.parent.provenance) if trace.called and trace.parent is not None else None
    return Log(trace.agent.agent_id, trace.requested_by.agent_id, read_provenance(trace.provenance), asked_with)


def _view(trace: Trace, goals: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "trace_id": trace.public_id,
        "session_id": trace.session.public_id,
        "message_id": message_id(trace.message_key),
        "agent_id": trace.agent.agent_id,
        "requested_by": trace.requested_by.agent_id,
        "executor": trace.executor,
        "task": trace.task,
        "status": trace.status,
        "attempt": trace.attempt,
        "losses": trace.losses,
        "parent_trace_id": trace.parent.public_id if trace.parent is not None else None,
        "continue_from": trace.continue_from,
        "context": trace.context,
        "goals": goals,
        "result": trace.result,
        "error": trace.error,
        "pending_input": trace.pending_input,
        "usage": trace.usage,
        "last_sequence": trace.last_sequence,
        "created_at": wire_time(trace.created_at),
        "started_at": wire_time(trace.started_at),
        "ended_at": wire_time(trace.ended_at),
    }


def traces_of(session_pk: int, first_sequence: int, before: int | None, limit: int) -> tuple[list[int], int | None]:
    """Keys of a session's traces, latest first, and where the next page begins."""
    rows = Trace.objects.filter(session_id=session_pk, message_sequence__gte=first_sequence).order_by("-pk")
    if before is not None:
        rows = rows.filter(pk__lt=before)
    keys = list(rows.values_list("pk", flat=True)[: limit + 1])
    return keys[:limit], keys[limit - 1] if len(keys) > limit else None


def event_view(event: TraceEvent, trace_id: str, view: View, log: Log) -> dict[str, Any]:
    """An event as this reader gets it; `log` says whose words it may hold."""
    shape = {
        "trace_id": trace_id,
        "sequence": event.sequence,
        "type": event.type,
        "span_id": event.span_id,
        "parent_id": event.parent_id,
        "attempt": event.attempt,
        "timestamp": wire_time(event.timestamp),
        "data": event.data,
    }
    return shown_event(shape, view, log) if view else shape


def events_after(trace_pk: int, after: int, limit: int) -> list[TraceEvent]:
    return list(TraceEvent.objects.filter(trace_id=trace_pk, sequence__gt=after).order_by("sequence")[:limit])


def events_before(trace_pk: int, before: int, limit: int) -> list[TraceEvent]:
    rows = TraceEvent.objects.filter(trace_id=trace_pk, sequence__lt=before).order_by("-sequence")[:limit]
    return list(reversed(rows))


def fit_page(views: list[dict[str, Any]], *, downwards: bool = False) -> list[dict[str, Any]]:
    """As many as a page holds; the end nearest to where the reader asked from is kept."""
    taken: list[dict[str, Any]] = []
    size = 0
    for view in reversed(views) if downwards else views:
        size += len(dumps(view))
        if taken and size > limits.PAGE_BYTES:
            break
        taken.append(view)
    return taken[::-1] if downwards else taken
