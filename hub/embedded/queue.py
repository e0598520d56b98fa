"""The embedded worker's queue: kombu's, in memory, which is waited on and not polled, by a worker that looks up from it often.

Polled every 10 ms it costs an idle hub more than a percent of a core; polled every 50 ms it costs a trace 25 ms.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu.transport import memory

LOOK_UP_SECONDS = 0.1

_rung = threading.Event()


class Channel(memory.Channel):
    """Rings when there is a message, and when there is room for one."""

    def _put(self, queue: str, message: Any, **options: Any) -> None:
        super()._put(queue, message, **options)
        _rung.set()

    def basic_ack(self, delivery_tag: Any, multiple: bool = False) -> None:
        super().basic_ack(delivery_tag, multiple)
        _rung.set()


class Transport(memory.Transport):
    """Celery's blocking loop waits two seconds for a message, and once more after it was told to stop (celery 5.7,
    `worker/loops.py`): it would keep an idle hub alive for four seconds. Here a wait is short, which costs little.
    """

    Channel = Channel

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> None:
        """Deliver one message; `TimeoutError` when none came within `timeout` seconds, or within the shorter wait."""
        deadline = None if timeout is None else time.monotonic() + min(timeout, LOOK_UP_SECONDS)
        get: Callable[..., None] = self.cycle.get  # type: ignore[union-attr]
        while True:
            _rung.clear()  # before the look: what comes after it rings again
            try:
                get(self._deliver, timeout=timeout)
                return
            except Empty:
                left = LOOK_UP_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError from None
                _rung.wait(left)
