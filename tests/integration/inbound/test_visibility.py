"""What is withheld from an agent on the other doors is withheld over A2A, too."""

from __future__ import annotations

import json

from asgiref.sync import sync_to_async

from sessions_app.models import Agent
from tests.integration.inbound.conftest import Peer

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
