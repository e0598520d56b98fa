"""How a trace ends, waits and goes on: each verb is one transaction with the event, the result message and the context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from django.conf import settings
from django.db import transaction

from sessions_app import states as session_states
from sessions_app.append import Draft, Stored, append
from sessions_app.changes import Changes, unit_of_work
from sessions_app.db import utc_now
from sessions_app.members import members_of
from sessions_app.models import Agent
from sessions_app.protocol.errors import Conflict, Invalid, SessionClosed
from sessions_app.protocol.ids import HUB
from sessions_app.protocol.jsontext import dumps
from sessions_app.services.sessions import lock_session, note_state
from sessions_app.services.turns import add_to_context, close_trace
from traces_app import bell, replies, sql
from traces_app.models import Approval, Trace
from traces_app.moves import Lost, Note, append_events, database_now, move
from traces_app.outcomes import Completed
from traces_app.redaction import storable, storable_text
from traces_app.results import Result, cancelled_text, failed_text, interrupted, patched, result_of
from traces_app.states import CANCELLED, COMPLETED, FAILED, GOAL_OPEN, OPEN, RUNNING, TERMINAL, WAITING

GOALS_AT_END = {COMPLETED: "done", FAILED: "failed", CANCELLED: "cancelled"}
SUMMARY_KEPT = 500


class Place(Protocol):
    """The session of a trace, locked: where an end is posted."""

    def end(self, trace: Trace, drafts: Iterable[Draft]) -> bool:
        """Take the trace out of the open ones and append its messages, unless the session has ended; whether it lives."""


class LockedSession:
    """A session whose row this transaction holds."""

    def __init__(self, session_pk: int, changes: Changes) -> None:
        self.row = lock_session(session_pk)
        self.session_pk = session_pk
        self.changes = changes

    @property
    def lives(self) -> bool:
        return self.row.status in session_states.LIVE

    def end(self, trace: Trace, drafts: Iterable[Draft]) -> bool:
        ended = False
        for draft in drafts if self.lives else ():
            draft.ends_trace = trace.public_id
            ended = self.post(draft) or ended
        if not ended:
            close_trace(session_pk=self.session_pk, trace_id=trace.public_id, changes=self.changes)
        return self.lives

    def post(self, draft: Draft) -> bool:
        """Append a message of a trace; False where there is nothing to append (any more)."""
        for _ in range(3):
            outcome = append([draft], self.changes)[0]
            if isinstance(outcome, Stored):
                if not outcome.duplicate:
                    return True
                if outcome.message.trace_id == draft.trace_id:
                    return False  # this very answer was posted while the trace still ran
            if isinstance(outcome, Invalid) and outcome.details.get("field") == "reply_to":
                draft.reply_to = None  # the agent was away and may not see the request any more
            elif isinstance(outcome, Stored | Conflict):
                draft.client_message_id = None  # somebody sent under our name; the compare-and-set has us post once
            elif not isinstance(outcome, SessionClosed):
                raise outcome
        return False


def conclude(
    trace: Trace,
    action: str,
    changes: Changes,
    place: Place,
    result: Result,
    *,
    error: Mapping[str, str] | None = None,
    fence: int | None = None,
    where: sql.Condition | None = None,
    note: Mapping[str, Any] | None = None,
    notes: Sequence[Note] = (),
    relay: bool = False,
    settle: Callable[[int | None], object] | None = None,
    now: datetime | None = None,
) -> bool:
    """End a trace and post its one message; False when another was faster. The caller holds the session's lock.

    Before it, what the agents answered that it called; with `relay` the one answer is its message. `settle(key)` is told the
    message's key, or None where the session has ended. `notes` are events before that of the end; `now` is by the database's
    clock.
    """
    now = now or database_now()
    columns: dict[str, Any] = {
        "lease_until": None,
        "pending_input": None,
        "input_until": None,
        "ended_at": now,
        "error": storable(error) if error is not None else None,
    }
    if action == "finish" or result.said:
        columns["result"] = {
            "summary": result.summary,
            "parts": result.parts_value,
            "context_patch": result.context_patch,
        }
    said = {**(note or {}), **_said(error)}
    if not move(trace, action, changes, fence=fence, where=where, note=said, notes=notes, now=now, **columns):
        return False
    children = sql.end_parts(trace.pk, GOALS_AT_END[trace.status], GOAL_OPEN, now)
    metadata = {**result.metadata, "trace_status": trace.status, **({"error": error} if error else {})}
    if trace.provenance:
        metadata["provenance"] = trace.provenance
    draft = Draft(
        session_pk=trace.session_id,
        sender_pk=trace.agent_id,
        content=result.text,
        kind="result",
        parts=result.parts,
        reply_to=trace.message_key,
        client_message_id=f"trace:{trace.public_id}",
        metadata=dumps(metadata),
        trace_id=trace.public_id,
    )
    if trace.called:
        lives = place.end(trace, ())
        if action == "finish" or result.said:
            replies.keep(trace, draft, metadata, result)
    else:
        lives = place.end(trace, replies.messages(trace, draft, relay=relay) if children else (draft,))
    if settle is not None:
        settle(draft.key if lives or trace.called else None)
    if trace.status != CANCELLED and children:
        for child in _open_children(trace):  # whoever called them does not wait for them any more
            if child.called:
                cancel_locked(child, changes, place, by=HUB, reason="the trace that called it has ended")
    session_pk, pk = trace.session_id, trace.pk
    transaction.on_commit(lambda: bell.ring_next(session_pk))
    if trace.status == CANCELLED:
        transaction.on_commit(lambda: bell.cancel_children(pk))
    return True


def _said(error: Mapping[str, str] | None) -> dict[str, Any]:
    return {"error": dict(error)} if error else {}


@dataclass(frozen=True, slots=True)
class Claimed:
    """An attempt that somebody runs: what every later write of it must name."""

    pk: int
    session_pk: int
    trace_id: str
    attempt: int
    executor: str
    trace: Trace | None = field(default=None, compare=False, repr=False)
    """As it was claimed, where the claimer runs it."""


def complete(claimed: Claimed, outcome: Completed, *, stream_id: str | None = None, notes: Sequence[Note] = ()) -> bool:
    """Result message, state and context patch in one transaction; False when this attempt runs no more.

    `notes` are events that were not worth a transaction of their own.
    """
    try:
        return _complete(claimed, outcome, stream_id, list(notes))
    except Lost:
        return False


def _complete(claimed: Claimed, outcome: Completed, stream_id: str | None, notes: list[Note]) -> bool:
    result = result_of(outcome, stream_id)
    if result.artifact is not None:
        notes.append(Note("artifact", result.artifact))
    with unit_of_work() as changes:
        place = LockedSession(claimed.session_pk, changes)
        trace, shared, now = sql.load_with_context(claimed.pk)
        if trace.attempt != claimed.attempt or trace.status != RUNNING:
            return False
        if place.lives:
            what: dict[str, Any] = {
                "summary": storable_text(result.summary, SUMMARY_KEPT),
                "agent_id": _name_in(place, trace),
            }
            if trace.provenance:
                what["provenance"] = trace.provenance
            fitted = add_to_context(
                session_pk=claimed.session_pk,
                before=shared,
                after=patched(shared, result, what["agent_id"], trace.provenance),
                result=(trace.public_id, what),
                changes=changes,
            )
            if not fitted:
                notes.append(Note("log", {"level": "warning", "text": "The context patch was left out: too large."}))
        if not conclude(
            trace,
            "finish",
            changes,
            place,
            result,
            fence=claimed.attempt,
            notes=notes,
            relay=outcome.relay,
            settle=outcome.settle,
            now=now,
        ):
            raise Lost()  # takes the context back, too
        if place.lives and changes.session(claimed.session_pk).state is None:  # no message has told of the new context
            note_state(claimed.session_pk, changes)
        return True


def _name_in(place: LockedSession, trace: Trace) -> str:
    """The agent's name as the session's members have it; of one that has left, from its row."""
    member = members_of(place.session_pk, place.row.members_revision, place.changes).by_key.get(trace.agent_id)
    return member.agent_id if member is not None else sql.agent_name(trace.agent_id)


def keep_late(claimed: Claimed, outcome: Completed) -> bool:
    """What an executor returned that did not heed the end of its session, or a cancel: it stays on the trace, and that is all.

    No message, no event, no context, no other state: all who follow the trace have seen its end. False for a zombie.
    """
    with unit_of_work() as changes:
        LockedSession(claimed.session_pk, changes)
        result = result_of(outcome)
        late = Trace.objects.filter(pk=claimed.pk, attempt=claimed.attempt, status=CANCELLED, result=None)
        kept = {"summary": result.summary, "parts": result.parts_value, "context_patch": result.context_patch}
        return late.update(result=kept, changed_at=utc_now()) == 1


def fail(
    claimed: Claimed,
    code: str,
    message: str,
    *,
    said: str = "",
    stream_id: str | None = None,
    relay: bool = False,
    notes: Sequence[Note] = (),
) -> bool:
    """End an attempt's trace as failed; False when this attempt runs no more. `said` is what it had told as `stream_id`."""
    with unit_of_work() as changes:
        place = LockedSession(claimed.session_pk, changes)
        trace = sql.load(claimed.pk)
        if not _noted(trace, claimed, notes, changes):
            return False
        return fail_locked(
            trace,
            claimed.attempt,
            code,
            message,
            changes,
            place,
            result=interrupted(said, stream_id) if said else None,
            relay=relay,
        )


def fail_locked(
    trace: Trace,
    attempt: int,
    code: str,
    message: str,
    changes: Changes,
    place: Place,
    *,
    where: sql.Condition | None = None,
    losses: int | None = None,
    result: Result | None = None,
    relay: bool = False,
) -> bool:
    error = {"code": storable_text(code, 64) or "failed", "message": storable_text(message, 4000)}
    result = result or failed_text(trace.task, error["code"], error["message"])
    note = {} if losses is None else {"losses": losses}
    if not conclude(
        trace, "fail", changes, place, result, error=storable(error), fence=attempt, where=where, note=note, relay=relay
    ):
        return False
    if losses is not None:
        Trace.objects.filter(pk=trace.pk).update(losses=losses)
    return True


def cancel_locked(trace: Trace, changes: Changes, place: Place, *, by: str, reason: str = "") -> bool:
    """Cancel under the session's lock; False when it has ended already. Children elsewhere follow after the commit."""
    note = {"by": by, **({"reason": reason} if reason else {})}
    if not conclude(trace, "cancel", changes, place, cancelled_text(trace.task, by), note=note):
        return False
    for child in _open_children(trace):
        cancel_locked(child, changes, place, by=by, reason="parent cancelled")
    return True


def _open_children(trace: Trace) -> list[Trace]:
    """Those in its own session; the others follow after the commit."""
    rows = Trace.objects.filter(parent_id=trace.pk, session_id=trace.session_id, status__in=OPEN)
    return list(rows.order_by("id"))


def cancel_trace(*, trace_pk: int, session_pk: int, by: str, reason: str = "", changes: Changes) -> bool:
    """Cancel inside a unit of work; a finished trace is left as it is (False)."""
    place = LockedSession(session_pk, changes)
    trace = Trace.objects.get(pk=trace_pk)
    if trace.status in TERMINAL:
        return False
    return cancel_locked(trace, changes, place, by=by, reason=reason)


def _noted(trace: Trace, claimed: Claimed, notes: Sequence[Note], changes: Changes) -> bool:
    try:
        if notes:
            append_events(trace, claimed.attempt, notes, changes, statuses=[RUNNING])
    except Lost:
        return False
    return True


def ask(
    claimed: Claimed,
    pending: dict[str, Any],
    call: tuple[str, str, Any] | None = None,
    *,
    notes: Sequence[Note] = (),
) -> bool:
    """Have a trace wait for an answer; `call` is `(digest, tool, arguments)` of the one call that wants a leave."""
    with unit_of_work() as changes:
        LockedSession(claimed.session_pk, changes)
        trace = sql.load(claimed.pk)
        if not _noted(trace, claimed, notes, changes):
            return False
        now = database_now()
        until = now + timedelta(seconds=settings.HUB_TRACE_INPUT_SECONDS)
        pending = storable({**pending, "expires_at": until.strftime("%Y-%m-%dT%H:%M:%S.%fZ")})
        asked = {key: value for key, value in pending.items() if key != "schema"}
        if not move(
            trace,
            "ask",
            changes,
            fence=claimed.attempt,
            note={"pending_input": asked},
            now=now,
            lease_until=None,
            pending_input=pending,
            input_until=until,
        ):
            return False
        sql.end_calls(trace.pk, now)
        if call is not None:
            digest, tool, arguments = call
            Approval.objects.filter(trace_id=trace.pk, digest=digest, status=Approval.ASKED).delete()
            Approval.objects.create(
                trace_id=trace.pk,
                digest=digest,
                tool=tool,
                arguments=storable(arguments),
                asked_at=now,
                expires_at=until,
            )
        return True


def answer_trace(
    *, trace_pk: int, session_pk: int, by: Agent, answer: Any, approve: bool | None, changes: Changes
) -> None:
    """Answer what a waiting trace asks; raises `Conflict` when it waits for nothing, `Invalid` for an answer of another kind."""
    place = LockedSession(session_pk, changes)
    if not place.lives:
        raise SessionClosed()
    trace = Trace.objects.get(pk=trace_pk)
    now = database_now()
    pending = trace.pending_input
    if trace.status != WAITING or pending is None or (trace.input_until is not None and trace.input_until <= now):
        raise Conflict("This trace waits for nothing.")
    wants_leave = pending.get("kind") == "approval"
    if wants_leave != (approve is not None):
        wanted = '{"approve": true or false}' if wants_leave else '{"answer": …}'
        raise Invalid(f"This trace waits for {wanted}.", field="approve" if wants_leave else "answer")
    entry = {"question": pending.get("question"), "kind": pending.get("kind"), "by": by.agent_id}
    if wants_leave:
        entry |= {"approved": approve, "call": pending.get("call")}
        Approval.objects.filter(trace_id=trace.pk, status=Approval.ASKED, expires_at__gt=now).update(
            status=Approval.GIVEN if approve else Approval.REFUSED, decided_by=by, decided_at=now
        )
    else:
        entry["answer"] = storable(answer, redact=False)
    if not move(
        trace,
        "answer",
        changes,
        where=("input_until >", now),
        note={"by": by.agent_id, **({"approved": approve} if wants_leave else {})},
        now=now,
        pending_input=None,
        input_until=None,
        inputs=[*trace.inputs, entry],
        hints=0,
        next_hint_at=now + timedelta(seconds=5),
    ):
        raise Conflict("This trace waits for nothing.")
    pk = trace.pk
    transaction.on_commit(lambda: bell.ring(pk))


def expire_input(trace_pk: int) -> bool:
    """Fail a trace whose question nobody answered in time."""
    with unit_of_work() as changes:
        session_pk = Trace.objects.values_list("session_id", flat=True).get(pk=trace_pk)
        place = LockedSession(session_pk, changes)
        trace = Trace.objects.get(pk=trace_pk)
        error = {"code": "input_expired", "message": "Nobody answered in time."}
        result = failed_text(trace.task, error["code"], error["message"])
        return conclude(trace, "expire", changes, place, result, error=error, where=("input_until <=", database_now()))


def use_approval(claimed: Claimed, digest: str) -> str:
    """`used` (now, this once), `refused`, or `none` where this exact call has no valid leave. Raises `Lost` for a zombie."""
    with unit_of_work() as changes:
        trace = Trace.objects.select_for_update().get(pk=claimed.pk)
        rows = Approval.objects.filter(trace_id=claimed.pk, digest=digest)
        latest = rows.order_by("-id").first()
        if latest is not None and latest.status == Approval.REFUSED:
            return "refused"
        now = database_now()
        if latest is None or latest.status != Approval.GIVEN or latest.expires_at <= now:
            return "none"
        note = Note("log", {"level": "info", "text": f"The approval of {latest.tool} was used.", "approval": latest.pk})
        append_events(trace, claimed.attempt, [note], changes, statuses=[RUNNING])
        used = rows.filter(pk=latest.pk, status=Approval.GIVEN).update(status=Approval.USED, used_at=now)
        return "used" if used else "none"
