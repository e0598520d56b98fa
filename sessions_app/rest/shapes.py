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
STRATEGY: Schema = {"type": "string", "enum": ["embedded", "per_agent", "shared"]}

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
MESSAGE["properties"]["withheld"] = {
    "type": "boolean",
    "const": True,
    "description": "your visibility profile leaves nothing of it but its place",
}

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

PARTICIPANT_OPTIONS = _object(
    agent_id=TEXT, context_strategy=_or_null(STRATEGY), visibility=_or_null({**OBJECT, "description": "see Agent"})
)

DELIVERY = _object(
    delivery_id=TEXT,
    session_id=TEXT,
    agent_id=TEXT,
    strategy=STRATEGY,
    status={"type": "string", "enum": ["prepared", "delivered", "failed"]},
    asked_by=_or_null(TEXT),
    round=NUMBER,
    message_id=_or_null(TEXT),
    through_sequence=NUMBER,
    query=TEXT,
    parts={**_list_of(ref("MessagePart")), "description": "byte for byte what was sent"},
    metadata=OBJECT,
    sent={**_or_null(TEXT), "description": "the whole body as it went over the wire, where that is known"},
    reasons={**_list_of(OBJECT), "description": "why each message was chosen, and by whom that was decided"},
    estimated_tokens=NUMBER,
    policy_hash=TEXT,
    rebuilt=FLAG,
    error=_or_null(TEXT),
    created_at=TIME,
    settled_at=_or_null(TIME),
)

SUMMARY = _object(
    covers_from=NUMBER,
    covers_to=NUMBER,
    rounds_from=NUMBER,
    rounds_to=NUMBER,
    of={"type": "string", "enum": ["session", "history"], "description": "numbers are sequences, or entries"},
    agent_id=_or_null(TEXT),
    tier=NUMBER,
    method={"type": "string", "enum": ["llm", "extractive"]},
    text=TEXT,
    data=_or_null(OBJECT),
    source_hash=TEXT,
    visibility_hash=TEXT,
    created_at=TIME,
)

CONTEXT_ENTRY = _object(
    is_user_input=FLAG,
    agent_name=TEXT,
    round=NUMBER,
    message=_object(role=TEXT, content=TEXT),
    message_id=TEXT,
    sequence=NUMBER,
)

CONTEXT = {
    "description": "A session's conversation as you may see it; with `_{agent_id}` behind the id that agent's own history.",
    "oneOf": [
        _object(
            session_id=TEXT,
            current_round=NUMBER,
            through_sequence=NUMBER,
            entries=_list_of(CONTEXT_ENTRY),
            has_more={**FLAG, "description": "older entries are left out"},
        ),
        _object(session_id=TEXT, agent_name=TEXT, messages=_list_of(_object(role=TEXT, content=TEXT))),
    ],
}

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
    "visibility": {
        **_or_null(OBJECT),
        "description": "a visibility profile; null: everything, or what its kind may see",
    },
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
    "ParticipantOptions": PARTICIPANT_OPTIONS,
    "Context": CONTEXT,
    "DeliveryList": _object(deliveries=_list_of(DELIVERY), next_cursor=_or_null(TEXT)),
    "SummaryList": _object(summaries=_list_of(SUMMARY), next_cursor=_or_null(TEXT)),
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
