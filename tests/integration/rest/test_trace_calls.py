"""Traces over REST: answers, approvals, continuing. The attempts are run here, in the place of a worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from sessions_app.models import Agent
from tests.integration.rest.conftest import Door
from traces_app.models import Trace
from traces_app.requests import load_request
from traces_app.runner import run_trace

pytestmark = pytest.mark.parametrize("application", ["express"], indirect=True)


@sync_to_async
def runs(agent: Door, function: str, **config: Any) -> None:
    Agent.objects.filter(agent_id=agent.agent_id).update(
        executor=f"python:tests.executors:{function}", executor_config=config
    )


@sync_to_async
def work(trace_id: str) -> bool:
    """One attempt, as a worker would."""
    return run_trace(Trace.objects.values_list("pk", flat=True).get(public_id=trace_id))


async def asked(a: Door, b: Door, text: str = "work") -> tuple[str, str]:
    session = await a.open(b.agent_id)
    sent = await a.say(session, text, requires_execution=True)
    return session, sent["trace_id"]


async def results(door: Door, session: str) -> list[dict[str, Any]]:
    page = (await door.get(f"sessions/{session}/messages")).json()
    return [message for message in page["messages"] if message["kind"] == "result"]


async def test_a_question_is_answered_once_and_the_trace_goes_on(a: Door, b: Door) -> None:
    await runs(b, "asks")
    session, trace_id = await asked(a, b)
    path = f"traces/{trace_id}/input"
    early = await a.post(path, {"answer": "blue"})
    assert (early.status_code, early.json()["code"]) == (409, "conflict")
    assert await work(trace_id)
    waiting = (await a.get(f"traces/{trace_id}")).json()
    assert (waiting["status"], waiting["pending_input"]["question"]) == ("waiting", "Which colour?")
    for body in ({}, {"answer": "x", "approve": True}, {"approve": True}):
        refused = await a.post(path, body)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid"), body
    own = await b.post(path, {"answer": "blue"})
    assert (own.status_code, own.json()["code"]) == (403, "forbidden"), "who asks does not answer itself"
    answered = await a.post(path, {"answer": "blue"})
    assert (answered.status_code, answered.json()["status"]) == (200, "created")
    assert answered.json()["pending_input"] is None
    assert (await a.post(path, {"answer": "red"})).status_code == 409
    assert await work(trace_id)
    assert [message["content"] for message in await results(a, session)] == ["painted blue"]


@pytest.mark.parametrize("approve", [True, False])
async def test_an_approval_is_for_one_call_and_used_once(a: Door, b: Door, tmp_path: Path, approve: bool) -> None:
    journal = tmp_path / "journal"
    await runs(b, "careful", path="notes.txt", journal=str(journal))
    session, trace_id = await asked(a, b)
    assert await work(trace_id)
    pending = (await a.get(f"traces/{trace_id}")).json()["pending_input"]
    assert pending["kind"] == "approval"
    assert pending["call"] == {"tool": "delete_file", "arguments": {"path": "notes.txt", "force": True}}
    assert (await a.post(f"traces/{trace_id}/input", {"answer": "yes"})).status_code == 400
    assert (await a.post(f"traces/{trace_id}/input", {"approve": approve})).status_code == 200
    assert await work(trace_id)
    trace = (await a.get(f"traces/{trace_id}")).json()
    if approve:
        assert trace["status"] == "completed"
        assert len(journal.read_text().splitlines()) == 1
    else:
        assert (trace["status"], trace["error"]["code"]) == ("failed", "refused")
        assert not journal.exists()
    assert len(await results(a, session)) == 1


async def test_a_trace_is_continued_with_the_history_of_another_one(a: Door, b: Door) -> None:
    await runs(b, "steps", steps=1, seconds=0)
    _, first = await asked(a, b, "the first")
    assert await work(first)
    last = (await a.get(f"traces/{first}")).json()["last_sequence"]
    too_far = await a.post(f"traces/{first}/continue", {"content": "on", "after_sequence": last + 1})
    assert (too_far.status_code, too_far.json()["details"]["field"]) == (400, "after_sequence")
    made = await a.post(f"traces/{first}/continue", {"content": "go on"})
    assert made.status_code == 201
    second = made.json()
    assert second["continue_from"] == {"trace_id": first, "after_sequence": last}
    assert (second["agent_id"], second["task"], second["status"]) == (b.agent_id, "go on", "created")
    history = json.dumps(await _history(second["trace_id"]))
    assert "the first" in history
    assert "1 steps in attempt 1" in history
    assert await work(second["trace_id"])
    again = (await a.get(f"traces/{second['trace_id']}")).json()
    assert again["status"] == "completed"


@sync_to_async
def _history(trace_id: str) -> list[dict[str, Any]]:
    from traces_app.leases import claim, release

    claimed = claim(Trace.objects.values_list("pk", flat=True).get(public_id=trace_id), "w")
    assert claimed is not None
    request, _ = load_request(claimed, None)
    assert release(claimed)
    return [dict(entry) for entry in request.history]
