"""Whether this process lives, whether it can work, and what it has counted. For probes: without keys, with any Host."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from channels.layers import InMemoryChannelLayer, get_channel_layer  # type: ignore[import-untyped]
from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis import Redis

from sessions_app.db import utc_now
from sessions_app.hooks import NotReady, ready_checks
from sessions_app.models import HubProcess, Presence
from sessions_app.protocol.errors import MethodNotAllowed
from sessions_app.realtime.runtime import runtimes
from sessions_app.realtime.subscriber import TRANSPORTS

log = logging.getLogger("hub.health")
REDIS_SECONDS = 2.0


async def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as the process answers at all; touches nothing else, so that an outage elsewhere restarts nobody."""
    _only_reading(request)
    return _json({"status": "ok"})


SILENT = NotReady("unavailable", "It does not answer as it should; the hub's log says how.")


def readyz(request: HttpRequest) -> HttpResponse:
    """200 when all that it needs works, else 503 with `reasons`; each thing by its name, what nobody else may know in the log."""
    _only_reading(request)
    found = {name: _problem(name, check) for name, check in {**CHECKS, **ready_checks()}.items()}
    checks = {name: "ok" if problem is None else "failed" for name, problem in found.items()}
    problems = {name: problem for name, problem in found.items() if problem is not None}
    if not problems:
        return _json({"status": "ready", "checks": checks})
    reasons = {name: {"code": problem.code, "message": problem.message} for name, problem in problems.items()}
    return _json({"status": "not ready", "checks": checks, "reasons": reasons}, 503)


def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' text format."""
    _only_reading(request)
    return HttpResponse(generate_latest(), content_type=CONTENT_TYPE_LATEST, headers={"Cache-Control": "no-store"})


def _problem(name: str, check: Callable[[], None]) -> NotReady | None:
    try:
        check()
    except NotReady as problem:
        log.warning("not ready: %s: %s (%s)", name, problem.message, problem.code)
        return problem
    except Exception as error:
        log.warning("not ready: %s: %r", name, error)
        return SILENT
    return None


def _database() -> None:
    with connection.cursor() as cursor:
        # Not just `SELECT 1`: a database that nobody has migrated can't serve either.
        cursor.execute("SELECT id FROM sessions_app_session LIMIT 1")
        cursor.fetchall()


def _broker() -> None:
    """The embedded hub's broker lives inside its worker; there is none to ask."""
    if url := getattr(settings, "CELERY_BROKER_URL", "") or settings.REDIS_URL:
        _ping(url)


def _channel_layer() -> None:
    layer = get_channel_layer()
    if layer is None:
        raise RuntimeError("there is no channel layer")
    if not isinstance(layer, InMemoryChannelLayer):
        _ping(settings.REDIS_URL)


def _ping(url: str) -> None:
    if url.startswith(("redis://", "rediss://", "unix://")):
        client = Redis.from_url(url, socket_timeout=REDIS_SECONDS, socket_connect_timeout=REDIS_SECONDS)
        try:
            client.ping()
        finally:
            client.close()


CHECKS: dict[str, Callable[[], None]] = {
    "database": _database,
    "broker": _broker,
    "channel_layer": _channel_layer,
}


class Rows(Collector):
    """What the rows say, read when somebody asks. Nothing here counts messages or sessions: those tables grow."""

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        try:
            now = utc_now()
            processes = HubProcess.objects.filter(lease_until__gt=now).count()
            online = Presence.objects.filter(process__lease_until__gt=now).values("agent_id").distinct().count()
        except Exception as error:  # the figures of the process itself are wanted most when the database is away
            log.warning("no figures from the database: %r", error)
            return
        yield GaugeMetricFamily("hub_processes", "Serving processes whose lease runs", value=processes)
        yield GaugeMetricFamily("hub_agents_online", "Agents with a live socket or stream", value=online)


class Live(Collector):
    """Who is connected to this process, looked up when somebody asks."""

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        # One step for the interpreter: the loop's thread, which owns the set, can't change it meanwhile.
        here = Counter(
            subscriber.transport for runtime in runtimes() for subscriber in list(runtime.registry.subscribers)
        )
        family = GaugeMetricFamily("hub_sockets", "Live sockets and event streams of this process", labels=["kind"])
        for kind in TRANSPORTS:
            family.add_metric([kind], here[kind])
        yield family


REGISTRY.register(Rows())
REGISTRY.register(Live())


def _json(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(
        msgspec.json.encode(value),
        status=status,
        content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )


def _only_reading(request: HttpRequest) -> None:
    if request.method not in ("GET", "HEAD"):
        raise MethodNotAllowed(allowed=["GET", "HEAD"])
