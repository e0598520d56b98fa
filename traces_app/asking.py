"""A trace's question as the context layer takes it: whose it is, what it takes along, and the key by which a retry finds it."""

from __future__ import annotations

from sessions_app.context.deliveries import Ask
from traces_app.models import Trace


def question_of(trace: Trace) -> Ask:
    """The question of a trace whose session and agents are there; `asking` is what whoever asked has decided."""
    asking = trace.asking
    return Ask(
        session_pk=trace.session_id,
        agent_pk=trace.agent_id,
        query=trace.task,
        made=trace.called,
        message_key=trace.message_key,
        asker_pk=trace.requested_by_id,
        refs=asking.get("refs", ()),
        model_refs=asking.get("model_refs", ()),
        search=asking.get("search", True),
        through=asking.get("through"),
        key=trace.public_id,
    )
