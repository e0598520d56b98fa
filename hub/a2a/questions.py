"""Tasks of agents that just answer: made with their message, moved by what happens to the open question in the session."""

from __future__ import annotations

import secrets

from django.db.models import F

from hub.a2a.models import Question, Received
from hub.a2a.states import MOVES, OPEN
from sessions_app.changes import Changes
from sessions_app.db import utc_now
from sessions_app.protocol.ids import message_id, message_key
from sessions_app.services.sessions import load_turn, lock_session, note_state, store_turn

PREFIX = "task-"
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_ACTIONS = {"answered": "answer", "ended": "end", "left": "leave"}
EVENTS_OF = {"answer": 2}  # the answer and the end; every other move is the end alone


def new_task_id() -> str:
    """`task-` and 130 random bits."""
    return PREFIX + "".join(_LETTERS[byte & 31] for byte in secrets.token_bytes(26))


def open_question(
    *, session_pk: int, agent_pk: int, owner_pk: int, message_key: int, message_sequence: int
) -> Question:
    """Make the task of a message that was just appended with `wants_response`, in the same transaction."""
    now = utc_now()
    return Question.objects.create(
        public_id=new_task_id(),
        session_id=session_pk,
        agent_id=agent_pk,
        owner_id=owner_pk,
        message_key=message_key,
        message_sequence=message_sequence,
        created_at=now,
        changed_at=now,
    )


def settle(session_pk: int, questions: list[str], how: str, answer_key: int | None) -> None:
    """`QUESTION_HOOKS`: end the tasks whose question, or a follow-up of it, is open no more."""
    keys = [key for key in map(message_key, questions) if key is not None]
    tasks = set(Received.objects.filter(message_key__in=keys).values_list("task_id", flat=True))
    for pk in Question.objects.filter(public_id__in=tasks, state__in=OPEN).order_by("pk").values_list("pk", flat=True):
        _move(pk, _ACTIONS[how], answer_key)


def _move(pk: int, action: str, answer_key: int | None = None) -> bool:
    """Apply one of `MOVES`; False when another was faster. The caller holds the session's lock."""
    sources, target = MOVES[action]
    moved = Question.objects.filter(pk=pk, state__in=sources).update(
        state=target,
        answer_key=answer_key,
        last_sequence=F("last_sequence") + EVENTS_OF.get(action, 1),
        changed_at=utc_now(),
    )
    return moved == 1


def cancel_question(*, question_pk: int, session_pk: int, changes: Changes) -> bool:
    """Nobody waits for this answer any more; False when the task has ended already. What comes yet is just a message."""
    row = lock_session(session_pk)
    if not _move(question_pk, "cancel"):
        return False
    task_id = Question.objects.values_list("public_id", flat=True).get(pk=question_pk)
    asked = {message_id(key) for key in Received.objects.filter(task_id=task_id).values_list("message_key", flat=True)}
    turn = load_turn(row)
    left = [question for question in turn.open_questions if question.message not in asked]
    if len(left) != len(turn.open_questions):
        turn.open_questions = left
        turn.settle()
        store_turn(session_pk, turn)
    note_state(session_pk, changes)  # whoever follows the session looks at its rows
    return True


def keeps_open(session_pk: int) -> bool:
    """`KEEP_HOOKS`: a session does not time out under an open task."""
    return Question.objects.filter(session_id=session_pk, state__in=OPEN).exists()
