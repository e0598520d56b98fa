"""Parts and messages, ours and A2A's: the wire contract took A2A 1.0's parts, so this is a change of clothes.

Numbers inside `data` go through protobuf's Struct on A2A's side: integers beyond 2**53 lose digits there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from a2a.types import Message, Part, Role
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

FIELDS = ("text", "data", "url", "raw", "mediaType", "filename", "metadata")


def part_out(part: Mapping[str, Any]) -> Part:
    """One of our parts; what protobuf can't hold is shown as text."""
    wanted = {name: part[name] for name in FIELDS if name in part}
    made = Part()
    try:
        ParseDict(wanted, made)
    except (ParseError, ValueError):
        return Part(text=str(part.get("text") or part.get("data") or ""))
    return made


def parts_out(parts: Iterable[Mapping[str, Any]] | None, text: str) -> list[Part]:
    """Parts as stored (`null`: one text part), without empty texts where there is something else."""
    given = list(parts) if parts else [{"text": text}]
    filled = [part for part in given if part.get("text") != ""]
    return [part_out(part) for part in filled]


def part_in(part: Part) -> dict[str, Any]:
    """As our senders write it."""
    return dict(MessageToDict(part))


def text_message(text: str, *, message_id: str, task_id: str, context_id: str, role: int = Role.ROLE_AGENT) -> Message:
    """One text in a message of a task."""
    parts = [Part(text=text)]
    return Message(message_id=message_id, task_id=task_id, context_id=context_id, role=role, parts=parts)  # type: ignore[arg-type]
