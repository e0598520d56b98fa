"""What clients write: bodies of REST calls and the parts of frames they share. Strict in type, tolerant of unknown fields."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from sessions_app.protocol import ids, limits
from sessions_app.protocol.errors import Invalid, TooLarge
from sessions_app.protocol.jsontext import dumps, invalid_from, loads


class Part(Struct, omit_defaults=True):
    """One part of a message as in A2A 1.0: exactly one of `text`, `data`, `url`, `raw` (base64)."""

    text: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    url: str | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    mediaType: str | UnsetType = UNSET
    filename: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET


Seconds = Annotated[
    float,
    msgspec.Meta(
        description=f"how long to wait for the response; {limits.WAIT_SECONDS_DEFAULT:.0f} by default",
        extra_json_schema={"minimum": 0, "maximum": limits.WAIT_SECONDS_MAX},
    ),
]


class MessageBody(Struct, kw_only=True):
    """What a sender may say of a message; the same for REST, the `message` frame and an `initial_message`."""

    content: str | None = None
    parts: Raw | UnsetType = UNSET  # (`Raw | None` takes nothing but null)
    to: list[str] | str | None = None
    reply_to: str | None = None
    client_message_id: str | None = None
    requires_execution: bool | None = None
    context_refs: list[str] | None = None
    wait_for_response: bool | None = None
    timeout: Seconds | None = None
    metadata: Raw | UnsetType = UNSET
    from_: str | None = msgspec.field(default=None, name="from")
    from_agent: str | None = None


class SessionBody(Struct, kw_only=True):
    participants: list[str] = []
    initial_message: str | MessageBody | None = None
    context: dict[str, Any] | None = None
    title: str | None = None
    timeout_seconds: int | UnsetType | None = UNSET
    busy_policy: str | None = None
    context_strategy: str | None = None
    from_: str | None = msgspec.field(default=None, name="from")


class SessionPatch(Struct, kw_only=True):
    title: str | UnsetType | None = UNSET
    timeout_seconds: int | UnsetType | None = UNSET
    busy_policy: str | UnsetType = UNSET
    context_strategy: str | UnsetType | None = UNSET
    context: dict[str, Any] | UnsetType = UNSET


class ReadBody(Struct, kw_only=True):
    up_to: int


class ParticipantBody(Struct, kw_only=True):
    agent_id: str
    role: str | None = None
    history: str = "from_now"
    context_strategy: str | UnsetType | None = UNSET
    visibility: dict[str, Any] | UnsetType | None = UNSET


class ParticipantPatch(Struct, kw_only=True):
    """How context reaches a participant here, and what of it; null takes the session's and the agent's own."""

    context_strategy: str | UnsetType | None = UNSET
    visibility: dict[str, Any] | UnsetType | None = UNSET


class BranchBody(Struct, kw_only=True):
    from_sequence: int | None = None
    participants: list[str] | None = None
    title: str | None = None
    initial_message: str | MessageBody | None = None


class MergeBody(Struct, kw_only=True):
    summary: str | None = None


class CloseBody(Struct, kw_only=True):
    reason: str | None = None


class AgentBody(Struct, kw_only=True):
    """Registering an agent; `executor` and `executor_config` are an operator's to set."""

    agent_id: str
    name: str | None = None
    kind: str | None = None
    description: str | None = None
    skills: list[dict[str, Any] | str] | None = None
    accepts: list[str] | str | None = None
    executor: str | None = None
    executor_config: dict[str, Any] | None = None
    context_strategy: str | None = None
    visibility: dict[str, Any] | None = None


class AgentPatch(Struct, kw_only=True):
    name: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    skills: list[dict[str, Any] | str] | UnsetType = UNSET
    accepts: list[str] | str | UnsetType = UNSET
    executor: str | UnsetType | None = UNSET
    executor_config: dict[str, Any] | UnsetType = UNSET
    context_strategy: str | UnsetType | None = UNSET
    visibility: dict[str, Any] | UnsetType | None = UNSET
    is_active: bool | UnsetType = UNSET


class KeyBody(Struct, kw_only=True):
    scope: str = "agent"
    label: str = ""
    expires_in_seconds: int | None = None
    expires_at: str | None = None


def utf8_length(text: str) -> int:
    """Length in UTF-8 bytes, without encoding what is plainly ASCII."""
    return len(text) if text.isascii() else len(text.encode())


class Content(Struct, frozen=True):
    """The checked text and parts of a message; `parts` is JSON text, or None when the text says it all."""

    text: str
    parts: str | None
    metadata: str | None


# What only the hub says in a message's metadata: who decided the kind, how a trace ended, and what A2A brought. Left out of
# what clients write rather than refused: who passes on a message that it got would not know what it did wrong.
HUB_METADATA = frozenset({"classified_by", "trace_status", "a2a"})


def without_hub_words(metadata: str) -> str | None:
    """Metadata (a JSON object's text) as the client's own; text that names none of ours stays as it came."""
    if (
        not any(name in metadata for name in HUB_METADATA) and "\\" not in metadata
    ):  # a name may be written with escapes
        return metadata
    given = loads(metadata)
    if not HUB_METADATA & given.keys():
        return metadata
    kept = {name: value for name, value in given.items() if name not in HUB_METADATA}
    return dumps(kept) if kept else None


_parts_decoder = msgspec.json.Decoder(list[Part])


def check_content(body: MessageBody) -> Content:
    """Check `content` or `parts`, and `metadata`; raises `Invalid` or `TooLarge` with `details.field`."""
    metadata = None
    if isinstance(body.metadata, Raw):
        metadata = bytes(body.metadata).decode()
        if metadata == "null":
            metadata = None
        elif not metadata.startswith("{"):
            raise Invalid("metadata is an object.", field="metadata")
        elif len(metadata) > limits.METADATA_BYTES and utf8_length(metadata) > limits.METADATA_BYTES:
            raise TooLarge(f"metadata holds {limits.METADATA_BYTES} bytes at the most.", field="metadata")
        elif not metadata[1:-1].strip():
            metadata = None
        else:
            metadata = without_hub_words(metadata)
    if not isinstance(body.parts, Raw) or bytes(body.parts) == b"null":
        if body.content is None:
            raise Invalid("A message has content or parts.", field="content")
        if utf8_length(body.content) > limits.CONTENT_BYTES:
            raise TooLarge(f"content holds {limits.CONTENT_BYTES} bytes at the most.", field="content")
        return Content(body.content, None, metadata)
    text, parts = check_parts(bytes(body.parts))
    if body.content is not None and body.content != text:
        raise Invalid("Give content or parts; content is the text of the parts joined by newlines.", field="content")
    return Content(text, parts, metadata)


def check_parts(raw: bytes) -> tuple[str, str]:
    """Check parts given as JSON; returns their joined text and the parts as JSON text, both as they came."""
    if len(raw) > limits.PARTS_BYTES:
        raise TooLarge(f"All parts hold {limits.PARTS_BYTES} bytes at the most.", field="parts")
    try:
        parts = _parts_decoder.decode(raw)
    except msgspec.ValidationError as error:
        problem = invalid_from(error, raw)
        field = problem.details.get("field", "")
        raise Invalid(problem.message, field="parts" + ("." + field if field[:1].isalpha() else field)) from None
    if not parts:
        raise Invalid("parts may not be empty.", field="parts")
    texts = []
    for index, part in enumerate(parts):
        given = [value for value in (part.text, part.data, part.url, part.raw) if value is not UNSET]
        if len(given) != 1:
            raise Invalid("A part has exactly one of text, data, url, raw.", field=f"parts[{index}]")
        if isinstance(part.text, str):
            texts.append(part.text)
        if isinstance(part.raw, str):
            try:
                base64.b64decode(part.raw, validate=True)
            except (binascii.Error, ValueError):
                raise Invalid("raw is base64.", field=f"parts[{index}].raw") from None
    text = "\n".join(texts)
    if utf8_length(text) > limits.CONTENT_BYTES:
        raise TooLarge(f"The text holds {limits.CONTENT_BYTES} bytes at the most.", field="parts")
    return text, raw.decode()


def check_addressees(to: list[str] | str | None) -> list[str] | None:
    """`to` as a list without doubles, or None; an empty list is None. Whether they take part is the append's to say."""
    if to is None:
        return None
    names = [to] if isinstance(to, str) else to
    if not names:
        return None
    if len(names) > limits.PARTICIPANTS_MAX or any(len(name) > 64 for name in names):
        raise Invalid("to names participants of this session.", field="to")
    return list(dict.fromkeys(names))


def check_client_message_id(text: str | None) -> str | None:
    if text is not None and ids.CLIENT_MESSAGE_ID.fullmatch(text) is None:
        raise Invalid("client_message_id is 1 to 128 printable ASCII characters.", field="client_message_id")
    return text


def check_title(text: str | None) -> str:
    """A title for people: one line without control characters."""
    title = text or ""
    if len(title) > limits.TITLE_CHARACTERS:
        raise TooLarge(f"title holds {limits.TITLE_CHARACTERS} characters at the most.", field="title")
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in title):
        raise Invalid("title may not hold control characters.", field="title")
    return title


def check_wait(seconds: float | None) -> float:
    """How long to wait for a response: 0 to 50 seconds, 30 by default. Who wants more asks again (`GET …/response`)."""
    if seconds is None:
        return limits.WAIT_SECONDS_DEFAULT
    if not 0 <= seconds <= limits.WAIT_SECONDS_MAX:  # NaN is neither
        raise Invalid(f"timeout is 0 to {limits.WAIT_SECONDS_MAX:.0f} seconds.", field="timeout")
    return seconds


def check_timeout(seconds: int | UnsetType | None) -> int | None:
    """Seconds without activity after which a session times out; None is never, absent is the default."""
    if seconds is UNSET:
        return limits.TIMEOUT_SECONDS_DEFAULT
    if seconds is not None and not 1 <= seconds <= limits.TIMEOUT_SECONDS_MAX:
        raise Invalid(f"timeout_seconds is 1 to {limits.TIMEOUT_SECONDS_MAX}, or null.", field="timeout_seconds")
    return seconds


BUSY_POLICIES = ("enqueue", "reject", "interrupt", "parallel")
CONTEXT_STRATEGIES = ("embedded", "per_agent", "shared")


def check_choice(value: str | None, allowed: tuple[str, ...], field: str) -> str | None:
    if value is not None and value not in allowed:
        raise Invalid(f"{field} is one of {', '.join(allowed)}.", field=field)
    return value


def merge_patch(target: Any, patch: Any) -> Any:
    """JSON Merge Patch (RFC 7396): null deletes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result
