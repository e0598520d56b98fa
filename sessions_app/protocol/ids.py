"""Public ids: how they look, how new ones are made, and how a message's id is its integer key in other letters."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from functools import lru_cache

AGENT_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
SESSION_ID = re.compile(r"sess-[a-z2-7]{26}", re.ASCII)
MESSAGE_ID = re.compile(r"msg-[0-9a-hjkmnp-tv-z]{13}", re.ASCII)
CLIENT_MESSAGE_ID = re.compile(r"[\x20-\x7e]{1,128}", re.ASCII)

HUB = "hub"
HUMAN_PREFIX = "human."
RESERVED = frozenset({HUB, "me", "system"})

_RANDOM_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"
_CROCKFORD_VALUE = {letter: value for value, letter in enumerate(_CROCKFORD)}


def is_agent_id(text: str) -> bool:
    """Whether `text` may name an agent that somebody registers (reserved names may not)."""
    return (
        AGENT_ID.fullmatch(text) is not None
        and text not in RESERVED
        and text != "human"
        and not text.startswith(HUMAN_PREFIX)
    )


def _random_text(length: int) -> str:
    return "".join(_RANDOM_LETTERS[byte & 31] for byte in secrets.token_bytes(length))


def new_session_id() -> str:
    """`sess-` and 130 random bits; holds no `_`, so that `{session_id}_{agent_id}` can be taken apart."""
    return "sess-" + _random_text(26)


def new_trace_id() -> str:
    """`trace-` and 130 random bits."""
    return "trace-" + _random_text(26)


def new_connection_id() -> str:
    """`conn-` and 80 random bits."""
    return "conn-" + _random_text(16)


_PAIRS = [one + two for one in _CROCKFORD for two in _CROCKFORD]


def message_id(key: int) -> str:
    """The public id of the message with this integer key."""
    return (
        f"{_beginning(key >> 40)}{_PAIRS[key >> 30 & 1023]}{_PAIRS[key >> 20 & 1023]}{_PAIRS[key >> 10 & 1023]}"
        f"{_PAIRS[key & 1023]}"
    )


@lru_cache(4096)
def _beginning(high: int) -> str:
    """Shared by all messages of the same four minutes: a page of them makes it a few times, not once per row."""
    return f"msg-{_CROCKFORD[high >> 20]}{_PAIRS[high >> 10 & 1023]}{_PAIRS[high & 1023]}"


def message_key(text: str) -> int | None:
    """The integer key behind a public message id, or None when it can't be one."""
    if MESSAGE_ID.fullmatch(text) is None:
        return None
    key = 0
    for letter in text[4:]:
        key = key << 5 | _CROCKFORD_VALUE[letter]
    return key if key < 1 << 63 else None


class MessageKeys:
    """Makes integer keys that grow with time, so that rows are added at the end of their index.

    41 bits of milliseconds since 2025, 12 bits of node, 10 bits of counter. A key is chosen before the commit, so that a
    write whose answer was lost can be looked up. Two processes that drew the same node may collide within one
    millisecond: the primary key refuses it and the writer draws again.
    """

    EPOCH_MS = 1_735_689_600_000

    def __init__(self, node: int | None = None) -> None:
        self._lock = threading.Lock()
        self._node = node
        self._pid = 0
        self._draw = 0
        self._last_ms = 0
        self._counter = 0

    def next(self) -> int:
        with self._lock:
            if self._pid != os.getpid():  # a forked worker must not go on with its parent's node
                self._pid = os.getpid()
                self._draw = secrets.randbelow(4096) if self._node is None else self._node
            now = time.time_ns() // 1_000_000 - self.EPOCH_MS
            if now > self._last_ms:
                self._last_ms, self._counter = now, 0
            elif self._counter < 1023:
                self._counter += 1
            else:  # this millisecond is used up: borrow from the next one
                self._last_ms, self._counter = self._last_ms + 1, 0
            return self._last_ms << 22 | self._draw << 10 | self._counter

    def redraw(self) -> None:
        """Take another node after a collision."""
        with self._lock:
            self._draw = secrets.randbelow(4096)


message_keys = MessageKeys()
