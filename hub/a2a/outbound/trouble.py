"""What can go wrong with a remote agent, as stable codes. One table for the SDK's errors, one for HTTP.

| code | means |
| --- | --- |
| `remote_failed`, `remote_rejected`, `remote_canceled` | the task ended so, by the remote's word |
| `remote_auth_required` | the task wants a further authorisation, which nobody here can give |
| `remote_unauthorized` | the remote does not take our credential |
| `remote_credential` | it asks for one that we don't have, or that may not be sent there |
| `remote_card` | there is no card that could be used |
| `remote_address` | the hub does not go to that address |
| `remote_unreachable` | no connection, cuts or 5xx answers for longer than is borne |
| `remote_timeout` | the task took longer than it may |
| `remote_task_lost` | the remote does not know the task any more |
| `remote_unsupported` | it does not do what we asked: the operation, a content type, a version, an extension |
| `remote_invalid` | it found our request wrong |
| `remote_protocol` | what it answered is not A2A, or larger than we take |
| `remote_error` | any other error that it answered |
"""

from __future__ import annotations

import httpx
from a2a.client.errors import A2AClientError
from a2a.utils import errors as a2a
from google.protobuf.json_format import ParseError

from hub.a2a.addresses import AddressRefused
from hub.a2a.http import TooLarge, Unreadable
from hub.a2a.outbound.cards import CardRefused
from hub.a2a.outbound.client import NoCredential
from hub.a2a.outbound.config import MissingSecret
from traces_app.redaction import redact_text

MESSAGE_CHARACTERS = 500
RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


class Trouble(Exception):
    """`retry`: it may pass. `unsent`: the request has not reached the remote. `after`: seconds that it asked us to wait."""

    def __init__(
        self, code: str, message: str, *, retry: bool = False, unsent: bool = False, after: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry = retry
        self.unsent = unsent
        self.after = after


_ERRORS: tuple[tuple[type[BaseException], str], ...] = (
    (a2a.TaskNotFoundError, "remote_task_lost"),
    (a2a.UnsupportedOperationError, "remote_unsupported"),
    (a2a.PushNotificationNotSupportedError, "remote_unsupported"),
    (a2a.ContentTypeNotSupportedError, "remote_unsupported"),
    (a2a.ExtendedAgentCardNotConfiguredError, "remote_unsupported"),
    (a2a.ExtensionSupportRequiredError, "remote_unsupported"),
    (a2a.VersionNotSupportedError, "remote_unsupported"),
    (a2a.MethodNotFoundError, "remote_unsupported"),
    (a2a.InvalidParamsError, "remote_invalid"),
    (a2a.InvalidRequestError, "remote_invalid"),
    (a2a.JSONParseError, "remote_invalid"),
    (a2a.InvalidAgentResponseError, "remote_error"),
    (a2a.TaskNotCancelableError, "remote_error"),
    (a2a.InternalError, "remote_error"),
    (AddressRefused, "remote_address"),
    (CardRefused, "remote_card"),
    (NoCredential, "remote_credential"),
    (MissingSecret, "remote_credential"),
    (TooLarge, "remote_protocol"),
    (Unreadable, "remote_protocol"),
    (ParseError, "remote_protocol"),
)
EXPECTED: tuple[type[BaseException], ...] = (
    Trouble,
    A2AClientError,
    a2a.A2AError,
    httpx.HTTPError,
    ValueError,
    TypeError,
    KeyError,
    *(kind for kind, _ in _ERRORS),
)
"""What a conversation with a remote may raise. ValueError, TypeError and KeyError are the SDK reading nonsense."""


def trouble_of(error: BaseException) -> Trouble:
    """Total over `EXPECTED`."""
    if isinstance(error, Trouble):
        return error
    for kind, code in _ERRORS:
        if isinstance(error, kind):
            return Trouble(code, fit(str(error) or code))
    below = _http_error(error)
    if isinstance(below, httpx.HTTPStatusError):
        return _of_status(below)
    if below is not None:
        unsent = isinstance(below, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        name = type(below).__name__
        return Trouble("remote_unreachable", f"The remote agent can't be reached ({name}).", retry=True, unsent=unsent)
    if isinstance(error, A2AClientError):
        return Trouble("remote_error", fit(str(error)))
    return Trouble("remote_protocol", f"What the remote agent answered is not A2A ({type(error).__name__}).")


def fit(text: str) -> str:
    """A remote's words as they may be shown: short, one line, without what looks like a secret."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return redact_text(line[:MESSAGE_CHARACTERS])


def _http_error(error: BaseException) -> httpx.HTTPError | None:
    seen = 0
    below: BaseException | None = error
    while below is not None and seen < 5:
        if isinstance(below, httpx.HTTPError):
            return below
        below, seen = below.__cause__, seen + 1
    return None


def _of_status(error: httpx.HTTPStatusError) -> Trouble:
    status = error.response.status_code
    if status in (401, 403):
        return Trouble("remote_unauthorized", f"The remote agent does not let us in (HTTP {status}).")
    if status in (301, 302, 303, 307, 308):
        return Trouble("remote_protocol", f"The remote agent redirects its calls (HTTP {status}); its card is wrong.")
    if status in RETRY_STATUSES:
        after = error.response.headers.get("retry-after", "")
        seconds = min(float(after), 300.0) if after.isdecimal() else None
        return Trouble("remote_unreachable", f"The remote agent answers HTTP {status}.", retry=True, after=seconds)
    return Trouble("remote_error", f"The remote agent answers HTTP {status}.")
