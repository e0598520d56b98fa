"""Who runs what: claims, leases, and the sweep that takes back what nobody renews. Compared by the database's clock."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from sessions_app.changes import unit_of_work
from sessions_app.db import write_transaction
from sessions_app.services.sessions import touch
from traces_app import lifecycle
from traces_app.lifecycle import Claimed, LockedSession
from traces_app.models import Trace
from traces_app.moves import database_now, move
from traces_app.states import CANCELLED, CREATED, OPEN, RUNNING, WAITING

log = logging.getLogger("hub.traces")

MAX_LOSSES = 3
SWEEP_LIMIT = 200
HINT_SECONDS = 5  # after a ring; then twice as long each time
HINT_SECONDS_MAX = 30
DELEGATE = "delegate"


def claimable() -> QuerySet[Trace]:
    """Traces that may begin: `created`, and nobody stands before them in their session's line."""
    earlier = Trace.objects.filter(
        session_id=OuterRef("session_id"), pk__lt=OuterRef("pk"), parent=None, status__in=OPEN
    )
    return Trace.objects.filter(status=CREATED).filter(Q(in_line=False) | ~Exists(earlier))


def lease_seconds(executor: str) -> float:
    return float(settings.HUB_DELEGATE_LEASE_SECONDS if executor == DELEGATE else settings.HUB_TRACE_LEASE_SECONDS)


def claim(trace_pk: int, owner: str, *, attempt: int | None = None) -> Claimed | None:
    """Begin an attempt; None when it is not there to be begun. With `attempt`: only as the attempt of that number."""
    session_pk = _session_of_waiting(trace_pk)
    if session_pk is None:
        return None
    with unit_of_work() as changes:
        # Takes the session's lock: of two traces of one session the second sees what the first has done.
        touch(session_pk)
        trace = claimable().filter(pk=trace_pk).select_related("session").first()
        if trace is None or (attempt is not None and trace.attempt + 1 != attempt):
            return None
        now = database_now()
        if not move(
            trace,
            "claim",
            changes,
            note={"owner": owner, "losses": trace.losses},
            now=now,
            owner=owner[:100],
            lease_until=now + timedelta(seconds=lease_seconds(trace.executor)),
            started_at=trace.started_at or now,
            context=trace.session.context,
        ):
            return None
        return Claimed(trace.pk, session_pk, trace.public_id, trace.attempt, trace.executor)


def _session_of_waiting(trace_pk: int) -> int | None:
    """Most rings come for what somebody else has taken already: those cost this one read, and no transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT session_id FROM traces_app_trace WHERE id = %s AND status = %s", [trace_pk, CREATED])
        row = cursor.fetchone()
    return None if row is None else int(row[0])


def renew(held: Iterable[Claimed]) -> list[Claimed]:
    """Renew the leases of these attempts; returns those that were not ours any more. No row means stop."""
    lost = []
    with write_transaction():
        now = database_now()
        for claimed in sorted(held, key=lambda c: c.pk):
            until = now + timedelta(seconds=lease_seconds(claimed.executor))
            mine = Trace.objects.filter(pk=claimed.pk, attempt=claimed.attempt, status=RUNNING)
            if not mine.update(lease_until=until):
                lost.append(claimed)
    return lost


def stopped(held: Iterable[Claimed]) -> list[Claimed]:
    """Which of these attempts are over: cancelled, lost, or ended by another. Reads only."""
    wanted = list(held)
    rows = Trace.objects.filter(pk__in=[c.pk for c in wanted]).values_list("pk", "status", "attempt")
    now = {pk: (status, attempt) for pk, status, attempt in rows}
    return [c for c in wanted if now.get(c.pk) != (RUNNING, c.attempt)]


def release(claimed: Claimed) -> bool:
    """Hand an attempt back in an orderly stop; the next worker takes it up at once, and nothing counts as lost."""
    with unit_of_work() as changes:
        touch(claimed.session_pk)
        trace = Trace.objects.get(pk=claimed.pk)
        now = database_now()
        return move(
            trace, "release", changes, fence=claimed.attempt, now=now, lease_until=None, hints=0, next_hint_at=now
        )


# The sweep. Any process may run it, as often as it likes.


def sweep() -> int:
    """Take back expired leases, fail what waited too long, cancel the orphans of cancelled parents; returns how many."""
    now = database_now()
    done = 0
    expired = Trace.objects.filter(status=RUNNING, lease_until__lte=now).order_by("id")
    for pk in list(expired.values_list("pk", flat=True)[:SWEEP_LIMIT]):
        done += lose(pk)
    unanswered = Trace.objects.filter(status=WAITING, input_until__lte=now)
    for pk in list(unanswered.values_list("pk", flat=True)[:SWEEP_LIMIT]):
        done += lifecycle.expire_input(pk)
    orphans = Trace.objects.filter(status__in=OPEN, parent__status=CANCELLED)
    for pk in list(orphans.values_list("pk", flat=True)[:SWEEP_LIMIT]):
        done += cancel_child(pk)
    return done


def lose(trace_pk: int) -> bool:
    """An expired lease goes back to `created`; the third one fails the trace. False when it was renewed or ended meanwhile."""
    with unit_of_work() as changes:
        session_pk = Trace.objects.values_list("session_id", flat=True).get(pk=trace_pk)
        place = LockedSession(session_pk, changes)
        trace = Trace.objects.get(pk=trace_pk)
        now = database_now()
        expired = Q(lease_until__lte=now)
        losses = trace.losses + 1
        if losses >= MAX_LOSSES:
            failed = lifecycle.fail_locked(
                trace,
                trace.attempt,
                "worker_lost",
                f"Whoever ran it was lost {losses} times.",
                changes,
                place,
                where=expired,
                losses=losses,
            )
            if failed:
                log.warning("%s failed: its worker was lost %d times", trace.public_id, losses)
            return failed
        moved = move(
            trace,
            "lose",
            changes,
            fence=trace.attempt,
            where=expired,
            note={"losses": losses, "owner": trace.owner},
            now=now,
            losses=losses,
            lease_until=None,
            hints=0,
            next_hint_at=now,
        )
        if moved:
            log.info("%s: the lease of attempt %d ran out", trace.public_id, trace.attempt)
        return moved


def cancel_child(trace_pk: int) -> bool:
    with unit_of_work() as changes:
        session_pk = Trace.objects.values_list("session_id", flat=True).get(pk=trace_pk)
        return lifecycle.cancel_trace(
            trace_pk=trace_pk, session_pk=session_pk, by="hub", reason="parent cancelled", changes=changes
        )


def children_elsewhere(parent_pks: list[int]) -> list[int]:
    """Open children of cancelled traces that are in other sessions than those."""
    rows = Trace.objects.filter(parent_id__in=parent_pks, parent__status=CANCELLED, status__in=OPEN)
    return list(rows.values_list("pk", flat=True))


def take_due_hints(now: datetime, limit: int = SWEEP_LIMIT) -> list[int]:
    """Traces that could run and that nobody has claimed since the last ring; of several sweeps one gets each of them.

    The next ring comes later and later, so that a full house does not fill the broker.
    """
    rows = claimable().exclude(executor=DELEGATE).filter(next_hint_at__lte=now).order_by("next_hint_at", "pk")
    due = list(rows.values_list("pk", "hints")[:limit])
    taken = []
    if due:
        with write_transaction():
            for pk, hints in sorted(due):
                wait = timedelta(seconds=min(HINT_SECONDS * 2 ** min(hints, 10), HINT_SECONDS_MAX))
                mine = Trace.objects.filter(pk=pk, hints=hints, status=CREATED, next_hint_at__lte=now)
                if mine.update(hints=hints + 1, next_hint_at=now + wait):
                    taken.append(pk)
    return taken


def give_back_hints(trace_pks: list[int], now: datetime) -> None:
    """The bell could not be rung for these: they are due again."""
    with write_transaction():
        Trace.objects.filter(pk__in=trace_pks, status=CREATED).update(hints=0, next_hint_at=now)


def claimable_keys(limit: int = 1000) -> list[int]:
    """What a worker could begin now, oldest first."""
    rows = claimable().exclude(executor=DELEGATE).order_by("pk")
    return list(rows.values_list("pk", flat=True)[:limit])


def runnable(session_pks: list[int]) -> list[int]:
    """What may begin now in these sessions."""
    rows = claimable().exclude(executor=DELEGATE).filter(session_id__in=session_pks)
    return list(rows.values_list("pk", flat=True)[:SWEEP_LIMIT])
