"""When to try again: full jitter under a growing ceiling, and never twice within a second."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Delays between attempts. All times are seconds on one monotonic clock, given by the caller.

    The n-th failure in a row waits a uniformly random time below `base * 2**n`, at most `cap`, so that clients which lost
    the same server at the same moment come back spread out. Only a connection that lived for `stable` seconds resets the
    count: one that is accepted and cut again at once must not hammer. `min_gap` parts the starts of two attempts.
    """

    def __init__(
        self,
        *,
        base: float = 2.0,
        cap: float = 20.0,
        stable: float = 10.0,
        min_gap: float = 1.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.base = base
        self.cap = cap
        self.stable = stable
        self.min_gap = min_gap
        self._uniform = uniform
        self.failures = 0
        self._opened_at: float | None = None
        self.tried_at: float | None = None

    @property
    def ceiling(self) -> float:
        return float(min(self.cap, self.base * 2.0 ** min(self.failures, 32)))

    def trying(self, now: float) -> None:
        """An attempt starts."""
        self.tried_at = now

    def opened(self, now: float) -> None:
        """The attempt led to a working connection."""
        self._opened_at = now

    def failed(self, now: float, *, retry_after: float | None = None) -> float:
        """The attempt failed or the connection ended; returns when the next one may start.

        `retry_after` is the server's word: never earlier, and jitter on top, because it told everybody the same.
        """
        if self._opened_at is not None and now - self._opened_at >= self.stable:
            self.failures = 0
        self._opened_at = None
        delay = self._uniform(0.0, self.ceiling)
        self.failures += 1
        if retry_after is not None:
            delay += retry_after
        at = now + delay
        if self.tried_at is not None:
            at = max(at, self.tried_at + self.min_gap)
        return at
