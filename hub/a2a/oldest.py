"""The protocol's first version: `tasks/send` and `tasks/sendSubscribe`, with its own params or those of our first seed.

In 0.1 the client names its new tasks and sessions itself. Params `{id, sessionId, message, …}` are answered in JSON-RPC
envelopes; the seed's `{session_id, current_query, context_injections, round}` get their stream's data bare. Streams carry
`event:` names: `TaskStatusUpdateEvent {id, status: {state}, final}`, `TaskArtifactUpdateEvent {id, artifact: {parts, index,
append, lastChunk}}`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.routes.common import create_event_source_response
from a2a.types import Message, Part, Role, SendMessageRequest, Task, TaskArtifactUpdateEvent, TaskState
from a2a.utils.errors import A2AError, InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from starlette.responses import JSONResponse, Response

from hub.a2a.call import Call
from hub.a2a.errors import rpc_error
from hub.a2a.handler import HubHandler
from hub.a2a.rest import as_told
from hub.a2a.tasks import INTERRUPTED, RESULT, TERMINAL

METHODS = frozenset({"tasks/send", "tasks/sendSubscribe"})
STATES = {
    TaskState.TASK_STATE_SUBMITTED: "submitted",
    TaskState.TASK_STATE_WORKING: "working",
    TaskState.TASK_STATE_INPUT_REQUIRED: "input-required",
    TaskState.TASK_STATE_AUTH_REQUIRED: "input-required",
    TaskState.TASK_STATE_COMPLETED: "completed",
    TaskState.TASK_STATE_CANCELED: "canceled",
    TaskState.TASK_STATE_FAILED: "failed",
    TaskState.TASK_STATE_REJECTED: "failed",
}
INJECTIONS = "ContextInjections"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request in today's words. `bare`: the seed's params. `task_id` is the client's name for the task, if it gave one."""

    request: SendMessageRequest
    bare: bool
    task_id: str
    session_id: str


async def answer(handler: HubHandler, call: Call, body: Mapping[str, Any]) -> Response:
    """A request of the first version, answered in its words; every refusal is a JSON-RPC error."""
    request_id = body.get("id")
    try:
        asked = read(body.get("params"))
        call.protocol = "0.1"
        call.own_task_id = asked.task_id
        context = ServerCallContext(state={"call": call})
        if body["method"] == "tasks/sendSubscribe":
            events = aiter(handler.on_message_send_stream(asked.request, context))
            first = await anext(events)
            return create_event_source_response(_stream(_Names(asked, call), request_id, first, events))
        task = await handler.on_message_send(asked.request, context)
        names = _Names(asked, call)
        result = names.seed_answer(task) if asked.bare else names.task(task)
        return JSONResponse({"jsonrpc": "2.0", "id": request_id, "result": result})
    except Exception as error:
        return JSONResponse(rpc_error(request_id, as_told(error)))


# In


def read(params: Any) -> Asked:
    """Either form of params; raises `InvalidParamsError`."""
    if not isinstance(params, dict):
        raise InvalidParamsError("params is an object.")
    if "current_query" in params:
        return _read_seed(params)
    message = params.get("message")
    if not isinstance(message, dict) or not isinstance(message.get("parts"), list):
        raise InvalidParamsError("params.message has parts.", data={"field": "message"})
    metadata = {**_object(params, "metadata"), **_object(message, "metadata")}
    message_id = metadata.get("messageId") or message.get("messageId") or str(uuid.uuid4())
    asked = {
        "message": {
            "messageId": str(message_id),
            "contextId": _text(params, "sessionId"),
            "role": "ROLE_AGENT" if message.get("role") == "agent" else "ROLE_USER",
            "parts": [part_in(part) for part in message["parts"]],
            "metadata": metadata,
        },
        "configuration": {},
    }
    if params.get("historyLength") is not None:
        asked["configuration"]["historyLength"] = params["historyLength"]
    if isinstance(push := params.get("pushNotification"), dict):
        asked["configuration"]["taskPushNotificationConfig"] = {"url": push.get("url"), "token": push.get("token", "")}
    return Asked(_parsed(asked), False, _text(params, "id"), _text(params, "sessionId"))


def _read_seed(params: Mapping[str, Any]) -> Asked:
    query, injections, round_ = params["current_query"], params.get("context_injections") or [], params.get("round")
    if not isinstance(query, str) or not isinstance(injections, list):
        raise InvalidParamsError("current_query is a string, context_injections a list.")
    parts: list[dict[str, Any]] = [{"text": query}]
    if injections:
        kept = [{**item, "round": str(item.get("round", ""))} for item in injections if isinstance(item, dict)]
        parts.append({"data": kept, "metadata": {"type": INJECTIONS, "schemaVersion": "1.0"}})
    session_id = _text(params, "session_id")
    metadata = {"session_id": session_id, "round": str(round_ if round_ is not None else "")}
    message_id = _text(params, "message_id") or str(uuid.uuid4())
    message = {
        "messageId": message_id,
        "contextId": session_id,
        "role": "ROLE_USER",
        "parts": parts,
        "metadata": metadata,
    }
    return Asked(_parsed({"message": message}), True, "", session_id)


def _parsed(asked: Mapping[str, Any]) -> SendMessageRequest:
    request = SendMessageRequest()
    try:
        ParseDict(asked, request)
    except ParseError:
        raise InvalidParamsError() from None
    return request


def part_in(part: Any) -> dict[str, Any]:
    """A part with `type` (or `kind`): text, data, or file with `uri` or `bytes`."""
    if not isinstance(part, dict):
        raise InvalidParamsError("A part is an object.", data={"field": "message.parts"})
    kind = part.get("type") or part.get("kind") or "text"
    made: dict[str, Any] = {"metadata": part["metadata"]} if isinstance(part.get("metadata"), dict) else {}
    if kind == "text":
        return {**made, "text": _text(part, "text")}
    if kind == "data":
        return {**made, "data": part.get("data")}
    if kind == "file" and isinstance(file := part.get("file"), dict):
        made |= {name: file[old] for name, old in (("filename", "name"), ("mediaType", "mimeType")) if file.get(old)}
        return {**made, "url": file["uri"]} if file.get("uri") else {**made, "raw": _text(file, "bytes")}
    raise InvalidParamsError("A part is text, data or file.", data={"field": "message.parts"})


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidParamsError(f"{name} is a string.", data={"field": name})
    return value


def _object(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = given.get(name)
    return dict(value) if isinstance(value, dict) else {}


# Out


class _Names:
    """The words of the first version, with the names that its client gave."""

    def __init__(self, asked: Asked, call: Call) -> None:
        self.bare = asked.bare
        self._task_id = asked.task_id
        self._session_id = asked.session_id
        self._agent_id = call.agent.agent_id
        self._places: dict[str, int] = {}

    def task(self, task: Task | Message) -> dict[str, Any]:
        if isinstance(task, Message):
            return {"id": task.task_id, "status": {"state": "completed", "message": message_out(task)}}
        shown = {
            "id": self._task_id or task.id,
            "sessionId": self._session_id or task.context_id,
            "status": self._status(task.status),
            "artifacts": [self._artifact(artifact) for artifact in task.artifacts],
            "history": [message_out(message) for message in task.history],
        }
        if len(task.metadata):
            shown["metadata"] = MessageToDict(task.metadata)
        return shown

    def seed_answer(self, task: Task | Message) -> dict[str, Any]:
        """The seed's `A2AResponse`: its session's key and the agent's message."""
        texts: list[str] = []
        shown = self.task(task)
        if isinstance(task, Task):
            results = [artifact for artifact in task.artifacts if artifact.artifact_id == RESULT] or task.artifacts
            texts = [
                part.text for artifact in results for part in artifact.parts if part.WhichOneof("content") == "text"
            ]
            texts = texts or [part.text for part in task.status.message.parts]
        session = self._session_id or str(shown.get("sessionId", ""))
        said = {"role": "assistant", "content": "\n".join(texts)}
        return {
            "session_id": f"{session}_{self._agent_id}",
            "message": said,
            "id": shown["id"],
            "status": shown["status"],
        }

    def event(self, item: Any) -> tuple[str, dict[str, Any]]:
        if isinstance(item, TaskArtifactUpdateEvent):
            artifact = self._artifact(item.artifact) | {"append": item.append, "lastChunk": item.last_chunk}
            return "TaskArtifactUpdateEvent", {"id": self._task_id or item.task_id, "artifact": artifact}
        state = item.status.state
        task_id = item.id if isinstance(item, Task) else item.task_id
        final = state in TERMINAL or state in INTERRUPTED
        shown = {"id": self._task_id or task_id, "status": self._status(item.status), "final": final}
        return "TaskStatusUpdateEvent", shown

    @staticmethod
    def _status(status: Any) -> dict[str, Any]:
        shown: dict[str, Any] = {"state": STATES.get(status.state, "unknown")}
        if status.HasField("message"):
            shown["message"] = message_out(status.message)
        if status.HasField("timestamp"):
            shown["timestamp"] = status.timestamp.ToJsonString()
        return shown

    def _artifact(self, artifact: Any) -> dict[str, Any]:
        index = self._places.setdefault(artifact.artifact_id, len(self._places))
        shown: dict[str, Any] = {"parts": [part_out(part) for part in artifact.parts], "index": index}
        if artifact.name:
            shown["name"] = artifact.name
        return shown


def message_out(message: Message) -> dict[str, Any]:
    role = "agent" if message.role == Role.ROLE_AGENT else "user"
    return {"role": role, "parts": [part_out(part) for part in message.parts]}


def part_out(part: Part) -> dict[str, Any]:
    kind = part.WhichOneof("content")
    if kind == "data":
        return {"type": "data", "data": MessageToDict(part)["data"]}
    if kind in ("raw", "url"):
        shown = MessageToDict(part)
        file = {"name": part.filename or None, "mimeType": part.media_type or None}
        file |= {"uri": part.url} if kind == "url" else {"bytes": shown["raw"]}
        return {"type": "file", "file": {name: value for name, value in file.items() if value is not None}}
    return {"type": "text", "text": part.text}


async def _stream(
    names: _Names, request_id: Any, first: Any, events: AsyncIterator[Any]
) -> AsyncIterator[dict[str, str]]:
    def line(item: Any) -> dict[str, str]:
        kind, shown = names.event(item)
        data = shown if names.bare else {"jsonrpc": "2.0", "id": request_id, "result": shown}
        return {"event": kind, "data": json.dumps(data, ensure_ascii=False)}

    yield line(first)
    try:
        async for item in events:
            yield line(item)
    except A2AError as error:
        yield {"event": "error", "data": json.dumps(rpc_error(request_id, error), ensure_ascii=False)}
