"""A user, a main agent and others in one session, and what stands where after each round."""

from __future__ import annotations

from typing import Any

from hub.demo import weather
from hub.demo.model_server import ModelServer
from sessions_app.changes import unit_of_work
from sessions_app.context import selectors, turns, viewing
from sessions_app.models import Agent, Delivery
from sessions_app.services.sessions import open_session
from tests.integration.models.conftest import run
from tests.integration.traces.conftest import Talk
from traces_app.models import Trace

Line = tuple[str, str]


class Group(Talk):
    """A user, a main agent and the agents of the demo (or those of the cards)."""

    def __init__(self, server: ModelServer | None = None, cards: Any = weather.CARDS, **session: Any) -> None:
        config = {"model": "scripted", "base_url": server.base_url} if server is not None else {}
        self.agents = {"alice": Agent.objects.create(agent_id="alice")}
        self.agents["main"] = Agent.objects.create(agent_id="main", executor="orchestrator", executor_config=config)
        for card in cards:
            self.agents[card.agent_id] = Agent.objects.create(
                agent_id=card.agent_id,
                name=card.name,
                description=card.description,
                skills=card.skills,
                executor=card.executor,
            )
        others = [agent for name, agent in self.agents.items() if name != "alice"]
        with unit_of_work() as changes:
            opened = open_session(initiator=self.agents["alice"], participants=others, changes=changes, **session)
        self.pk, self.session_id = opened.session.pk, opened.session.public_id

    def say(self, text: str | None, **more: Any) -> Trace:
        """What the user says, run to its end."""
        stored = self.send(text, **more)
        return run(Trace.objects.get(public_id=stored.message.trace_id))

    def store(self) -> list[tuple[str, int, str]]:
        view = viewing.find_view(self.pk, self.agents["alice"].pk)
        found = selectors.conversation(self.session, view, self.agents["alice"].pk)
        return [(e.agent_name, e.round, e.message["content"]) for e in found["entries"]]

    def history(self, name: str) -> list[Line]:
        own = selectors.own_history(self.pk, self.agents[name].pk)
        assert own["session_id"] == f"{self.session_id}_{name}"
        return [(m["role"], m["content"]) for m in own["messages"]]

    def fence(self, sender: str, text: str) -> Line:
        key = self.session.messages.get(sender=self.agents[sender], content=text).public_id
        return "user", f"<<<BEGIN CONTEXT {key}>>>\nFor context: [{sender}] said: {text}\n<<<END CONTEXT {key}>>>"

    def request(self, name: str) -> dict[str, Any]:
        """What the agent was asked last."""
        delivery = Delivery.objects.filter(agent=self.agents[name], session_id=self.pk).order_by("-id")[0]
        return turns.request_document(delivery)
