"""The outbox of push notifications: made from a task's events, sent at least once, in order, dead after `ATTEMPTS`.

A task's event log is the truth, so nothing has to be told when something happens: the sweep compares each open config's
cursor with its task, makes a row for every update, and moves the cursor in the same transaction. Of one config only the first
pending row is due; a worker claims it by counting its attempts up from what the bell said, sends, and goes on with the
next. One that dies in the middle leaves a row that is due again when its claim has run out: sent twice, then, never lost.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import Exists, F, OuterRef, QuerySet

from hub.a2a.push import sending, source
from hub.a2a.push.models import PushConfig, PushNotification
from hub.a2a.push.sending import Verdict
from hub.a2a.push.states import MOVES, PENDING
from sessions_app.db import utc_now, write_transaction

log = logging.getLogger("hub.a2a")

TASK = "a2a.push"
CLAIM_SECONDS = 60.0  # longer than an attempt may take
RING_SECONDS = 20.0  # then the bell is rung again for what nobody has claimed
BACKOFF_SECONDS = (2.0, 3600.0)
SWEEP_LIMIT = 200
OPEN_LIMIT = 1000  # looked at together
PAGES = 20
RUN_SECONDS = 20.0  # of one config in a worker; then others get a turn
KEPT = timedelta(days=7)
PURGE_SECONDS = 60.0
PURGE_LIMIT = 500

_purged = [0.0]


def take_due(now: datetime) -> list[tuple[str, list[int]]]:
    """`SWEEPS`: make what is to be told, and take what is to be sent now, as tasks for the workers."""
    collect(now)
    if time.monotonic() - _purged[0] > PURGE_SECONDS:
        _purged[0] = time.monotonic()
        purge(now)
    due = first_pending().filter(due_at__lte=now).order_by("due_at", "pk")
    found = list(due.values_list("pk", "attempts", "due_at")[:SWEEP_LIMIT])
    taken = []
    if found:
        with write_transaction():
            for pk, attempts, due_at in found:
                mine = PushNotification.objects.filter(pk=pk, status=PENDING, attempts=attempts, due_at=due_at)
                if mine.update(due_at=now + timedelta(seconds=RING_SECONDS)):
                    taken.append((TASK, [pk, attempts]))
    return taken


def collect(now: datetime) -> int:
    """Make the notifications of every task that has moved; returns how many."""
    made = last = 0
    while configs := list(PushConfig.objects.filter(ended=False, pk__gt=last).order_by("pk")[:OPEN_LIMIT]):
        last = configs[-1].pk
        made += _collect_those(configs, now)
    return made


def _collect_those(configs: Sequence[PushConfig], now: datetime) -> int:
    positions = source.positions_of({(config.task_id, config.agent_id) for config in configs})
    made = 0
    for config in configs:
        position = positions.get((config.task_id, config.agent_id))
        if position is None:
            _end(config)
        elif position > config.cursor:
            made += _collect_one(config, now)
    return made


def _collect_one(config: PushConfig, now: datetime) -> int:
    made = 0
    for _ in range(PAGES):
        page = source.page_of((config.task_id, config.agent_id), config.cursor)
        if page is None:
            _end(config)
            return made
        bodies = source.bodies_of(config, page)
        with write_transaction():
            moved = PushConfig.objects.filter(pk=config.pk, cursor=config.cursor, ended=False).update(
                cursor=page.position, ended=page.over, numbered=F("numbered") + len(bodies)
            )
            if not moved:  # another sweep was faster
                return made
            last = PushConfig.objects.values_list("numbered", flat=True).get(pk=config.pk)
            PushNotification.objects.bulk_create(
                PushNotification(
                    config_id=config.pk, number=last - len(bodies) + 1 + index, body=body, due_at=now, created_at=now
                )
                for index, body in enumerate(bodies)
            )
        made += len(bodies)
        config.cursor = page.position
        if page.over or not page.more:
            return made
    return made


def _end(config: PushConfig) -> None:
    """The task is gone, or its owner has left it, and with it whatever there was to tell."""
    PushConfig.objects.filter(pk=config.pk, cursor=config.cursor).update(ended=True)


def first_pending() -> QuerySet[PushNotification]:
    """Of each config the first that is not settled."""
    earlier = PushNotification.objects.filter(
        config_id=OuterRef("config_id"), number__lt=OuterRef("number"), status=PENDING
    )
    return PushNotification.objects.filter(~Exists(earlier), status=PENDING)


def deliver(pk: int, attempts: int) -> int:
    """Make attempt number `attempts` + 1, and when it succeeds go on with the config's next; returns how many were sent."""
    end = time.monotonic() + RUN_SECONDS
    sent = 0
    at: tuple[int, int] | None = (pk, attempts)
    while at is not None:
        notification = claim(*at)
        if notification is None:
            return sent
        verdict = sending.send(notification.config, notification)
        if not settle(notification, verdict) or not verdict.ok:
            return sent
        sent += 1
        if time.monotonic() > end:
            return sent
        at = first_pending().filter(config_id=notification.config_id).values_list("pk", "attempts").first()
    return sent


def claim(pk: int, attempts: int) -> PushNotification | None:
    """Begin an attempt; None when it was begun by somebody else, is settled, or its config is gone."""
    with write_transaction():
        mine = PushNotification.objects.filter(pk=pk, status=PENDING, attempts=attempts)
        until = utc_now() + timedelta(seconds=CLAIM_SECONDS)
        if not mine.update(attempts=F("attempts") + 1, due_at=until):
            return None
    return PushNotification.objects.select_related("config").filter(pk=pk).first()


def settle(notification: PushNotification, verdict: Verdict) -> bool:
    """Write what became of an attempt; False when a later one has begun meanwhile."""
    if verdict.ok:
        return _move(notification, "deliver")
    config = notification.config
    last = notification.attempts >= settings.HUB_A2A_PUSH_ATTEMPTS
    log.log(
        logging.WARNING if last else logging.INFO,
        "push notification %d of %s to %s: %s (attempt %d%s)",
        notification.number,
        config.task_id,
        urlsplit(config.url).hostname,
        verdict.error,
        notification.attempts,
        ", the last" if last else "",
    )
    if last or verdict.gone:
        return _move(notification, "give_up", last_error=verdict.error[:200])
    base, cap = BACKOFF_SECONDS
    wait = max(verdict.after, random.uniform(0.5, 1.0) * min(cap, base * 2 ** (notification.attempts - 1)))
    with write_transaction():
        mine = PushNotification.objects.filter(pk=notification.pk, status=PENDING, attempts=notification.attempts)
        due_at = utc_now() + timedelta(seconds=wait)
        return bool(mine.update(due_at=due_at, last_error=verdict.error[:200]))


def _move(notification: PushNotification, action: str, **columns: str) -> bool:
    sources, target = MOVES[action]
    with write_transaction():
        mine = PushNotification.objects.filter(pk=notification.pk, status__in=sources, attempts=notification.attempts)
        return bool(mine.update(status=target, settled_at=utc_now(), **columns))


def purge(now: datetime) -> None:
    """Forget what was settled long ago."""
    old = PushNotification.objects.exclude(status=PENDING).filter(settled_at__lt=now - KEPT)
    keys = list(old.values_list("pk", flat=True)[:PURGE_LIMIT])
    if keys:
        with write_transaction():
            PushNotification.objects.filter(pk__in=keys).delete()
