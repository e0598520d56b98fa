"""Frames of the WebSocket, in both directions, as tagged structs. A client ignores types that it does not know."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from sessions_app.protocol import limits
from sessions_app.protocol.bodies import MessageBody


class ClientFrame(Struct, kw_only=True, tag_field="type"):
    """Any client frame: `id` is echoed in the answer, `session_id` is needed on the agent socket."""

    id: str | int | None = None
    session_id: str | None = None


class SendMessage(MessageBody, kw_only=True, tag_field="type", tag="message"):
    id: str | int | None = None
    session_id: str | None = None


class Ack(ClientFrame, kw_only=True, tag="ack"):
    sequence: int


class SendChunk(ClientFrame, kw_only=True, tag="chunk"):
    stream_id: str
    text: str


class PatchContext(ClientFrame, kw_only=True, tag="context"):
    patch: dict[str, Any]


class Close(ClientFrame, kw_only=True, tag="close"):
    reason: str | None = None


class Replay(ClientFrame, kw_only=True, tag="replay"):
    after: int | None = None


class Ping(ClientFrame, kw_only=True, tag="ping"):
    pass


class TraceAccept(ClientFrame, kw_only=True, tag="trace.accept"):
    trace_id: str
    attempt: int


class TraceEvent(ClientFrame, kw_only=True, tag="trace.event"):
    trace_id: str
    attempt: int
    event: dict[str, Any] | None = None


class TraceComplete(ClientFrame, kw_only=True, tag="trace.complete"):
    trace_id: str
    attempt: int
    summary: str = ""
    parts: Raw | UnsetType = UNSET
    context_patch: dict[str, Any] | None = None


class TraceFail(ClientFrame, kw_only=True, tag="trace.fail"):
    trace_id: str
    attempt: int
    code: str = "failed"
    message: str = ""


TraceFrame = TraceAccept | TraceEvent | TraceComplete | TraceFail
AnyClientFrame = SendMessage | Ack | SendChunk | PatchContext | Close | Replay | Ping | TraceFrame

client_frames = msgspec.json.Decoder(AnyClientFrame)
frame_list = msgspec.json.Decoder(list[Raw])


def message_body(
    message_id: str,
    session_id: str,
    sequence: int,
    round_: int,
    sender: str,
    to: str | None,
    kind: str,
    content: str,
    parts: str | None,
    reply_to: str | None,
    trace_id: str | None,
    client_message_id: str | None,
    metadata: str | None,
    timestamp: str,
) -> str:
    """A stored message as every door shows it, as JSON text. `to`, `parts` and `metadata` are JSON text already.

    The one place that says how a message looks. By hand, because it is done once per message sent and per message replayed:
    what could hold a quotation mark is encoded, ids and names can't.
    """
    text = _encode(content).decode()
    return (
        f'{{"message_id":"{message_id}","session_id":"{session_id}","sequence":{sequence},"round":{round_},'
        f'"from":"{sender}","to":{to or "null"},"kind":"{kind}","content":{text},'
        f'"parts":{parts if parts is not None else f"[{{{_TEXT}:{text}}}]"},'
        f'"reply_to":{_name(reply_to)},"trace_id":{_name(trace_id)},'
        f'"client_message_id":{_encode(client_message_id).decode()},"metadata":{metadata or "{}"},'
        f'"timestamp":"{timestamp}"}}'
    )


_encode = msgspec.json.Encoder().encode
_TEXT = '"text"'


def _name(value: str | None) -> str:
    return "null" if value is None else f'"{value}"'


def as_frame(body: str) -> str:
    """The `message` frame around an encoded message."""
    return '{"type":"message",' + body[1:]


def as_replayed(body: str) -> str:
    """The `message` frame around an encoded message, marked as replayed."""
    return f'{{"type":"message",{body[1:-1]},"replayed":true}}'


def encode(type_: str, **fields: Any) -> str:
    """A server frame as JSON text."""
    return msgspec.json.encode({"type": type_, **fields}).decode()


NAME_CHARACTERS = 200
NUMBER_DIGITS = 18  # what surely fits into 64 bits


def names_in(text: str) -> tuple[str | int | None, str | None]:
    """`id` and `client_message_id` of a frame that was refused, where they can still be read, whatever else it holds.

    By the standard library, which also reads what our own rules refuse: NaN, lone surrogates, numbers beyond 64 bits.
    """
    if len(text) > limits.FRAME_BYTES:
        return None, None
    try:
        value = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) <= NUMBER_DIGITS else None)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(value, dict):
        return None, None
    id_, client_id = value.get("id"), value.get("client_message_id")
    return (
        id_ if _is_text(id_) or (isinstance(id_, int) and not isinstance(id_, bool)) else None,
        client_id if _is_text(client_id) else None,
    )


def _is_text(value: object) -> bool:
    """Whether it can be said back: short, and without what JSON text of ours never holds."""
    if not isinstance(value, str) or len(value) > NAME_CHARACTERS or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
