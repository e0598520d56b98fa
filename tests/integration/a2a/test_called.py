"""A main agent calls a remote agent as it calls any other."""

from __future__ import annotations

import json

import pytest

from hub.a2a.outbound.models import RemoteTask
from hub.demo.weather import ASKED
from sessions_app.models import Agent, Delivery
from tests.integration.a2a.conftest import RemoteProcess
from tests.integration.models.groups import Group
from traces_app.models import Trace

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_remote_agent_answers_the_main_agent_of_a_group(remote: RemoteProcess) -> None:
    group = Group()
    group.say(ASKED[0])
    Agent.objects.filter(agent_id="agent_b").update(executor="a2a", executor_config={"card_url": f"{remote.url}/v1"})
    trace = group.say(ASKED[1])
    assert trace.status == "completed"
    called = Trace.objects.get(parent=trace)
    assert (called.executor, called.called) == ("a2a", True)
    assert group.store()[-1] == ("agent_b", 2, f"echo: {called.task}")
    row = RemoteTask.objects.get(trace=called)
    delivery = Delivery.objects.get(key=row.message_id)
    (message,) = (m for m in remote.seen()["messages"] if m["messageId"] == row.message_id)
    assert message["parts"] == json.loads(delivery.parts)
