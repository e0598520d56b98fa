"""The attempts that this process runs right now, and the one thread that keeps their leases and notices when they are over."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from django.db import connection

from sessions_app.db import is_outage, on_postgres
from traces_app import leases
from traces_app.lifecycle import Claimed

log = logging.getLogger("hub.traces")

LOOK_SECONDS = 1.0
SOON_SECONDS = 0.05  # after a change in the database: others follow it


class Attempt:
    """One claimed run here. `stop(why)` ends it: `over` (cancelled, lost, ended by another), `timeout`, `released`."""

    def __init__(self, claimed: Claimed, deadline: float) -> None:
        self.claimed = claimed
        self.deadline = deadline
        self.stopped = threading.Event()
        self.why = ""
        self.on_stop: Callable[[], None] | None = None
        lease = leases.lease_seconds(claimed.executor)
        self.renew_at = time.monotonic() + lease / 3
        self.lost_at = time.monotonic() + lease

    def stop(self, why: str) -> None:
        if not self.stopped.is_set():
            self.why = why
            self.stopped.set()
            if self.on_stop is not None:
                self.on_stop()

    def renewed(self) -> None:
        lease = leases.lease_seconds(self.claimed.executor)
        self.renew_at = time.monotonic() + lease / 3
        self.lost_at = time.monotonic() + lease


class Attempts:
    """Shared by a process's runs. The thread starts with the first one, after any fork, and ends with the process."""

    def __init__(self) -> None:
        self._running: dict[tuple[int, int], Attempt] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread_pid = 0
        self._look_at = 0.0

    def add(self, attempt: Attempt) -> None:
        with self._lock:
            if self._thread_pid != os.getpid():
                self._thread_pid = os.getpid()
                self._running.clear()
                threading.Thread(target=self._keep, name="hub-leases", daemon=True).start()
            first = not self._running
            self._running[(attempt.claimed.pk, attempt.claimed.attempt)] = attempt
        if first:
            self._wake.set()

    def remove(self, attempt: Attempt) -> None:
        with self._lock:
            self._running.pop((attempt.claimed.pk, attempt.claimed.attempt), None)

    @property
    def running(self) -> list[Attempt]:
        with self._lock:
            return list(self._running.values())

    def look_now(self) -> None:
        """The database has changed: perhaps somebody was cancelled."""
        if self._running:
            self._look_at = min(self._look_at, time.monotonic() + SOON_SECONDS)
            self._wake.set()

    def release_all(self) -> None:
        """The process is about to end: hand back what still runs."""
        for attempt in self.running:
            attempt.stop("released")
            try:
                leases.release(attempt.claimed)
            except Exception as error:  # the lease will run out instead
                log.warning("%s could not be handed back: %r", attempt.claimed.trace_id, error)

    def _keep(self) -> None:
        while True:
            self._wake.wait(max(0.0, self._look_at - time.monotonic()) if self._running else None)
            self._wake.clear()
            running = self.running
            # What has just begun is not looked at: the first look comes with the next change, or in a second.
            if not running or time.monotonic() < self._look_at:
                continue
            self._look_at = time.monotonic() + LOOK_SECONDS
            try:
                self._look(running)
            except Exception as error:
                if not is_outage(error):
                    log.exception("the leases could not be looked after")
                self._give_up(running)
                connection.close()
            if on_postgres():
                connection.close()

    def _look(self, running: list[Attempt]) -> None:
        by_claim = {attempt.claimed: attempt for attempt in running}
        for claimed in leases.stopped(by_claim):
            by_claim.pop(claimed).stop("over")
        now = time.monotonic()
        due = [attempt for attempt in by_claim.values() if attempt.renew_at <= now]
        if due:
            lost = leases.renew([attempt.claimed for attempt in due])
            for attempt in due:
                if attempt.claimed in lost:
                    attempt.stop("over")
                else:
                    attempt.renewed()

    @staticmethod
    def _give_up(running: list[Attempt]) -> None:
        """Without the database a lease can't be renewed: whoever is past it may be run by somebody else by now."""
        now = time.monotonic()
        for attempt in running:
            if now >= attempt.lost_at:
                attempt.stop("over")


attempts = Attempts()
