"""Sessions with agents that have executors, and the steps of a trace one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sessions_app.append import Stored, append
from sessions_app.changes import Changes, unit_of_work
from sessions_app.drafts import draft_message
from sessions_app.models import Agent, Message, Participant, Session
from sessions_app.protocol.bodies import MessageBody
from sessions_app.protocol.errors import HubError
from sessions_app.services.sessions import open_session
from traces_app.models import Trace


@pytest.fixture(autouse=True)
def with_a_database(db: None) -> None:
    pass


class Talk:
    """A session of alice and others, and what can be done in it."""

    def __init__(self, *others: str, executor: str | None = "python:tests.executors:echo", **session: Any) -> None:
        self.agents = {name: Agent.objects.create(agent_id=name) for name in ("alice", *others)}
        if executor is not None:
            Agent.objects.filter(agent_id__in=others).update(executor=executor)
        with unit_of_work() as changes:
            opened = open_session(
                initiator=self.agents["alice"],
                participants=[self.agents[name] for name in others],
                changes=changes,
                **session,
            )
        self.pk = opened.session.pk
        self.session_id = opened.session.public_id

    def send(self, text: str | None, sender: str = "alice", **more: Any) -> Stored:
        """Raises the refusal."""
        body = MessageBody(content=text, **more)
        draft = draft_message(body, self.pk, self.agents[sender].pk, sender)
        outcome = append([draft], Changes())[0]
        if isinstance(outcome, HubError):
            raise outcome
        return outcome

    def ask(self, text: str | None = "work", sender: str = "alice", **more: Any) -> Trace:
        stored = self.send(text, sender, requires_execution=True, **more)
        return Trace.objects.get(public_id=stored.message.trace_id)

    def restrict(self, agent: str, **profile: Any) -> None:
        """Give a participant this visibility profile."""
        Participant.objects.filter(session_id=self.pk, agent__agent_id=agent).update(visibility=profile)

    @property
    def session(self) -> Session:
        return Session.objects.get(pk=self.pk)

    def messages(self, kind: str | None = None) -> list[Message]:
        rows = Message.objects.filter(session_id=self.pk).order_by("sequence")
        return list(rows.filter(kind=kind) if kind else rows)


def raw(value: Any) -> msgspec.Raw:
    """A value as a body of a message has it: JSON that is kept as it came."""
    return msgspec.Raw(msgspec.json.encode(value))


def statuses(trace: Trace) -> list[str]:
    """What its `status` events say; their numbers have no gap."""
    events = list(trace.events.order_by("sequence"))
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    return [event.data["status"] for event in events if event.type == "status"]
