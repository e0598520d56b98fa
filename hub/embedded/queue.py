"""The embedded worker's queue: kombu's, in memory, with a worker that looks up from it often."""

from __future__ import annotations

from typing import Any

from kombu.transport import memory

LOOK_UP_SECONDS = 0.1


class Transport(memory.Transport):
    """Celery's blocking loop waits two seconds for a message, and once more after it was told to stop (celery 5.7,
    `worker/loops.py`): it would keep an idle hub alive for four seconds. Here a wait is short, which costs nothing.
    """

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # type: ignore[override]
        """Deliver one message; `TimeoutError` when none came within `timeout` seconds, or within the shorter wait."""
        super().drain_events(connection, timeout=timeout and min(timeout, LOOK_UP_SECONDS))
