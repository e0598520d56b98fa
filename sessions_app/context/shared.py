"""A session's shared context, and whose words stand under each of its keys. Pure.

    [{"keys": ["plan", "budget"], "by": ["b"]},
     {"keys": ["focus_module"], "by": ["main"], "made_of": {"agents": ["b", "main"], "labels": ["secret"]}}]

`by`: who has written there, by a patch or by a trace's result. `made_of`: for a result, whose words it is made of (as that of
its message, itself included). A key that nobody is named for is everybody's: what stood there before this was kept, and
`previous_results`, where each entry says itself whose it is. Stored beside the context, and read only for who may not read all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from sessions_app.context.provenance import Provenance, joined
from sessions_app.protocol import limits
from sessions_app.protocol.bodies import merge_patch
from sessions_app.protocol.jsontext import dumps


class Words(Struct, frozen=True, omit_defaults=True):
    """Keys under which the words of the same agents stand."""

    keys: tuple[str, ...]
    by: tuple[str, ...]
    made_of: Provenance = Provenance()


_Source = tuple[tuple[str, ...], Provenance]
_words = msgspec.json.Decoder(list[Words])
_values = msgspec.json.Decoder(dict[str, Any])


class Shared(Struct):
    """What is shared, and whose it is."""

    values: dict[str, Any] = {}
    words: list[Words] = []

    def fits(self) -> bool:
        """Whether it is within its limit. Names take less than what they are named for, except where somebody means harm."""
        limit = limits.CONTEXT_BYTES
        return len(dumps(self.values).encode()) <= limit and len(dumps(self.words).encode()) <= 2 * limit

    def patched(self, patch: Mapping[str, Any], by: str, made_of: Provenance | None = None) -> Shared:
        """With this JSON Merge Patch, as words of `by`.

        Under a key that is replaced stand the new words alone, under one that is merged into both, under one that is gone
        none. What only takes something out of an object brings no words.
        """
        values: dict[str, Any] = merge_patch(self.values, patch)
        sources = self._sources()
        new: _Source = ((by,), made_of or Provenance())
        for key, value in patch.items():
            known = sources.pop(key, None)
            if value is None:
                continue
            if not (isinstance(value, dict) and isinstance(self.values.get(key), dict)):
                sources[key] = new
            elif source := _both(known, new if any(item is not None for item in value.values()) else None):
                sources[key] = source
        return Shared(values, _grouped(sources.items()))

    def with_entries(self, key: str, value: Any) -> Shared:
        """With an object under this key whose entries say themselves whose they are; what it adds to keeps its words."""
        values = {**self.values, key: value}
        if isinstance(self.values.get(key), dict):
            return Shared(values, self.words)
        return Shared(values, _grouped((name, source) for name, source in self._sources().items() if name != key))

    def _sources(self) -> dict[str, _Source]:
        sources: dict[str, _Source | None] = {}
        for each in self.words:
            for key in each.keys:  # two that redaction made one have both
                sources[key] = _both(sources.get(key), (each.by, each.made_of))
        return {key: source for key, source in sources.items() if source is not None}


def _both(one: _Source | None, other: _Source | None) -> _Source | None:
    if one is None or other is None:
        return one or other
    return tuple(sorted({*one[0], *other[0]})), joined([one[1], other[1]])


def _grouped(sources: Iterable[tuple[str, _Source]]) -> list[Words]:
    keys: dict[_Source, list[str]] = {}
    for key, source in sources:
        keys.setdefault(source, []).append(key)
    return [Words(tuple(names), by, made_of) for (by, made_of), names in keys.items()]


def said_by(values: Mapping[str, Any], by: str, made_of: Provenance | None = None) -> Shared:
    """All of it as words of one agent."""
    return Shared(dict(values), [Words(tuple(values), (by,), made_of or Provenance())] if values else [])


def from_columns(values: str, words: str | None) -> Shared:
    """As the two columns have it."""
    return Shared(_values.decode(values), _words.decode(words) if words else [])


def stored(words: list[Words]) -> Any:
    """As a value of its column."""
    return msgspec.to_builtins(words) if words else None


def from_stored(words: Any) -> list[Words]:
    return msgspec.convert(words, list[Words]) if words else []
