"""What the probes say of traces: work that nobody takes turns them red."""

from __future__ import annotations

from datetime import timedelta

import pytest
from prometheus_client import generate_latest

from sessions_app.db import utc_now
from sessions_app.hooks import NotReady
from sessions_app.models import HubProcess
from tests.integration.traces.conftest import Talk
from traces_app import health, leases, lifecycle
from traces_app.models import Trace
from traces_app.outcomes import Completed


def ago(seconds: float, **rows: object) -> None:
    Trace.objects.filter(**rows).update(changed_at=utc_now() - timedelta(seconds=seconds))


@pytest.fixture(autouse=True)
def web() -> HubProcess:
    """A web process that has been there for long."""
    now = utc_now()
    return HubProcess.objects.create(started_at=now - timedelta(hours=1), lease_until=now + timedelta(hours=1))


def test_work_that_nobody_takes_makes_it_unready_until_somebody_does() -> None:
    talk = Talk("bob", busy_policy="parallel")
    trace = talk.ask()
    health.workers()  # it has not waited for long
    ago(31)
    with pytest.raises(NotReady) as problem:
        health.workers()
    assert problem.value.code == "no_worker"
    claimed = leases.claim(trace.pk, "w")
    assert claimed is not None
    ago(31)
    health.workers()
    talk.ask("another")
    ago(31)
    health.workers()  # they are busy, not deaf
    assert lifecycle.complete(claimed, Completed("done"))
    health.workers()  # whatever waits was free for a moment only, as far as one can tell
    ago(31)
    with pytest.raises(NotReady):
        health.workers()


def test_what_waited_through_a_stop_of_the_hub_waits_from_its_start(web: HubProcess) -> None:
    Talk("bob").ask()
    ago(3600)
    HubProcess.objects.update(started_at=utc_now() - timedelta(seconds=20))
    health.workers()  # no worker can have taken it before
    HubProcess.objects.create(started_at=utc_now(), lease_until=web.lease_until)
    HubProcess.objects.filter(pk=web.pk).update(started_at=utc_now() - timedelta(seconds=31))
    with pytest.raises(NotReady):  # another process that has just joined changes nothing
        health.workers()
    HubProcess.objects.filter(pk=web.pk).update(lease_until=utc_now() - timedelta(seconds=1))
    health.workers()  # of the stop before, this row was left behind


def test_what_waits_for_a_connected_agent_says_nothing_of_workers() -> None:
    Talk("bob", executor="delegate").ask()
    ago(3600)
    health.workers()


def test_what_waits_behind_a_question_says_nothing_of_workers() -> None:
    talk = Talk("bob")
    first = talk.ask("one")
    claimed = leases.claim(first.pk, "w")
    assert claimed is not None
    assert lifecycle.ask(claimed, {"kind": "question", "question": "?"})
    talk.ask("behind it, in line")
    ago(3600)
    health.workers()


def test_open_traces_are_on_the_metrics_page() -> None:
    talk = Talk("bob", busy_policy="parallel")
    traces = [talk.ask(f"work {n}") for n in range(3)]
    claimed = leases.claim(traces[0].pk, "w")
    assert claimed is not None
    Trace.objects.filter(pk=traces[1].pk).update(losses=2)
    ago(50, pk=traces[2].pk)
    said = dict(
        line.rsplit(" ", 1) for line in generate_latest().decode().splitlines() if line.startswith("hub_traces_")
    )
    assert said['hub_traces_open{status="created"}'] == "2.0"
    assert said['hub_traces_open{status="running"}'] == "1.0"
    assert said['hub_traces_open{status="waiting"}'] == "0.0"
    assert float(said["hub_traces_oldest_wait_seconds"]) >= 50
    assert said["hub_traces_most_losses"] == "2.0"
