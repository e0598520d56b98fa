"""What is written about remote tasks and contexts: by the trace's current attempt only, so that a late one changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hub.a2a.outbound.models import RemoteContext, RemoteTask
from hub.a2a.outbound.states import MOVES, SENDING
from sessions_app.db import utc_now, write_transaction
from traces_app.executors.contract import Cancelled
from traces_app.models import Trace
from traces_app.states import RUNNING


def message_id_of(trace_id: str, turn: int) -> str:
    """The id of a trace's message to the remote: the same whichever attempt sends it, so that it counts once there."""
    return f"{trace_id}.{turn}"


@contextmanager
def fenced(trace_pk: int, attempt: int) -> Iterator[None]:
    """A write transaction of this attempt; raises `Cancelled` when it does not run any more."""
    with write_transaction():
        running = Trace.objects.select_for_update().filter(pk=trace_pk, attempt=attempt, status=RUNNING)
        if running.values_list("pk", flat=True).first() is None:
            raise Cancelled("over")
        yield


def begin(trace: Trace, attempt: int, turn: int) -> tuple[RemoteTask, bool]:
    """The trace's remote task, and whether this turn's message is a new one: then it is recorded before it is sent."""
    message_id = message_id_of(trace.public_id, turn)
    with fenced(trace.pk, attempt):
        now = utc_now()
        row = RemoteTask.objects.filter(trace_id=trace.pk).first()
        if row is None:
            return RemoteTask.objects.create(
                trace_id=trace.pk,
                agent_id=trace.agent_id,
                turn=turn,
                message_id=message_id,
                state=SENDING,
                created_at=now,
                changed_at=now,
            ), True
        if row.turn >= turn:
            return row, False
        return row, move(row, "send", turn=turn, message_id=message_id)


def move(row: RemoteTask, action: str, **columns: Any) -> bool:
    """Apply one of `MOVES`; False when it is not in a state to move from. `row` is brought up to date."""
    sources, target = MOVES[action]
    columns |= {"state": target, "changed_at": utc_now()}
    if not RemoteTask.objects.filter(pk=row.pk, state__in=sources).update(**columns):
        return False
    for name, value in columns.items():
        setattr(row, name, value)
    return True


def hear(row: RemoteTask, attempt: int, *, task_id: str, context_id: str) -> None:
    """Keep what a remote said of its task, if that is new; its context is the session's from now on."""
    if (row.state != SENDING, row.task_id, row.context_id) == (True, task_id, context_id):
        return
    with fenced(row.trace_id, attempt):
        move(row, "hear", task_id=task_id[:500], context_id=context_id[:500])
        if context_id:
            session_pk = Trace.objects.values_list("session_id", flat=True).get(pk=row.trace_id)
            RemoteContext.objects.update_or_create(
                session_id=session_pk,
                agent_id=row.agent_id,
                defaults={"context_id": context_id[:500], "changed_at": utc_now()},
            )


def finish(row: RemoteTask, attempt: int) -> None:
    """The remote task has ended."""
    with fenced(row.trace_id, attempt):
        move(row, "finish")


def context_of(session_pk: int, agent_pk: int) -> str:
    """The remote's `contextId` for a session; empty before it has given one."""
    rows = RemoteContext.objects.filter(session_id=session_pk, agent_id=agent_pk)
    return rows.values_list("context_id", flat=True).first() or ""


def forget_context(session_pk: int, agent_pk: int) -> None:
    """The remote does not know it any more."""
    with write_transaction():
        RemoteContext.objects.filter(session_id=session_pk, agent_id=agent_pk).delete()


def task_id_of(trace_id: str) -> str:
    """The remote task that another trace was; empty when it was none."""
    return RemoteTask.objects.filter(trace__public_id=trace_id).values_list("task_id", flat=True).first() or ""
