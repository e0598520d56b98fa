"""Tasks as A2A shows them, read from our rows: a trace, or a question to an agent that just answers.

A task is its owner's and is reached through its agent's address; to everybody else, and anywhere else, there is no such task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from a2a.types import Artifact, Message, Part, Role, Task, TaskState, TaskStatus
from django.db.models import Q

from hub.a2a import states
from hub.a2a.models import Name, Question, Received
from hub.a2a.parts import part_out, parts_out, text_message
from hub.a2a.sight import Sight
from sessions_app import models as core
from sessions_app.models import Participant
from sessions_app.protocol.errors import NotFound
from sessions_app.protocol.ids import message_id as public_message_id
from traces_app.models import Trace, TraceEvent
from traces_app.states import CANCELLED, COMPLETED, CREATED, FAILED, RUNNING, WAITING

RESULT = "result"
HISTORY = 100
HISTORY_BYTES = 1024 * 1024
ARTIFACTS = 1000
TALK = ("chat", "status_query", "task", "tool_call")
OURS = "a2a"  # where the door keeps what a message brought and we have no column for

TERMINAL = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
INTERRUPTED = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})

OF_QUESTION = {
    states.SUBMITTED: TaskState.TASK_STATE_SUBMITTED,
    states.COMPLETED: TaskState.TASK_STATE_COMPLETED,
    states.FAILED: TaskState.TASK_STATE_FAILED,
    states.CANCELED: TaskState.TASK_STATE_CANCELED,
}
OF_TRACE = {
    CREATED: TaskState.TASK_STATE_SUBMITTED,
    RUNNING: TaskState.TASK_STATE_WORKING,
    WAITING: TaskState.TASK_STATE_INPUT_REQUIRED,
    COMPLETED: TaskState.TASK_STATE_COMPLETED,
    FAILED: TaskState.TASK_STATE_FAILED,
    CANCELLED: TaskState.TASK_STATE_CANCELED,
}


@dataclass(frozen=True, slots=True)
class TaskRef:
    """A task that its owner asked for. `is_trace`: `pk` is a trace's key, else a question's."""

    is_trace: bool
    pk: int
    task_id: str
    context_id: str
    session_pk: int
    session_id: str
    agent_pk: int
    owner_pk: int
    first_sequence: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A task as it stands, and the sequence of the last update that is in it."""

    task: Task
    position: int

    @property
    def state(self) -> int:
        return self.task.status.state

    @property
    def is_over(self) -> bool:
        return self.state in TERMINAL

    @property
    def rests(self) -> bool:
        """Over, or waiting for the client."""
        return self.state in TERMINAL or self.state in INTERRUPTED


def find_task(task_id: str, owner_pk: int, agent_pk: int) -> TaskRef:
    """The owner's task of this id at this agent; raises `NotFound`, alike for foreign and unknown ones."""
    if 0 < len(task_id) <= 200 and task_id.isprintable():
        named = Name.objects.filter(owner_id=owner_pk, agent_id=agent_pk, kind=Name.TASK, name=task_id)
        found = task_of(task_id, agent_pk, owner_pk)
        if found is None and (target := named.values_list("target", flat=True).first()) is not None:
            found = task_of(target, agent_pk, owner_pk)
        if found is not None:
            return found
    raise NotFound()


def task_of(task_id: str, agent_pk: int, owner_pk: int | None = None) -> TaskRef | None:
    """The agent's task of this id, this owner's or (None) whosever it is; None where there is none that its owner may see."""
    is_trace = task_id.startswith("trace-")
    rows: Any = Trace.objects if is_trace else Question.objects
    owner = "requested_by_id" if is_trace else "owner_id"
    wanted = {"public_id": task_id, "agent_id": agent_pk} | ({owner: owner_pk} if owner_pk is not None else {})
    columns = ("pk", "public_id", "session_id", "session__public_id", "message_sequence", owner)
    row = rows.filter(**wanted).values_list(*columns).first()
    if row is None:
        return None
    pk, public_id, session_pk, session_id, sequence, asker_pk = row
    place = Participant.objects.filter(session_id=session_pk, agent_id=asker_pk, left_at=None, agent__is_active=True)
    if not place.exists():
        return None
    context_id = context_name(session_id, asker_pk, agent_pk)
    return TaskRef(is_trace, pk, public_id, context_id, session_pk, session_id, agent_pk, asker_pk, sequence)


def sight_of(ref: TaskRef) -> Sight:
    """One look at the task through its owner's eyes."""
    return Sight(ref.session_pk, ref.owner_pk, ref.pk if ref.is_trace else None)


def context_name(session_id: str, owner_pk: int, agent_pk: int) -> str:
    """What this client calls the session: its own name for it, else the session's id."""
    names = Name.objects.filter(target=session_id, owner_id=owner_pk, agent_id=agent_pk, kind=Name.CONTEXT)
    return names.values_list("name", flat=True).first() or session_id


def snapshot(ref: TaskRef, *, history: int | None = None, artifacts: bool = True, origin: bool = False) -> Snapshot:
    """The task now; `origin`: as it was when it was submitted, for those who will hear everything that followed.

    `history` is how many messages at the most (0: none, None: as many as we show).
    """
    task = Task(id=ref.task_id, context_id=ref.context_id)
    sight = sight_of(ref)
    if ref.is_trace:
        position, until, answer = _trace(ref, sight, task, artifacts=artifacts, origin=origin)
    else:
        position, until, answer = _question(ref, sight, task, artifacts=artifacts, origin=origin)
    if history != 0:
        wanted = HISTORY if history is None else min(history, HISTORY)
        task.history.extend(messages_of(ref, sight, until=until, but=answer, limit=wanted))
    return Snapshot(task, position)


Shown = tuple[int, datetime | None, int | None]  # position, end, and the message that is the result and no history


def _trace(ref: TaskRef, sight: Sight, task: Task, *, artifacts: bool, origin: bool) -> Shown:
    trace = Trace.objects.get(pk=ref.pk)
    if origin:
        stamp(task.status, TaskState.TASK_STATE_SUBMITTED, trace.created_at)
        return 2 + 1, None, None
    stamp(task.status, trace_state(trace.status, trace.attempt), trace.changed_at)
    if said := _said_of(trace.status, trace.error, trace.pending_input):
        task.status.message.CopyFrom(said_message(ref, said, trace.last_sequence))
    if artifacts:
        events = TraceEvent.objects.filter(trace_id=ref.pk, type="artifact", sequence__lte=trace.last_sequence)
        known: dict[str, Artifact] = {}
        for event in sight.events(list(events.order_by("sequence")[:ARTIFACTS])):
            add_artifact(known, artifact_of(event.data, event.sequence), append=bool(event.data.get("append")))
        if (result := result_artifact(sight.result(trace.result))) is not None:
            add_artifact(known, result, append=False)
        task.artifacts.extend(known.values())
    return 2 * trace.last_sequence + 1, trace.ended_at, None


def _question(ref: TaskRef, sight: Sight, task: Task, *, artifacts: bool, origin: bool) -> Shown:
    question = Question.objects.get(pk=ref.pk)
    if origin:
        stamp(task.status, TaskState.TASK_STATE_SUBMITTED, question.created_at)
        return 1, None, None
    stamp(task.status, OF_QUESTION[question.state], question.changed_at)
    if question.state == states.FAILED:
        task.status.message.CopyFrom(said_message(ref, LEFT, question.last_sequence))
    if artifacts and question.answer_key is not None:
        task.artifacts.append(answer_artifact(question.answer_key, sight))
    ended_at = question.changed_at if question.state not in states.OPEN else None
    return question.last_sequence, ended_at, question.answer_key


LEFT = "The agent takes no part in this context any more."


def trace_state(status: str, attempt: int) -> TaskState:
    """A trace that is back in line after a lost worker or an answer is not new: its client has seen it work."""
    if status == CREATED and attempt:
        return TaskState.TASK_STATE_WORKING
    return OF_TRACE[status]


def _said_of(status: str, error: Mapping[str, Any] | None, pending: Mapping[str, Any] | None) -> str:
    if status == FAILED:
        return str((error or {}).get("message") or "")
    if status == WAITING:
        return str((pending or {}).get("question") or "")
    return ""


def said_message(ref: TaskRef, text: str, sequence: int) -> Message:
    """What the agent says with a status; the id is the same whenever it is shown."""
    return text_message(text, message_id=f"{ref.task_id}.{sequence}", task_id=ref.task_id, context_id=ref.context_id)


def stamp(status: TaskStatus, state: int, moment: datetime) -> None:
    status.state = state  # type: ignore[assignment]
    status.timestamp.FromDatetime(moment)


# Artifacts


def artifact_of(data: Mapping[str, Any], sequence: int) -> Artifact:
    """An `artifact` event: `{name, media_type, text}`, or `{parts}`; `artifact_id`, `append`, `last_chunk` as in A2A."""
    name = str(data.get("name") or "")
    parts = data.get("parts")
    if isinstance(parts, list) and parts:
        made = [part_out(part) for part in parts if isinstance(part, dict)]
    else:
        part = Part(text=str(data.get("text") or ""))
        if data.get("media_type"):
            part.media_type = str(data["media_type"])
        if name:
            part.filename = name
        made = [part]
    artifact_id = str(data.get("artifact_id") or name or f"artifact-{sequence}")
    return Artifact(artifact_id=artifact_id, name=name, parts=made)


def result_artifact(result: Mapping[str, Any] | None) -> Artifact | None:
    """A completed trace's result; None when it has nothing to show."""
    if not result:
        return None
    parts = parts_out(result.get("parts"), str(result.get("summary") or ""))
    return Artifact(artifact_id=RESULT, name=RESULT, parts=parts) if parts else None


def answer_artifact(message_key: int, sight: Sight) -> Artifact:
    """The message that answered a question."""
    found = core.Message.objects.filter(pk=message_key).values("id", "content", "parts")
    rows = sight.messages([dict(row) for row in found])
    parts = parts_out(rows[0]["parts"], rows[0]["content"]) if rows else []
    parts = parts or [Part(text="")]
    return Artifact(artifact_id=RESULT, name=RESULT, parts=parts)


def add_artifact(known: dict[str, Artifact], artifact: Artifact, *, append: bool) -> None:
    if append and artifact.artifact_id in known:
        known[artifact.artifact_id].parts.extend(artifact.parts)
    else:
        known[artifact.artifact_id] = artifact


def direct_answer(task: Task) -> Message | None:
    """The result as a bare message, where its executor says so: each of its parts has `metadata: {"a2a": "message"}`.

    For who waits on a send alone: the task is there, and its streams and `GetTask` show it as any other.
    """
    if task.status.state != TaskState.TASK_STATE_COMPLETED or len(task.artifacts) != 1:
        return None
    parts = task.artifacts[0].parts
    if task.artifacts[0].artifact_id != RESULT or not parts:
        return None
    if not all(OURS in part.metadata and part.metadata[OURS] == "message" for part in parts):
        return None
    message = Message(message_id=f"{task.id}.{RESULT}", context_id=task.context_id, role=Role.ROLE_AGENT)
    for part in parts:
        bare = message.parts.add()
        bare.CopyFrom(part)
        del bare.metadata[OURS]
        if not len(bare.metadata):
            bare.ClearField("metadata")
    return message


# History


def messages_of(ref: TaskRef, sight: Sight, *, until: datetime | None, but: int | None, limit: int) -> list[Message]:
    """The task's messages, and what others said in the context meanwhile, as far as its owner may read it; oldest first."""
    mine = dict(Received.objects.filter(task_id=ref.task_id).values_list("message_key", "message_id"))
    place = Participant.objects.filter(session_id=ref.session_pk, agent_id=ref.owner_pk, left_at=None)
    floor = place.values_list("first_sequence", flat=True).first() or 1
    rows = core.Message.objects.filter(
        session_id=ref.session_pk, sequence__gte=max(floor, ref.first_sequence), kind__in=TALK
    )
    if until is not None:
        rows = rows.filter(Q(created_at__lte=until) | Q(pk__in=mine))
    columns = ("id", "sequence", "sender_id", "sender__agent_id", "content", "parts", "metadata", "trace_id")
    found: list[Message] = []
    size = 0
    read = list(rows.order_by("-sequence").values(*columns, "client_message_id")[: 4 * limit])
    for row in sight.messages(read):
        own = row["sender_id"] == ref.owner_pk
        if row["id"] == but:
            continue
        if own and row["id"] not in mine and row["sequence"] != ref.first_sequence:
            continue  # of another task of its own
        size += len(row["content"])
        if found and size > HISTORY_BYTES:
            break
        found.append(_message(ref, row, mine))
        if len(found) == limit:
            break
    return found[::-1]


def _message(ref: TaskRef, row: Mapping[str, Any], mine: Mapping[int, str]) -> Message:
    metadata = dict(row["metadata"] or {})
    kept = metadata.pop(OURS, None)
    kept = kept if isinstance(kept, dict) else {}
    by_agent = row["sender_id"] == ref.agent_pk
    message = Message(
        message_id=str(kept.get("messageId") or row["client_message_id"] or public_message_id(row["id"])),
        context_id=ref.context_id,
        role=Role.ROLE_AGENT if by_agent else Role.ROLE_USER,
        parts=parts_out(row["parts"], row["content"]),
    )
    if row["id"] in mine or row["sequence"] == ref.first_sequence:
        message.task_id = ref.task_id
        message.extensions.extend(_words(kept.get("extensions")))
        message.reference_task_ids.extend(_words(kept.get("referenceTaskIds")))
    elif not by_agent:
        metadata["from"] = row["sender__agent_id"]
    if metadata:
        message.metadata.update(metadata)
    return message


def _words(value: Any) -> Sequence[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def task_proto(task_id: str, owner_pk: int, agent_pk: int) -> Task | None:
    """The whole task, for a notification of A2A 0.3; None when its owner can't see it any more."""
    try:
        return snapshot(find_task(task_id, owner_pk, agent_pk)).task
    except NotFound:
        return None
