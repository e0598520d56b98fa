"""The life of a session, as a table. Nobody assigns `status`; everybody asks `move`."""

from __future__ import annotations

from sessions_app.protocol.errors import SessionClosed

CREATED, ACTIVE, WAITING, COMPLETED, TIMEOUT = "created", "active", "waiting", "completed", "timeout"
LIVE = frozenset({CREATED, ACTIVE, WAITING})
ENDED = frozenset({COMPLETED, TIMEOUT})

MOVES: dict[str, tuple[frozenset[str], str]] = {
    # action      from                         to
    "speak": (frozenset({CREATED, ACTIVE}), ACTIVE),
    "wait": (frozenset({CREATED, ACTIVE, WAITING}), WAITING),
    "answer": (frozenset({WAITING}), ACTIVE),
    "close": (LIVE, COMPLETED),
    "expire": (LIVE, TIMEOUT),
}


def move(status: str, action: str) -> str:
    """The status after `action`; raises `SessionClosed` where the table has no such move."""
    sources, target = MOVES[action]
    if status not in sources:
        raise SessionClosed()
    return target
