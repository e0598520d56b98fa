"""The writer's groups: what fails of one does not touch the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError

from sessions_app import threads
from sessions_app.append import Draft, Outcome, Stored
from sessions_app.changes import Changes
from sessions_app.cursors import CursorMove, CursorNow
from sessions_app.db import write_transaction
from sessions_app.models import Agent, Message, Session
from sessions_app.protocol.errors import HubError, Unavailable
from sessions_app.threads import Writer

pytestmark = pytest.mark.django_db(transaction=True)

Agents = dict[str, Agent]
Commit = Callable[[list[Draft], list[CursorMove]], tuple[list[Outcome], list[CursorNow | HubError], Changes]]


@pytest.fixture
def commit() -> Commit:
    """One group, as the writer's thread commits it."""
    loop: Any = None  # the thread alone talks to it
    writer = Writer(loop, lambda changes: None)

    def run(drafts: list[Draft], moves: list[CursorMove]) -> tuple[list[Outcome], list[CursorNow | HubError], Changes]:
        changes = Changes()
        return *writer._commit(drafts, moves, changes), changes

    return run


def fails(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> None:
    """Have the database refuse that many calls of this function of the writer's."""
    real, left = getattr(threads, name), [OperationalError("canceling statement due to lock timeout")] * times

    def sometimes(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return real(*arguments)

    monkeypatch.setattr(threads, name, sometimes)


def draft(session: Session, sender: Agent, content: str = "hello", **fields: Any) -> Draft:
    return Draft(session.pk, sender.pk, content, **fields)


@pytest.mark.parametrize("postgres", [False, True])
def test_cursors_that_could_not_be_moved_make_no_message_a_duplicate_and_leave_none_untold(
    session: Session, agents: Agents, commit: Commit, monkeypatch: pytest.MonkeyPatch, postgres: bool
) -> None:
    monkeypatch.setattr(threads, "on_postgres", lambda: postgres)
    commit([draft(session, agents["alice"])], [])
    fails(monkeypatch, "move_cursors", times=2)
    bob, carol = (CursorMove(session.pk, agents[name].pk, name, 1) for name in ("bob", "carol"))
    sent = draft(session, agents["alice"], "again", client_message_id="c1")
    [outcome], [first, second], changes = commit([sent], [bob, carol])
    assert isinstance(outcome, Stored)
    assert not outcome.duplicate
    assert [message.sequence for message in changes.sessions[session.pk].messages] == [2]
    assert isinstance(first, Unavailable)
    assert isinstance(second, CursorNow)
    assert [(read.agent_id, read.cursor) for read in changes.reads] == [("carol", 1)]
    assert Message.objects.filter(session=session).count() == 2


def test_a_key_that_another_process_has_drawn_too_gives_nobody_the_others_message(
    session: Session, agents: Agents, commit: Commit
) -> None:
    [theirs], _, _ = commit([draft(session, agents["bob"], "theirs")], [])
    assert isinstance(theirs, Stored)
    [mine, neighbour], _, changes = commit(
        [draft(session, agents["alice"], "mine", key=theirs.message.key), draft(session, agents["carol"], "beside")], []
    )
    assert isinstance(mine, Stored)
    assert isinstance(neighbour, Stored)
    assert mine.message.key != theirs.message.key
    assert [message.sender for message in changes.sessions[session.pk].messages] == ["alice", "carol"]
    rows = Message.objects.filter(session=session).order_by("sequence")
    assert list(rows.values_list("content", flat=True)) == ["theirs", "mine", "beside"]


def test_a_message_whose_commit_was_only_not_answered_is_stored_once(
    session: Session, agents: Agents, commit: Commit, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = [OperationalError("the connection was closed")]

    @contextmanager
    def unanswered() -> Iterator[None]:
        with write_transaction():
            yield
        if lost:
            raise lost.pop()

    monkeypatch.setattr(threads, "write_transaction", unanswered)
    [outcome], _, _ = commit([draft(session, agents["alice"], "once")], [])
    assert isinstance(outcome, Stored)
    assert Message.objects.filter(session=session, content="once").count() == 1
