"""How a refusal looks over HTTP: one table from error codes to statuses, and one way from any exception to an answer."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import msgspec
from django.core.exceptions import DisallowedHost, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import connection
from django.http import Http404, UnreadablePostError
from rest_framework import exceptions as drf

from sessions_app.db import is_outage, on_postgres
from sessions_app.logs import one_line
from sessions_app.protocol import errors
from sessions_app.protocol.errors import HubError
from sessions_app.rest.answers import Answer

log = logging.getLogger("hub.rest")

HTTP_STATUS: dict[str, int] = {
    errors.Invalid.code: 400,
    errors.Unauthenticated.code: 401,
    errors.Forbidden.code: 403,
    errors.NotFound.code: 404,
    errors.MethodNotAllowed.code: 405,
    errors.Conflict.code: 409,
    errors.Busy.code: 409,
    errors.SessionClosed.code: 409,
    errors.TooLarge.code: 413,
    errors.Unsupported.code: 415,
    errors.RateLimited.code: 429,
    errors.Internal.code: 500,
    errors.Unavailable.code: 503,
}
UNAVAILABLE_RETRY_SECONDS = 1


def error_answer(error: HubError) -> Answer:
    """The status, envelope and headers of a refusal."""
    headers = {}
    if isinstance(error, errors.Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="hub"'
    elif isinstance(error, errors.RateLimited):
        headers["Retry-After"] = str(max(1, math.ceil(error.details.get("retry_after", 1))))
    elif isinstance(error, errors.Unavailable):
        headers["Retry-After"] = str(UNAVAILABLE_RETRY_SECONDS)
    elif isinstance(error, errors.MethodNotAllowed) and "allowed" in error.details:
        headers["Allow"] = ", ".join(error.details["allowed"])
    return Answer(HTTP_STATUS[error.code], msgspec.json.encode(error.body()), headers)


def as_refusal(error: BaseException, *, where: str, writing: bool = False) -> HubError:
    """What to tell a client of `error`, whatever it is. A defect is logged with `where` it happened, and never shown."""
    if isinstance(error, HubError):
        return error
    for kind, refusal in _TRANSLATED:
        if isinstance(error, kind):
            return refusal()
    if isinstance(error, Exception) and is_outage(error):
        log.warning("%s: the database could not do it: %s", where, one_line(repr(error)))
        return errors.Unavailable(stored=_stored(error) if writing else False)
    log.error("%s: a defect", one_line(where), exc_info=error)
    return errors.Internal()


def bad_host() -> HubError:
    return errors.Invalid("That Host is not served here.")


_TRANSLATED: tuple[tuple[type[BaseException], Callable[[], HubError]], ...] = (
    (DisallowedHost, bad_host),
    (Http404, errors.NotFound),
    (RequestDataTooBig, errors.TooLarge),
    (SuspiciousOperation, errors.Invalid),
    (UnreadablePostError, errors.Invalid),
    (PermissionDenied, errors.Forbidden),
    (drf.NotFound, errors.NotFound),
    (drf.MethodNotAllowed, errors.MethodNotAllowed),
    (drf.NotAuthenticated, errors.Unauthenticated),
    (drf.AuthenticationFailed, errors.Unauthenticated),
    (drf.PermissionDenied, errors.Forbidden),
    (drf.UnsupportedMediaType, errors.Unsupported),
    (drf.Throttled, errors.RateLimited),
    (drf.APIException, errors.Invalid),
)


def _stored(error: BaseException) -> bool | str:
    """What can be said of a failed unit of work. SQLite says no before it commits; a lost server may have said yes unheard."""
    if not on_postgres():
        return False
    refused = {"LockNotAvailable", "QueryCanceled", "PoolTimeout", "DeadlockDetected", "SerializationFailure"}
    cause = error.__cause__
    if cause is not None and type(cause).__name__ in refused:
        return False
    return False if connection.connection is not None and connection.is_usable() else "unknown"


def drf_exception_handler(error: Exception, context: dict[str, Any]) -> Any:
    """DRF's exits lead to the same envelope."""
    request = context["request"]
    writing = request.method not in ("GET", "HEAD", "OPTIONS")
    refusal = as_refusal(error, where=f"{request.method} {request.path}", writing=writing)
    if isinstance(refusal, errors.MethodNotAllowed):
        refusal = errors.MethodNotAllowed(allowed=context["view"].allowed_methods)
    return error_answer(refusal).as_response()
