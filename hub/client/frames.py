"""What the hub sends, as typed records. Unknown fields are dropped, unknown types become `Unknown`; nothing else is assumed.

Every record also answers like the JSON object that it came from: `message["content"]`, `message.get("reply_to")`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct, field

R = TypeVar("R")
log = logging.getLogger("hub.client")

ENDED = frozenset({"completed", "timeout"})
TRACE_ENDED = frozenset({"completed", "failed", "cancelled"})


class Record(Struct, kw_only=True):
    """A typed record that can be read like a mapping, by the names of the wire."""

    def __getitem__(self, name: str) -> Any:
        attribute = self._attributes().get(name)
        if attribute is not None:
            return getattr(self, attribute)
        config = self.__struct_config__
        if config.tag_field is not None and name == config.tag_field:
            return config.tag
        raise KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._attributes()

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes())

    def keys(self) -> list[str]:
        return list(self._attributes())

    def as_dict(self) -> dict[str, Any]:
        """The record as plain JSON values, with its `type` when it is a frame."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def _attributes(cls) -> dict[str, str]:
        return dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))


class Participant(Record, kw_only=True):
    agent_id: str
    role: str | None = None
    online: bool | None = None
    cursor: int | None = None
    unread: int | None = None
    first_sequence: int | None = None
    joined_at: str | None = None
    left_at: str | None = None


class Session(Record, kw_only=True):
    """A session as REST shows it."""

    session_id: str
    title: str | None = None
    status: str = "created"
    initiator: str | None = None
    participants: list[Participant] = []
    context: dict[str, Any] = {}
    current_speaker: str | None = None
    waiting_for: list[str] | None = None
    round: int = 0
    last_sequence: int = 0
    first_sequence: int = 1
    parent_session_id: str | None = None
    branched_at: int | None = None
    timeout_seconds: int | None = None
    busy_policy: str | None = None
    context_strategy: str | None = None
    created_at: str | None = None
    last_activity: str | None = None
    closed_at: str | None = None
    close_reason: str | None = None
    trace_id: str | None = None
    ws_url: str | None = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class Message(Record, kw_only=True, tag_field="type", tag="message"):
    """One durable entry of a session; also the frame that carries it."""

    message_id: str
    session_id: str
    sequence: int
    sender: str = field(name="from")
    round: int = 0
    to: list[str] | None = None
    kind: str = "chat"
    content: str = ""
    parts: list[dict[str, Any]] | None = None
    reply_to: str | None = None
    trace_id: str | None = None
    client_message_id: str | None = None
    metadata: dict[str, Any] | None = None
    timestamp: str | None = None
    withheld: bool = False
    replayed: bool = False

    @property
    def stream_id(self) -> str | None:
        """The stream whose chunks this message completes, if it was streamed."""
        value = (self.metadata or {}).get("stream_id")
        return value if isinstance(value, str) else None

    def addresses(self, agent_id: str) -> bool:
        """Whether `agent_id` should answer: it is addressed, or nobody in particular is."""
        return not self.to or agent_id in self.to


class Frame(Record, kw_only=True, tag_field="type"):
    """Any server frame; `id` echoes that of the client frame it answers."""

    id: str | int | None = None


class SessionUnread(Record, kw_only=True):
    session_id: str
    status: str | None = None
    cursor: int = 0
    last_sequence: int = 0
    unread: int = 0


class Limits(Record, kw_only=True):
    frame_bytes: int = 1024 * 1024
    content_bytes: int = 256 * 1024
    window: int = 1000
    auto_ack_seconds: float | None = None
    messages_per_second: float | None = None
    burst: float | None = None


class Welcome(Frame, kw_only=True, tag="welcome"):
    protocol: int = 1
    agent_id: str | None = None
    connection_id: str | None = None
    session_id: str | None = None
    session: Session | None = None
    cursor: int | None = None
    last_sequence: int | None = None
    heartbeat_seconds: float | None = None
    limits: Limits = field(default_factory=Limits)
    sessions: list[SessionUnread] | None = None


class ReplayComplete(Frame, kw_only=True, tag="replay_complete"):
    session_id: str | None = None
    sequence: int | None = None
    recovered: bool = True


class Ack(Frame, kw_only=True, tag="ack"):
    client_message_id: str | None = None
    message_id: str | None = None
    session_id: str | None = None
    sequence: int | None = None
    timestamp: str | None = None
    kind: str | None = None
    trace_id: str | None = None
    duplicate: bool = False


class ErrorFrame(Frame, kw_only=True, tag="error"):
    code: str = "internal"
    message: str = ""
    details: dict[str, Any] | None = None
    client_message_id: str | None = None
    session_id: str | None = None
    retry: bool | None = None


class NewSession(Frame, kw_only=True, tag="new_session"):
    session: Session
    initial_message: Message | None = None

    @property
    def session_id(self) -> str:
        return self.session.session_id


class SessionUpdate(Frame, kw_only=True, tag="session"):
    session_id: str
    status: str = "active"
    current_speaker: str | None = None
    waiting_for: list[str] | None = None
    round: int = 0
    reason: str | None = None
    context: dict[str, Any] | None = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED


class Presence(Frame, kw_only=True, tag="presence"):
    session_id: str | None = None
    agent_id: str = ""
    status: str = "offline"


class Read(Frame, kw_only=True, tag="read"):
    session_id: str
    agent_id: str
    cursor: int = 0


class Chunk(Frame, kw_only=True, tag="chunk"):
    """A piece of text that is being written; never stored, may be missing. The message that follows is the truth."""

    session_id: str
    sender: str | None = field(name="from", default=None)
    stream_id: str = ""
    index: int = 0
    text: str = ""
    trace_id: str | None = None


class TraceUpdate(Frame, kw_only=True, tag="trace"):
    trace_id: str
    session_id: str | None = None
    status: str = "created"
    agent_id: str | None = None
    event: dict[str, Any] | None = None


class TraceOffer(Frame, kw_only=True, tag="trace.run"):
    """A task for this agent; the first socket that accepts gets it."""

    trace: dict[str, Any]
    attempt: int = 1
    lease_seconds: float = 30.0
    context: dict[str, Any] | None = None
    history: list[Any] | None = None
    question: dict[str, Any] | None = None
    session_id: str | None = None

    @property
    def trace_id(self) -> str:
        return str(self.trace.get("trace_id", ""))


class Closing(Frame, kw_only=True, tag="closing"):
    retry_after: float | None = None


class Pong(Frame, kw_only=True, tag="pong"):
    pass


class Unknown(Record, kw_only=True):
    """A frame whose type or shape this client does not know: kept as it came, never an error."""

    raw: Any


KnownFrame = (
    Message
    | Welcome
    | ReplayComplete
    | Ack
    | ErrorFrame
    | NewSession
    | SessionUpdate
    | Presence
    | Read
    | Chunk
    | TraceUpdate
    | TraceOffer
    | Closing
    | Pong
)
ServerFrame = KnownFrame | Unknown

_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(KnownFrame))
_frame: msgspec.json.Decoder[KnownFrame] = msgspec.json.Decoder(KnownFrame)
_frames: msgspec.json.Decoder[list[KnownFrame]] = msgspec.json.Decoder(list[KnownFrame])
_raws: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])


def decode_frames(data: str | bytes) -> list[ServerFrame]:
    """The frames of one WebSocket message: one object, or an array of them (`batch=1`).

    A frame that cannot be understood becomes `Unknown`, alone: its neighbours in the array are not touched. Text that is
    not JSON raises `msgspec.DecodeError`.
    """
    text = data.encode() if isinstance(data, str) else data
    if text[:1] != b"[":
        return [_decode_one(text)]
    try:
        return list(_frames.decode(text))
    except msgspec.ValidationError:
        return [_decode_one(bytes(raw)) for raw in _raws.decode(text)]


def _decode_one(text: bytes) -> ServerFrame:
    try:
        return _frame.decode(text)
    except msgspec.ValidationError as error:
        raw = msgspec.json.decode(text)
        if isinstance(raw, dict) and raw.get("type") in _KNOWN:
            log.warning("a %s frame is not as the contract has it, and is passed over: %s", raw["type"], error)
        return Unknown(raw=raw)


def read(kind: type[R], value: Any) -> R:
    """Turn plain JSON values (a REST answer) into a record."""
    return msgspec.convert(value, kind, strict=False)
