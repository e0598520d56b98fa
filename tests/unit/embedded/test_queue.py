"""The worker's queue in memory: it is waited on, and what comes in while somebody waits is delivered at once."""

from __future__ import annotations

import threading

import pytest
from kombu import Connection, Consumer, Queue

from hub.embedded.queue import Transport


def connect() -> Connection:
    return Connection(transport=Transport)


def test_a_message_that_comes_while_the_worker_waits_is_delivered() -> None:
    got: list[object] = []
    queue = Queue("broker-one")
    with connect() as here, connect() as there:
        waits = threading.Event()

        def send() -> None:
            waits.wait(5)
            there.Producer().publish({"n": 1}, routing_key=queue.name, declare=[queue])

        sender = threading.Thread(target=send)
        sender.start()
        with Consumer(here, [queue], callbacks=[lambda body, message: got.append(body)], no_ack=True):
            waits.set()
            here.drain_events(timeout=10)
        sender.join(5)
    assert got == [{"n": 1}]


def test_nothing_comes_and_the_wait_ends() -> None:
    with connect() as here, Consumer(here, [Queue("broker-two")], callbacks=[lambda *_: None]):
        with pytest.raises(TimeoutError):
            here.drain_events(timeout=0.01)


def test_what_waited_for_room_in_the_window_is_delivered_once_there_is_some() -> None:
    queue = Queue("broker-three")
    held: list[object] = []
    with connect() as here:
        channel = here.channel()
        channel.basic_qos(0, 1, False)  # type: ignore[attr-defined]
        with Consumer(channel, [queue], callbacks=[lambda body, message: held.append(message)]):
            for number in range(2):
                here.Producer().publish({"n": number}, routing_key=queue.name, declare=[queue])
            here.drain_events(timeout=10)
            with pytest.raises(TimeoutError):
                here.drain_events(timeout=0.01)
            acker = threading.Thread(target=held[0].ack)  # type: ignore[attr-defined]
            acker.start()
            here.drain_events(timeout=10)
            acker.join(5)
    assert len(held) == 2
