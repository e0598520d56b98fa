"""Whose turn it is: a pure fold over messages. `waiting_for` is derived here and nowhere else.

A question is a message that was sent with `wait_for_response` and has no response yet; it remembers who owes the answer.
`open_traces` is `{trace_id: agent_id}` of the traces that are not terminal; the execution layer moves it in its own
transactions, and time-out and turn state read only it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from sessions_app import states
from sessions_app.protocol.ids import HUB

ANSWER_KINDS = ("chat", "result")
WORK_KINDS = ("task", "tool_call")


class Question(Struct):
    """An open question: `message` is its public id, `owes` the agents who may answer it."""

    message: str
    sequence: int
    sender: str
    owes: list[str]
    kind: str = "chat"
    trace_id: str | None = None


class Heard(Struct):
    """What the turn state needs to know of a message."""

    message: str
    sequence: int
    sender: str
    kind: str
    to: list[str] | None = None
    reply_to: str | None = None
    trace_id: str | None = None
    wants_response: bool = False


def responds(question: Question, heard: Heard) -> bool:
    """Whether `heard` is a response to `question` (the lowest that is, is the response).

    A task is answered by its trace's result alone, a status query by the hub, anything else by `chat` or `result` of one who
    was addressed, with `reply_to` the question or none.
    """
    if heard.sequence <= question.sequence:
        return False
    if question.kind == "status_query":
        return heard.sender == HUB and heard.reply_to == question.message
    if question.trace_id is not None:
        return heard.kind == "result" and heard.trace_id == question.trace_id
    return (
        heard.kind in ANSWER_KINDS
        and heard.sender in question.owes
        and (heard.reply_to is None or heard.reply_to == question.message)
    )


def closed_questions(before: list[Question], after: list[Question]) -> list[str]:
    """The public ids of the questions that were open before and are no more."""
    if len(after) >= len(before) and all(one is other for one, other in zip(before, after, strict=False)):
        return []
    still = {question.message for question in after}
    return [question.message for question in before if question.message not in still]


_questions = msgspec.json.Decoder(list[Question])
_traces = msgspec.json.Decoder(dict[str, str])


@dataclass(slots=True)
class Turn:
    status: str
    initiator: str
    current_speaker: str | None = None
    round: int = 0
    open_questions: list[Question] = field(default_factory=list)
    open_traces: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, status: str, initiator: str, speaker: str | None, round_: int, questions: str, traces: str) -> Turn:
        """From the columns as stored (JSON text)."""
        return cls(
            status,
            initiator,
            speaker,
            round_,
            _questions.decode(questions) if questions != "[]" else [],
            _traces.decode(traces) if traces != "{}" else {},
        )

    def stored_questions(self) -> str:
        return msgspec.json.encode(self.open_questions).decode() if self.open_questions else "[]"

    def stored_traces(self) -> str:
        return msgspec.json.encode(self.open_traces).decode() if self.open_traces else "{}"

    @property
    def waiting_for(self) -> list[str]:
        """Who owes an answer, oldest debt first, each once."""
        if not self.open_questions and not self.open_traces:
            return []
        names = [name for question in self.open_questions for name in question.owes]
        return list(dict.fromkeys([*names, *self.open_traces.values()]))

    def hear(self, heard: Heard, present: Iterable[str]) -> None:
        """Take one message into account; `present` are the participants."""
        if heard.sender != HUB:
            self.current_speaker = heard.sender
        if heard.sender == self.initiator:
            self.round += 1
        if self.open_questions:
            self.open_questions = [q for q in self.open_questions if not responds(q, heard)]
        if heard.wants_response:
            others = [name for name in present if name != heard.sender]
            owes = [HUB] if heard.kind == "status_query" else heard.to or others
            if heard.trace_id is not None:
                owes = [self.open_traces.get(heard.trace_id, HUB)]
            if owes:
                self.open_questions.append(
                    Question(heard.message, heard.sequence, heard.sender, list(owes), heard.kind, heard.trace_id)
                )
        self.settle()

    def leave(self, agent_id: str) -> None:
        """Somebody left: what only they owed is owed by nobody any more."""
        for question in self.open_questions:
            question.owes = [name for name in question.owes if name != agent_id]
        self.open_questions = [question for question in self.open_questions if question.owes]
        if self.status != states.CREATED:
            self.settle()

    def settle(self) -> None:
        """Bring the status in line: `waiting` exactly while somebody owes an answer."""
        if self.open_questions or self.open_traces:
            self.status = states.move(self.status, "wait")
        elif self.status != states.ACTIVE:
            self.status = states.move(self.status, "answer" if self.status == states.WAITING else "speak")

    def end(self, action: str) -> None:
        """`close` or `expire`: nobody owes anything in an ended session."""
        self.status = states.move(self.status, action)
        self.open_questions = []
