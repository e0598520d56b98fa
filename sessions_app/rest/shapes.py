"""What answers look like, as JSON Schema for the OpenAPI document. Tests hold real answers against these."""

from __future__ import annotations

from typing import Any

from sessions_app import states
from sessions_app.protocol import errors

Schema = dict[str, Any]


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time", "description": "RFC 3339, UTC, with Z"}
OBJECT: Schema = {"type": "object"}
NAMES = _list_of(TEXT)

PART: Schema = {
    "type": "object",
    "description": "As in A2A 1.0: exactly one of text, data, url, raw (base64).",
    "properties": {
        "text": TEXT,
        "data": {},
        "url": TEXT,
        "raw": TEXT,
        "mediaType": TEXT,
        "filename": TEXT,
        "metadata": OBJECT,
    },
}

MESSAGE = _object(
    message_id=TEXT,
    session_id=TEXT,
    sequence=NUMBER,
    round=NUMBER,
    **{"from": TEXT},
    to=_or_null(NAMES),
    kind={"type": "string", "enum": ["chat", "status_query", "task", "tool_call", "result", "system"]},
    content=TEXT,
    parts=_list_of(ref("MessagePart")),
    reply_to=_or_null(TEXT),
    trace_id=_or_null(TEXT),
    client_message_id=_or_null(TEXT),
    metadata=OBJECT,
    timestamp=TIME,
)

RECIPIENT = _object(agent_id=TEXT, online=FLAG, last_seen=_or_null(TIME), unread=NUMBER)

SENT = _object(
    message_id=TEXT,
    sequence=NUMBER,
    status={"type": "string", "enum": ["sent", "answered", "pending", "ended"]},
    trace_id=_or_null(TEXT),
    message=ref("Message"),
    recipients=_list_of(ref("Recipient")),
)
SENT["properties"] |= {
    "duplicate": {"type": "boolean", "const": True, "description": "this is the original of a resend"},
    "response": {**_or_null(ref("Message")), "description": "with wait_for_response"},
}

PARTICIPANT = _object(
    agent_id=TEXT,
    role=TEXT,
    online=FLAG,
    cursor=NUMBER,
    unread=NUMBER,
    first_sequence=NUMBER,
    joined_at=TIME,
    left_at=_or_null(TIME),
)

SESSION = _object(
    session_id=TEXT,
    title=TEXT,
    status={"type": "string", "enum": sorted(states.LIVE | states.ENDED)},
    initiator=TEXT,
    participants=_list_of(ref("Participant")),
    context=OBJECT,
    current_speaker=_or_null(TEXT),
    waiting_for=NAMES,
    round=NUMBER,
    last_sequence=NUMBER,
    first_sequence=NUMBER,
    parent_session_id=_or_null(TEXT),
    branched_at=_or_null(NUMBER),
    timeout_seconds=_or_null(NUMBER),
    busy_policy=TEXT,
    context_strategy=_or_null(TEXT),
    created_at=TIME,
    last_activity=TIME,
    closed_at=_or_null(TIME),
    close_reason=_or_null(TEXT),
)

AGENT = _object(
    agent_id=TEXT,
    kind=TEXT,
    name=TEXT,
    description=TEXT,
    skills={"type": "array"},
    online=FLAG,
    last_seen=_or_null(TIME),
    created_at=TIME,
)
AGENT["description"] = "The properties that are not required are shown to the agent itself and to operators."
AGENT["properties"] |= {
    "accepts": {"anyOf": [{"const": "anyone"}, NAMES]},
    "executor": _or_null(TEXT),
    "executor_config": OBJECT,
    "context_strategy": _or_null(TEXT),
    "is_active": FLAG,
}

SHAPES: dict[str, Schema] = {
    "Error": _object(
        code={"type": "string", "enum": [error.code for error in errors.ALL]}, message=TEXT, details=OBJECT
    ),
    "MessagePart": PART,
    "Message": MESSAGE,
    "Recipient": RECIPIENT,
    "SentMessage": SENT,
    "MessagePage": _object(
        messages=_list_of(ref("Message")), last_sequence=NUMBER, first_sequence=NUMBER, has_more=FLAG
    ),
    "ResponseState": _object(
        status={"type": "string", "enum": ["answered", "pending", "ended"]},
        response=_or_null(ref("Message")),
        message_id=TEXT,
    ),
    "CursorState": _object(cursor=NUMBER, unread=NUMBER),
    "Participant": PARTICIPANT,
    "Session": SESSION,
    "OpenedSession": {"allOf": [ref("Session"), _object(trace_id=_or_null(TEXT), ws_url=TEXT)]},
    "SessionList": _object(sessions=_list_of(ref("Session")), next_cursor=_or_null(TEXT)),
    "Agent": AGENT,
    "AgentList": _object(agents=_list_of(ref("Agent")), next_cursor=_or_null(TEXT)),
    "Key": _object(
        agent_id=TEXT,
        api_key={**_or_null(TEXT), "description": "shown this once; null where an Idempotency-Key is used again"},
        prefix=TEXT,
        scope={"type": "string", "enum": ["agent", "operator"]},
        label=TEXT,
        expires_at=_or_null(TIME),
    ),
}
