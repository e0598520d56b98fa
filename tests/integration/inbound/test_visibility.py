"""What is withheld from an agent on the other doors is withheld over A2A, too."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from sessions_app.models import Agent, Session
from sessions_app.protocol.frames import encode
from sessions_app.realtime.runtime import get_runtime
from tests.integration.inbound.conftest import Peer, Streams, events_of, send_params, session_of

SECRET = "the-secret-4711"


async def test_a_task_shows_its_owner_no_more_than_the_log_does(alice: Peer, bob: Peer) -> None:
    task = await alice.send("bob", "hello")
    session = task["contextId"]
    await sync_to_async(Agent.objects.filter(agent_id="alice").update)(visibility={"withheld_labels": ["secret"]})
    await bob.answer(session, f"aside {SECRET}", metadata={"sensitivity": "secret"}, to=["alice"])
    await bob.answer(session, "in the open", to=["alice"])
    log = (await alice.get(f"sessions/{session}/messages")).json()
    for found in (await alice.task("bob", task["id"], historyLength=50), log):
        assert SECRET not in json.dumps(found)
    assert "in the open" in (await alice.get(f"sessions/{session}/messages")).text
    assert SECRET in (await bob.get(f"sessions/{session}/messages")).text


@pytest.mark.parametrize("redacted", [False, True])
async def test_live_text_reaches_a_stream_only_where_it_can_be_shown_as_it_is(
    alice: Peer, bob: Peer, streams: Streams, redacted: bool
) -> None:
    profile: Any = {"redactions": [{"pattern": SECRET}]} if redacted else None
    await Agent.objects.filter(agent_id="alice").aupdate(visibility=profile)
    streaming = asyncio.create_task(alice.rpc("bob", "SendStreamingMessage", send_params("Tell me")))
    session_id = await session_of(bob)
    session_pk = (await Session.objects.aget(public_id=session_id)).pk
    runtime = get_runtime()
    await streams.begun()
    names = {"session_id": session_id, "from": "bob", "stream_id": "s", "index": 0, "text": SECRET}
    runtime.live.heard({"session_pk": session_pk, "stream_id": "s", "frame": encode("chunk", **names)})
    await bob.answer(session_id, f"{SECRET}!", metadata={"stream_id": "s"})
    answer = await streaming
    told = json.dumps([event["result"] for event in events_of(answer)])
    assert (SECRET in told) == (not redacted)
    assert ("[redacted]!" in told) == redacted
