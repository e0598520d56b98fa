"""The thread beside a worker's own in which executors run.

It is kept from run to run, with its connection: a thread and a connection of its own would cost a trace two milliseconds.
One that does not come back is left behind, and another takes its place.
"""

from __future__ import annotations

import contextvars
import os
import queue
import threading
from collections.abc import Callable

from django.db import connection

from sessions_app.db import on_postgres

Work = Callable[[], None]


class Beside(threading.Thread):
    """Runs one piece of work at a time. `idle` is set while there is none; the work may not raise."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.idle = threading.Event()
        self.pid = os.getpid()
        self.left = False
        self._work: queue.SimpleQueue[tuple[Work, str] | None] = queue.SimpleQueue()

    def begin(self, work: Work, name: str) -> None:
        self.idle.clear()
        self._work.put((work, name))

    def leave(self) -> None:
        """It will end when its work does."""
        self.left = True
        self._work.put(None)

    def run(self) -> None:
        while (given := self._work.get()) is not None:
            work, self.name = given
            try:
                contextvars.Context().run(work)  # nothing of one run is seen by the next
            finally:
                if on_postgres():
                    connection.close()  # back to the pool; a file stays open for the next one
                self.idle.set()
        connection.close()


_mine = threading.local()


def run_beside(work: Work, name: str) -> Beside:
    """Begin `work` in the thread beside the calling one, which is called `name` meanwhile."""
    beside: Beside | None = getattr(_mine, "beside", None)
    if beside is None or beside.left or beside.pid != os.getpid() or not beside.is_alive():
        beside = _mine.beside = Beside()
        beside.start()
    beside.begin(work, name)
    return beside
