"""What this process wants to tell the workers. All of it may be lost: the sweep finds what the bell missed.

Ringing only notes; the process's keeper (`keeper.py`) does the talking, so neither the event loop, nor the writer, nor an
ack ever waits for a broker. A process of a worker's pool has no keeper: there the task answers when its trace has ended.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

MAX_NOTED = 20_000

_rings: deque[int] = deque(maxlen=MAX_NOTED)
_sessions: deque[int] = deque(maxlen=MAX_NOTED)
_cancelled: deque[int] = deque(maxlen=MAX_NOTED)
_listeners: dict[Callable[[], None], int] = {}
_lock = threading.Lock()


def ring(trace_pk: int) -> None:
    """A trace may be run now. Call it once that is committed."""
    _rings.append(trace_pk)
    _wake()


def ring_next(session_pk: int) -> None:
    """A trace of this session has ended: whoever stands in line may go on."""
    _sessions.append(session_pk)
    _wake()


def cancel_children(trace_pk: int) -> None:
    """A trace was cancelled: its children in other sessions are to follow."""
    _cancelled.append(trace_pk)
    _wake()


def listen(wake: Callable[[], None]) -> None:
    with _lock:
        _listeners[wake] = os.getpid()


def forget(wake: Callable[[], None]) -> None:
    with _lock:
        _listeners.pop(wake, None)


def is_heard() -> bool:
    """Whether somebody listens in this very process: a fork inherits the names of listeners, and none of their threads."""
    return os.getpid() in list(_listeners.values())


def _wake() -> None:
    for wake in list(_listeners):
        wake()


def take_rings() -> list[int]:
    return _take(_rings)


def take_sessions() -> list[int]:
    return _take(_sessions)


def take_cancelled() -> list[int]:
    return _take(_cancelled)


def _take(noted: deque[int]) -> list[int]:
    taken: dict[int, None] = {}
    while True:
        try:
            taken[noted.popleft()] = None
        except IndexError:
            return list(taken)
