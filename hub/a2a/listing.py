"""`ListTasks`: the caller's own tasks at one agent, traces and questions in one order, by the time of their status downwards."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from a2a.types import TaskState
from django.db.models import Q, QuerySet

from hub.a2a.models import Name, Question
from hub.a2a.tasks import OF_QUESTION, OF_TRACE, Snapshot, TaskRef, context_name, snapshot
from sessions_app.models import Participant
from sessions_app.protocol.errors import Invalid
from traces_app.models import Trace

PAGE_DEFAULT = 50
PAGE_MAX = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_token = msgspec.json.Decoder(tuple[int, str])


class Place(NamedTuple):
    """Where a task stands in the list: the latest first."""

    changed_at: datetime
    task_id: str


class Wanted(NamedTuple):
    """A page of the list. `state` 0 is any; `size` 1 to 100."""

    owner_pk: int
    agent_pk: int
    context_id: str = ""
    state: int = TaskState.TASK_STATE_UNSPECIFIED
    since: datetime | None = None
    size: int = PAGE_DEFAULT
    after: Place | None = None
    history: int | None = None
    artifacts: bool = False


class Listed(NamedTuple):
    tasks: list[Snapshot]
    total: int
    following: Place | None


def list_tasks(wanted: Wanted) -> Listed:
    """One page, how many tasks fit in all, and after which the next page begins."""
    traces, questions = _rows(wanted)
    total = traces.count() + questions.count()
    found = [*_page(traces, wanted, True), *_page(questions, wanted, False)]
    found.sort(key=lambda row: (row[0], row[1]), reverse=True)
    page = found[: wanted.size]
    following = Place(page[-1][0], page[-1][1]) if len(found) > wanted.size else None
    refs = [row[2] for row in page]
    tasks = [snapshot(ref, history=wanted.history, artifacts=wanted.artifacts) for ref in refs]
    return Listed(tasks, total, following)


def _rows(wanted: Wanted) -> tuple[QuerySet[Trace], QuerySet[Question]]:
    mine = Participant.objects.filter(agent_id=wanted.owner_pk, left_at=None).values("session_id")
    traces = Trace.objects.filter(requested_by_id=wanted.owner_pk, agent_id=wanted.agent_pk, session_id__in=mine)
    questions = Question.objects.filter(owner_id=wanted.owner_pk, agent_id=wanted.agent_pk, session_id__in=mine)
    if wanted.context_id:
        named = Name.objects.filter(
            owner_id=wanted.owner_pk, agent_id=wanted.agent_pk, kind=Name.CONTEXT, name=wanted.context_id
        )
        public_id = named.values_list("target", flat=True).first() or wanted.context_id
        traces = traces.filter(session__public_id=public_id)
        questions = questions.filter(session__public_id=public_id)
    if wanted.state:
        traces = traces.filter(_trace_in(wanted.state))
        questions = questions.filter(state__in=[word for word, state in OF_QUESTION.items() if state == wanted.state])
    if wanted.since is not None:
        traces, questions = traces.filter(changed_at__gte=wanted.since), questions.filter(changed_at__gte=wanted.since)
    return traces, questions


def _trace_in(state: int) -> Q:
    """Traces of this state; the counterpart of `tasks.trace_state`."""
    if state == TaskState.TASK_STATE_SUBMITTED:
        return Q(status="created", attempt=0)
    if state == TaskState.TASK_STATE_WORKING:
        return Q(status="running") | Q(status="created", attempt__gt=0)
    return Q(status__in=[word for word, known in OF_TRACE.items() if known == state])


def _page(rows: Any, wanted: Wanted, is_trace: bool) -> Sequence[tuple[datetime, str, TaskRef]]:
    if (after := wanted.after) is not None:
        rows = rows.filter(
            Q(changed_at__lt=after.changed_at) | Q(changed_at=after.changed_at, public_id__lt=after.task_id)
        )
    columns = ("pk", "public_id", "changed_at", "session_id", "session__public_id", "message_sequence")
    found = []
    for pk, task_id, changed_at, session_pk, session_id, sequence in rows.order_by(
        "-changed_at", "-public_id"
    ).values_list(*columns)[: wanted.size + 1]:
        context_id = context_name(session_id, wanted.owner_pk, wanted.agent_pk)
        ref = TaskRef(
            is_trace, pk, task_id, context_id, session_pk, session_id, wanted.agent_pk, wanted.owner_pk, sequence
        )
        found.append((changed_at, task_id, ref))
    return found


def encode_place(place: Place | None) -> str:
    """A page token; empty at the end."""
    if place is None:
        return ""
    moment = (place.changed_at - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(msgspec.json.encode((moment, place.task_id))).decode().rstrip("=")


def decode_place(token: str) -> Place | None:
    """The place of a page token; raises `Invalid` for what is none."""
    if not token:
        return None
    try:
        moment, task_id = _token.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return Place(_EPOCH + timedelta(microseconds=moment), task_id)
    except (binascii.Error, ValueError, msgspec.DecodeError, OverflowError):
        raise Invalid("pageToken is the nextPageToken of an earlier answer.", field="pageToken") from None
