"""A main agent calls a remote A2A agent: its stream is passed on, and what it was sent is what the delivery shows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from hub.demo.weather import Card
from sessions_app.models import Agent, Delivery
from tests.integration.a2a.conftest import RemoteProcess
from tests.integration.models.groups import Group
from traces_app import chunks

pytestmark = pytest.mark.django_db(transaction=True)

REMOTE = Card("remote_agent", "远程智能体", "处理天气", [{"id": "weather", "tags": ["stream"]}], "a2a")
LOCAL = Card("agent_b", "活动", "处理活动", [{"id": "activity", "tags": ["活动"]}], "python:tests.executors:echo")


@pytest.mark.parametrize("strategy", ["embedded", "per_agent"])
def test_a_remote_agent_is_called_like_any_other(
    remote: RemoteProcess, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: list[dict[str, Any]] = []
    monkeypatch.setattr(chunks, "send_frame", lambda fields: frames.append(msgspec.json.decode(fields["frame"])))
    group = Group(cards=(REMOTE, LOCAL))
    Agent.objects.filter(agent_id="remote_agent").update(
        executor_config={"card_url": f"{remote.url}/v1"}, context_strategy=strategy
    )
    group.say("活动")
    told = group.messages()[-1]
    trace = group.say("stream 8", context_refs=[told.public_id])
    assert (trace.status, trace.error) == ("completed", None)
    last = group.messages()[-1]
    assert last.sender.agent_id == "remote_agent"
    assert last.trace_id == trace.public_id
    pieces = [frame["text"] for frame in frames if frame["stream_id"] == last.metadata["stream_id"]]
    assert last.content == "".join(pieces)
    assert "word7" in last.content
    (delivery,) = Delivery.objects.filter(agent__agent_id="remote_agent")
    assert (delivery.strategy, delivery.status) == (strategy, "delivered")
    assert delivery.sent is not None
    sent = json.loads(delivery.sent)["params"]["message"]
    assert sent["parts"] == json.loads(delivery.parts), "what is shown is what was sent"
    assert sent["parts"][0] == {"text": "stream 8"}
    assert told.content in str(sent["parts"][1:])
    if strategy == "per_agent":
        (part,) = sent["parts"][1:]
        assert part["metadata"] == {"type": "ContextInjections", "schemaVersion": "1.0"}
        assert [item["source_agent"] for item in part["data"]] == ["agent_b"]
        assert [reason["how"] for reason in delivery.reasons] == ["caller"]
    assert group.history("main")[-2][0] == "tool"
