"""Token buckets, per agent and process: they protect a process from one agent, they are no accounting."""

from __future__ import annotations

import time
from collections import OrderedDict

from sessions_app.protocol.errors import RateLimited

MAX_BUCKETS = 20_000


class Rates:
    """`rate` per second with a `burst`; a rate of 0 is off."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = max(burst, 1.0)
        self._buckets: OrderedDict[int, tuple[float, float]] = OrderedDict()

    def take(self, who: int, cost: float = 1.0) -> None:
        """Spend; raises `RateLimited` with `details.retry_after` in seconds when the bucket is empty."""
        if self.rate <= 0:
            return
        now = time.monotonic()
        tokens, then = self._buckets.get(who, (self.burst, now))
        tokens = min(self.burst, tokens + (now - then) * self.rate)
        if tokens < cost:
            self._buckets[who] = (tokens, now)
            raise RateLimited(retry_after=round((cost - tokens) / self.rate, 3))
        self._buckets[who] = (tokens - cost, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
