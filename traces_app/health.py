"""What probes and Prometheus are told of traces: whether anybody takes what waits, and how many there are of each kind."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import timedelta

from django.conf import settings
from django.db.models import Count, Max, Min
from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sessions_app.db import utc_now
from sessions_app.hooks import NotReady
from sessions_app.models import HubProcess
from traces_app import sql
from traces_app.columns import prepared
from traces_app.leases import DELEGATE
from traces_app.models import Trace
from traces_app.moves import database_now
from traces_app.states import CREATED, OPEN, RUNNING, WAITING

log = logging.getLogger("hub.health")


def workers() -> None:
    """`READY_CHECKS`: raises `NotReady` when a trace could have begun for `HUB_TRACE_DEAF_SECONDS`, nothing runs and nobody
    took any.

    Rows only: a process that is there and connected, but hears nothing (as after a restart of the broker), looks the same as
    one that is gone. Workers that are merely busy have something running. While no web process lived, nothing could be taken
    either: what waited through a stop of the hub waits from its start.
    """
    now = database_now()
    since = now - timedelta(seconds=settings.HUB_TRACE_DEAF_SECONDS)
    up = HubProcess.objects.filter(lease_until__gt=now, started_at__lt=since)
    if not up.exists():
        return
    # `changed_at` of a created trace is when it was made, given back, lost or answered.
    waits = sql.claimable(
        "t.public_id",
        "t.executor <> %s AND t.changed_at < %s",
        [DELEGATE, prepared(Trace, "changed_at", since)],
        limit=1,
    )
    if not waits:
        return
    runs = Trace.objects.filter(status=RUNNING, lease_until__gt=now).exclude(executor=DELEGATE)
    # One that stood in line became free when the one before it ended: a worker did that.
    moved = Trace.objects.filter(changed_at__gt=since, started_at__isnull=False).exclude(executor=DELEGATE)
    if runs.exists() or moved.exists():
        return
    log.warning("trace %s waits, and no worker takes it", waits[0][0])
    raise NotReady(
        "no_worker",
        f"Work has been waiting for more than {settings.HUB_TRACE_DEAF_SECONDS:g} seconds, and no worker takes it.",
    )


class Rows(Collector):
    """Open traces only: they are few, and found by an index of their own. What has ended is counted by nobody."""

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        try:
            now = utc_now()
            rows = Trace.objects.filter(status__in=sorted(OPEN)).values_list("status").annotate(number=Count("id"))
            counted = dict(rows.order_by())
            oldest = Trace.objects.filter(status=CREATED).aggregate(first=Min("changed_at"))["first"]
            latest = Trace.objects.filter(status__in=sorted(OPEN)).aggregate(most=Max("losses"))["most"]
        except Exception as error:  # the figures of the process itself are wanted most when the database is away
            log.warning("no figures from the database: %r", error)
            return
        open_ones = GaugeMetricFamily("hub_traces_open", "Traces that have not ended, by status", labels=["status"])
        for status in (CREATED, RUNNING, WAITING):
            open_ones.add_metric([status], counted.get(status, 0))
        yield open_ones
        waited = max(0.0, (now - oldest).total_seconds()) if oldest is not None else 0.0
        yield GaugeMetricFamily(
            "hub_traces_oldest_wait_seconds", "How long the oldest waiting trace waits", value=waited
        )
        yield GaugeMetricFamily("hub_traces_most_losses", "Most lost leases of one open trace", value=latest or 0)


def count_rows() -> None:
    """Have Prometheus told; once per process."""
    REGISTRY.register(Rows())
