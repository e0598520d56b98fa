"""Which messages a question takes along, who decided that, and why. Strongest first:

1. ids that the caller named (`caller`), 2. ids that the main agent's model named (`model`), 3. the card of the asked agent,
whose skills say what it `needs` (`rule`), 4. relevance (`relevance`), and the newest reply where the question only points
at it (`anaphor`). What is named goes along whatever it costs; what is found is bounded in number and tokens.

What is chosen is visible to the asked agent, and where somebody named it, to that one, too: nobody has an agent told what
he may not read himself. Everything here is a proposal; the ledger decides (`deliveries.prepare`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from django.conf import settings
from msgspec import Struct

from sessions_app.changes import Committed
from sessions_app.context import viewing
from sessions_app.context.profiles import View
from sessions_app.context.relevance import MAX_MESSAGES, Index, indexes
from sessions_app.context.words import has_anaphor, token_estimate
from sessions_app.models import Agent, Injection, Message, Session
from sessions_app.protocol.ids import HUB, message_id
from sessions_app.protocol.jsontext import dumps

log = logging.getLogger("hub.context")

CALLER, MODEL, RULE, RELEVANCE, ANAPHOR = "caller", "model", "rule", "relevance", "anaphor"
CANDIDATE = "candidate"
TALK = ("chat", "task", "tool_call", "result")
REPLIES = ("chat", "result")
LOOKED_BACK = 2_000
"""Sequences: how far back a rule or an anaphor looks for a reply."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A message as the asked agent may get it. `how` is who decided, `score` what relevance found."""

    key: int
    sequence: int
    source_agent: str
    round: int
    content: str
    how: str
    score: float | None = None

    @property
    def message_id(self) -> str:
        return message_id(self.key)

    @property
    def tokens(self) -> int:
        return token_estimate(self.content)

    def reason(self) -> dict[str, Any]:
        """As a delivery shows it."""
        said: dict[str, Any] = {
            "message_id": self.message_id,
            "sequence": self.sequence,
            "source_agent": self.source_agent,
            "round": self.round,
            "how": self.how,
            "tokens": self.tokens,
        }
        if self.score is not None:
            said["score"] = round(self.score, 3)
        return said


@dataclass(frozen=True, slots=True)
class Limits:
    """Of what is found by rule and relevance; see the settings `HUB_CONTEXT_…`."""

    items: int
    tokens: int
    score: float
    share: float = 0.5

    @classmethod
    def from_settings(cls) -> Limits:
        return cls(settings.HUB_CONTEXT_ITEMS, settings.HUB_CONTEXT_TOKENS, settings.HUB_CONTEXT_SCORE)


@dataclass(frozen=True, slots=True)
class Reader:
    """The asked agent in its session."""

    session_pk: int
    agent: Agent
    view: View
    initiator: str
    question: int | None = None

    def takes(self, message: Committed, through: int) -> bool:
        """Whether a message may be found for it: another agent's words before the question, no user's and not the hub's."""
        return (
            message.sequence <= through
            and message.key != self.question
            and message.kind in REPLIES
            and message.sender not in (self.agent.agent_id, self.initiator, HUB)
        )


class _Said(Struct):
    round: int
    content: str
    parts: list[dict[str, Any]]


_said = msgspec.json.Decoder(_Said)


def as_choice(message: Committed, how: str, score: float | None = None) -> Choice:
    """A shown message as something to take along; one without text takes its data along as JSON."""
    said = _said.decode(message.body)
    text = said.content or "\n".join(dumps(part["data"]) for part in said.parts if "data" in part)
    round_ = viewing.rounds_of([message]).get(message.key, said.round)
    return Choice(message.key, message.sequence, message.sender, round_, text, how, score)


def candidates(reader: Reader, *, through: int, most: int = 50) -> list[Choice]:
    """The newest replies of others that the agent may get and has not been given, in order of time: what a main agent's
    model chooses from."""
    rows = Message.objects.filter(
        session_id=reader.session_pk,
        sequence__lte=through,
        sequence__gt=max(through - LOOKED_BACK, reader.view.floor - 1),
        kind__in=REPLIES,
    ).exclude(sender__agent_id__in=[reader.agent.agent_id, reader.initiator, HUB])
    keys = list(rows.order_by("-sequence").values_list("pk", flat=True)[: 2 * most])
    given = _given(reader, keys)
    shown = viewing.by_key(reader.session_pk, [key for key in keys if key not in given], reader.view)
    found = [as_choice(message, CANDIDATE) for message in shown.values() if reader.takes(message, through)]
    return sorted(found, key=lambda choice: choice.sequence)[-most:]


def reader_of(session_pk: int, agent_pk: int, question: int | None = None) -> Reader:
    """The asked agent in its session; raises `NotFound` when it takes no part."""
    agent = Agent.objects.get(pk=agent_pk)
    initiator = Session.objects.values_list("initiator__agent_id", flat=True).get(pk=session_pk)
    return Reader(session_pk, agent, viewing.find_view(session_pk, agent_pk), initiator, question)


def choose(
    reader: Reader,
    query: str,
    *,
    through: int,
    named: Sequence[tuple[int, str]] = (),
    asker: View | None = None,
    search: bool = True,
    limits: Limits | None = None,
) -> list[Choice]:
    """What to propose for a question, in order of time; `named` are `(message key, caller | model)`.

    `search` False: only what was named (the model has decided).
    """
    limits = limits or Limits.from_settings()
    chosen = {choice.key: choice for choice in _named(reader, named, asker, through)}
    if search:
        tokens = items = 0
        for choice in _found(reader, query, through, limits):
            if choice.key in chosen:
                continue
            if items >= limits.items:
                break
            if tokens + choice.tokens > limits.tokens and choice.how == RELEVANCE:
                continue
            chosen[choice.key] = choice
            tokens += choice.tokens
            items += 1
    return sorted(chosen.values(), key=lambda choice: choice.sequence)


def _named(reader: Reader, named: Sequence[tuple[int, str]], asker: View | None, through: int) -> Iterable[Choice]:
    keys = [key for key, _ in named]
    if not keys:
        return
    shown = viewing.by_key(reader.session_pk, keys, reader.view)
    allowed = viewing.by_key(reader.session_pk, keys, asker) if asker is not None else shown
    for key, how in named:
        message = shown.get(key)
        if message is None or key not in allowed:
            log.info("%s may not be given to %s, or is not the asker's to give", message_id(key), reader.agent.agent_id)
        elif message.sender != reader.agent.agent_id and message.sequence <= through and key != reader.question:
            yield as_choice(message, how)


def _found(reader: Reader, query: str, through: int, limits: Limits) -> Iterable[Choice]:
    """By rule, then by relevance, then for an anaphor; nothing that the agent has been given."""
    providers = _providers(reader)
    for agent_id in providers:
        newest = _newest_reply(reader, through, of=agent_id)
        if newest is not None:
            yield as_choice(newest, RULE)
    yield from _relevant(reader, query, through, limits)
    if has_anaphor(query):
        newest = _newest_reply(reader, through)
        if newest is not None:
            yield as_choice(newest, ANAPHOR)


# Rules: what an agent's card needs, and whose card offers it


def _named_in(skills: Any, *fields: str) -> set[str]:
    found: set[str] = set()
    for skill in skills if isinstance(skills, list) else []:
        if isinstance(skill, str):
            found |= {skill} if "id" in fields else set()
        elif isinstance(skill, dict):
            for field in fields:
                value = skill.get(field)
                found |= {str(item) for item in (value if isinstance(value, list) else [value]) if item}
    return {name.strip().casefold() for name in found}


def needs_of(agent: Agent) -> set[str]:
    """What the card of an agent says that it needs: `skills: [{"id": "activities", "needs": ["weather"]}]`."""
    return _named_in(agent.skills, "needs")


def offers_of(agent: Agent) -> set[str]:
    """What the card of an agent offers: its skills' ids, names and tags, and its own id."""
    return _named_in(agent.skills, "id", "name", "tags") | {agent.agent_id}


def _providers(reader: Reader) -> list[str]:
    """The agents of the session that offer what the asked one needs, in order of joining."""
    needs = needs_of(reader.agent)
    if not needs:
        return []
    others = Agent.objects.filter(participations__session_id=reader.session_pk).order_by("participations__id")
    return [agent.agent_id for agent in others if agent.pk != reader.agent.pk and needs & offers_of(agent)]


def _newest_reply(reader: Reader, through: int, of: str | None = None) -> Committed | None:
    """The newest reply that the agent may get; None when that one is known to it: an older one would be stale."""
    rows = Message.objects.filter(
        session_id=reader.session_pk,
        sequence__lte=through,
        sequence__gt=max(through - LOOKED_BACK, reader.view.floor - 1),
        kind__in=REPLIES,
    ).exclude(sender__agent_id__in=[reader.agent.agent_id, reader.initiator, HUB])
    if of is not None:
        rows = rows.filter(sender__agent_id=of)
    if reader.question is not None:
        rows = rows.exclude(pk=reader.question)
    keys = list(rows.order_by("-sequence").values_list("pk", flat=True)[:20])
    shown = viewing.by_key(reader.session_pk, keys, reader.view)
    newest = next((shown[key] for key in keys if key in shown), None)
    return newest if newest is not None and not _given(reader, [newest.key]) else None


def _given(reader: Reader, keys: Sequence[int]) -> set[int]:
    rows = Injection.objects.filter(session_id=reader.session_pk, agent_id=reader.agent.pk, message_key__in=keys)
    return set(rows.values_list("message_key", flat=True))


# Relevance


def _relevant(reader: Reader, query: str, through: int, limits: Limits) -> Iterable[Choice]:
    """The best of the visible, unseen replies: above `limits.score`, and above a share of the best of them."""

    def fill(index: Index) -> None:
        newest = MAX_MESSAGES if not len(index) else None
        after = index.through
        for message in viewing.seen_in(reader.session_pk, reader.view, after=after, most=newest):
            if message.kind in TALK:
                index.add(message.key, message.sequence, _said.decode(message.body).content)

    scored = indexes.search((reader.session_pk, reader.view.hash), fill, query)
    best: float | None = None
    taken = 0
    # In pages of candidates, so that a question reads the few messages that it takes, and not the session.
    for start in range(0, len(scored), 50):
        some = [item for item in scored[start : start + 50] if item.score >= limits.score]
        given = _given(reader, [item.key for item in some])
        shown = viewing.by_key(reader.session_pk, [item.key for item in some if item.key not in given], reader.view)
        for item in some:
            message = shown.get(item.key)
            if message is None or not reader.takes(message, through):
                continue
            best = item.score if best is None else best
            if item.score < best * limits.share or taken >= limits.items * 4:
                return
            taken += 1
            yield as_choice(message, RELEVANCE, item.score)
        if len(some) < 50:
            return


# The seed's other form: text instead of ids


def find_quoted(session_pk: int, source_agent: str, content: str, view: View, through: int) -> int | None:
    """The key of the newest visible message of `source_agent` that says exactly `content`; None (and a line in the log) else.

    A model that names texts instead of ids can't make an agent believe that another said what it did not.
    """
    wanted = " ".join(content.split())
    rows = Message.objects.filter(
        session_id=session_pk,
        sender__agent_id=source_agent,
        sequence__lte=through,
        sequence__gt=through - LOOKED_BACK,
        kind__in=TALK,
    ).order_by("-sequence")
    keys = list(rows.values_list("pk", flat=True)[:LOOKED_BACK])
    shown = viewing.by_key(session_pk, keys, view)
    for key in keys:
        if key in shown and " ".join(_said.decode(shown[key].body).content.split()) == wanted:
            return key
    log.info("a quotation of %s was dropped: it has said nothing of the kind", source_agent[:64])
    return None
