"""The one append path, against a real database (run on SQLite and on PostgreSQL)."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from django.db import connection

from sessions_app import sql
from sessions_app.append import Draft, Outcome, Stored, append
from sessions_app.changes import Changes, unit_of_work
from sessions_app.cursors import CursorMove, CursorNow, move_cursors, unread
from sessions_app.models import Agent, Message, Participant, Session
from sessions_app.protocol.bodies import ParticipantBody
from sessions_app.protocol.errors import Conflict, HubError, Invalid, NotFound, SessionClosed
from sessions_app.services.participants import add_participant, remove_participant
from sessions_app.services.sessions import close_session

Agents = dict[str, Agent]


def write(*drafts: Draft) -> tuple[list[Outcome], Changes]:
    with unit_of_work() as changes:
        return append(list(drafts), changes), changes


def draft(session: Session, sender: Agent, content: str = "hello", **fields: Any) -> Draft:
    return Draft(session.pk, sender.pk, content, **fields)


def stored(outcome: Outcome) -> Stored:
    assert isinstance(outcome, Stored), outcome
    return outcome


def test_the_bulk_statements_and_the_models_say_the_same(session: Session, agents: Agents) -> None:
    full = draft(
        session,
        agents["alice"],
        "text",
        parts='[{"text":"text"},{"data":{"n":1}}]',
        to=["bob"],
        client_message_id="c-1",
        requires_execution=False,
        metadata='{"a":9007199254740993}',
        classified_by="sender",
    )
    plain = draft(session, agents["bob"], "reply", reply_to=full.key)
    outcomes = [*write(full)[0], *write(plain)[0]]
    rows = list(Message.objects.select_related("sender").order_by("sequence"))
    assert set({name.strip(chr(34)) for name in sql.MESSAGE_COLUMNS}) == {
        field.column for field in Message._meta.concrete_fields
    }
    assert [row.public_id for row in rows] == [stored(o).message.public_id for o in outcomes]
    first, second = rows
    assert (first.sequence, first.round, first.kind, first.to, first.requires_execution) == (
        1,
        1,
        "chat",
        ["bob"],
        False,
    )
    assert first.metadata == {"a": 9007199254740993}
    assert first.parts == [{"text": "text"}, {"data": {"n": 1}}]
    assert (second.reply_to, second.requires_execution, second.parts, second.to) == (first.pk, None, None, None)
    session.refresh_from_db()
    assert (session.last_sequence, session.round, session.current_speaker, session.status) == (2, 1, "bob", "active")
    assert first.created_at <= second.created_at == session.last_activity


def test_what_is_delivered_is_what_is_read_later(session: Session, agents: Agents) -> None:
    outcomes, changes = write(draft(session, agents["alice"], '文 😀 " \\ \n', client_message_id="x"))
    delivered = changes.sessions[session.pk].messages[0].body
    assert sql.messages_after(session.pk, 0, 10)[0].body == delivered
    assert sql.messages_before(session.pk, 2, 1, 10)[0].body == delivered
    assert json.loads(delivered)["content"] == '文 😀 " \\ \n'
    assert stored(outcomes[0]).message.body == delivered


def test_one_bad_draft_never_fails_its_neighbours(session: Session, agents: Agents) -> None:
    stranger = Agent.objects.create(agent_id="mallory")
    outcomes, _ = write(
        draft(session, agents["alice"], "1"),
        draft(session, stranger, "no member"),
        draft(session, agents["bob"], "2"),
        draft(session, agents["bob"], "bad to", to=["mallory"]),
        draft(session, agents["bob"], "to itself", to=["bob"]),
        draft(session, agents["bob"], "bad reply", reply_to=12345),
        Draft(999_999, agents["bob"].pk, "no session"),
        draft(session, agents["carol"], "3"),
    )
    assert [type(outcome) for outcome in outcomes] == [
        Stored, NotFound, Stored, Invalid, Invalid, Invalid, NotFound, Stored,
    ]  # fmt: skip
    assert list(Message.objects.order_by("sequence").values_list("content", "sequence")) == [
        ("1", 1),
        ("2", 2),
        ("3", 3),
    ]


def test_a_resend_is_the_original_within_a_batch_and_later(session: Session, agents: Agents) -> None:
    one = draft(session, agents["alice"], client_message_id="c")
    two = draft(session, agents["alice"], client_message_id="c")
    other = draft(session, agents["bob"], client_message_id="c")
    outcomes, _ = write(one, two, other)
    first, second, third = map(stored, outcomes)
    assert (second.duplicate, second.message.key) == (True, first.message.key)
    assert (third.duplicate, third.message.sequence) == (False, 2)
    again, _ = write(draft(session, agents["alice"], client_message_id="c"))
    assert stored(again[0]).duplicate
    as_part, _ = write(draft(session, agents["alice"], client_message_id="c", parts='[{"text": "hello"}]'))
    assert stored(as_part[0]).duplicate, "the same text given as a part is the same body"


@pytest.mark.parametrize(
    "change",
    [
        {"content": "other"},
        {"to": ["bob"]},
        {"requires_execution": True},
        {"metadata": '{"a":1}'},
        {"parts": '[{"text":"hello"},{"url":"https://example.org"}]'},
    ],
)
def test_the_same_id_with_another_body_is_a_conflict(session: Session, agents: Agents, change: dict[str, Any]) -> None:
    write(draft(session, agents["alice"], client_message_id="c"))
    fields = {"content": "hello", **change}
    outcomes, _ = write(draft(session, agents["alice"], fields.pop("content"), client_message_id="c", **fields))
    assert isinstance(outcomes[0], Conflict)
    assert Message.objects.count() == 1


def test_an_ended_session_takes_resends_and_nothing_new(session: Session, agents: Agents) -> None:
    write(draft(session, agents["alice"], client_message_id="c"))
    with unit_of_work() as changes:
        assert close_session(session_pk=session.pk, reason=None, changes=changes)
    outcomes, _ = write(draft(session, agents["alice"], client_message_id="c"), draft(session, agents["bob"], "new"))
    assert stored(outcomes[0]).duplicate
    assert isinstance(outcomes[1], SessionClosed)
    with unit_of_work() as changes:
        assert not close_session(session_pk=session.pk, reason="again", changes=changes)
    session.refresh_from_db()
    assert session.close_reason == "completed"


def test_writers_of_several_threads_number_without_a_gap(session: Session, agents: Agents) -> None:
    errors: list[object] = []

    def run(agent: Agent, name: str) -> None:
        try:
            for number in range(25):
                outcomes, _ = write(draft(session, agent, f"{name}-{number}", client_message_id=f"{name}-{number}"))
                errors.extend(o for o in outcomes if isinstance(o, HubError))
        except Exception as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(a, f"{a.agent_id}{i}")) for i in range(2) for a in agents.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert list(Message.objects.order_by("sequence").values_list("sequence", flat=True)) == list(range(1, 151))


def test_a_status_query_is_answered_by_the_hub_right_after_it(session: Session, agents: Agents) -> None:
    write(draft(session, agents["alice"], "go", wants_response=True, to=["bob"]))
    query = draft(session, agents["carol"], "当前进度如何？", kind="status_query", wants_response=True)
    _, changes = write(query)
    asked, answer = [json.loads(message.body) for message in changes.sessions[session.pk].messages]
    assert (answer["from"], answer["kind"], answer["reply_to"]) == ("hub", "system", asked["message_id"])
    assert answer["sequence"] == asked["sequence"] + 1
    assert "bob" in answer["content"], "it says who owes an answer"
    assert "hub" not in answer["content"], "and does not count the question that it answers"
    state = changes.sessions[session.pk].state
    assert state is not None
    assert state.waiting_for == ["bob"]


def test_unread_counts_what_others_sent_after_the_cursor_without_counting_rows(
    session: Session, agents: Agents
) -> None:
    def count(name: str) -> int:
        place = Participant.objects.get(session=session, agent=agents[name])
        session.refresh_from_db()
        return unread(session.last_sequence, place.cursor, place.sent, place.sent_read)

    for sender in ("alice", "bob", "bob", "carol", "alice"):
        write(draft(session, agents[sender]))
    assert [count(name) for name in ("alice", "bob", "carol")] == [3, 3, 4]
    for up_to, expected in ((2, 2), (3, 1), (4, 0), (5, 0)):
        with unit_of_work() as changes:
            now = move_cursors([CursorMove(session.pk, agents["alice"].pk, "alice", up_to)], changes)[0]
        assert now == CursorNow(up_to, expected)
        assert count("alice") == expected


def test_cursors_never_go_back_and_never_beyond_the_end(session: Session, agents: Agents) -> None:
    for _ in range(3):
        write(draft(session, agents["bob"]))
    alice = agents["alice"]
    moves = [CursorMove(session.pk, alice.pk, "alice", up_to) for up_to in (2, 1, 4)]
    moves.append(CursorMove(session.pk, 999_999, "nobody", 1))
    with unit_of_work() as changes:
        outcomes = move_cursors(moves, changes)
    assert outcomes[:2] == [CursorNow(2, 1), CursorNow(2, 1)]
    assert isinstance(outcomes[2], Invalid)
    assert outcomes[2].details["last_sequence"] == 3
    assert isinstance(outcomes[3], NotFound)


def test_who_joins_reads_from_then_on_and_everybody_hears_of_it(session: Session, agents: Agents) -> None:
    dave = Agent.objects.create(agent_id="dave")
    write(draft(session, agents["alice"], "before"))
    with unit_of_work() as changes:
        place, new = add_participant(
            session_pk=session.pk,
            body=ParticipantBody(agent_id="dave"),
            caller=agents["bob"],
            is_operator=False,
            changes=changes,
        )
    assert new
    assert (place.first_sequence, place.cursor) == (2, 1)
    announced = json.loads(changes.sessions[session.pk].messages[0].body)
    assert (announced["kind"], announced["sequence"]) == ("system", 2)
    assert dave.pk in changes.sessions[session.pk].members
    outcomes, _ = write(draft(session, dave, "hi"))
    stored(outcomes[0])
    before = Message.objects.get(sequence=1)
    outcomes, _ = write(draft(session, dave, "what?", reply_to=before.pk))
    assert isinstance(outcomes[0], Invalid), "it may not refer to what it may not read"


def test_who_leaves_writes_nothing_more_and_owes_nothing(session: Session, agents: Agents) -> None:
    write(draft(session, agents["alice"], "bob?", to=["bob"], wants_response=True))
    with unit_of_work() as changes:
        remove_participant(
            session_pk=session.pk, agent_id="bob", caller=agents["bob"], is_operator=False, changes=changes
        )
    session.refresh_from_db()
    assert (session.status, session.open_questions) == ("active", [])
    outcomes, _ = write(draft(session, agents["bob"], "still here?"))
    assert isinstance(outcomes[0], NotFound)


def test_what_was_rolled_back_leaves_no_trace_in_what_a_process_remembers(session: Session, agents: Agents) -> None:
    dave = Agent.objects.create(agent_id="dave")
    write(draft(session, agents["alice"]))

    def add_and_fail() -> None:
        body = ParticipantBody(agent_id="dave")
        with unit_of_work() as changes:
            add_participant(
                session_pk=session.pk, body=body, caller=agents["alice"], is_operator=False, changes=changes
            )
            raise RuntimeError("undo")

    with pytest.raises(RuntimeError, match="undo"):
        add_and_fail()
    with unit_of_work() as changes:  # the same revision now belongs to another membership
        remove_participant(
            session_pk=session.pk, agent_id="carol", caller=agents["carol"], is_operator=False, changes=changes
        )
    outcomes, _ = write(draft(session, dave, "am I in?"), draft(session, agents["carol"], "am I out?"))
    assert [type(outcome) for outcome in outcomes] == [NotFound, NotFound]
