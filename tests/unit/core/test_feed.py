"""The delivery path's decisions, without a loop or a database."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions_app.changes import Committed, SessionState
from sessions_app.realtime.feed import MAX_WAITING, Feed


def message(sequence: int, sender: str = "other") -> Committed:
    return Committed(1000 + sequence, 1, sequence, sender, "chat", f'{{"sequence":{sequence}}}')


def messages(first: int, last: int) -> list[Committed]:
    return [message(sequence) for sequence in range(first, last + 1)]


def feed(
    position: int = 0, replay_to: int = 0, *, window: int | None = None, acked: int = 0, live: bool = False
) -> Feed:
    made = Feed(1, "sess-x", "me", position, replay_to, acked, window)
    made.live = live
    return made


def state(last_sequence: int, status: str = "active", revision: int = 1, speaker: str = "other") -> SessionState:
    return SessionState(1, "sess-x", status, speaker, [], 1, None, last_sequence, revision, 0, 0)


def test_a_live_feed_hands_on_what_was_committed_from_memory() -> None:
    it = feed(live=True)
    assert it.offer(messages(1, 3))
    assert [m.sequence for m in it.take(10)] == [1, 2, 3]
    assert it.position == 3


def test_a_gap_sends_a_live_feed_back_to_the_database() -> None:
    it = feed(position=1, live=True)
    it.offer(messages(3, 4))
    assert it.wants_page
    assert it.take(10) == []


def test_what_comes_while_catching_up_only_raises_the_target() -> None:
    it = feed(replay_to=2)
    it.offer(messages(3, 4))
    assert it.take(10) == []
    it.page_read(messages(1, 2), asked=500, target=2)
    assert not it.live, "4 was heard of and not read yet"
    it.page_read(messages(3, 4), asked=500, target=4)
    assert it.live


def test_a_full_page_is_not_the_end() -> None:
    it = feed(replay_to=2)
    it.page_read(messages(1, 2), asked=2, target=2)
    assert not it.live


def test_a_hint_that_comes_during_the_last_page_is_not_forgotten() -> None:
    it = feed(replay_to=2)
    target = it.heard
    it.hear_of(5)
    it.page_read(messages(1, 2), asked=500, target=target)
    assert it.wants_page
    it.page_read(messages(3, 5), asked=500, target=it.heard)
    assert it.live


def test_a_bare_hint_beyond_what_is_waiting_is_not_forgotten_when_that_has_been_taken() -> None:
    it = feed(live=True)
    it.offer(messages(1, 3))
    it.hear_of(5)  # 4 and 5 were committed, and their hint with content was lost
    out = [m.sequence for m in it.take(10)]
    assert it.wants_page, "a live feed that is behind what it heard of would stay behind until the next message"
    out += [m.sequence for m in it.page_read(messages(it.position + 1, 5), asked=500, target=it.heard)]
    assert out == [1, 2, 3, 4, 5]
    assert it.live


def test_doubled_and_late_hints_are_skipped() -> None:
    it = feed(live=True)
    it.offer(messages(1, 4))
    it.offer(messages(2, 3))
    it.offer(messages(3, 5))
    assert [m.sequence for m in it.take(10)] == [1, 2, 3, 4, 5]


def test_a_slow_reader_keeps_nothing_in_memory() -> None:
    it = feed(live=True)
    for sequence in range(1, MAX_WAITING + 10):
        it.offer([message(sequence)])
    assert len(it.waiting) <= MAX_WAITING
    assert it.wants_page


def test_the_window_stops_a_manual_reader_until_it_acknowledges() -> None:
    it = feed(window=3, live=True)
    it.offer(messages(1, 3))
    it.take(10)
    assert not it.offer(messages(4, 4))
    assert [it.wants_page, it.acknowledge(2), it.wants_page] == [False, True, True]
    assert it.page_size() == 2


def test_acknowledgements_below_the_cursor_change_nothing() -> None:
    it = feed(window=3, acked=5, position=5)
    it.acknowledge(2)
    assert it.acked == 5


def test_own_messages_of_the_past_are_left_out_and_those_from_another_socket_are_shown() -> None:
    it = feed(replay_to=2)
    assert it.is_mine_to_skip(message(1, "me"))
    assert not it.is_mine_to_skip(message(3, "me"))


def test_what_was_sent_through_this_socket_does_not_come_back_even_from_the_database() -> None:
    it = feed()
    it.sent_here.add(message(3).key)
    assert it.is_mine_to_skip(message(3, "me"))
    assert it.sent_here == set()


def test_the_state_is_told_only_after_the_messages_that_caused_it() -> None:
    it = feed(live=True)
    it.announced = True
    it.see_state(state(2))
    assert it.state_due() is None
    it.page_read(messages(1, 2), asked=500, target=2)
    assert it.state_due() is not None


def test_an_older_state_never_replaces_a_newer_one() -> None:
    it = feed(position=9)
    it.see_state(state(9, "completed", revision=3))
    it.see_state(state(8, "active", revision=2))
    assert it.state is not None
    assert it.state.status == "completed"


@given(st.data())
def test_any_mixture_of_hints_pages_and_losses_gives_each_message_once_in_order(data: st.DataObject) -> None:
    """A model of the whole path: a log that grows, hints that may be lost, doubled or late, a reader of any pace."""
    it = feed(window=data.draw(st.sampled_from([None, 5])))
    log: list[Committed] = []
    out: list[int] = []
    reading: tuple[list[Committed], int, int] | None = None
    for _ in range(data.draw(st.integers(5, 60))):
        step = data.draw(
            st.sampled_from(["commit", "commit-unheard", "old-hint", "head", "begin", "end", "take", "ack"])
        )
        if step.startswith("commit"):
            first = len(log) + 1
            new = messages(first, first + data.draw(st.integers(0, 3)))
            log += new
            if step == "commit":
                it.offer(new)
        elif step == "old-hint" and log:
            first = data.draw(st.integers(1, len(log)))
            it.offer(log[first - 1 : first + 2])
        elif step == "head":
            it.hear_of(len(log))
        elif step == "begin" and reading is None and it.wants_page and not it.waiting:
            asked = min(it.page_size(), 4)
            reading = (log[it.position : it.position + asked], asked, it.heard)
        elif step == "end" and reading is not None:
            page, asked, target = reading
            out += [m.sequence for m in it.page_read(page, asked, target)]
            reading = None
        elif step == "take" and reading is None:
            out += [m.sequence for m in it.take(data.draw(st.integers(1, 5)))]
        elif step == "ack":
            it.acknowledge(it.position)
    if reading is not None:
        out += [m.sequence for m in it.page_read(*reading)]
    while it.position < len(log):
        it.acknowledge(it.position)
        it.hear_of(len(log))
        out += [m.sequence for m in it.take(100)]
        if it.wants_page:
            asked = it.page_size()
            out += [m.sequence for m in it.page_read(log[it.position : it.position + asked], asked, it.heard)]
    assert out == list(range(1, len(log) + 1))
