"""Sessions in which a main agent puts questions to others, step by step and without any executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sessions_app.append import Draft, append
from sessions_app.changes import Changes, unit_of_work
from sessions_app.context import deliveries, turns
from sessions_app.context.deliveries import Ask, Reply
from sessions_app.models import Agent, Delivery, Session
from sessions_app.protocol.errors import HubError
from sessions_app.protocol.jsontext import dumps
from sessions_app.services.sessions import open_session


class Talk:
    """A session of `user` (the initiator), `main` and others; `cards` are columns of the agents."""

    def __init__(self, *others: str, cards: dict[str, dict[str, Any]] | None = None, **session: Any) -> None:
        cards = cards or {}
        self.agents = {
            name: Agent.objects.create(agent_id=name, **cards.get(name, {})) for name in ("user", "main", *others)
        }
        with unit_of_work() as changes:
            opened = open_session(
                initiator=self.agents["user"],
                participants=[self.agents[name] for name in ("main", *others)],
                changes=changes,
                **session,
            )
        self.pk = opened.session.pk
        self.session_id = opened.session.public_id

    @property
    def session(self) -> Session:
        return Session.objects.get(pk=self.pk)

    def say(self, sender: str, text: str, **more: Any) -> int:
        """Append a message; returns its key."""
        if "metadata" in more:
            more["metadata"] = dumps(more["metadata"])
        if "parts" in more:
            more["parts"] = dumps(more["parts"])
        draft = Draft(self.pk, self.agents[sender].pk, text, **more)
        outcome = append([draft], Changes())[0]
        if isinstance(outcome, HubError):
            raise outcome
        return draft.key

    def asking(self, agent: str, query: str, **more: Any) -> Ask:
        return Ask(self.pk, self.agents[agent].pk, query, asker_pk=self.agents["main"].pk, **more)

    def ask(self, agent: str, query: str, **more: Any) -> Delivery:
        """The user says `query`, and the main agent puts it to `agent`."""
        key = self.say("user", query)
        return deliveries.prepare(self.asking(agent, query, message_key=key, **more))

    def answer(self, delivery: Delivery, text: str) -> None:
        """The asked agent answers: its message in the session, and the exchange in its own history."""
        key = self.say(delivery.agent.agent_id, text, reply_to=delivery.message_key)
        assert deliveries.delivered(delivery, Reply(text, key))

    def injected(self, delivery: Delivery) -> list[str]:
        return [item["content"] for item in turns.injections_of(delivery)]


MakeTalk = Callable[..., Talk]


@pytest.fixture
def talk(transactional_db: None) -> MakeTalk:
    return Talk
