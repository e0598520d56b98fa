"""Who runs what: claims, leases, and the sweep that takes back what nobody renews. Compared by the database's clock."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from sessions_app.changes import unit_of_work
from sessions_app.context.shared import stored
from sessions_app.db import write_transaction
from sessions_app.services.sessions import touch
from sessions_app.sql import marks
from traces_app import lifecycle, sql
from traces_app.columns import prepared
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


def lease_seconds(executor: str) -> float:
    return float(settings.HUB_DELEGATE_LEASE_SECONDS if executor == DELEGATE else settings.HUB_TRACE_LEASE_SECONDS)


def claim(trace_pk: int, owner: str, *, attempt: int | None = None) -> Claimed | None:
    """Begin an attempt; None when it is not there to be begun. With `attempt`: only as the attempt of that number."""
    session_pk = sql.session_if_created(trace_pk)
    if session_pk is None:
        return None
    # What a loss of power takes back here is `created` again, and its worker has gone with the machine.
    with unit_of_work(synced=False) as changes:
        # Takes the session's lock: of two traces of one session the second sees what the first has done.
        touch(session_pk)
        found = sql.load_claimable(trace_pk)
        if found is None or (attempt is not None and found.trace.attempt + 1 != attempt):
            return None
        trace, shared, now = found
        first: dict[str, Any] = {"started_at": now} if trace.attempt == 0 else {}
        if not move(
            trace,
            "claim",
            changes,
            note={"owner": owner, "losses": trace.losses},
            now=now,
            owner=owner[:100],
            lease_until=now + timedelta(seconds=lease_seconds(trace.executor)),
            context=shared.values,
            context_provenance=stored(shared.words),
            **first,
        ):
            return None
        return Claimed(trace.pk, session_pk, trace.public_id, trace.attempt, trace.executor, trace)


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
    now = sql.states_of([c.pk for c in wanted])
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
        expired = ("lease_until <=", now)
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
    due = sql.claimable(
        "t.id, t.hints",
        "t.executor <> %s AND t.next_hint_at <= %s",
        [DELEGATE, prepared(Trace, "next_hint_at", now)],
        order="t.next_hint_at, t.id",
        limit=limit,
    )
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
    return [pk for (pk,) in sql.claimable("t.id", "t.executor <> %s", [DELEGATE], limit=limit)]


def next_in_line(session_pks: list[int]) -> list[int]:
    """What stood in line in these sessions and may begin now. (For what never had to stand there it was rung at once.)"""
    where = f"t.in_line AND t.executor <> %s AND t.session_id IN ({marks(session_pks)})"
    return [pk for (pk,) in sql.claimable("t.id", where, [DELEGATE, *session_pks], limit=SWEEP_LIMIT)]
