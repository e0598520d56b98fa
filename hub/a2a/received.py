"""How long a messageId is remembered: the rows by which a resend is known are forgotten when their task has long ended."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from django.conf import settings

from hub.a2a import states
from hub.a2a.models import Question, Received
from sessions_app.db import write_transaction
from traces_app.models import Trace
from traces_app.states import OPEN as OPEN_TRACE

LIMIT = 500
LOOK_SECONDS = 60.0  # from one step to the next
REST_SECONDS = 3600.0  # when there was nothing more that is old

_next_look = [0.0]
_position = [0]


def take_due(now: datetime) -> list[tuple[str, list[int]]]:
    """`SWEEPS`: forget a few, now and then; there is nothing for the workers to do."""
    if settings.HUB_A2A_RECEIVED_SECONDS and time.monotonic() >= _next_look[0]:
        _position[0] = forget(now, after=_position[0])
        _next_look[0] = time.monotonic() + (LOOK_SECONDS if _position[0] else REST_SECONDS)
    return []


def forget(now: datetime, *, after: int = 0) -> int:
    """Forget the old ones among the next `LIMIT` rows; returns where to go on, 0 when what follows is not old yet.

    Rows are made in the order of their keys, so that no index on time is needed. Those of open tasks stay, however old: an
    answer is known by them, and so is the resend of a question that nobody has answered.
    """
    cutoff = now - timedelta(seconds=settings.HUB_A2A_RECEIVED_SECONDS)
    rows = list(Received.objects.filter(pk__gt=after).order_by("pk").values_list("pk", "task_id", "created_at")[:LIMIT])
    old = [(pk, task_id) for pk, task_id, created_at in rows if created_at < cutoff]
    tasks = {task_id for _, task_id in old}
    open_ = {
        *Question.objects.filter(public_id__in=tasks, state__in=states.OPEN).values_list("public_id", flat=True),
        *Trace.objects.filter(public_id__in=tasks, status__in=OPEN_TRACE).values_list("public_id", flat=True),
    }
    over = [pk for pk, task_id in old if task_id not in open_]
    if over:
        with write_transaction():
            Received.objects.filter(pk__in=over).delete()
    return rows[-1][0] if len(rows) == LIMIT and len(old) == LIMIT else 0
