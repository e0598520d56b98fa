"""Whose turn it is, message by message."""

from __future__ import annotations

import itertools

import pytest

from sessions_app import states
from sessions_app.protocol.errors import SessionClosed
from sessions_app.turn import Heard, Turn


class Talk:
    """A session of agents a (the initiator), b and c."""

    def __init__(self, *present: str) -> None:
        self.turn = Turn("created", "a")
        self.present = list(present or ("a", "b"))
        self.numbers = itertools.count(1)

    def say(self, sender: str, **fields: object) -> str:
        number = next(self.numbers)
        heard = Heard(f"m{number}", number, sender, **{"kind": "chat", **fields})  # type: ignore[arg-type]
        self.turn.hear(heard, self.present)
        return heard.message


def test_the_first_message_makes_a_session_active_and_its_sender_the_speaker() -> None:
    talk = Talk()
    talk.say("a")
    assert (talk.turn.status, talk.turn.current_speaker, talk.turn.round) == ("active", "a", 1)


def test_a_round_is_a_message_of_the_initiator() -> None:
    talk = Talk()
    for sender in ("a", "b", "b", "a"):
        talk.say(sender)
    assert talk.turn.round == 2


def test_the_hub_is_never_the_speaker() -> None:
    talk = Talk()
    talk.say("b")
    talk.say("hub", kind="system")
    assert talk.turn.current_speaker == "b"


def test_a_question_makes_the_others_owe_an_answer_until_one_comes() -> None:
    talk = Talk("a", "b", "c")
    talk.say("a", wants_response=True)
    assert talk.turn.status == "waiting"
    assert talk.turn.waiting_for == ["b", "c"]
    talk.say("c")
    assert talk.turn.status == "active"
    assert talk.turn.waiting_for == []


def test_only_those_addressed_can_answer() -> None:
    talk = Talk("a", "b", "c")
    talk.say("a", to=["b"], wants_response=True)
    talk.say("c")
    assert talk.turn.waiting_for == ["b"]
    talk.say("b")
    assert talk.turn.waiting_for == []


def test_a_reply_to_something_else_is_no_answer() -> None:
    talk = Talk()
    first = talk.say("a")
    question = talk.say("a", wants_response=True)
    talk.say("b", reply_to=first)
    assert talk.turn.waiting_for == ["b"]
    talk.say("b", reply_to=question)
    assert talk.turn.waiting_for == []


def test_a_system_message_or_another_question_is_no_answer() -> None:
    talk = Talk()
    talk.say("a", wants_response=True)
    talk.say("hub", kind="system")
    talk.say("b", kind="status_query")
    assert talk.turn.waiting_for == ["b"]


def test_a_task_is_answered_by_its_result_alone() -> None:
    talk = Talk()
    talk.turn.open_traces["t1"] = "b"
    talk.say("a", kind="task", trace_id="t1", wants_response=True)
    talk.say("b")
    assert talk.turn.waiting_for == ["b"]
    talk.turn.open_traces.clear()
    talk.say("b", kind="result", trace_id="t1")
    assert talk.turn.status == "active"
    assert talk.turn.waiting_for == []


def test_a_session_waits_while_a_trace_is_open() -> None:
    talk = Talk()
    talk.turn.open_traces["t1"] = "b"
    talk.say("a", kind="task", trace_id="t1")
    assert (talk.turn.status, talk.turn.waiting_for) == ("waiting", ["b"])


def test_a_status_query_is_answered_by_the_hub() -> None:
    talk = Talk()
    query = talk.say("a", kind="status_query", wants_response=True)
    talk.say("b")
    assert talk.turn.waiting_for == ["hub"]
    talk.say("hub", kind="system", reply_to=query)
    assert talk.turn.waiting_for == []


def test_who_leaves_owes_nothing() -> None:
    talk = Talk("a", "b", "c")
    talk.say("a", wants_response=True)
    talk.turn.leave("b")
    assert talk.turn.waiting_for == ["c"]
    talk.turn.leave("c")
    assert (talk.turn.status, talk.turn.waiting_for) == ("active", [])


def test_the_end_is_final() -> None:
    talk = Talk()
    talk.say("a", wants_response=True)
    talk.turn.end("close")
    assert (talk.turn.status, talk.turn.waiting_for) == ("completed", [])
    for action in states.MOVES:
        with pytest.raises(SessionClosed):
            states.move("completed", action)
        with pytest.raises(SessionClosed):
            states.move("timeout", action)


def test_what_is_stored_comes_back_the_same() -> None:
    talk = Talk("a", "b", "c")
    talk.turn.open_traces["t1"] = "c"
    talk.say("a", to=["b"], wants_response=True)
    again = Turn.load("waiting", "a", "a", 1, talk.turn.stored_questions(), talk.turn.stored_traces())
    assert again == talk.turn


def test_every_move_leads_to_a_known_status() -> None:
    for sources, target in states.MOVES.values():
        assert sources <= states.LIVE
        assert target in states.LIVE | states.ENDED
