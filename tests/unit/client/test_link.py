from __future__ import annotations

import pytest

from hub.client.core.backoff import Backoff
from hub.client.core.link import Link, Phase, Pulse
from hub.client.core.verdicts import Verdict, after_close, after_status, sane_seconds
from hub.client.errors import Forbidden, NotFound, ProtocolFault, Unauthenticated
from hub.client.frames import Closing, ErrorFrame, Pong, SessionUpdate, Welcome


def link(**options: object) -> Link:
    backoff = Backoff(uniform=lambda low, high: high)
    return Link(backoff=backoff, **options)  # type: ignore[arg-type]


def opened(one: Link, now: float = 0.0) -> Link:
    one.connecting(now)
    one.connected(now)
    one.received(Welcome(), now)
    return one


def test_delays_grow_to_a_cap_and_are_random_below() -> None:
    ceilings: list[float] = []

    def record(low: float, high: float) -> float:
        ceilings.append(high)
        return low

    backoff = Backoff(base=2.0, cap=20.0, uniform=record)
    for _ in range(6):
        backoff.failed(0.0)
    assert ceilings == [2.0, 4.0, 8.0, 16.0, 20.0, 20.0]


def test_two_attempts_never_start_within_a_second() -> None:
    backoff = Backoff(uniform=lambda low, high: 0.0)
    backoff.trying(10.0)
    assert backoff.failed(10.1) == 11.0


def test_only_a_stable_connection_resets_the_count() -> None:
    backoff = Backoff(uniform=lambda low, high: high, stable=10.0)
    for _ in range(4):
        backoff.failed(0.0)
    backoff.opened(100.0)
    assert backoff.failed(101.0) > 116.0
    backoff.opened(200.0)
    assert backoff.failed(210.0) == 212.0


def test_the_servers_hint_is_kept_with_jitter_on_top() -> None:
    backoff = Backoff(uniform=lambda low, high: high)
    assert backoff.failed(0.0, retry_after=30.0) == 32.0


def test_a_link_is_open_after_the_welcome_only() -> None:
    one = link()
    one.connecting(0.0)
    one.connected(0.0)
    assert not one.open
    one.received(Welcome(), 0.0)
    assert one.open


def test_another_protocol_ends_it() -> None:
    one = link()
    one.connecting(0.0)
    one.connected(0.0)
    one.received(Welcome(protocol=2), 0.0)
    one.closed(1000, "", 0.0)
    assert one.phase is Phase.OVER
    assert isinstance(one.error, ProtocolFault)


def test_silence_is_asked_about_and_then_taken_for_death() -> None:
    one = opened(link(heartbeat=20.0, grace=10.0))
    assert one.pulse(19.0) is Pulse.NOTHING
    assert one.next_pulse() == 20.0
    assert one.pulse(20.0) is Pulse.PING
    assert one.pulse(29.0) is Pulse.NOTHING
    assert one.pulse(30.0) is Pulse.DEAD


def test_anything_heard_is_a_sign_of_life() -> None:
    one = opened(link(heartbeat=20.0, grace=10.0))
    one.pulse(20.0)
    one.received(Pong(), 25.0)
    assert one.pulse(44.0) is Pulse.NOTHING


def test_the_hubs_shorter_heartbeat_counts() -> None:
    one = link(heartbeat=20.0)
    one.connecting(0.0)
    one.connected(0.0)
    one.received(Welcome(heartbeat_seconds=5), 0.0)
    assert one.next_pulse() == 5.0


def test_a_missing_welcome_is_death() -> None:
    one = link(welcome_timeout=10.0)
    one.connecting(0.0)
    one.connected(0.0)
    assert one.pulse(10.0) is Pulse.DEAD


@pytest.mark.parametrize("code", [1000, 1001, 1005, 1006, 1011, 1012, 1013, 4408, 4429, 4503, 3000])
def test_these_codes_reconnect(code: int) -> None:
    one = opened(link())
    one.closed(code, "", 5.0)
    assert one.phase is Phase.WAITING
    assert one.next_attempt > 5.0


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1002, ProtocolFault),
        (1009, ProtocolFault),
        (4400, ProtocolFault),
        (4401, Unauthenticated),
        (4403, Forbidden),
        (4404, NotFound),
        (4444, ProtocolFault),
    ],
)
def test_these_codes_are_final(code: int, error: type[Exception]) -> None:
    one = opened(link())
    one.closed(code, "", 5.0)
    assert one.phase is Phase.OVER
    assert isinstance(one.error, error)


def test_the_error_before_a_close_decides_about_codes_that_we_do_not_know() -> None:
    again = after_close(4777, last_error=ErrorFrame(code="unavailable", retry=True))
    assert again.again
    final = after_close(4503, last_error=ErrorFrame(code="forbidden", message="no", retry=False))
    assert isinstance(final.error, Forbidden)


def test_a_closing_frame_sets_the_earliest_return() -> None:
    one = opened(link())
    one.received(Closing(retry_after=7.0), 1.0)
    one.closed(4503, "", 1.0)
    assert one.next_attempt == 1.0 + 7.0 + 2.0


def test_a_normal_close_is_the_end_only_when_the_session_has_ended() -> None:
    one = opened(link(only_session="s"))
    one.received(SessionUpdate(session_id="s", status="completed"), 1.0)
    one.closed(1000, "", 1.0)
    assert one.phase is Phase.OVER
    assert one.error is None
    aged = opened(link(only_session="s"))
    aged.received(SessionUpdate(session_id="t", status="completed"), 1.0)
    aged.closed(1000, "", 1.0)
    assert aged.phase is Phase.WAITING


@pytest.mark.parametrize("status", [401, 403, 404, 400, 405, 426])
def test_these_answers_to_the_handshake_are_final(status: int) -> None:
    assert after_status(status).error is not None


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_these_answers_to_the_handshake_are_not(status: int) -> None:
    assert after_status(status, retry_after=3.0) == Verdict(retry_after=3.0)


@pytest.mark.parametrize(
    ("value", "seconds"), [("3", 3.0), (10**30, 300.0), ("x", None), (-1, None), (float("nan"), None)]
)
def test_seconds_from_outside_are_made_sane(value: object, seconds: float | None) -> None:
    assert sane_seconds(value) == seconds
