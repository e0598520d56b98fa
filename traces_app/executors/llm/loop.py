"""The one event loop of a worker process on which models are asked.

Clients of models keep their connections per loop: shared by threads with loops of their own they fail, and a client per
run costs five times as much. Runs have threads of their own; they hand coroutines over and wait.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class ModelLoop:
    """Started by the first one who asks, after any fork; ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self.models: dict[Any, Any] = {}
        """Clients by what they were made of; they belong to this loop."""

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine there. Cancelling the future cancels it."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._loop = asyncio.new_event_loop()
                self.models = {}
                threading.Thread(target=self._loop.run_forever, name="hub-models", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)


model_loop = ModelLoop()
