from __future__ import annotations

import random

import pytest

from hub.client.core.inbox import Item, Offer, SessionInbox
from hub.client.frames import Message, NewSession, Session

ME = "me-agent"


def message(sequence: int, sender: str = "other") -> Message:
    return Message(
        message_id=f"msg-{sequence}", session_id="s", sequence=sequence, sender=sender, content=str(sequence)
    )


def inbox(*, limit: int = 1000, done: int | None = None) -> SessionInbox:
    return SessionInbox("s", agent_id=ME, limit=limit, done=done)


def drain(box: SessionInbox) -> list[int]:
    handled = []
    while (item := box.head()) is not None:
        handled.append(item.sequence or 0)
        box.finish(item)
    return handled


def test_the_first_message_sets_the_start() -> None:
    box = inbox()
    assert box.offer(message(7)) is Offer.TAKEN
    assert drain(box) == [7]
    assert box.ack_due() == 7


def test_what_was_taken_is_a_duplicate_also_after_it_was_handled() -> None:
    box = inbox(done=0)
    box.offer(message(1))
    assert box.offer(message(1)) is Offer.DUPLICATE
    drain(box)
    assert box.offer(message(1)) is Offer.DUPLICATE


def test_the_cursor_moves_only_when_the_message_was_handled() -> None:
    box = inbox(done=0)
    box.offer(message(1))
    assert box.ack_due() is None
    drain(box)
    assert box.ack_due() == 1


def test_a_missing_sequence_makes_it_read_the_log_from_there() -> None:
    box = inbox(done=0)
    box.offer(message(1))
    assert box.offer(message(3)) is Offer.BEHIND
    assert drain(box) == [1]
    assert box.page_wanted(room=100) == (1, 100)
    box.page([message(2), message(3)], has_more=False, last_sequence=3)
    assert not box.behind
    assert drain(box) == [2, 3]


def test_own_messages_are_not_missing() -> None:
    box = inbox(done=0)
    box.offer(message(1))
    box.own_stored(2)
    assert box.offer(message(3)) is Offer.TAKEN
    assert drain(box) == [1, 3]


def test_a_gap_that_an_ack_may_explain_waits_for_it() -> None:
    box = inbox(done=0)
    assert box.offer(message(2), own_in_flight=1) is Offer.WAITING
    assert box.head() is None
    box.own_stored(1)
    assert drain(box) == [2]


def test_a_gap_larger_than_what_is_under_way_does_not_wait() -> None:
    assert inbox(done=0).offer(message(3), own_in_flight=1) is Offer.BEHIND


def test_a_refused_send_explains_nothing() -> None:
    box = inbox(done=0)
    box.offer(message(2), own_in_flight=1)
    assert box.settle(0) is Offer.BEHIND


def test_what_waited_for_acks_is_read_again_after_a_cut() -> None:
    box = inbox(done=0)
    box.offer(message(2), own_in_flight=1)
    box.disconnected()
    assert box.page_wanted(room=10) == (0, 10)


def test_a_full_queue_falls_behind_and_reads_on_when_it_is_half_empty() -> None:
    box = inbox(limit=4, done=0)
    for sequence in range(1, 5):
        assert box.offer(message(sequence)) is Offer.TAKEN
    assert box.offer(message(5)) is Offer.BEHIND
    assert box.page_wanted(room=100) is None
    for _ in range(2):
        item = box.head()
        assert item is not None
        box.finish(item)
    assert box.page_wanted(room=100) == (4, 2)


def test_without_room_in_the_client_it_falls_behind() -> None:
    assert inbox(done=0).offer(message(1), room=False) is Offer.BEHIND


def test_messages_that_arrive_while_it_reads_raise_the_target() -> None:
    box = inbox(done=0)
    box.offer(message(2))
    assert box.offer(message(5)) is Offer.BEHIND
    box.page([message(1), message(2), message(3)], has_more=False, last_sequence=3)
    assert box.behind
    box.page([message(4), message(5)], has_more=False, last_sequence=5)
    assert box.page_wanted(room=100) is None
    assert drain(box) == [1, 2, 3, 4, 5]


def test_what_retention_removed_is_passed_over() -> None:
    box = inbox(done=0)
    box.offer(message(10))
    box.page([message(9), message(10)], has_more=False, last_sequence=10)
    assert drain(box) == [9, 10]
    assert not box.behind


def test_a_replay_that_came_further_than_we_heard_is_looked_into() -> None:
    box = inbox(done=3)
    assert box.reached(5)
    assert box.page_wanted(room=10) == (3, 10)
    unrecovered = inbox(done=3)
    assert not unrecovered.reached(5, recovered=False)
    assert unrecovered.position == 5


def test_a_replay_that_ends_with_our_own_messages_is_no_gap_while_their_acks_are_due() -> None:
    assert not inbox(done=3).reached(4, own_in_flight=1)


def announcement(first: Message | None) -> NewSession:
    return NewSession(session=Session(session_id="s", initiator="other"), initial_message=first)


def test_the_first_message_of_a_new_session_is_not_queued_twice() -> None:
    box = inbox()
    assert box.announce(announcement(message(1)))
    assert box.offer(message(1)) is Offer.DUPLICATE
    item = box.head()
    assert item is not None
    assert isinstance(item.payload, NewSession)
    assert box.finish(item) == 1


def test_a_new_session_is_announced_once() -> None:
    box = inbox()
    assert box.announce(announcement(None))
    assert not box.announce(announcement(None))


def test_an_announcement_behind_its_message_takes_its_place() -> None:
    box = inbox()
    box.offer(message(1))
    assert box.announce(announcement(message(1)))
    assert [type(item.payload) for item in box.queue] == [NewSession]


def test_an_impossible_position_is_reset_to_the_hubs() -> None:
    box = inbox(done=500)
    assert box.reconcile(cursor=2, last_sequence=4)
    assert box.page_wanted(room=10) == (2, 10)
    assert not box.reconcile(cursor=2, last_sequence=4)


def test_a_confirmed_cursor_is_not_sent_again() -> None:
    box = inbox(done=0)
    box.offer(message(1))
    drain(box)
    box.ack_sent(1)
    assert box.ack_due() is None
    box.disconnected()
    assert box.ack_due() == 1
    box.ack_confirmed(1)
    box.disconnected()
    assert box.ack_due() is None
    assert box.idle


def test_a_passing_event_moves_no_cursor() -> None:
    box = inbox(done=0)
    box.note("presence")
    item = box.head()
    assert isinstance(item, Item)
    assert box.finish(item) is None
    assert not item.durable


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_lost_doubled_or_cut_every_message_is_handled_once_and_in_order(seed: int) -> None:
    """A model of hub and wire: a log of both sides' messages, pushes that are lost, doubled and late, cuts, slow acks."""
    dice = random.Random(seed)
    log: list[Message] = []
    box = inbox(limit=dice.choice([3, 10, 1000]), done=0)
    late_acks: list[int] = []
    handled: list[int] = []
    room = dice.choice([2, 50])
    for _ in range(400):
        action = dice.random()
        if action < 0.4:
            sender = ME if dice.random() < 0.4 else "other"
            log.append(message(len(log) + 1, sender))
            if sender == ME:
                late_acks.append(len(log))
            elif dice.random() < 0.8:
                for _ in range(dice.choice([1, 1, 2])):
                    box.offer(log[-1], own_in_flight=len(late_acks), room=dice.random() < 0.9)
        elif action < 0.6 and late_acks:
            box.own_stored(late_acks.pop(0))
            box.settle(len(late_acks))
        elif action < 0.85:
            if (item := box.head()) is not None:
                handled.append(item.sequence or 0)
                box.finish(item)
        elif action < 0.95:
            if (wanted := box.page_wanted(room=room)) is not None:
                after, limit = wanted
                page = log[after : after + limit]
                box.page(page, has_more=after + limit < len(log), last_sequence=len(log))
        else:
            box.disconnected()
            for sequence in range(box.done + 1, len(log) + 1):
                if log[sequence - 1].sender != ME:
                    box.offer(log[sequence - 1], own_in_flight=len(late_acks))
            box.reached(len(log), own_in_flight=len(late_acks))
    for sequence in late_acks:
        box.own_stored(sequence)
    box.settle(0)
    box.reached(len(log))
    while box.behind or box.head() is not None:
        handled += drain(box)
        if (wanted := box.page_wanted(room=room)) is not None:
            after, limit = wanted
            box.page(log[after : after + limit], has_more=after + limit < len(log), last_sequence=len(log))
    assert handled == [entry.sequence for entry in log if entry.sender != ME]
    assert len(box.queue) == 0
    assert box.gauge.held == 0
