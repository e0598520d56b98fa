"""Typed, versioned parts of a message, and the registry that reads them. Pure.

A part says what it is by `metadata.type` and `metadata.schemaVersion` (semantic versioning). A handler is registered for a
type and a major version: an unknown minor is read by it, an unknown major is refused with the versions we speak, an
unknown type is kept and passed on untouched. A sender downgrades to the highest version that the receiver names.
Ids and times inside `data` are strings, and readers take 2.0 for 2: numbers do not survive every binding of A2A. An array
may come wrapped as `{"value": […]}`, which is how the SDK carries it to A2A 0.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.protocol.errors import Invalid

CONVERSATION_HISTORY, USER_CONTEXT, CONTEXT_INJECTIONS = "ConversationHistory", "UserContext", "ContextInjections"
SHARED_CONTEXT = "SharedContext"
Part = dict[str, Any]
_VERSION = re.compile(
    r"(0|[1-9][0-9]{0,5})(?:\.(0|[1-9][0-9]{0,5}))?(?:\.(0|[1-9][0-9]{0,5}))?(?:[-+][0-9A-Za-z.+-]{1,40})?"
)


@dataclass(frozen=True, slots=True)
class Typed:
    """A part that was understood: `data` checked and in our own types, `part` as it came. `known` False: passed on untouched."""

    type: str
    version: str
    data: Any
    part: Part
    known: bool = True


@dataclass(frozen=True, slots=True)
class Handler:
    """How one major version of a type is read and written. `write(data, minor)` makes the data of that minor."""

    type: str
    major: int
    minor: int
    read: Callable[[Any], Any]
    write: Callable[[Any, int], Any] = lambda data, minor: data

    @property
    def version(self) -> str:
        return f"{self.major}.{self.minor}"


class Registry:
    """Types and the versions that we speak of them."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, int], Handler] = {}

    def register(self, handler: Handler) -> None:
        """Add a handler, or replace that of the same type and major."""
        self._handlers[(handler.type, handler.major)] = handler

    def versions(self, type_: str) -> list[str]:
        """What we speak of a type, lowest first; empty for one that we do not know."""
        known = [handler for (name, _), handler in self._handlers.items() if name == type_]
        return [handler.version for handler in sorted(known, key=lambda handler: handler.major)]

    def spoken(self) -> dict[str, list[str]]:
        """All types and versions, as a card names them."""
        return {name: self.versions(name) for name in sorted({name for name, _ in self._handlers})}

    def read(self, part: Mapping[str, Any]) -> Typed | None:
        """A typed part understood, or None for one without a type. Raises `Invalid` for an unknown major or unfit data."""
        metadata = part.get("metadata")
        type_ = metadata.get("type") if isinstance(metadata, Mapping) else None
        if not isinstance(type_, str) or not type_ or "data" not in part:
            return None
        assert isinstance(metadata, Mapping)
        versions = self.versions(type_)
        version = metadata.get("schemaVersion", "1.0")
        if not versions:
            return Typed(type_, str(version), part["data"], dict(part), known=False)
        major = parse_version(version, type_)[0]
        handler = self._handlers.get((type_, major))
        if handler is None:
            raise Invalid(
                f"{type_} {version} is not understood here; we speak {', '.join(versions)}.",
                field="parts.metadata.schemaVersion",
                type=type_,
                version=str(version),
                supported=versions,
            )
        try:
            data = handler.read(unwrapped(part["data"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid(f"That is no {type_} {version}: {error}.", field="parts.data", type=type_) from None
        return Typed(type_, str(version), data, dict(part))

    def read_all(self, parts: Iterable[Mapping[str, Any]]) -> list[Typed]:
        """The typed parts of a message, in order."""
        return [typed for part in parts if (typed := self.read(part)) is not None]

    def make(self, type_: str, data: Any, speaks: Mapping[str, Sequence[str]] | None = None) -> Part:
        """A part in the highest version that we and the receiver speak; `speaks` is what its card names, if it does.

        Raises `Invalid` when there is none.
        """
        handlers = sorted(
            (h for (name, _), h in self._handlers.items() if name == type_), key=lambda h: h.major, reverse=True
        )
        theirs = (speaks or {}).get(type_)
        if not theirs:
            handler, minor = handlers[0], handlers[0].minor
        else:
            handler, minor = self._common(type_, handlers, theirs)
        return {
            "data": handler.write(data, minor),
            "metadata": {"type": type_, "schemaVersion": f"{handler.major}.{minor}"},
        }

    def _common(self, type_: str, handlers: list[Handler], theirs: Sequence[str]) -> tuple[Handler, int]:
        named = sorted((parse_version(version, type_) for version in theirs), reverse=True)
        for handler in handlers:
            for major, minor in named:
                if major == handler.major:
                    return handler, min(minor, handler.minor)
        raise Invalid(
            f"The receiver speaks {type_} {', '.join(theirs)}, and we speak {', '.join(self.versions(type_))}.",
            field="parts",
            type=type_,
            supported=self.versions(type_),
        )


def parse_version(version: Any, type_: str = "") -> tuple[int, int]:
    """`(major, minor)` of a semantic version; `1` and 1.0 (a number) are read, too. Raises `Invalid`."""
    text = str(version)
    match = _VERSION.fullmatch(text) if len(text) <= 60 else None
    if match is None:
        raise Invalid(f"{text[:60]!r} is no version.", field="parts.metadata.schemaVersion", type=type_)
    return int(match[1]), int(match[2] or 0)


def unwrapped(data: Any) -> Any:
    """An array that A2A 0.3 carries as `{"value": […]}`."""
    return data["value"] if isinstance(data, dict) and data.keys() == {"value"} else data


def whole_number(value: Any) -> int:
    """2 for 2, 2.0 and "2"."""
    if isinstance(value, bool):
        raise ValueError("a number is wanted")
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError("a whole number is wanted")
        return int(value)
    return int(value)


# The built-in types


def _read_history(data: Any) -> list[dict[str, Any]]:
    entries = []
    for item in _list(data):
        role = item["role"]
        if role not in ("user", "assistant", "system", "tool"):
            raise ValueError(f"role {str(role)[:20]!r} is unknown")
        entries.append({**item, "role": role, "content": _text(item["content"]), "name": _text(item.get("name", ""))})
    return entries


def _read_user_context(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError("an object is wanted")
    found = dict(data)
    for name in ("userProfile", "foundItems", "sessionContext"):
        if name in found and not isinstance(found[name], dict):
            raise ValueError(f"{name} is an object")
    if "totalCount" in found.get("foundItems", {}):
        found["foundItems"] = {**found["foundItems"], "totalCount": whole_number(found["foundItems"]["totalCount"])}
    return found


def _read_injections(data: Any) -> list[dict[str, Any]]:
    return [
        {
            **item,
            "source_agent": _text(item["source_agent"]),
            "round": whole_number(item.get("round", 0)),
            "content": _text(item["content"]),
            "message_id": _text(item.get("message_id", "")),
        }
        for item in _list(data)
    ]


def _read_shared(data: Any) -> dict[str, Any]:
    return {**data, "session_id": _text(data["session_id"]), "through_sequence": whole_number(data["through_sequence"])}


def _list(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise ValueError("a list is wanted")
    if not all(isinstance(item, dict) for item in data):
        raise ValueError("a list of objects is wanted")
    return data


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text is wanted")
    return value


registry = Registry()
registry.register(Handler(CONVERSATION_HISTORY, 1, 0, _read_history))
registry.register(Handler(USER_CONTEXT, 1, 0, _read_user_context))
registry.register(Handler(CONTEXT_INJECTIONS, 1, 0, _read_injections))
registry.register(Handler(SHARED_CONTEXT, 1, 0, _read_shared))
