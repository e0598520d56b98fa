"""Where a message becomes a trace: the hooks that the conversation calls, inside its own transactions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Q

from sessions_app.append import Draft, Entry
from sessions_app.changes import Changes
from sessions_app.context.provenance import of_work_for, plain
from sessions_app.db import utc_now
from sessions_app.drafts import kinds
from sessions_app.identities import hub_agent_key
from sessions_app.members import Member
from sessions_app.models import Participant, Presence
from sessions_app.protocol.errors import Busy, Invalid
from sessions_app.protocol.ids import HUB, new_trace_id
from sessions_app.protocol.jsontext import loads
from traces_app import bell, sql
from traces_app.leases import DELEGATE, HINT_SECONDS
from traces_app.lifecycle import LockedSession, cancel_locked
from traces_app.models import Trace, Undecided
from traces_app.moves import first_event
from traces_app.states import OPEN, RUNNING

WORK_KINDS = ("task", "tool_call")
COURTESY = "chat-courtesy"


@dataclass(frozen=True, slots=True)
class Runner:
    """Whose result it will be, and what runs it."""

    agent_pk: int
    agent_id: str
    executor: str


def open_traces(entry: Entry) -> None:
    """`APPEND_HOOKS`: open a trace for a message that asks for work, when somebody can run it.

    Raises `Busy` (`busy_policy: reject`) and `Invalid` (nobody can run what the sender wants executed).
    """
    draft = entry.draft
    if draft.trace_id is not None or draft.requires_execution is False or entry.sender == HUB:
        return
    if draft.kind in WORK_KINDS or draft.requires_execution:
        runner = _runner(entry)
    elif (runner := _talker(entry)) is not None:
        draft.kind, draft.classified_by = "task", f"agent:{runner.agent_id}"
    else:
        _leave_to_a_model(entry)
    if runner is None:
        return
    parent = _parent(entry)
    policy = entry.ledger.row.busy_policy
    turn = entry.ledger.turn
    if parent is None and turn.open_traces:
        if policy == "reject":
            raise Busy()
        if policy == "interrupt":
            _interrupt(entry)
    now = utc_now()
    trace = Trace(
        public_id=new_trace_id(),
        session_id=draft.session_pk,
        message_key=draft.key,
        message_sequence=entry.ledger.last_sequence + 1,
        agent_id=runner.agent_pk,
        requested_by_id=draft.sender_pk,
        executor=runner.executor,
        task=draft.content,
        provenance=plain(of_work_for(loads(draft.metadata or "{}"), loads(draft.parts or "[]"))),
        parent=parent,
        continue_from=(draft.work or {}).get("continue_from"),
        asking={"refs": draft.context_refs} if draft.context_refs else {},
        in_line=parent is None and policy != "parallel",
        last_sequence=1,
        next_hint_at=now + timedelta(seconds=HINT_SECONDS),
        created_at=now,
        changed_at=now,
    )
    sql.insert_trace(trace)
    draft.trace_id = trace.public_id
    waits = bool(turn.open_traces) and trace.in_line
    turn.open_traces[trace.public_id] = runner.agent_id
    first_event(trace, entry.changes)
    if runner.executor != DELEGATE and not waits:
        pk = trace.pk
        transaction.on_commit(lambda: bell.ring(pk))


def _runner(entry: Entry) -> Runner | None:
    draft = entry.draft
    if given := (draft.work or {}).get("runner"):
        return Runner(*given)
    addressee = _addressee(entry)
    if addressee is not None:
        row = sql.executor_of(addressee.agent_pk)
        if row:
            return Runner(addressee.agent_pk, addressee.agent_id, row)
        takes = Presence.objects.filter(
            agent_id=addressee.agent_pk, runs_traces=True, process__lease_until__gt=utc_now()
        )
        if takes.exists():
            return Runner(addressee.agent_pk, addressee.agent_id, DELEGATE)
    if not draft.requires_execution:
        return None
    if not settings.HUB_DEFAULT_EXECUTOR:
        raise Invalid("Nobody here can execute this.", field="requires_execution")
    return Runner(hub_agent_key(), HUB, settings.HUB_DEFAULT_EXECUTOR)


def _talker(entry: Entry) -> Runner | None:
    """Who answers what is only said: an agent for whom the hub talks, when it is addressed.

    In a group without an addressee the orchestrator, and only to what its user says: agents that greet one another must not
    keep it busy. A courtesy to nobody in particular wants no answer.
    """
    draft, members = entry.draft, entry.ledger.members
    if draft.kind != "chat":
        return None
    addressee = _addressee(entry)
    if addressee is None or addressee.agent_pk not in members.talkers:
        return None
    if draft.to is None and len(members.keys) > 2:
        sender = members.by_key.get(draft.sender_pk)
        from_user = sender is not None and sender.role in (Participant.INITIATOR, Participant.HUMAN)
        if not from_user or kinds.classifier.classify(draft.content).rule == COURTESY:
            return None
    row = sql.executor_of(addressee.agent_pk)
    return Runner(addressee.agent_pk, addressee.agent_id, row) if row else None


def _leave_to_a_model(entry: Entry) -> None:
    """Note what no rule decides and somebody could execute (`classifier.py`)."""
    draft = entry.draft
    if not settings.HUB_CLASSIFIER_MODEL or draft.kind != "chat" or draft.requires_execution is not None:
        return
    if kinds.classifier.classify(draft.content).rule is not None or (runner := _runner(entry)) is None:
        return
    Undecided.objects.create(
        session_id=draft.session_pk,
        message_key=draft.key,
        agent_id=runner.agent_pk,
        executor=runner.executor,
        due_at=utc_now(),
    )


def _addressee(entry: Entry) -> Member | None:
    """Who is to do it: the one in `to`; in a session of two the other one; else the orchestrator, if there is one."""
    members, draft = entry.ledger.members, entry.draft
    if draft.to is not None and len(draft.to) == 1:
        return members.by_name.get(draft.to[0])
    others = [member for name, member in members.by_name.items() if name != entry.sender]
    if draft.to is None and len(others) == 1:
        return others[0]
    orchestrators = [member for member in others if member.role == Participant.ORCHESTRATOR]
    return orchestrators[0] if len(orchestrators) == 1 else None


def _parent(entry: Entry) -> Trace | None:
    """What an agent asks while it runs the one trace it has in this session is part of that trace."""
    mine = [trace_id for trace_id, name in entry.ledger.turn.open_traces.items() if name == entry.sender]
    if len(mine) != 1:
        return None
    return Trace.objects.select_for_update().filter(public_id=mine[0], status=RUNNING).first()


class InAppend:
    """The session as it stands in the middle of an append: its ledger is in memory, and messages join the same batch."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def end(self, trace: Trace, drafts: Iterable[Draft]) -> bool:
        self._entry.ledger.turn.open_traces.pop(trace.public_id, None)
        for draft in drafts:
            self._entry.post(draft)
        return True


def _interrupt(entry: Entry) -> None:
    place = InAppend(entry)
    running = Trace.objects.select_for_update().filter(session_id=entry.draft.session_pk, status__in=OPEN, parent=None)
    for trace in running.order_by("id"):
        cancel_locked(trace, entry.changes, place, by=entry.sender, reason="interrupted")


def cancel_open_traces(session_pk: int, changes: Changes) -> None:
    """`CLOSE_HOOKS`: what runs in a session that ends is cancelled first, while its result can still be told."""
    open_ones = Trace.objects.filter(session_id=session_pk, status__in=OPEN).order_by("id")
    if not open_ones.exists():
        return
    place = LockedSession(session_pk, changes)
    for trace in open_ones:
        cancel_locked(trace, changes, place, by=HUB, reason="session ended")


_STATUS_ZH = {"created": "排队中", "running": "执行中", "waiting": "等待输入"}
TOLD_AT_MOST = 5


def running_work(session_pk: int, language: str) -> str:
    """`STATUS_HOOKS`: which traces run, with their goals done and open. All read it, so what is asked is named, not quoted."""
    traces = Trace.objects.filter(session_id=session_pk, status__in=OPEN).select_related("agent").order_by("id")
    done = Count("goals", filter=Q(goals__status="done"))
    rows = list(traces.annotate(done=done, all_goals=Count("goals"))[: TOLD_AT_MOST + 1])
    lines = []
    for trace in rows[:TOLD_AT_MOST]:
        left = trace.all_goals - trace.done
        if language == "zh":
            goals = f"，目标已完成 {trace.done} 个，剩余 {left} 个" if trace.all_goals else ""
            state = f"{_STATUS_ZH[trace.status]}，来自第 {trace.message_sequence} 条消息"
            lines.append(f"任务 {trace.public_id}（{trace.agent.agent_id}）：{state}{goals}。")
        else:
            goals = f"; goals: {trace.done} done, {left} open" if trace.all_goals else ""
            state = f"is {trace.status}, asked for in message {trace.message_sequence}"
            lines.append(f"Trace {trace.public_id} of {trace.agent.agent_id} {state}{goals}.")
    if len(rows) > TOLD_AT_MOST:
        lines.append("……" if language == "zh" else "…")
    return "\n".join(lines)
