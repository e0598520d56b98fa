"""What can be done to traces from a door: verbs, keyword-only, inside a unit of work."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from sessions_app import states as session_states
from sessions_app.append import Stored, append
from sessions_app.changes import Changes
from sessions_app.drafts import draft_message
from sessions_app.members import members_of
from sessions_app.models import Agent
from sessions_app.protocol.bodies import MessageBody
from sessions_app.protocol.errors import HubError, Invalid, SessionClosed
from sessions_app.protocol.ids import HUB
from sessions_app.services.sessions import lock_session
from traces_app.leases import DELEGATE
from traces_app.models import Trace


def continue_trace(
    *, trace_pk: int, content: str, after_sequence: int | None, caller: Agent, changes: Changes
) -> tuple[int, Stored]:
    """A new request whose trace has the history of another one up to there; returns the new trace's key and the message."""
    source = Trace.objects.select_related("agent").get(pk=trace_pk)
    row = lock_session(source.session_id)
    if row.status not in session_states.LIVE:
        raise SessionClosed()
    source.refresh_from_db()
    after = source.last_sequence if after_sequence is None else after_sequence
    if not 0 <= after <= source.last_sequence:
        raise Invalid("That sequence does not exist yet.", field="after_sequence", last_sequence=source.last_sequence)
    members = members_of(source.session_id, row.members_revision, changes)
    name = source.agent.agent_id
    to = [name] if name in members.by_name and name != caller.agent_id else None
    body = MessageBody(content=content, requires_execution=True, to=to)
    draft = draft_message(body, source.session_id, caller.pk, caller.agent_id)
    work: dict[str, Any] = {"continue_from": {"trace_id": source.public_id, "after_sequence": after}}
    if runner := _runner_now(source):
        work["runner"] = runner
    draft.work = work
    outcome = append([draft], changes)[0]
    if isinstance(outcome, HubError):
        raise outcome
    return Trace.objects.values_list("pk", flat=True).get(public_id=draft.trace_id), outcome


def _runner_now(source: Trace) -> tuple[int, str, str] | None:
    """Who ran it runs it again, by what an operator has set for it now; None: the rules of the intake decide."""
    agent = source.agent
    if agent.agent_id == HUB:
        return (agent.pk, HUB, settings.HUB_DEFAULT_EXECUTOR) if settings.HUB_DEFAULT_EXECUTOR else None
    executor = agent.executor or (DELEGATE if source.executor == DELEGATE else None)
    return (agent.pk, agent.agent_id, executor) if executor and agent.is_active else None
