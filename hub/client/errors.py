"""What a program can meet: the hub's own refusals (one tree, shared with the server) and what happens on the way to it."""

from __future__ import annotations

from typing import Any

from sessions_app.protocol.errors import (
    ALL,
    Busy,
    Conflict,
    Forbidden,
    HubError,
    Internal,
    Invalid,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    SessionClosed,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)

__all__ = [
    "Busy",
    "ClientClosed",
    "ClientError",
    "Conflict",
    "Forbidden",
    "HubError",
    "Internal",
    "Invalid",
    "MethodNotAllowed",
    "NotFound",
    "ProtocolFault",
    "RateLimited",
    "SendTimeout",
    "SessionClosed",
    "StateInUse",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "Unsupported",
    "error_from",
]

_BY_CODE: dict[str, type[HubError]] = {kind.code: kind for kind in ALL}
_BY_STATUS: dict[int, type[HubError]] = {
    400: Invalid,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    413: TooLarge,
    415: Unsupported,
    429: RateLimited,
    500: Internal,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


class ClientError(Exception):
    """Something on our side of the wire, or on the way: the hub did not refuse anything."""


class Unreachable(ClientError):
    """Nobody answered within the time given: refused, timed out, cut, or no such host."""


class ProtocolFault(ClientError):
    """The other side does not speak the hub's protocol, or says that we do not: trying again cannot help."""


class ClientClosed(ClientError):
    """The client was closed while this was under way."""


class StateInUse(ClientError):
    """Another process holds this state file; two would each believe to own the cursor."""


class SendTimeout(ClientError, TimeoutError):
    """No ack in time: stored or not is unknown. Sending again with the same `client_message_id` is safe.

    `queued` is true when the message lies in a durable outbox and will still be sent.
    """

    def __init__(self, client_message_id: str, *, queued: bool) -> None:
        super().__init__(f"no ack for {client_message_id} in time")
        self.client_message_id = client_message_id
        self.queued = queued


def error_from(code: str, message: str = "", details: dict[str, Any] | None = None, *, status: int = 0) -> HubError:
    """The error of the tree with this code; an unknown code takes the class of the HTTP status and keeps its own code."""
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status) or (Unavailable if status >= 500 else HubError)
    error = kind(message or None)
    error.details = dict(details or {})
    if code and code != kind.code:
        error.details.setdefault("code", code)
    return error
