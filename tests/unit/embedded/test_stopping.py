"""A hub that has nothing to do stops at once: its worker looks up from its queue, and nothing is freed one by one."""

from __future__ import annotations

import atexit
import gc

import pytest
from django.apps import apps
from django.conf import settings
from kombu import Connection

from hub.celery import app
from hub.embedded import queue
from hub.embedded.queue import LOOK_UP_SECONDS, Transport

CELERY_ASKS_FOR = 2.0


class Clock:
    """Time passes only where somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def clear(self) -> None: ...

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_a_worker_looks_up_from_an_empty_queue_long_before_celery_would_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(queue, "time", clock)
    with Connection(transport=Transport) as connection:
        connection.SimpleQueue("nothing-in-here")
        monkeypatch.setattr(queue, "_rung", clock)
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=CELERY_ASKS_FOR)
    assert LOOK_UP_SECONDS <= clock.now < 2 * LOOK_UP_SECONDS < CELERY_ASKS_FOR


def test_what_is_in_the_queue_is_delivered() -> None:
    with Connection(transport=Transport) as connection:
        waiting = connection.SimpleQueue("something-in-here")
        waiting.put({"trace": 7})
        assert waiting.get(timeout=CELERY_ASKS_FOR).payload == {"trace": 7}


def test_it_is_the_queue_of_a_worker_without_a_broker() -> None:
    with app.connection_for_read() as connection:
        assert isinstance(connection.transport, Transport) is settings.HUB_BROKERLESS


def test_a_process_that_ends_does_not_look_through_its_memory_for_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    apps.get_app_config("sessions_app").ready()
    assert registered == [gc.freeze]
