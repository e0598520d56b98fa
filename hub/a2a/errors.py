"""How a refusal of the hub looks in A2A: one table from our error codes to the specification's errors (section 3.3.2).

Every way out of the handler goes through `as_a2a_error`: a defect is logged here, and never shown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InternalError,
    InvalidParamsError,
    JSONParseError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from sessions_app.protocol import errors
from sessions_app.protocol.errors import HubError
from sessions_app.rest.errors import as_refusal

log = logging.getLogger("hub.a2a")

A2A_ERROR: dict[str, Callable[..., A2AError]] = {
    errors.Invalid.code: InvalidParamsError,
    errors.Unauthenticated.code: UnsupportedOperationError,  # the door answers 401 before anything is dispatched
    errors.Forbidden.code: UnsupportedOperationError,
    errors.NotFound.code: TaskNotFoundError,
    errors.MethodNotAllowed.code: UnsupportedOperationError,
    errors.Conflict.code: InvalidParamsError,
    errors.Busy.code: UnsupportedOperationError,
    errors.SessionClosed.code: UnsupportedOperationError,
    errors.TooLarge.code: InvalidParamsError,
    errors.Unsupported.code: ContentTypeNotSupportedError,
    errors.RateLimited.code: InternalError,
    errors.Internal.code: InternalError,
    errors.Unavailable.code: InternalError,
}


def as_a2a_error(error: BaseException, *, where: str, writing: bool = False) -> A2AError:
    """What to tell a client of `error`, whatever it is."""
    if isinstance(error, A2AError):
        return error
    refusal = as_refusal(error, where=where, writing=writing)
    if isinstance(refusal, errors.NotFound):
        return TaskNotFoundError()
    return A2A_ERROR[refusal.code](message=_said(refusal), data=_details(refusal))


def rpc_error(request_id: Any, error: A2AError) -> dict[str, Any]:
    """A JSON-RPC error response. (The SDK's own function knows no parse error.)"""
    if isinstance(error, JSONParseError):
        return {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32700, "message": JSONParseError.message}}
    response: dict[str, Any] = build_error_response(request_id, error)
    return response


def _said(refusal: HubError) -> str | None:
    return None if isinstance(refusal, errors.Internal) else refusal.message


def _details(refusal: HubError) -> dict[str, str]:
    """`ErrorInfo.metadata` is a map of strings."""
    return {"hub_code": refusal.code} | {key: str(value) for key, value in refusal.details.items()}
