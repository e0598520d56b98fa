"""The updates of a task after a position: A2A's view of a trace's event log, or of a question's three events.

A trace's event N is the artifact update 2N, or the status update 2N + 1, or nothing that A2A shows; a completed trace's last
event is both. So every update has a sequence of its own, and a reader can go on exactly where it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from a2a.types import (
    Artifact,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)

from hub.a2a import states
from hub.a2a.models import Question
from hub.a2a.parts import parts_out
from hub.a2a.tasks import (
    LEFT,
    OF_QUESTION,
    RESULT,
    TaskRef,
    answer_artifact,
    artifact_of,
    result_artifact,
    said_message,
    sight_of,
    stamp,
    task_of,
)
from sessions_app.protocol.errors import NotFound
from traces_app.models import Trace, TraceEvent
from traces_app.selectors import events_after
from traces_app.states import CREATED, TERMINAL

Update = TaskStatusUpdateEvent | TaskArtifactUpdateEvent
PAGE = 200


@dataclass(frozen=True, slots=True)
class Page:
    """Updates in order; `position` is what was looked at, `more`: there is more now, `over`: there will be none after it.

    `begun` is false while the task waits for somebody to take it up.
    """

    updates: list[tuple[int, Update]]
    position: int
    more: bool
    over: bool
    begun: bool = True


def page_after(ref: TaskRef, after: int, limit: int = PAGE) -> Page:
    """The updates after `after`."""
    return _of_trace(ref, after, limit) if ref.is_trace else _of_question(ref, after)


def _of_trace(ref: TaskRef, after: int, limit: int) -> Page:
    # The row first: what is seen as ended has all its events visible.
    row = Trace.objects.filter(pk=ref.pk).values_list("status", "last_sequence", "result").get()
    status, last, result = row
    events = [e for e in events_after(ref.pk, max(0, after // 2 - 1), limit) if e.sequence <= last]
    sight = sight_of(ref)
    result = sight.result(result)
    updates = [(n, update) for event in sight.events(events) for n, update in _shown(ref, event, result) if n > after]
    position = max(after, 2 * events[-1].sequence + 1) if events else after
    more = position < 2 * last + 1
    return Page(updates, position, more, status in TERMINAL and not more, begun=status != CREATED)


def _shown(ref: TaskRef, event: TraceEvent, result: Mapping[str, Any] | None) -> list[tuple[int, Update]]:
    number, data = event.sequence, event.data
    if event.type == "artifact":
        update = artifact_update(
            ref,
            artifact_of(data, number),
            append=bool(data.get("append")),
            last=bool(data.get("last_chunk", not data.get("append"))),
        )
        return [(2 * number, update)]
    if event.type == "message" and data.get("role") in ("assistant", "agent"):
        working = status_update(ref, TaskState.TASK_STATE_WORKING, event.timestamp)
        working.status.message.CopyFrom(said_message(ref, "", number))
        del working.status.message.parts[:]
        working.status.message.parts.extend(parts_out(data.get("parts"), str(data.get("text") or "")))
        return [(2 * number + 1, working)]
    if event.type == "status":
        return _of_status(ref, event, result)
    return []


_STATE_OF = {
    "create": TaskState.TASK_STATE_SUBMITTED,
    "claim": TaskState.TASK_STATE_WORKING,
    "ask": TaskState.TASK_STATE_INPUT_REQUIRED,
    "finish": TaskState.TASK_STATE_COMPLETED,
    "fail": TaskState.TASK_STATE_FAILED,
    "expire": TaskState.TASK_STATE_FAILED,
    "cancel": TaskState.TASK_STATE_CANCELED,
}  # the other actions put a trace back in line, which is no news to a client that has seen it work


def _of_status(ref: TaskRef, event: TraceEvent, result: Mapping[str, Any] | None) -> list[tuple[int, Update]]:
    action = str(event.data.get("action"))
    state = _STATE_OF.get(action)
    if state is None:
        return []
    update = status_update(ref, state, event.timestamp)
    said = _said(action, event.data)
    if said:
        update.status.message.CopyFrom(said_message(ref, said, event.sequence))
    shown: list[tuple[int, Update]] = [(2 * event.sequence + 1, update)]
    if action == "finish" and (artifact := result_artifact(result)) is not None:
        shown.insert(0, (2 * event.sequence, artifact_update(ref, artifact, append=False, last=True)))
    return shown


def _said(action: str, data: Mapping[str, Any]) -> str:
    if action in ("fail", "expire"):
        return str((data.get("error") or {}).get("message") or "")
    if action == "ask":
        return str((data.get("pending_input") or {}).get("question") or "")
    return ""


def _of_question(ref: TaskRef, after: int) -> Page:
    question = Question.objects.get(pk=ref.pk)
    updates: list[tuple[int, Update]] = [
        (1, status_update(ref, TaskState.TASK_STATE_SUBMITTED, question.created_at)),
    ]
    last = question.last_sequence
    if question.answer_key is not None:
        updates.append(
            (2, artifact_update(ref, answer_artifact(question.answer_key, sight_of(ref)), append=False, last=True))
        )
    if question.state not in states.OPEN:
        end = status_update(ref, OF_QUESTION[question.state], question.changed_at)
        if question.state == states.FAILED:
            end.status.message.CopyFrom(said_message(ref, LEFT, last))
        updates.append((last, end))
    news = [(number, update) for number, update in updates if number > after]
    return Page(news, max(after, last), False, question.state not in states.OPEN)


def status_update(ref: TaskRef, state: int, moment: datetime) -> TaskStatusUpdateEvent:
    update = TaskStatusUpdateEvent(task_id=ref.task_id, context_id=ref.context_id)
    stamp(update.status, state, moment)
    return update


def artifact_update(ref: TaskRef, artifact: Artifact, *, append: bool, last: bool) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent(
        task_id=ref.task_id, context_id=ref.context_id, artifact=artifact, append=append, last_chunk=last
    )


# For the delivery of push notifications, which reads the same log


def page_of(task_id: str, agent_pk: int, after: int) -> Page | None:
    """The updates of a task after a sequence, whosever it is; None for one that its owner can't see any more."""
    ref = task_of(task_id, agent_pk)
    try:
        return None if ref is None else page_after(ref, after)
    except NotFound:  # it has left just now
        return None


def positions_of(tasks: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The sequence that each task `(task_id, agent's key)` has reached; one that is not there is left out."""
    ids = [task_id for task_id, _ in tasks]
    traces = Trace.objects.filter(public_id__in=ids).values_list("public_id", "agent_id", "last_sequence")
    questions = Question.objects.filter(public_id__in=ids).values_list("public_id", "agent_id", "last_sequence")
    found = {(task_id, agent_pk): 2 * last + 1 for task_id, agent_pk, last in traces}
    return found | {(task_id, agent_pk): last for task_id, agent_pk, last in questions}


def position_of(task_id: str, agent_pk: int) -> int:
    """The sequence that a task has reached; 0 for one that is not there."""
    return positions_of([(task_id, agent_pk)]).get((task_id, agent_pk), 0)


__all__ = ["RESULT", "Page", "Update", "artifact_update", "page_after", "page_of", "position_of", "positions_of"]
