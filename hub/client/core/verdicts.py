"""What the end of a connection means, as one table for close codes and one for HTTP answers to the handshake."""

from __future__ import annotations

from dataclasses import dataclass

from hub.client.errors import (
    ClientError,
    Forbidden,
    HubError,
    NotFound,
    ProtocolFault,
    RateLimited,
    Unauthenticated,
    error_from,
)
from hub.client.frames import ErrorFrame

MAX_RETRY_AFTER = 300.0


@dataclass(frozen=True)
class Verdict:
    """What to do after a connection ended: try again (`error` is None), or stop with `error`.

    `done` is the good end: the session of a session socket is over.
    """

    error: HubError | ClientError | None = None
    done: bool = False
    retry_after: float | None = None

    @property
    def again(self) -> bool:
        return self.error is None and not self.done


_FINAL_CLOSE: dict[int, type[HubError] | type[ClientError]] = {
    1002: ProtocolFault,
    1003: ProtocolFault,
    1007: ProtocolFault,
    1009: ProtocolFault,
    1010: ProtocolFault,
    4400: ProtocolFault,
    4401: Unauthenticated,
    4403: Forbidden,
    4404: NotFound,
}
_AGAIN_CLOSE = frozenset({1000, 1001, 1005, 1006, 1011, 1012, 1013, 1014, 4408, 4429, 4503})
_AGAIN_STATUS = frozenset({408, 421, 425, 429})
# Too fast again and again: without a hint from the server, wait longer than an ordinary cut would.
_SLOW = {4429: 10.0}


def after_close(
    code: int,
    reason: str = "",
    *,
    last_error: ErrorFrame | None = None,
    session_ended: bool = False,
    retry_after: float | None = None,
) -> Verdict:
    """The verdict on a close.

    An error frame just before it decides by its `retry`, so that codes which we do not know yet are obeyed too. Then the
    table; then, for unknown 4xxx, the way HTTP reads its 4xx: ours to fix, so stop.
    """
    if code == 1000 and session_ended:
        return Verdict(done=True)
    if last_error is not None and last_error.retry is not None and code >= 4000:
        if not last_error.retry:
            details = dict(last_error.details or {}) | {"close_code": code}
            return Verdict(error_from(last_error.code, last_error.message, details))
        hint = (last_error.details or {}).get("retry_after")
        return Verdict(retry_after=sane_seconds(retry_after, hint) or _SLOW.get(code))
    kind = _FINAL_CLOSE.get(code)
    if kind is None and 4000 <= code < 4500 and code not in _AGAIN_CLOSE:
        kind = ProtocolFault
    if kind is None:
        return Verdict(retry_after=sane_seconds(retry_after) or _SLOW.get(code))
    said = (last_error.message if last_error is not None else "") or reason or f"the hub closed with {code}"
    error = kind(said)
    if isinstance(error, HubError):
        error.details["close_code"] = code
    return Verdict(error)


def after_status(status: int, body: str = "", *, retry_after: float | None = None) -> Verdict:
    """The verdict on a handshake that was answered with plain HTTP."""
    if status in _AGAIN_STATUS or status >= 500:
        return Verdict(retry_after=sane_seconds(retry_after))
    if status in (401, 403, 404):
        error: HubError | ClientError = error_from("", body.strip()[:200], {"http_status": status}, status=status)
    else:
        error = ProtocolFault(f"the handshake was answered with HTTP {status}: is this a hub's address?")
    return Verdict(error)


def should_resend(error: HubError) -> bool:
    """Whether a refused write may be tried again as it is."""
    return isinstance(error, RateLimited) or error.code in ("unavailable", "internal")


def sane_seconds(*values: object) -> float | None:
    """The first of them that is a usable number of seconds, bounded: a server's typing error must not park us for years."""
    for value in values:
        try:
            seconds = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        if 0 <= seconds < float("inf"):
            return min(seconds, MAX_RETRY_AFTER)
    return None
