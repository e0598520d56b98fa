"""How long a read may take, and whether anybody still wants it."""

from __future__ import annotations

import time
from collections.abc import Callable

from traces_app.workspace.errors import Cancelled, Timeout

Clock = Callable[[], float]


def never() -> bool:
    return False


class Budget:
    """A deadline on the monotonic clock and a cancel flag, looked at between small steps.

    `seconds` from now (None: no limit); `cancelled` may cost a query, so it is asked at most every 100 ms.
    """

    CANCEL_INTERVAL = 0.1

    def __init__(
        self, seconds: float | None = None, cancelled: Callable[[], bool] = never, clock: Clock = time.monotonic
    ) -> None:
        self._clock = clock
        self._deadline = None if seconds is None else clock() + seconds
        self._cancelled = cancelled
        self._next_look = clock()

    def expired(self) -> bool:
        return self._deadline is not None and self._clock() >= self._deadline

    def check(self) -> None:
        """Raises Cancelled or Timeout."""
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + self.CANCEL_INTERVAL
            if self._cancelled():
                raise Cancelled("cancelled")
        if self._deadline is not None and now >= self._deadline:
            raise Timeout("the time limit was reached")
