from __future__ import annotations

import json

from hub.bench.lanes import Lane
from hub.bench.sockets import Frame, decode


class Wire:
    """A sender that keeps what was sent."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []

    def send(self, text: bytes) -> None:
        self.texts.append(text)


def encode(number: int) -> bytes:
    return b'{"n":%d}' % number


def acks(count: int) -> list[Frame]:
    return [Frame("ack", sequence=1)] * count


def messages(*sequences: int) -> list[Frame]:
    return [Frame("message", sequence=sequence) for sequence in sequences]


def test_a_lane_keeps_its_window_full_and_never_exceeds_it() -> None:
    lane, wire = Lane(encode, window=4), Wire()
    lane.run(wire)
    assert wire.texts == [encode(n) for n in (1, 2, 3, 4)]
    lane.on_sender_frames(acks(2))
    assert wire.texts[4:] == [encode(5), encode(6)]
    assert lane.sent - lane.acked == 4


def test_a_batched_lane_sends_what_the_window_allows_as_one_array() -> None:
    lane, wire = Lane(encode, window=3, batched=True), Wire()
    lane.run(wire)
    lane.on_sender_frames(acks(1))
    assert [json.loads(text) for text in wire.texts] == [[{"n": 1}, {"n": 2}, {"n": 3}], {"n": 4}]


def test_a_lane_stops_at_its_limit_and_when_told() -> None:
    lane, wire = Lane(encode, window=4, limit=5), Wire()
    lane.run(wire)
    lane.on_sender_frames(acks(4))
    assert lane.sent == 5
    other, wire = Lane(encode, window=1), Wire()
    other.run(wire)
    other.stop()
    other.on_sender_frames(acks(1))
    assert other.sent == 1


def test_a_message_is_finished_when_acked_and_received_by_everybody() -> None:
    lane = Lane(encode, receivers=2, window=2)
    lane.run(Wire())
    lane.on_sender_frames(acks(2))
    lane.receivers[0].on_frames(messages(1, 2))
    lane.receivers[1].on_frames(messages(1))
    assert (lane.finished, lane.received, lane.settled) == (1, 3, False)


def test_a_correct_server_leaves_no_problems() -> None:
    lane = Lane(encode, window=2, limit=2)
    lane.run(Wire())
    lane.on_sender_frames(acks(2))
    lane.receivers[0].on_frames([Frame("presence"), *messages(1, 2)])
    assert lane.settled
    assert lane.problems() == []


def test_a_gap_a_lost_message_a_missing_ack_and_an_error_are_problems() -> None:
    lane = Lane(encode, window=5, limit=6)
    lane.run(Wire())
    lane.on_sender_frames([*acks(3), Frame("error", code="internal")])
    lane.receivers[0].on_frames(messages(1, 3))
    assert lane.problems() == [
        "3 of 6 sends without an ack",
        "4 deliveries missing",
        "1 deliveries out of order or doubled",
        "error internal ×1",
    ]


def test_a_doubled_delivery_is_a_problem_though_nothing_is_missing() -> None:
    lane = Lane(encode, window=1, limit=1)
    lane.run(Wire())
    lane.on_sender_frames(acks(1))
    lane.receivers[0].on_frames(messages(1, 1))
    assert lane.problems() == ["1 deliveries out of order or doubled"]


def test_one_websocket_message_holds_one_frame_or_an_array_of_them() -> None:
    assert decode(b'{"type":"ack","sequence":3,"kind":"chat"}') == [Frame("ack", sequence=3)]
    both = decode(b'[{"type":"message","sequence":1},{"type":"error","code":"busy"}]')
    assert both == [Frame("message", sequence=1), Frame("error", code="busy")]
    assert decode(b'{"type":"replay_complete","sequence":null}') == [Frame("replay_complete")]


def test_in_a_room_with_a_history_the_next_one_is_the_one_after_it() -> None:
    lane = Lane(encode, after=10)
    lane.receivers[0].on_frames([Frame("message", sequence=11), Frame("message", sequence=13)])
    assert (lane.receivers[0].received, lane.receivers[0].misordered) == (2, 1)
