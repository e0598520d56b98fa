"""The three ways in which context travels, and the exact parts of a question under each.

embedded    the question, `ConversationHistory` and `UserContext`, whole every time; the hub keeps the state
per_agent   the question and only what is new to the agent (`ContextInjections`); the agent, or the hub for it, keeps a history
shared      the question and where to look: session id and sequence; the agent pulls its filtered view with its own key

The setting is, strongest first, the participant's, the session's, the agent's; else `embedded` for agents of others,
`per_agent` for those that the hub runs or that connect to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessions_app.context import parts as typed
from sessions_app.context import summaries
from sessions_app.context.choosing import Choice
from sessions_app.context.profiles import EXTERNAL_EXECUTORS, EXTERNAL_KIND
from sessions_app.context.summaries import Past
from sessions_app.context.words import cut_to_tokens, token_estimate, with_reserve
from sessions_app.models import Agent, Participant, Session
from sessions_app.protocol.jsontext import dumps

EMBEDDED, PER_AGENT, SHARED = "embedded", "per_agent", "shared"
Question = Sequence[Mapping[str, Any]]
"""The parts of the question itself, its text first."""
Speaks = Mapping[str, Sequence[str]]
"""Versions of part types that a receiver's card names: `{"ConversationHistory": ["1.0"]}`."""


@dataclass(frozen=True, slots=True)
class Payload:
    """What travels: `parts` and `metadata` of the message, as values."""

    parts: list[dict[str, Any]]
    metadata: dict[str, Any]


def is_remote(agent: Agent) -> bool:
    """Whether an agent is another organisation's, reached over A2A."""
    return agent.kind == EXTERNAL_KIND or agent.executor in EXTERNAL_EXECUTORS


def strategy_of(session: Session, agent: Agent) -> str:
    """The strategy in force for an agent in a session."""
    own = Participant.objects.filter(session=session, agent=agent).values_list("context_strategy", flat=True).first()
    default = EMBEDDED if is_remote(agent) else PER_AGENT
    return own or session.context_strategy or agent.context_strategy or default


def embedded(
    question: Question,
    past: Past,
    *,
    context: Mapping[str, Any],
    initiator: str,
    refs: Sequence[Choice],
    window: int,
    metadata: Mapping[str, Any],
    speaks: Speaks | None = None,
) -> Payload:
    """The question with all that the agent may know of the talk before it: the summary first, then what is raw.

    What was named and lies before the summary's end goes along as injections, since the summary may have lost it.
    """
    parts = [dict(part) for part in question]
    history = conversation_history(past, initiator, window)
    if history:
        parts.append(typed.registry.make(typed.CONVERSATION_HISTORY, history, speaks))
    user = user_context(context)
    if user:
        parts.append(typed.registry.make(typed.USER_CONTEXT, user, speaks))
    lost = [choice for choice in refs if choice.sequence <= past.covered_to]
    if lost:
        parts.append(typed.registry.make(typed.CONTEXT_INJECTIONS, injections(lost), speaks))
    return Payload(parts, dict(metadata))


def per_agent(
    question: Question,
    chosen: Sequence[Choice],
    *,
    session_id: str,
    round: int,
    metadata: Mapping[str, Any],
    speaks: Speaks | None = None,
) -> Payload:
    """The question and what is new; `session_id` and `round` stand in the message's metadata."""
    parts = [dict(part) for part in question]
    if chosen:
        parts.append(typed.registry.make(typed.CONTEXT_INJECTIONS, injections(chosen), speaks))
    return Payload(parts, {**metadata, "session_id": session_id, "round": round})


def shared(
    question: Question, *, session_id: str, through: int, metadata: Mapping[str, Any], speaks: Speaks | None = None
) -> Payload:
    """The question and a reference. The session's id never stands in A2A's `contextId`, which is the remote's to give."""
    reference = {"session_id": session_id, "through_sequence": through}
    part = typed.registry.make(typed.SHARED_CONTEXT, reference, speaks)
    return Payload([*(dict(part) for part in question), part], dict(metadata))


def injections(chosen: Sequence[Choice]) -> list[dict[str, Any]]:
    """`[{source_agent, round, content, message_id}]`, in order of time."""
    return [
        {
            "source_agent": choice.source_agent,
            "round": choice.round,
            "content": choice.content,
            "message_id": choice.message_id,
        }
        for choice in sorted(chosen, key=lambda choice: choice.sequence)
    ]


def conversation_history(past: Past, initiator: str, window: int) -> list[dict[str, Any]]:
    """`[{role, content, name}]`: `user` for the initiator, `assistant` for agents, never the question under way.

    What is too large is cut: one message to a quarter of the room, and where all of it is too large, each more.
    """
    room = int(window * summaries.SHARE_OF_WINDOW)
    told = [{"role": "assistant", "content": summaries.headed(row), "name": "hub"} for row in past.summaries]
    room -= sum(with_reserve(token_estimate(entry["content"])) for entry in told)
    most = max(room // 4, 50)
    costs = [min(token_estimate(remark.text), most) for remark in past.remarks]
    while past.remarks and with_reserve(sum(costs)) > room and most > 50:
        most = max(most // 2, 50)
        costs = [min(token_estimate(remark.text), most) for remark in past.remarks]
    return told + [
        {
            "role": "user" if remark.who == initiator else "assistant",
            "content": cut_to_tokens(remark.text, most),
            "name": remark.who,
        }
        for remark in past.remarks
    ]


def user_context(context: Mapping[str, Any]) -> dict[str, Any]:
    """The conventional keys first, then what else the session's (already filtered) context holds."""
    first = {name: context[name] for name in ("userProfile", "foundItems", "sessionContext") if name in context}
    return first | {name: value for name, value in context.items() if name not in first}


def tokens_of(payload: Payload, correction: float = 1.0) -> int:
    """What a payload costs a model, about, with the reserve."""
    return with_reserve(token_estimate(dumps(payload.parts)), correction)


__all__ = [
    "EMBEDDED",
    "PER_AGENT",
    "SHARED",
    "Payload",
    "conversation_history",
    "embedded",
    "is_remote",
    "per_agent",
    "shared",
    "strategy_of",
    "tokens_of",
]
