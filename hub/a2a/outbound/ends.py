"""Telling a remote that nobody waits for its task any more: the trace was cancelled, failed, or gave up.

The row says so: a remote task that is not over although its trace is. Whoever notices first tells it (the attempt that was
cancelled, or the sweep, which also finds those whose worker died or whose trace was waiting for an answer); a claim by
compare-and-set sees to it that one does. Tried again with back-off, and given up after `ATTEMPTS`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from django.db.models import F, Q

from hub.a2a.outbound.models import RemoteTask
from hub.a2a.outbound.rows import move
from hub.a2a.outbound.states import UNFINISHED
from sessions_app.db import utc_now, write_transaction
from sessions_app.protocol.errors import HubError
from traces_app.states import TERMINAL

if TYPE_CHECKING:
    from a2a.types import AgentCard

    from hub.a2a.outbound.config import RemoteConfig

log = logging.getLogger("hub.a2a")

TASK = "a2a.end"
ATTEMPTS = 8
CLAIM_SECONDS = 60.0
CALL_SECONDS = 20.0
BACKOFF_SECONDS = (2.0, 300.0)
SWEEP_LIMIT = 100


def take_due(now: datetime) -> list[tuple[str, list[int]]]:
    """`SWEEPS`: what is to be told now, as tasks for the workers; of several sweeps one gets each of them."""
    due = RemoteTask.objects.filter(state__in=UNFINISHED, trace__status__in=TERMINAL)
    due = due.filter(Q(end_due_at=None) | Q(end_due_at__lte=now)).order_by("pk")
    found = list(due.values_list("pk", "end_due_at")[:SWEEP_LIMIT])
    taken = []
    if found:
        with write_transaction():
            for pk, due_at in found:
                mine = RemoteTask.objects.filter(pk=pk, end_due_at=due_at, state__in=UNFINISHED)
                if mine.update(end_due_at=now + timedelta(seconds=CLAIM_SECONDS)):
                    taken.append((TASK, [pk]))
    return taken


def end_remote(pk: int) -> bool:
    """Tell it now, if that is due at all; False when there was nothing to tell or it was not possible yet."""
    row = RemoteTask.objects.select_related("trace", "agent").filter(pk=pk).first()
    if row is None or row.state not in UNFINISHED or row.trace.status not in TERMINAL:
        return False
    with write_transaction():
        claim = RemoteTask.objects.filter(pk=pk, end_attempts=row.end_attempts, state__in=UNFINISHED)
        until = utc_now() + timedelta(seconds=CLAIM_SECONDS)
        if not claim.update(end_attempts=F("end_attempts") + 1, end_due_at=until):
            return False
    passing = _tell(row) if row.task_id else None
    with write_transaction():
        if passing is not None and row.end_attempts + 1 < ATTEMPTS:
            base, cap = BACKOFF_SECONDS
            wait = min(cap, base * 2**row.end_attempts) * random.uniform(0.5, 1.0)
            RemoteTask.objects.filter(pk=pk).update(end_due_at=utc_now() + timedelta(seconds=wait))
            return False
        if passing is not None:
            log.warning("%s: the remote could not be told that nobody waits: %s", row.trace.public_id, passing)
        return move(row, "abandon", end_due_at=None)


def _tell(row: RemoteTask) -> str | None:
    """Cancel the remote task. None: done, or nothing that a repetition would change; else why it failed this time."""
    from hub.a2a.outbound.cards import CardRefused, card_of
    from hub.a2a.outbound.client import NoCredential
    from hub.a2a.outbound.config import MissingSecret, read_config
    from hub.a2a.outbound.trouble import EXPECTED, trouble_of

    try:
        config = read_config(row.agent.executor_config or {})
        card = card_of(config)
        asyncio.run(asyncio.wait_for(_cancel(card, config, row.task_id), CALL_SECONDS))
    except (HubError, NoCredential):  # it is configured in another way by now
        return None
    except TimeoutError:
        return "it does not answer"
    except (CardRefused, MissingSecret) as error:
        return str(error)
    except EXPECTED as error:
        trouble = trouble_of(error)
        if trouble.retry:
            return trouble.message
        log.info("%s: the remote does not cancel its task: %s", row.trace.public_id, trouble.code)
    return None


async def _cancel(card: AgentCard, config: RemoteConfig, task_id: str) -> None:
    from a2a.types import CancelTaskRequest

    from hub.a2a.outbound.client import open_client

    client, http = open_client(card, config)
    async with http:
        await client.cancel_task(CancelTaskRequest(id=task_id))
