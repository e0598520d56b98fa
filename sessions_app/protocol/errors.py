"""The one tree of errors that a client can meet; each class carries the stable code of the wire contract.

The edges (HTTP, WebSocket, JSON-RPC, MCP) own one table each that maps these codes to their own numbers.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HubError(Exception):
    """A refusal with a stable `code`, a sentence for people and machine-readable `details`."""

    code: ClassVar[str] = "internal"
    text: ClassVar[str] = "Something went wrong on our side."

    def __init__(self, message: str | None = None, **details: Any) -> None:
        super().__init__(message or self.text)
        self.message = message or self.text
        self.details = details

    def body(self) -> dict[str, Any]:
        """`{"code", "message", "details"}`, the same on every door."""
        return {"code": self.code, "message": self.message, "details": self.details}


class Invalid(HubError):
    code = "invalid"
    text = "That request is malformed."


class Unauthenticated(HubError):
    code = "unauthenticated"
    text = "A valid key is needed."


class Forbidden(HubError):
    code = "forbidden"
    text = "That is not yours to do."


class NotFound(HubError):
    """Unknown and foreign things raise this one, without details, so that they look alike."""

    code = "not_found"
    text = "There is no such thing for you."


class MethodNotAllowed(HubError):
    code = "method_not_allowed"
    text = "That method is not allowed here."


class Conflict(HubError):
    code = "conflict"
    text = "That was already used for something else."


class Busy(HubError):
    code = "busy"
    text = "A request is already running in this session; nothing was stored."


class SessionClosed(HubError):
    code = "session_closed"
    text = "This session has ended; it can be read, not written."


class TooLarge(HubError):
    code = "too_large"
    text = "That is too large."


class Unsupported(HubError):
    code = "unsupported"
    text = "Send JSON text."


class RateLimited(HubError):
    """`details.retry_after` is in seconds."""

    code = "rate_limited"
    text = "Too fast; slow down."


class Internal(HubError):
    code = "internal"


class Unavailable(HubError):
    """`details.stored` is `False`, or `"unknown"` when nobody can say whether the commit happened."""

    code = "unavailable"
    text = "The hub cannot store this now; try again."


ALL: tuple[type[HubError], ...] = (
    Invalid,
    Unauthenticated,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    Conflict,
    Busy,
    SessionClosed,
    TooLarge,
    Unsupported,
    RateLimited,
    Internal,
    Unavailable,
)
