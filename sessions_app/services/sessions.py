"""Opening, changing and ending sessions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from msgspec import UNSET, structs

from sessions_app import sql, states
from sessions_app.append import Stored, append
from sessions_app.changes import Changes, SessionState, unit_of_work
from sessions_app.context.shared import Shared, said_by, stored
from sessions_app.db import column_time, prepared_cursor, utc_now, wire_time
from sessions_app.drafts import draft_message
from sessions_app.hooks import close_hooks, keep_hooks, question_hooks
from sessions_app.members import members_of
from sessions_app.models import Agent, Participant, Session
from sessions_app.protocol import limits
from sessions_app.protocol.bodies import (
    BUSY_POLICIES,
    CONTEXT_STRATEGIES,
    MessageBody,
    SessionBody,
    SessionPatch,
    check_choice,
    check_timeout,
    check_title,
)
from sessions_app.protocol.errors import Forbidden, HubError, Invalid, NotFound, SessionClosed, TooLarge
from sessions_app.protocol.ids import new_session_id
from sessions_app.turn import Question, Turn, closed_questions


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session and, when there was an initial message, what became of it."""

    session: Session
    message: Stored | None


def open_session(
    *,
    initiator: Agent,
    participants: list[Agent],
    title: str = "",
    context: dict[str, Any] | Shared | None = None,
    timeout_seconds: int | None = limits.TIMEOUT_SECONDS_DEFAULT,
    busy_policy: str = "enqueue",
    context_strategy: str | None = None,
    initial_message: MessageBody | None = None,
    parent: Session | None = None,
    branched_at: int | None = None,
    changes: Changes,
) -> Opened:
    """Create a session inside the caller's unit of work. All of it or nothing: a refused first message raises.

    Values given as `context` are the initiator's words.
    """
    now = utc_now()
    shared = context if isinstance(context, Shared) else said_by(context or {}, initiator.agent_id)
    session = Session.objects.create(
        public_id=new_session_id(),
        title=title,
        initiator=initiator,
        context=shared.values,
        context_provenance=stored(shared.words),
        timeout_seconds=timeout_seconds,
        busy_policy=busy_policy,
        context_strategy=context_strategy,
        parent=parent,
        branched_at=branched_at,
        created_at=now,
        last_activity=now,
        changed_at=now,
        timeout_check_at=now + timedelta(seconds=timeout_seconds) if timeout_seconds is not None else None,
    )
    changes.touched_members.add(session.pk)
    everybody = {agent.pk: agent for agent in [initiator, *participants]}
    Participant.objects.bulk_create(
        Participant(
            session=session,
            agent=agent,
            role=_role(agent, initiator),
            joined_at=now,
        )
        for agent in everybody.values()
    )
    change = changes.session(session.pk)
    change.joined += list(everybody)
    change.members = list(everybody)
    message = None
    if initial_message is not None:
        draft = draft_message(initial_message, session.pk, initiator.pk, initiator.agent_id)
        outcome = append([draft], changes)[0]
        if isinstance(outcome, HubError):
            raise outcome
        message = outcome
        session.refresh_from_db()
    return Opened(session, message)


def _role(agent: Agent, initiator: Agent) -> str:
    if agent.kind == Agent.HUMAN:
        return Participant.HUMAN
    if agent.pk == initiator.pk:
        return Participant.INITIATOR
    return Participant.ORCHESTRATOR if Participant.ORCHESTRATOR in (agent.kind, agent.executor) else Participant.MEMBER


def create_session(*, body: SessionBody, caller: Agent, is_operator: bool, changes: Changes) -> Opened:
    """`POST sessions`: the caller is the initiator; an operator names it by `from` (default: the first participant)."""
    names = list(dict.fromkeys(body.participants))
    if is_operator:
        name = body.from_ or (names[0] if names else None)
        if name is None:
            raise Invalid("Name the participants.", field="participants")
        initiator = find_agents([name], field="from" if body.from_ else "participants")[0]
    else:
        if body.from_ is not None and body.from_ != caller.agent_id:
            raise Forbidden("from is you.", field="from")
        initiator = caller
    others = [name for name in names if name != initiator.agent_id]
    if not others:
        raise Invalid("A session has at least one other participant.", field="participants")
    if len(others) >= limits.PARTICIPANTS_MAX:
        raise Invalid(f"A session has {limits.PARTICIPANTS_MAX} participants at the most.", field="participants")
    agents = find_agents(others, field="participants")
    for agent in agents:
        require_acceptance(agent, initiator)
    initial = body.initial_message
    context = said_by(body.context or {}, initiator.agent_id)
    check_context(context)
    return open_session(
        initiator=initiator,
        participants=agents,
        title=check_title(body.title),
        context=context,
        timeout_seconds=check_timeout(body.timeout_seconds),
        busy_policy=check_choice(body.busy_policy, BUSY_POLICIES, "busy_policy") or "enqueue",
        context_strategy=check_choice(body.context_strategy, CONTEXT_STRATEGIES, "context_strategy"),
        initial_message=MessageBody(content=initial) if isinstance(initial, str) else initial,
        changes=changes,
    )


def find_agents(names: list[str], *, field: str) -> list[Agent]:
    """The agents of these names, in their order; an unknown one is `invalid`."""
    found = {agent.agent_id: agent for agent in Agent.objects.filter(agent_id__in=names, is_active=True)}
    for name in names:
        if name not in found or found[name].kind == Agent.SYSTEM:
            raise Invalid("There is no such agent.", field=field, agent_id=name[:64])
    return [found[name] for name in names]


def require_acceptance(agent: Agent, initiator: Agent) -> None:
    """Raise `Forbidden` unless `agent` takes sessions from `initiator`."""
    if agent.accepts is not None and initiator.agent_id not in agent.accepts:
        raise Forbidden(f"{agent.agent_id} does not accept sessions from you.", agent_id=agent.agent_id)


def check_context(shared: Shared) -> None:
    if not shared.fits():
        raise TooLarge(f"context holds {limits.CONTEXT_BYTES} bytes at the most.", field="context")


def lock_session(session_pk: int) -> sql.LockedSession:
    """Lock one session's row inside the caller's transaction; raises `NotFound`."""
    with prepared_cursor() as cursor:
        locked = sql.lock_sessions(cursor, [session_pk])
    if session_pk not in locked:
        raise NotFound()
    return locked[session_pk]


def load_turn(row: sql.LockedSession) -> Turn:
    return Turn.load(row.status, row.initiator, row.current_speaker, row.round, row.open_questions, row.open_traces)


def note_state(session_pk: int, changes: Changes) -> SessionState:
    """Put the session's state as it now stands in this transaction into `changes`."""
    state = load_states([session_pk])[0]
    change = changes.session(session_pk)
    change.state = state
    change.members = members_of(session_pk, state.members_revision, changes).keys
    return state


def load_states(session_pks: list[int]) -> list[SessionState]:
    if not session_pks:
        return []
    with prepared_cursor() as cursor:
        cursor.execute(
            f"{STATE_COLUMNS} WHERE s.id IN ({sql.marks(session_pks)})",
            session_pks,
        )
        return [state_from(row) for row in cursor.fetchall()]


STATE_COLUMNS = """SELECT s.id, s.public_id, s.status, s.current_speaker, s.open_questions, s.open_traces, s.round,
                          s.close_reason, s.last_sequence, s.state_revision, s.members_revision, s.context_revision
                     FROM sessions_app_session s"""


def state_from(row: Any) -> SessionState:
    """A row of `STATE_COLUMNS` as what a `session` frame says."""
    pk, public_id, status, speaker, questions, traces, round_, reason, last, state_rev, members_rev, context_rev = row
    turn = Turn.load(status, "", speaker, round_, questions, traces)
    return SessionState(
        pk, public_id, status, speaker, turn.waiting_for, round_, reason, last, state_rev, members_rev, context_rev
    )


def settle_questions(session_pk: int, asked: list[Question], turn: Turn, how: str) -> None:
    """Tell whoever asked of the questions that were in `asked` and are not in `turn` any more."""
    if closed := closed_questions(asked, turn.open_questions):
        for hook in question_hooks():
            hook(session_pk, closed, how, None)


def store_turn(session_pk: int, turn: Turn, **columns: Any) -> None:
    """Write a turn state that no message moved (a trace, a leave, an end), with further columns."""
    session = Session.objects.get(pk=session_pk)
    Session.objects.filter(pk=session_pk).update(
        status=turn.status,
        current_speaker=turn.current_speaker,
        round=turn.round,
        open_questions=[_plain(question) for question in turn.open_questions],
        open_traces=turn.open_traces,
        state_revision=session.state_revision + 1,
        changed_at=utc_now(),
        **columns,
    )


def _plain(question: Any) -> dict[str, Any]:
    return dict(structs.asdict(question))


def patch_session(*, session_pk: int, patch: SessionPatch, by: str, changes: Changes) -> None:
    """Title, time-out, policies, and the shared context by JSON Merge Patch, as words of `by`; only while the session lives."""
    row = lock_session(session_pk)
    if row.status not in states.LIVE:
        raise SessionClosed()
    now = utc_now()
    session = Session.objects.get(pk=session_pk)
    columns: dict[str, Any] = {}
    shared: Shared | None = None
    if patch.title is not UNSET:
        columns["title"] = check_title(patch.title if isinstance(patch.title, str) else None)
    if patch.busy_policy is not UNSET:
        columns["busy_policy"] = check_choice(str(patch.busy_policy), BUSY_POLICIES, "busy_policy")
    if patch.context_strategy is not UNSET:
        strategy = patch.context_strategy if isinstance(patch.context_strategy, str) else None
        columns["context_strategy"] = check_choice(strategy, CONTEXT_STRATEGIES, "context_strategy")
    if patch.timeout_seconds is not UNSET:
        seconds = check_timeout(patch.timeout_seconds)
        columns["timeout_seconds"] = seconds
        due = session.last_activity + timedelta(seconds=seconds) if seconds is not None else None
        columns["timeout_check_at"] = due
    if isinstance(patch.context, dict):
        shared = session.shared.patched(patch.context, by)
        check_context(shared)
        columns |= {"context": shared.values, "context_provenance": stored(shared.words)}
        columns |= {"context_revision": session.context_revision + 1, "last_activity": now}
    if not columns:
        return
    Session.objects.filter(pk=session_pk).update(**columns, changed_at=now, state_revision=session.state_revision + 1)
    note_state(session_pk, changes)
    if shared is not None:
        changes.session(session_pk).shared = shared


def close_session(*, session_pk: int, reason: str | None, changes: Changes, action: str = "close") -> bool:
    """End a session; open traces are cancelled first (by the hooks). False when it had ended already."""
    text = "completed" if reason is None else reason
    if len(text) > limits.REASON_CHARACTERS:
        raise TooLarge(f"reason holds {limits.REASON_CHARACTERS} characters at the most.", field="reason")
    if "\0" in text:
        raise Invalid("Text may not hold U+0000.", field="reason")
    row = lock_session(session_pk)
    if row.status not in states.LIVE:
        return False
    for hook in close_hooks():
        hook(session_pk, changes)
    turn = load_turn(lock_session(session_pk))
    asked = turn.open_questions
    turn.end(action)
    settle_questions(session_pk, asked, turn, "ended")
    store_turn(session_pk, turn, closed_at=utc_now(), close_reason=text, timeout_check_at=None)
    note_state(session_pk, changes)
    return True


SWEEP_LIMIT = 200


def expire_sessions() -> int:
    """Time out what was silent for too long; returns how many. Any process may call it, as often as it likes.

    `timeout_check_at` is only a reminder: appends do not move it, so a session that lives is looked at once per time-out.
    A session never times out while a trace of it is not terminal.
    """
    now = utc_now()
    due = list(Session.objects.filter(timeout_check_at__lte=now).values_list("pk", flat=True)[:SWEEP_LIMIT])
    ended = 0
    for pk in due:
        with unit_of_work() as changes:
            row = lock_session(pk)
            session = Session.objects.get(pk=pk)
            if row.status not in states.LIVE or session.timeout_seconds is None:
                Session.objects.filter(pk=pk).update(timeout_check_at=None)
                continue
            deadline = session.last_activity + timedelta(seconds=session.timeout_seconds)
            if session.open_traces or deadline > now or any(hook(pk) for hook in keep_hooks()):
                soon = now + timedelta(seconds=2)
                Session.objects.filter(pk=pk).update(timeout_check_at=max(deadline, soon))
                continue
            ended += close_session(session_pk=pk, reason="timeout", changes=changes, action="expire")
    return ended


def touch(session_pk: int) -> None:
    """Count as activity (a participant change, a trace's event)."""
    now = column_time(wire_time(utc_now()) or "")
    with prepared_cursor() as cursor:
        cursor.execute(
            "UPDATE sessions_app_session SET last_activity = %s, changed_at = %s WHERE id = %s", [now, now, session_pk]
        )
