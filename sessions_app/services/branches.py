"""Branches: a session with a parent, and bringing its outcome back."""

from __future__ import annotations

from typing import Any

from sessions_app import states
from sessions_app.append import Draft, Stored, append
from sessions_app.changes import Changes
from sessions_app.context.provenance import Provenance, of_message, plain
from sessions_app.context.viewing import find_view, shown_to
from sessions_app.models import Agent, Participant, Session
from sessions_app.protocol.bodies import BranchBody, MergeBody, MessageBody, check_title, utf8_length
from sessions_app.protocol.errors import HubError, Invalid, NotFound, SessionClosed, TooLarge
from sessions_app.protocol.ids import message_id
from sessions_app.protocol.jsontext import dumps, loads
from sessions_app.protocol.limits import CONTENT_BYTES
from sessions_app.services.sessions import (
    Opened,
    close_session,
    find_agents,
    lock_session,
    open_session,
    require_acceptance,
)
from sessions_app.sql import messages_before, messages_by_key

SUMMARY_CHARACTERS = 4000


def create_branch(*, parent_pk: int, body: BranchBody, caller: Agent, changes: Changes) -> Opened:
    """A child of a session; it numbers from 1, the caller is its initiator, the parent's participants are the default."""
    row = lock_session(parent_pk)
    parent = Session.objects.get(pk=parent_pk)
    if row.status not in states.LIVE:
        raise SessionClosed()
    place = Participant.objects.filter(session=parent, agent=caller, left_at=None).first()
    if place is None:
        raise NotFound()
    at = row.last_sequence if body.from_sequence is None else body.from_sequence
    if not (place.first_sequence - 1 <= at <= row.last_sequence) or at < 0:
        raise Invalid("from_sequence is one of this session's.", field="from_sequence", last_sequence=row.last_sequence)
    if body.participants is None:
        agents = [p.agent for p in Participant.objects.select_related("agent").filter(session=parent, left_at=None)]
    else:
        agents = find_agents(list(dict.fromkeys(body.participants)), field="participants")
        for agent in agents:
            if agent.pk != caller.pk:
                require_acceptance(agent, caller)
    if not [agent for agent in agents if agent.pk != caller.pk]:
        raise Invalid("A branch has at least one other participant.", field="participants")
    initial = body.initial_message
    opened = open_session(
        initiator=caller,
        participants=agents,
        title=check_title(body.title),
        context=find_view(parent_pk, caller.pk).shared(parent.shared),
        timeout_seconds=parent.timeout_seconds,
        busy_policy=parent.busy_policy,
        context_strategy=parent.context_strategy,
        initial_message=MessageBody(content=initial) if isinstance(initial, str) else initial,
        parent=parent,
        branched_at=at,
        changes=changes,
    )
    _take_over_options(parent_pk, opened.session.pk)
    return opened


def _take_over_options(parent_pk: int, branch_pk: int) -> None:
    """What somebody may not get in a session, he does not get in a branch of it; nor does context reach him otherwise."""
    places = Participant.objects.filter(session_id=parent_pk).exclude(visibility=None, context_strategy=None)
    for place in places:
        Participant.objects.filter(session_id=branch_pk, agent_id=place.agent_id).update(
            visibility=place.visibility, context_strategy=place.context_strategy
        )


def merge_branch(*, branch_pk: int, body: MergeBody, caller: Agent, changes: Changes) -> Stored:
    """Post a branch's outcome into its parent as a `result` and complete the branch; again: the same message."""
    branch = Session.objects.get(pk=branch_pk)
    if branch.parent_id is None:
        raise Invalid("This session is not a branch.")
    # Both are locked in id order, whatever their relation: the lock order of the whole house.
    for pk in sorted((branch_pk, branch.parent_id)):
        lock_session(pk)
    branch.refresh_from_db()
    for pk in (branch_pk, branch.parent_id):
        if not Participant.objects.filter(session_id=pk, agent=caller, left_at=None).exists():
            raise NotFound()
    if branch.merged_message_key is not None:
        return Stored(messages_by_key([branch.merged_message_key])[branch.merged_message_key], duplicate=True)
    if body.summary is not None and utf8_length(body.summary) > CONTENT_BYTES:
        raise TooLarge(f"summary holds {CONTENT_BYTES} bytes at the most.", field="summary")
    last = messages_before(branch_pk, branch.last_sequence + 1, 1, 1)
    metadata: dict[str, Any] = {
        "event": {
            "type": "branch_merged",
            "session_id": branch.public_id,
            "branched_at": branch.branched_at,
            "last_sequence": branch.last_sequence,
            "last_message_id": message_id(last[0].key) if last else None,
        }
    }
    if body.summary is not None:
        text = body.summary
    else:
        text, made_of = _outcome_of(branch, caller)
        if made_of:
            metadata["provenance"] = plain(made_of)
    draft = Draft(
        session_pk=branch.parent_id,
        sender_pk=caller.pk,
        content=text,
        kind="result",
        metadata=dumps(metadata),
    )
    outcome = append([draft], changes)[0]
    if isinstance(outcome, HubError):
        raise outcome
    Session.objects.filter(pk=branch_pk).update(merged_message_key=draft.key)
    close_session(session_pk=branch_pk, reason="merged", changes=changes)
    return outcome


def _outcome_of(branch: Session, caller: Agent) -> tuple[str, Provenance]:
    """Without a summary: the branch's last result, else its last words, as far as the caller may read them; and whose."""
    rows = branch.messages.exclude(kind="system").order_by("-sequence")
    last = rows.filter(kind="result").first() or rows.first()
    shown = shown_to(messages_by_key([last.pk])[last.pk], caller.pk) if last is not None else None
    said = loads(shown.body) if shown is not None else {}
    text = said.get("content")
    if shown is None or not text:
        return f"Branch {branch.title or branch.public_id} ended without a message.", Provenance()
    made_of = of_message(shown.sender, said["metadata"], said["parts"])
    others = tuple(name for name in made_of.agents if name != caller.agent_id)
    made_of = Provenance(others, made_of.labels, made_of.part_types)
    return text if len(text) <= SUMMARY_CHARACTERS else text[:SUMMARY_CHARACTERS] + "…", made_of
