"""What answers about traces look like, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from sessions_app.rest.shapes import FLAG, NUMBER, OBJECT, TEXT, TIME, Schema, _list_of, _object, _or_null, ref
from traces_app import states


class ContinueBody(Struct, kw_only=True):
    content: str
    after_sequence: int | None = None


class InputBody(Struct, kw_only=True):
    """Either of them: what the trace asks for says which."""

    answer: Any | UnsetType = UNSET
    approve: bool | UnsetType = UNSET


GOAL = _object(
    goal_id=TEXT,
    parent_id=_or_null(TEXT),
    title=TEXT,
    status={"type": "string", "enum": list(states.GOAL_STATUSES)},
)
TRACE = _object(
    trace_id=TEXT,
    session_id=TEXT,
    message_id=TEXT,
    agent_id=TEXT,
    requested_by=TEXT,
    executor=TEXT,
    task=TEXT,
    status={"type": "string", "enum": list(states.STATUSES)},
    attempt=NUMBER,
    losses=NUMBER,
    parent_trace_id=_or_null(TEXT),
    continue_from=_or_null(_object(trace_id=TEXT, after_sequence=NUMBER)),
    context=OBJECT,
    goals=_list_of(ref("Goal")),
    result=_or_null(OBJECT),
    error=_or_null(_object(code=TEXT, message=TEXT)),
    pending_input=_or_null(OBJECT),
    usage=OBJECT,
    last_sequence=NUMBER,
    created_at=TIME,
    started_at=_or_null(TIME),
    ended_at=_or_null(TIME),
)
EVENT = _object(
    trace_id=TEXT,
    sequence=NUMBER,
    type={"type": "string", "enum": list(states.EVENT_TYPES)},
    span_id=TEXT,
    parent_id=_or_null(TEXT),
    attempt=NUMBER,
    timestamp=TIME,
    data=OBJECT,
)
SHAPES: dict[str, Schema] = {
    "Goal": GOAL,
    "Trace": TRACE,
    "TraceEvent": EVENT,
    "TraceList": _object(traces=_list_of(ref("Trace")), next_cursor=_or_null(TEXT)),
    "TraceEventPage": _object(
        events=_list_of(ref("TraceEvent")), last_sequence=NUMBER, first_sequence=NUMBER, has_more=FLAG
    ),
}


def add_traces(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Post-processing hook of drf-spectacular: the schemas of this module, and the stream."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(SHAPES)
    _, structs = msgspec.json.schema_components((ContinueBody, InputBody), ref_template="#/components/schemas/{name}")
    schemas.update(structs)
    result["paths"]["/api/a2a/traces/{trace_id}/stream"] = {
        "get": {
            "operationId": "follow_trace",
            "summary": "The events as server-sent events, live text between them, `end` at the end",
            "parameters": [
                {"in": "path", "name": "trace_id", "required": True, "schema": {"type": "string"}},
                {"in": "header", "name": "Last-Event-ID", "schema": {"type": "integer", "minimum": 0}},
                {"in": "query", "name": "after", "schema": {"type": "integer", "minimum": 0}},
            ],
            "security": [{"key": []}],
            "responses": {
                "200": {"description": "as asked", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
            },
        }
    }
    return result


__all__ = ["SHAPES", "ContinueBody", "InputBody", "add_traces"]
