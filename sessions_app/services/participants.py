"""Who takes part: adding, leaving, removing. Each leaves a `system` message in the log, so that nobody misses it offline."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from sessions_app import states
from sessions_app.append import Draft, append
from sessions_app.changes import Changes
from sessions_app.context.profiles import check_profile
from sessions_app.context.strategies import is_remote
from sessions_app.db import utc_now
from sessions_app.identities import hub_agent_key
from sessions_app.models import Agent, Participant, Session
from sessions_app.protocol.bodies import CONTEXT_STRATEGIES, ParticipantBody, ParticipantPatch, check_choice
from sessions_app.protocol.errors import Forbidden, HubError, Invalid, NotFound, SessionClosed
from sessions_app.protocol.jsontext import dumps
from sessions_app.services.sessions import (
    find_agents,
    load_turn,
    lock_session,
    note_state,
    require_acceptance,
    settle_questions,
    store_turn,
)


def _announce(session_pk: int, text: str, event: dict[str, str], changes: Changes) -> None:
    draft = Draft(session_pk, hub_agent_key(), text, kind="system", metadata=dumps({"event": event}))
    outcome = append([draft], changes)[0]
    if isinstance(outcome, HubError):
        raise outcome


def _members_changed(session_pk: int, changes: Changes) -> None:
    session = Session.objects.get(pk=session_pk)
    Session.objects.filter(pk=session_pk).update(
        members_revision=session.members_revision + 1,
        state_revision=session.state_revision + 1,
        changed_at=utc_now(),
        last_activity=max(utc_now(), session.last_activity),
    )
    changes.touched_members.add(session_pk)


def add_participant(
    *, session_pk: int, body: ParticipantBody, caller: Agent, is_operator: bool, changes: Changes
) -> tuple[Participant, bool]:
    """Add an agent; returns its place and whether it is new. It reads from now on, or (`history: all`) from the start."""
    row = lock_session(session_pk)
    session = Session.objects.get(pk=session_pk)
    if row.status not in states.LIVE:
        raise SessionClosed()
    check_choice(body.history, ("from_now", "all"), "history")
    role = (
        check_choice(body.role, (Participant.MEMBER, Participant.OBSERVER, Participant.ORCHESTRATOR), "role")
        or Participant.MEMBER
    )
    if body.history == "all" and not (is_operator or session.initiator_id == caller.pk):
        raise Forbidden("Only the initiator or an operator may open the whole history.", field="history")
    agent = find_agents([body.agent_id], field="agent_id")[0]
    present = Participant.objects.filter(session_id=session_pk, agent=agent).first()
    if present is not None and present.left_at is None:
        return present, False
    if not is_operator:
        require_acceptance(agent, caller)
    options = _options(body.context_strategy, body.visibility, session, caller, is_operator, agent, present)
    now = utc_now()
    # From now on: what comes next is the announcement, which the newcomer may read.
    first = 1 if body.history == "all" else row.last_sequence + 1
    values = {"role": role, "first_sequence": first, "cursor": first - 1, "joined_at": now, "left_at": None}
    if present is not None:
        own = present.session.messages.filter(sender=agent, sequence__lt=first).count()
        values |= {"acknowledged": False, "sent_read": own}
    Participant.objects.update_or_create(session_id=session_pk, agent=agent, defaults=values | options)
    _members_changed(session_pk, changes)
    changes.session(session_pk).joined.append(agent.pk)
    _announce(
        session_pk,
        f"{agent.agent_id} was added by {caller.agent_id}.",
        {"type": "participant_added", "agent_id": agent.agent_id, "by": caller.agent_id},
        changes,
    )
    note_state(session_pk, changes)
    return Participant.objects.select_related("agent").get(session_id=session_pk, agent=agent), True


def update_participant(
    *, session_pk: int, agent_id: str, patch: ParticipantPatch, caller: Agent, is_operator: bool, changes: Changes
) -> Participant:
    """Change how context reaches a participant, and what of the talk it may get from now on, in replays, too."""
    row = lock_session(session_pk)
    session = Session.objects.get(pk=session_pk)
    place = (
        Participant.objects.select_related("agent")
        .filter(session_id=session_pk, agent__agent_id=agent_id, left_at=None)
        .first()
    )
    if place is None:
        raise NotFound()
    options = _options(patch.context_strategy, patch.visibility, session, caller, is_operator, place.agent, place)
    if row.status not in states.LIVE and not is_operator:
        raise SessionClosed()
    if options:
        Participant.objects.filter(pk=place.pk).update(**options)
        Session.objects.filter(pk=session_pk).update(
            members_revision=session.members_revision + 1,
            state_revision=session.state_revision + 1,
            changed_at=utc_now(),
        )
        changes.touched_members.add(session_pk)
        changes.session(session_pk).reviewed.append(place.agent_id)
        note_state(session_pk, changes)
        place.refresh_from_db()
    return place


def _options(
    strategy: str | UnsetType | None,
    visibility: dict[str, Any] | UnsetType | None,
    session: Session,
    caller: Agent,
    is_operator: bool,
    agent: Agent,
    place: Participant | None,
) -> dict[str, Any]:
    """The checked columns. The initiator may say how context travels, and may narrow what somebody gets who gets all of it;
    to change or lift a profile is an operator's."""
    columns: dict[str, Any] = {}
    if strategy is UNSET and visibility is UNSET:
        return columns
    if not (is_operator or session.initiator_id == caller.pk):
        raise Forbidden("Only the initiator or an operator may set this.", field="context_strategy")
    if strategy is not UNSET:
        given = strategy if isinstance(strategy, str) else None
        columns["context_strategy"] = check_choice(given, CONTEXT_STRATEGIES, "context_strategy")
    if visibility is not UNSET:
        profile = check_profile(visibility)
        if not is_operator and (profile is None or _has_profile(agent, place)):
            raise Forbidden("Only an operator may change or lift a visibility profile.", field="visibility")
        columns["visibility"] = profile
    return columns


def _has_profile(agent: Agent, place: Participant | None) -> bool:
    own = place is not None and place.visibility is not None
    return own or agent.visibility is not None or is_remote(agent)


def remove_participant(*, session_pk: int, agent_id: str, caller: Agent, is_operator: bool, changes: Changes) -> None:
    """Leave, or (initiator, operator) remove; doing it again changes nothing."""
    row = lock_session(session_pk)
    session = Session.objects.get(pk=session_pk)
    leaving = agent_id == caller.agent_id and not is_operator
    if not (leaving or is_operator or session.initiator_id == caller.pk):
        raise Forbidden("Only the initiator or an operator may remove others.")
    place = Participant.objects.select_related("agent").filter(session_id=session_pk, agent__agent_id=agent_id).first()
    if place is None:
        raise NotFound()
    if place.left_at is not None:
        return
    if row.status not in states.LIVE:
        raise SessionClosed()
    if place.agent_id == session.initiator_id and not leaving:
        raise Invalid("The initiator cannot be removed; close the session instead.", field="agent_id")
    now = utc_now()
    Participant.objects.filter(pk=place.pk).update(left_at=now)
    turn = load_turn(row)
    asked = turn.open_questions
    turn.leave(agent_id)
    settle_questions(session_pk, asked, turn, "left")
    store_turn(session_pk, turn)
    _members_changed(session_pk, changes)
    changes.session(session_pk).removed.append(place.agent_id)
    how = "left" if leaving else f"was removed by {caller.agent_id}"
    _announce(
        session_pk,
        f"{agent_id} {how}.",
        {"type": "participant_left" if leaving else "participant_removed", "agent_id": agent_id, "by": caller.agent_id},
        changes,
    )
    note_state(session_pk, changes)
