"""An executor that the worker does not have: said when the worker starts, and by each trace."""

from __future__ import annotations

import pytest

from hub.embedded.worker import _look_for_executors
from sessions_app.models import Agent
from tests.integration.traces.conftest import Talk
from traces_app.models import Trace
from traces_app.runner import run_trace

AWAY = "python:not_here.at_all:work"

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_trace_fails_with_a_code_and_the_executors_name_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    talk = Talk("bob", executor=AWAY)
    trace = talk.ask()
    assert run_trace(trace.pk)
    ended = Trace.objects.get(pk=trace.pk)
    assert (ended.status, ended.error["code"]) == ("failed", "unknown_executor")
    assert ended.error["message"] == f"The executor {AWAY} can't be loaded: ModuleNotFoundError."
    assert "No module named 'not_here'" in caplog.text


def test_a_worker_says_at_its_start_whose_work_it_can_not_run(caplog: pytest.LogCaptureFixture) -> None:
    Talk("bob", "carol", "dave", "erin", executor=AWAY)
    Agent.objects.filter(agent_id="carol").update(executor="planner")
    Agent.objects.filter(agent_id="dave").update(is_active=False)
    Agent.objects.filter(agent_id="erin").update(executor="uninstalled")
    _look_for_executors()
    said = [record.getMessage() for record in caplog.records if record.name == "hub.worker"]
    assert len(said) == 2
    assert said[0].startswith(f"agent bob: {AWAY}: there is no module not_here here")
    assert said[1].startswith("agent erin: No executor is called uninstalled")
