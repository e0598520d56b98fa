"""A history as we keep it, and the same as a model is given it.

Entries are the data of a trace's events: `{type: message, role, content, name?}`, `{type: tool_call, call_id, name,
arguments, step?}`, `{type: tool_result, call_id, name, ok, result, error}`; one without a type is a message. What a model
is given is well formed whatever the entries are: turns of one side are one turn, and every call is answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sessions_app.protocol.jsontext import dumps
from traces_app.redaction import storable

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelRequestPart, ModelResponsePart

Entry = Mapping[str, Any]

RESULT_BYTES = 48 * 1024
INTERRUPTED = {"code": "interrupted", "message": "The run ended before this call returned."}


def user(content: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content}


def said_by(entry: Entry) -> str:
    """The text of a `message` entry, which events keep as parts."""
    if "content" in entry:
        return str(entry["content"] or "")
    texts = [part.get("text") for part in entry.get("parts") or () if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def result_text(result: Any, error: Any = None) -> str:
    """What a model is told of a call's result: text as it is, all else as JSON, cut where it is too long."""
    if error is not None:
        text = dumps({"error": storable(error, redact=False)})
    elif isinstance(result, str):
        text = result
    else:
        text = dumps(storable(result, redact=False))
    plain = text.encode("utf-8", "replace")
    if len(plain) <= RESULT_BYTES:
        return plain.decode()
    return plain[:RESULT_BYTES].decode("utf-8", "ignore") + f"\n… (cut; {len(plain)} bytes in all)"


def as_messages(instructions: str, entries: Iterable[Entry]) -> list[ModelMessage]:
    """The history on a model's wire, with `instructions` as its system message."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    turns: list[tuple[str, list[Any]]] = [("request", [SystemPromptPart(instructions)])]
    open_calls: dict[str, str] = {}

    def turn(side: str) -> list[Any]:
        if turns[-1][0] != side:
            turns.append((side, []))
        return turns[-1][1]

    def answer(call_id: str, text: str) -> None:
        turn("request").append(ToolReturnPart(open_calls.pop(call_id), text, tool_call_id=call_id))

    def settle() -> None:
        for call_id in list(open_calls):
            answer(call_id, result_text(None, INTERRUPTED))

    for entry in entries:
        kind = entry.get("type", "message")
        if kind == "tool_call":
            # A call after results of the same response is a response of its own; calls side by side are one.
            call_id = str(entry["call_id"])
            if call_id not in open_calls:
                open_calls[call_id] = str(entry["name"])
                turn("response").append(ToolCallPart(open_calls[call_id], dict(entry.get("arguments") or {}), call_id))
        elif kind == "tool_result":
            if str(entry["call_id"]) in open_calls:
                answer(str(entry["call_id"]), result_text(entry.get("result"), entry.get("error")))
        elif kind == "message":
            text = said_by(entry)
            if not text:
                continue
            settle()
            if entry.get("role") == "assistant":
                turn("response").append(TextPart(text))
            else:
                parts = turn("request")
                if parts and isinstance(parts[-1], UserPromptPart):
                    parts[-1] = UserPromptPart(f"{parts[-1].content}\n\n{text}")
                else:
                    parts.append(UserPromptPart(text))
    settle()
    return [_made(ModelRequest, ModelResponse, side, parts) for side, parts in turns]


def _made(
    request: Any, response: Any, side: str, parts: list[ModelRequestPart] | list[ModelResponsePart]
) -> ModelMessage:
    made: ModelMessage = request(parts=parts) if side == "request" else response(parts=parts)
    return made
