"""What a process notices of memberships that it was not told of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sessions_app.changes import Committed, SessionChange, SessionState
from sessions_app.realtime.feed import Feed
from sessions_app.realtime.registry import Registry

ALICE, BOB = 7, 8


class Reader:
    """A fake subscriber: it remembers from which sessions it was expelled."""

    def __init__(self, agent_pk: int) -> None:
        self.principal = SimpleNamespace(agent_pk=agent_pk, is_operator=False)
        self.feeds: dict[int, Feed] = {}
        self.expelled: list[int] = []

    def say(self, frame: str) -> None:
        pass

    def notify(self, feed: Feed) -> None:
        pass

    def removed_from(self, feed: Feed) -> None:
        self.expelled.append(feed.session_pk)


def state(last_sequence: int, members_revision: int) -> SessionState:
    return SessionState(
        1, "sess-x", "active", "alice", [], 1, None, last_sequence, last_sequence, members_revision, context_revision=0
    )


def said(sequence: int, members_revision: int, **more: Any) -> SessionChange:
    message = Committed(1000 + sequence, 1, sequence, "alice", "chat", f'{{"sequence":{sequence}}}')
    return SessionChange(1, [ALICE, BOB], [message], state(sequence, members_revision), **more)


def follow(registry: Registry, reader: Any, members_revision: int) -> Any:
    feed = Feed(1, "sess-x", "bob", 0, 0, 0, None)
    feed.see_state(state(0, members_revision))
    registry.follow(reader, feed)
    return reader


def test_a_membership_that_was_told_needs_no_look_at_the_rows() -> None:
    registry = Registry()
    bob = follow(registry, Reader(BOB), 1)
    registry.deliver(said(1, 2, joined=[9]))
    assert not registry.look(state(1, 2))
    registry.deliver(said(2, 3, removed=[BOB]))
    assert bob.expelled == [1]


def test_a_lost_hint_of_a_membership_is_noticed_although_a_message_was_heard_after_it() -> None:
    registry = Registry()
    follow(registry, Reader(BOB), 1)
    registry.deliver(said(1, 2))
    assert registry.look(state(1, 2))


def test_of_two_changes_of_the_members_the_lost_one_is_noticed() -> None:
    registry = Registry()
    follow(registry, Reader(BOB), 1)
    registry.deliver(said(1, 3, joined=[9]))
    assert registry.look(state(1, 3))


def test_who_looked_up_its_place_before_the_others_heard_of_a_removal_is_looked_at_again() -> None:
    registry = Registry()
    follow(registry, Reader(ALICE), 1)
    registry.deliver(said(1, 2, removed=[BOB]))
    follow(registry, Reader(BOB), 1)
    assert registry.look(state(1, 2))
