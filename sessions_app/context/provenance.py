"""Whose words a text is made of that was put together from others' (a main agent's merged answer, the log of its run). Pure.

    {"agents": ["b", "c"], "labels": ["secret"], "part_types": ["UserContext"]}

`labels` and `part_types` are what those words bore where they stood; names without entries are left out. A reader gets such a
text only where it could get all that it is made of: what can't be taken out of it again is withheld with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct


class Provenance(Struct, frozen=True, omit_defaults=True):
    agents: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    part_types: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.agents or self.labels or self.part_types)


def read(value: Any) -> Provenance | None:
    """Of a message's metadata, a trace or a result; None where it says nothing. Senders write metadata, too: what has another
    shape is none of ours."""
    if not value:
        return None
    try:
        found = msgspec.convert(value, Provenance)
    except msgspec.ValidationError:
        return None
    return found or None


def plain(provenance: Provenance) -> dict[str, Any]:
    """As it is stored."""
    made: dict[str, Any] = msgspec.to_builtins(provenance)
    return made


def joined(several: Iterable[Provenance | None]) -> Provenance:
    """That of a text made of texts; the order is that of names, so that the same set is the same value."""
    known = [each for each in several if each is not None]
    return Provenance(
        *(
            tuple(sorted({name for each in known for name in getattr(each, field)}))
            for field in Provenance.__struct_fields__
        )
    )


def labels_of(metadata: Any) -> list[str]:
    """`sensitivity` of a message's or part's metadata, a string or a list, as a list."""
    given = metadata.get("sensitivity") if isinstance(metadata, Mapping) else None
    if given is None:
        return []
    return [str(label) for label in given] if isinstance(given, list) else [str(given)]


def part_type(part: Mapping[str, Any]) -> str:
    """`metadata.type` of a part, else which of `text`, `data`, `url`, `raw` it is."""
    metadata = part.get("metadata")
    named = metadata.get("type") if isinstance(metadata, dict) else None
    if isinstance(named, str) and named:
        return named
    return next((name for name in ("text", "data", "url", "raw") if name in part), "text")


def of_message(agent_id: str, metadata: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> Provenance:
    """That of a text which quotes this message."""
    given = list(parts)
    labels = labels_of(metadata) + [label for part in given for label in labels_of(part.get("metadata"))]
    types = {part_type(part) for part in given} - {"text"}
    return joined([Provenance((agent_id,), tuple(labels), tuple(types)), read(metadata.get("provenance"))])


def of_work_for(metadata: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> Provenance:
    """What a request hands on to all that is done and found for it: its labels. The answer is its agent's own words."""
    return Provenance(labels=of_message("", metadata, parts).labels)
