"""The OpenAPI document: what the views say of themselves, the hot calls beside them, and the structs that bodies are read by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from msgspec import Struct

from sessions_app.protocol import bodies, limits
from sessions_app.rest.shapes import SHAPES, ref

F = TypeVar("F", bound=Callable[..., Any])
JSON = "application/json"
PREFIX = "/api/a2a/"

BODIES: tuple[type[Struct], ...] = (
    bodies.MessageBody,
    bodies.ReadBody,
    bodies.SessionBody,
    bodies.SessionPatch,
    bodies.ParticipantBody,
    bodies.ParticipantPatch,
    bodies.BranchBody,
    bodies.MergeBody,
    bodies.CloseBody,
    bodies.AgentBody,
    bodies.AgentPatch,
    bodies.KeyBody,
)
# The groups of the document, in their order, and the parts of paths that belong to each; the last part that is known decides.
GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "agents": ("Who there is, your own card, and keys", ("agents", "me", "keys")),
    "sessions": ("Conversations", ("sessions", "close")),
    "messages": ("What is said, read and followed", ("messages", "response", "read", "events")),
    "participants": ("Who takes part", ("participants",)),
    "branches": ("Side talks and their outcome", ("branches", "merge")),
    "contexts": ("What an agent got to know", ("contexts", "deliveries", "summaries")),
    "traces": ("Work: its state, its events, its answers", ("traces",)),
}
MEANINGS = {200: "as asked", 201: "created", 204: "done; again: the same"}


def query(
    name: str, kind: str, description: str, *, enum: Sequence[str] | None = None, **limits_: float
) -> dict[str, Any]:
    """A query parameter."""
    schema: dict[str, Any] = {"type": kind, **limits_}
    if enum is not None:
        schema["enum"] = list(enum)
    return {"in": "query", "name": name, "schema": schema, "description": description}


LIMIT = query(
    "limit", "integer", f"at most so many; {limits.PAGE_DEFAULT} by default", minimum=1, maximum=limits.PAGE_MAX
)
CURSOR = query("cursor", "string", "`next_cursor` of the page before")
IDEMPOTENCY_KEY = {
    "in": "header",
    "name": "Idempotency-Key",
    "schema": {"type": "string", "maxLength": 255},
    "description": "Within 24 hours the same key and body create once and answer alike; another body is `conflict`.",
}


def documented(
    operation_id: str,
    summary: str,
    answers: Mapping[int, str | None],
    *,
    body: type[Struct] | None = None,
    parameters: Sequence[dict[str, Any]] = (),
    creates: bool = False,
) -> Callable[[F], F]:
    """Say what a DRF handler takes and answers, by the names of structs and shapes."""
    given = [*parameters, *([IDEMPOTENCY_KEY] if creates else [])]
    return extend_schema(
        operation_id=operation_id,
        summary=summary,
        parameters=[
            OpenApiParameter(item["name"], item["schema"], location=item["in"], description=item["description"])
            for item in given
        ],
        request={JSON: ref(body.__name__)} if body is not None else None,
        responses={
            status: OpenApiResponse(ref(shape) if shape else None, MEANINGS[status])
            for status, shape in answers.items()
        },
    )


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "sessions_app.rest.authentication.KeyAuthentication"
    name = "key"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer ak_…`, nowhere else"}


def add_the_rest(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """Post-processing hook of drf-spectacular: the hot calls, the schemas, and the envelope of every refusal."""
    result["paths"].update(_hot_paths())
    components = result.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas.update(SHAPES)
    _, structs = msgspec.json.schema_components(BODIES, ref_template="#/components/schemas/{name}")
    schemas.update(structs)
    refusal = {"description": "refused", "content": {JSON: {"schema": ref("Error")}}}
    for path in result["paths"].values():
        for operation in path.values():
            operation["responses"]["default"] = refusal
            operation.pop("description", None)  # a view's docstring is for its maintainers
    result["paths"] = dict(sorted(result["paths"].items()))
    for path, operations in result["paths"].items():
        for operation in operations.values():
            operation["tags"] = [group_of(path)]
    result["tags"] = [{"name": name, "description": meaning} for name, (meaning, _) in GROUPS.items()]
    return result


def group_of(path: str) -> str:
    """The group of a call; what is below a trace is the trace's."""
    groups = {part: name for name, (_, parts) in GROUPS.items() for part in parts}
    parts = path.removeprefix(PREFIX).split("/")
    return "traces" if "traces" in parts else next(groups[part] for part in reversed(parts) if part in groups)


def _hot_paths() -> dict[str, Any]:
    session = {"in": "path", "name": "session_id", "required": True, "schema": {"type": "string"}}
    message = {"in": "path", "name": "message_id", "required": True, "schema": {"type": "string"}}
    return {
        f"{PREFIX}sessions/{{session_id}}/messages": {
            "get": _operation(
                "list_messages",
                "The log, by number; reading moves no cursor",
                {200: "MessagePage"},
                parameters=[
                    session,
                    query("after", "integer", "upwards from after this sequence (default 0)", minimum=0),
                    query("before", "integer", "the highest below this sequence", minimum=1),
                    LIMIT,
                    query(
                        "inherited", "string", "1 on a branch: the parent's log up to the branching", enum=("0", "1")
                    ),
                ],
            ),
            "post": _operation(
                "send_message",
                "Send; a resend of the same client_message_id answers 200 with the original",
                {201: "SentMessage", 200: "SentMessage"},
                parameters=[
                    session,
                    {
                        **IDEMPOTENCY_KEY,
                        "description": "Without a client_message_id it stands in for it, as `idem-` and the key "
                        "(a digest of a long one): one message, for ever.",
                    },
                ],
                body=bodies.MessageBody,
            ),
        },
        f"{PREFIX}sessions/{{session_id}}/messages/{{message_id}}/response": {
            "get": _operation(
                "await_response",
                "Take up the wait for a response, as often as wanted",
                {200: "ResponseState"},
                parameters=[
                    session,
                    message,
                    query(
                        "timeout",
                        "number",
                        f"seconds; {limits.WAIT_SECONDS_DEFAULT:.0f} by default, {limits.WAIT_SECONDS_MAX:.0f} at the most",
                        minimum=0,
                        maximum=limits.WAIT_SECONDS_MAX,
                    ),
                ],
            )
        },
        f"{PREFIX}sessions/{{session_id}}/events": {
            "get": {
                **_operation(
                    "follow_session",
                    "The session as server-sent events: `event` the type, `data` the frame, `id` the sequence",
                    {},
                    parameters=[
                        session,
                        {
                            "in": "header",
                            "name": "Last-Event-ID",
                            "schema": {"type": "integer", "minimum": 0},
                            "description": "go on after this sequence",
                        },
                        query("after", "integer", "begin after this sequence (default: your cursor)", minimum=0),
                    ],
                ),
                "responses": {
                    "200": {"description": "events without end", "content": {"text/event-stream": {}}},
                    "204": {"description": "the session has ended, and you have it all"},
                },
            }
        },
        f"{PREFIX}sessions/{{session_id}}/read": {
            "post": _operation(
                "move_cursor",
                "Move your cursor forward, never back; also on ended sessions",
                {200: "CursorState"},
                parameters=[session],
                body=bodies.ReadBody,
            )
        },
    }


def _operation(
    operation_id: str,
    summary: str,
    answers: Mapping[int, str],
    *,
    parameters: Sequence[dict[str, Any]],
    body: type[Struct] | None = None,
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": operation_id,
        "summary": summary,
        "parameters": list(parameters),
        "security": [{"key": []}],
        "responses": {
            str(status): {"description": MEANINGS[status], "content": {JSON: {"schema": ref(shape)}}}
            for status, shape in answers.items()
        },
    }
    if body is not None:
        operation["requestBody"] = {"content": {JSON: {"schema": ref(body.__name__)}}}
    return operation
