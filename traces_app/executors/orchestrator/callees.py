"""The agents of a session that its main agent may call, and what it is told of them: their cards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.context.relevance import Index
from sessions_app.db import utc_now
from sessions_app.models import Agent, Message, Participant, Presence
from sessions_app.protocol.ids import HUB
from traces_app.calls import runner_of

TOOL_NAME = 64
_UNFIT = re.compile(r"[^A-Za-z0-9_]")
_MENTION = re.compile(r"@([a-z0-9][a-z0-9._-]{0,63})", re.IGNORECASE)
_SENTENCES = re.compile(
    r"[。！？!?；;\n]+|(?:，|,|\s)*(?:另外|此外|同时|并且|然后|接着)|,?\s+(?:and also|also|and then|then)\s+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Callee:
    """An agent that can be called now; `runner` is what runs it."""

    agent_pk: int
    agent_id: str
    name: str
    runner: str
    about: str

    @property
    def tool(self) -> str:
        """The name of its own tool, as the first seed makes it: `call_weather_agent`."""
        plain = _UNFIT.sub("_", self.agent_id)
        ending = "" if plain.endswith("_agent") else "_agent"
        return f"call_{plain[: TOOL_NAME - len('call_') - len(ending)]}{ending}"


def callees_of(session_pk: int, orchestrator_pk: int, requester_pk: int) -> list[Callee]:
    """The session's agents that somebody runs, in order of joining: not its user, not people, not another orchestrator."""
    places = Participant.objects.filter(session_id=session_pk, left_at=None).select_related("agent").order_by("id")
    taking = set(
        Presence.objects.filter(runs_traces=True, process__lease_until__gt=utc_now()).values_list("agent_id", flat=True)
    )
    found: list[Callee] = []
    for place in places:
        agent = place.agent
        if agent.pk in (orchestrator_pk, requester_pk) or agent.agent_id == HUB or not agent.is_active:
            continue
        if place.role in (Participant.INITIATOR, Participant.HUMAN, Participant.OBSERVER, Participant.ORCHESTRATOR):
            continue
        runner = runner_of(agent, agent.pk in taking)
        if runner is not None and runner != Participant.ORCHESTRATOR:
            found.append(Callee(agent.pk, agent.agent_id, agent.name or agent.agent_id, runner, about(agent)))
    return found


def about(agent: Agent) -> str:
    """What a card says, in one line."""
    said = [agent.description.strip()]
    for skill in agent.skills if isinstance(agent.skills, list) else []:
        if isinstance(skill, str):
            said.append(skill)
        elif isinstance(skill, dict):
            fields: list[Any] = [skill.get("name") or skill.get("id"), skill.get("description")]
            for several in (skill.get("tags"), skill.get("examples")):
                fields += several if isinstance(several, list) else []
            said.append(", ".join(str(item) for item in fields if item))
    return " ".join("; ".join(text for text in said if text).split())


# Without a model


def route(query: str, callees: Sequence[Callee], last: str | None) -> list[Callee]:
    """Whom a question is for, by rule: those it mentions; else whoever's card fits each of its sentences best; else the
    one who answered last, since a question that fits nobody points back."""
    by_name = {callee.agent_id: callee for callee in callees}
    mentioned = [by_name[name.lower()] for name in _MENTION.findall(query) if name.lower() in by_name]
    if mentioned:
        return list(dict.fromkeys(mentioned))
    index = Index()
    for number, callee in enumerate(callees):
        index.add(number, number + 1, f"{callee.name} {callee.agent_id} {callee.about}")
    fitting = [best for sentence in _SENTENCES.split(query) if (best := _best(index, sentence)) is not None]
    if fitting:
        return [callees[number] for number in dict.fromkeys(fitting)]
    if last in by_name:
        return [by_name[last]]
    return list(callees) if len(callees) == 1 else []


def _best(index: Index, sentence: str) -> int | None:
    best = index.best(sentence, 1)
    return best[0].key if best and best[0].score > 0 else None


def answered_last(session_pk: int, callees: Iterable[Callee], before: int) -> str | None:
    """Which of them has spoken last."""
    keys = {callee.agent_pk: callee.agent_id for callee in callees}
    rows = Message.objects.filter(
        session_id=session_pk, sequence__lt=before, sender_id__in=list(keys), kind__in=("chat", "result")
    )
    pk = rows.order_by("-sequence").values_list("sender_id", flat=True).first()
    return keys.get(pk) if pk is not None else None
