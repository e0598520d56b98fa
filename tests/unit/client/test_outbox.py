from __future__ import annotations

from typing import Any

import pytest

from hub.client.core.backoff import Backoff
from hub.client.core.outbox import Entry, Outbox
from hub.client.errors import Conflict, Internal, RateLimited, SessionClosed, Unavailable


def outbox(**options: Any) -> Outbox:
    return Outbox(backoff=Backoff(base=1.0, min_gap=0.0, uniform=lambda low, high: high), **options)


def put(box: Outbox, key: str, session: str = "s", now: float = 0.0) -> None:
    box.add(Entry(key, session, {"content": key}, now))


def keys(entries: list[Entry]) -> list[str]:
    return [entry.client_message_id for entry in entries]


def test_the_socket_gets_everything_in_order_and_once() -> None:
    box = outbox()
    for key in ("a", "b", "c"):
        put(box, key)
    box.socket_opened(0.0)
    assert keys(box.for_socket(0.0)) == ["a", "b", "c"]
    assert box.for_socket(0.0) == []


def test_what_was_in_flight_at_a_cut_goes_again_in_its_order() -> None:
    box = outbox()
    for key in ("a", "b", "c"):
        put(box, key)
    box.socket_opened(0.0)
    box.for_socket(0.0)
    box.remove("a")
    box.socket_lost(1.0)
    box.socket_opened(2.0)
    assert keys(box.for_socket(2.0)) == ["b", "c"]


def test_without_an_ack_it_goes_again() -> None:
    box = outbox(ack_timeout=20.0)
    put(box, "a")
    box.socket_opened(0.0)
    box.for_socket(0.0)
    assert box.next_wakeup(1.0) == 20.0
    assert not box.overdue(19.0)
    assert box.overdue(20.0)
    assert keys(box.for_socket(20.0)) == ["a"]


def test_http_waits_a_moment_for_a_socket_and_takes_one_of_each_session() -> None:
    box = outbox(http_after=1.0)
    for key, session in (("a", "s"), ("b", "s"), ("x", "t")):
        put(box, key, session)
    assert box.for_http(0.5) == []
    assert box.next_wakeup(0.5) == 1.0
    assert keys(box.for_http(1.0)) == ["a", "x"]
    assert box.for_http(1.0) == []
    box.remove("a")
    assert keys(box.for_http(1.0)) == ["b"]


def test_once_http_has_worked_the_next_ones_do_not_wait_for_a_socket_again() -> None:
    box = outbox(http_after=1.0)
    box.socket_opened(0.0)
    box.socket_lost(10.0)
    put(box, "a", now=10.0)
    assert keys(box.for_http(11.0)) == ["a"]
    box.remove("a")
    box.http_worked(11.1)
    put(box, "b", now=11.2)
    assert keys(box.for_http(11.2)) == ["b"]
    box.socket_opened(12.0)
    box.remove("b")
    box.http_worked(12.1)  # an answer from before the socket was back
    box.socket_lost(13.0)
    put(box, "c", now=13.0)
    assert box.for_http(13.5) == [], "a new loss: the socket gets its moment again"


def test_while_http_has_the_oldest_the_socket_gets_nothing_of_that_session() -> None:
    box = outbox(http_after=0.0)
    put(box, "a")
    put(box, "b")
    assert keys(box.for_http(0.0)) == ["a"]
    box.socket_opened(0.0)
    put(box, "x", "t")
    assert keys(box.for_socket(0.0)) == ["x"]
    box.remove("a")
    assert keys(box.for_socket(0.0)) == ["b"]


def test_an_http_failure_lets_http_rest() -> None:
    box = outbox(http_after=0.0)
    put(box, "a")
    box.for_http(0.0)
    box.http_failed("a", 0.0)
    assert box.for_http(0.5) == []
    assert box.next_wakeup(0.5) == 1.0
    assert keys(box.for_http(1.0)) == ["a"]


@pytest.mark.parametrize("error", [Unavailable(), RateLimited(retry_after=3), Internal()])
def test_a_passing_refusal_holds_the_session_and_tries_again(error: Any) -> None:
    box = outbox()
    put(box, "a")
    box.socket_opened(0.0)
    box.for_socket(0.0)
    put(box, "b")
    put(box, "x", "t")
    assert box.refused("a", error, 0.0)
    assert keys(box.for_socket(0.0)) == ["x"]
    assert keys(box.for_socket(5.0)) == ["a", "b"]


@pytest.mark.parametrize("error", [SessionClosed(), Conflict()])
def test_a_final_refusal_takes_it_out(error: Any) -> None:
    box = outbox()
    put(box, "a")
    box.socket_opened(0.0)
    box.for_socket(0.0)
    assert not box.refused("a", error, 0.0)
    assert len(box) == 0


def test_a_defect_of_the_hub_is_not_tried_for_ever() -> None:
    box = outbox(internal_tries=2)
    put(box, "a")
    box.socket_opened(0.0)
    box.for_socket(0.0)
    assert box.refused("a", Internal(), 0.0)
    box.for_socket(10.0)
    assert not box.refused("a", Internal(), 10.0)


def test_it_keeps_to_the_hubs_rate() -> None:
    box = outbox()
    for number in range(10):
        put(box, str(number))
    box.socket_opened(0.0, per_second=2.0, burst=3)
    assert keys(box.for_socket(0.0)) == ["0", "1", "2"]
    assert box.next_wakeup(0.0) == 0.5
    assert keys(box.for_socket(0.5)) == ["3"]
    assert keys(box.for_socket(1.5)) == ["4", "5"]


def test_not_more_than_so_many_are_in_flight() -> None:
    box = outbox(in_flight_max=2)
    for key in ("a", "b", "c"):
        put(box, key)
    box.socket_opened(0.0)
    assert keys(box.for_socket(0.0)) == ["a", "b"]
    assert box.next_wakeup(0.0) == 20.0
    box.remove("a")
    assert keys(box.for_socket(0.0)) == ["c"]


def test_the_same_id_twice_is_a_mistake() -> None:
    box = outbox()
    put(box, "a")
    with pytest.raises(ValueError, match="already on its way"):
        put(box, "a")
