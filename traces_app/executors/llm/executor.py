"""The executor `llm`: an agent that is a model, with the hub's tools and its own memory of the session.

What it gets to know, and remembers, is a delivery (`sessions_app.context`): settled in the transaction that posts the result.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from sessions_app.context import deliveries, fences, turns
from sessions_app.context.deliveries import Reply
from sessions_app.models import Agent, Delivery
from sessions_app.protocol.errors import NotFound
from traces_app.asking import question_of
from traces_app.executors.contract import Cancelled, Completed, Failed, Outcome, Report, Request
from traces_app.executors.llm.choice import NoModel, choose
from traces_app.executors.llm.dialogue import Dialogue, Said
from traces_app.executors.llm.toolbox import HubTools
from traces_app.executors.llm.transcript import user
from traces_app.executors.planner import registered_tools
from traces_app.models import Trace


class LlmExecutor:
    def run(self, request: Request, report: Report) -> Outcome:
        try:
            choice = choose(request.config)
            tools = HubTools(registered_tools(), request)
        except NoModel as error:
            return Failed("no_model", str(error))
        delivery = ask_for(request)
        dialogue = Dialogue(
            choice,
            report,
            tools,
            instructions=instructions_for(request),
            history=history_for(request, delivery),
            resumed=request.resumed,
            sent=None if delivery is None else functools.partial(deliveries.record_sent, delivery),
        )
        if delivery is not None:
            report.event("context", injected(delivery))
        try:
            ended = dialogue.run()
        except Cancelled:
            give_up(delivery, "cancelled")
            raise
        if isinstance(ended, Said):
            return Completed(ended.text, settle=_taken(delivery, ended.text, dialogue.counted))
        if isinstance(ended, Failed):
            give_up(delivery, ended.code)
        return ended


def ask_for(request: Request) -> Delivery | None:
    """The trace's one question as a delivery; None for one who takes no part in the session (the hub itself)."""
    trace = Trace.objects.select_related("agent").get(public_id=request.trace_id)
    try:
        return deliveries.prepare(question_of(trace))
    except NotFound:
        return None


def give_up(delivery: Delivery | None, why: str) -> None:
    if delivery is not None:
        deliveries.failed(delivery, why)


def _taken(delivery: Delivery | None, text: str, counted: int) -> Any:
    if delivery is None:
        return None
    return lambda key: deliveries.delivered(
        delivery, Reply(content=text, message_key=key, usage_bytes=sent_bytes(delivery), usage_tokens=counted)
    )


def sent_bytes(delivery: Delivery) -> int:
    """The size of what the model's count of tokens is for."""
    return len((delivery.sent or "").encode())


def injected(delivery: Delivery) -> dict[str, Any]:
    """What a trace's log says of it."""
    return {
        "delivery_id": delivery.public_id,
        "strategy": delivery.strategy,
        "estimated_tokens": delivery.estimated_tokens,
        "reasons": delivery.reasons,
    }


def history_for(request: Request, delivery: Delivery | None) -> list[dict[str, Any]]:
    """The talk as the agent may know it, with the question last; for a continued trace that one's history instead."""
    continued = [dict(entry) for entry in request.history if "trace_id" in entry]
    if delivery is None:
        talk = [dict(entry) for entry in request.history if "trace_id" not in entry]
        return [_own_or_fenced(entry, request) for entry in talk] + continued + [user(request.task)]
    if continued:
        return continued + _as_entries(turns.question_entries(delivery))
    return _as_entries(turns.model_turns(delivery, mode=str(request.config.get("history", "tiered"))))


def _as_entries(told: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"type": "message", "role": turn.role, "content": turn.content} for turn in told]


def _own_or_fenced(entry: Mapping[str, Any], request: Request) -> dict[str, Any]:
    text = str(entry.get("content", ""))
    if entry.get("role") != "assistant" and entry.get("name") != request.requested_by:
        text = fences.fenced(f"sequence {entry.get('sequence')}", str(entry.get("name")), text)
    return {"type": "message", "role": entry.get("role"), "content": text}


def instructions_for(request: Request) -> str:
    """The system message: who it is, what an operator wrote for it, and what fences mean."""
    agent = Agent.objects.filter(agent_id=request.agent_id).values_list("name", "description").first()
    name, description = agent or ("", "")
    lines = [
        f"You are {name or request.agent_id}, an agent in a conversation between agents and people."
        " Answer in the language of the question."
    ]
    if description:
        lines.append(description)
    own = request.config.get("instructions")
    if isinstance(own, str) and own:
        lines.append(own)
    lines.append(fences.NOTE)
    return "\n\n".join(lines)
