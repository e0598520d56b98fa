"""One thread per process that keeps traces going: rings for what was just made, and sweeps for what was forgotten."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.db import connection
from django.utils.module_loading import import_string

from sessions_app.db import is_outage, on_postgres
from traces_app import bell, leases
from traces_app.moves import database_now

log = logging.getLogger("hub.traces")

SWEEP_SECONDS = 1.0
Ringer = Callable[[int], bool]


def ring_celery(trace_pk: int) -> bool:
    """Put a trace's key into the workers' queue; False when the broker can't be reached now."""
    return ring_task("traces.run", [trace_pk])


def ring_task(name: str, arguments: Sequence[int]) -> bool:
    """Put a task and the keys that it is about into the workers' queue; False when the broker can't be reached now."""
    app: Any = import_string(settings.HUB_CELERY_APP)
    try:
        app.send_task(name, args=list(arguments), retry=False, ignore_result=True)
    except Exception as error:  # whatever the transport raises: nothing depends on it
        _ring_failed(error)
        return False
    return True


_complained = [0.0]


def _ring_failed(error: Exception) -> None:
    if time.monotonic() - _complained[0] > 30:
        _complained[0] = time.monotonic()
        log.warning("the broker can't be reached; traces wait for the sweep: %s", type(error).__name__)


def answer_bell(ringer: Ringer | None) -> None:
    """Do what this process's bell asks for."""
    cancelled = bell.take_cancelled()
    if cancelled:
        for pk in leases.children_elsewhere(cancelled):
            leases.cancel_child(pk)
    rings, sessions = bell.take_rings(), bell.take_sessions()
    if ringer is None:
        return
    if sessions:
        rings += leases.next_in_line(sessions)
    for number, pk in enumerate(rings):
        if not ringer(pk):
            leases.give_back_hints(rings[number:], database_now())  # the sweep rings for them, every second
            return


class Keeper(threading.Thread):
    """`ringer(trace_pk)` hints to the workers, or is None where they have ears of their own (the embedded hub).

    `sweeps`: whether it also runs those that layers above have added (`SWEEPS`); by default where it has a ringer.
    """

    def __init__(self, ringer: Ringer | None, *, sweeps: bool | None = None) -> None:
        super().__init__(name="hub-traces", daemon=True)
        self._ringer = ringer
        self._sweeps = sweeps if sweeps is not None else ringer is not None
        self._wake = threading.Event()
        self._stopping = False

    def start(self) -> None:
        bell.listen(self._wake.set)
        super().start()

    def stop(self) -> None:
        self._stopping = True
        bell.forget(self._wake.set)
        self._wake.set()

    def run(self) -> None:
        swept = 0.0
        while not self._stopping:
            self._wake.wait(SWEEP_SECONDS)
            self._wake.clear()
            try:
                answer_bell(self._ringer)
                if time.monotonic() - swept >= SWEEP_SECONDS:
                    swept = time.monotonic()
                    self._sweep()
            except Exception as error:
                if is_outage(error):
                    log.warning("the sweep could not use the database: %s", type(error).__name__)
                else:
                    log.exception("a sweep failed")
                connection.close()
            if on_postgres():
                connection.close()  # back to the pool
        connection.close()

    def _sweep(self) -> None:
        leases.sweep()
        if self._sweeps:
            self._sweep_above()
        if self._ringer is None:
            return
        now = database_now()
        due = leases.take_due_hints(now)
        for number, pk in enumerate(due):
            if not self._ringer(pk):
                leases.give_back_hints(due[number:], now)
                break

    def _sweep_above(self) -> None:
        """Each for itself: one that fails does not keep the others from their turn."""
        now = database_now()
        for name in settings.SWEEPS:
            try:
                for task, arguments in import_string(name)(now):
                    if not ring_task(task, arguments):
                        return  # they are due again before long
            except Exception as error:
                if is_outage(error):
                    raise
                log.exception("the sweep %s failed", name)
