"""A result as it is posted: text and parts within the limits of a message, in the language of the request. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sessions_app.context.provenance import of_message
from sessions_app.context.shared import Shared
from sessions_app.protocol import limits
from sessions_app.protocol.bodies import check_parts, utf8_length
from sessions_app.protocol.errors import HubError
from sessions_app.protocol.jsontext import dumps
from traces_app.outcomes import Completed
from traces_app.redaction import storable, storable_text

_CHINESE = re.compile(r"[\u3400-\u9fff]")
_CUT = "\n… (cut)"


@dataclass(frozen=True, slots=True)
class Result:
    """`text` and `parts` (JSON text, or None) are the message; `summary` is what is remembered; `artifact` holds what was cut."""

    summary: str
    text: str
    parts: str | None = None
    parts_value: list[Any] | None = None
    context_patch: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    artifact: dict[str, Any] | None = None
    said: bool = False
    """What had been told before a failure; it is the message then."""


def result_of(outcome: Completed, stream_id: str | None = None) -> Result:
    """A completed outcome made fit: too long a text is cut and kept whole as an artifact, unfit parts are left out."""
    whole = _clean(outcome.summary)
    text, artifact = whole, None
    if utf8_length(whole) > limits.CONTENT_BYTES:
        text = _cut(whole, limits.CONTENT_BYTES)
        artifact = {
            "name": "result.txt",
            "media_type": "text/plain",
            "text": _cut(whole, 4 * limits.CONTENT_BYTES),
            "size": utf8_length(whole),
        }
    metadata = {"stream_id": stream_id} if stream_id else {}
    patch = storable(dict(outcome.context_patch), redact=False)
    parts_value = [storable(dict(part), redact=False) for part in outcome.parts or ()]
    if parts_value:
        if not any(isinstance(part.get("text"), str) for part in parts_value):
            parts_value.insert(0, {"text": text})
        try:
            content, parts = check_parts(dumps(parts_value).encode())
        except HubError as error:
            metadata["parts_left_out"] = error.message
        else:
            return Result(text, content, parts, parts_value, patch, metadata, artifact)
    return Result(text, text, None, None, patch, metadata, artifact)


def patched(shared: Shared, result: Result, agent_id: str, provenance: Mapping[str, Any]) -> Shared:
    """The context with what this agent's result changes in it: its words, made of what its message is made of."""
    if not result.context_patch:
        return shared
    made_of = of_message(agent_id, {"provenance": provenance}, result.parts_value or ())
    return shared.patched(result.context_patch, agent_id, made_of)


def _clean(text: str) -> str:
    return storable_text(text, max(len(text), 1))


def _cut(text: str, size: int) -> str:
    if utf8_length(text) <= size:
        return text
    return text.encode()[: size - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def is_chinese(text: str) -> bool:
    return _CHINESE.search(text) is not None


def interrupted(said: str, stream_id: str | None) -> Result:
    """What came before a stream broke off, as it came, and marked."""
    whole = result_of(Completed(said), stream_id)
    return replace(whole, metadata={**whole.metadata, "interrupted": True}, said=True)


def failed_text(task: str, code: str, message: str) -> Result:
    text = f"未能完成（{code}）：{message}" if is_chinese(task) else f"Failed ({code}): {message}"
    return Result(text, text)


def cancelled_text(task: str, by: str) -> Result:
    text = f"已取消（{by}）。" if is_chinese(task) else f"Cancelled by {by}."
    return Result(text, text)


def brief(result: Mapping[str, Any] | None) -> str:
    return str((result or {}).get("summary") or "")
