"""Main agents in whole hubs: more of them than a worker has room for, a worker that dies, and text that is seen live."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.tracehub import AgentWire, TraceHub, is_part_of, until_trace
from tests.acceptance.wire import Frame, until

SESSIONS = 5
SLOTS = "2"


@pytest.fixture(scope="module", params=["embedded", "postgres"])
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, backends: Any) -> Iterator[TraceHub]:
    """One hub of each kind, whose workers run two traces at once."""
    made = TraceHub(tmp_path_factory.mktemp("main"), backends.chosen(request), {"HUB_WORKER_THREADS": SLOTS})
    yield made.start()
    made.stop()


async def group(hub: TraceHub, function: str, **config: Any) -> tuple[AgentWire, str, str]:
    """A user, a main agent without a model, and one agent: `(user, session id, the agent's id)`."""
    user, main, callee = await hub.agents("user", "main", "callee")
    await hub.runs(callee, function, **config)
    operator = hub.operator()
    answer = await operator.call("PATCH", f"agents/{main.agent_id}", {"executor": "orchestrator"})
    assert answer.status_code == 200, answer.text
    session_id = (await user.open_session([main.agent_id, callee.agent_id]))["session_id"]
    return user, session_id, callee.agent_id


async def say(user: AgentWire, session_id: str, text: str) -> str:
    """What the user says to nobody in particular; the trace that it opened."""
    answer = await user.call("POST", f"sessions/{session_id}/messages", {"content": text})
    assert answer.status_code == 201, answer.text
    trace_id = answer.json()["trace_id"]
    assert trace_id, answer.text
    return str(trace_id)


async def log_of(user: AgentWire, session_id: str) -> list[Frame]:
    return list((await user.call("GET", f"sessions/{session_id}/messages?limit=500")).json()["messages"])


async def test_more_main_agents_than_there_is_room_for_do_not_wait_for_themselves(hub: TraceHub) -> None:
    groups = [await group(hub, "steps", steps=2) for _ in range(SESSIONS)]
    traces = await asyncio.gather(
        *(say(user, session_id, "the list of steps, if you would") for user, session_id, _ in groups)
    )
    for (user, session_id, callee), trace_id in zip(groups, traces, strict=True):
        trace = await until_trace(user, trace_id, "completed", "failed", timeout=60)
        assert trace["status"] == "completed", trace
        _, *answers = await log_of(user, session_id)
        assert [(m["from"], m["kind"], m["trace_id"]) for m in answers] == [(callee, "result", trace_id)]


async def test_the_text_of_a_called_agent_is_seen_live_and_stored_as_its_sum(hub: TraceHub) -> None:
    user, session_id, callee = await group(hub, "talker", words=100)
    async with user.session_socket(session_id) as socket:
        await until(socket, "replay_complete")
        await say(user, session_id, "tell me something")
        pieces: list[str] = []
        while True:
            frame = await until_one_of(socket, "chunk", "message")
            if frame["type"] == "message" and frame["from"] == user.agent_id:
                continue
            if frame["type"] == "message":
                break
            pieces.append(frame["text"])
            assert frame["from"] == callee
    assert frame["from"] == callee
    assert frame["content"] == "".join(f"word{number} " for number in range(100))
    assert pieces
    assert is_part_of(pieces, frame["content"])


async def until_one_of(socket: Any, *kinds: str) -> Frame:
    async with asyncio.timeout(30):
        while True:
            frame = json.loads(await socket.recv())
            if frame["type"] in kinds:
                return dict(frame)


async def test_a_worker_that_dies_in_the_middle_of_a_call_costs_time_and_nothing_else(hub: TraceHub) -> None:
    user, session_id, callee = await group(hub, "steps", steps=20, lives=2)
    trace_id = await say(user, session_id, "the list of steps, if you would")
    async with asyncio.timeout(60):
        while True:
            listed = (await user.call("GET", f"sessions/{session_id}/traces")).json()["traces"]
            if any(trace["parent_trace_id"] == trace_id and len(trace["goals"]) >= 3 for trace in listed):
                break
            await asyncio.sleep(0.05)
    await asyncio.to_thread(hub.kill_workers)
    await asyncio.to_thread(hub.start_workers)
    trace = await until_trace(user, trace_id, "completed", "failed", timeout=60)
    assert trace["status"] == "completed", trace
    assert trace["losses"] >= 1
    listed = (await user.call("GET", f"sessions/{session_id}/traces")).json()["traces"]
    assert len(listed) == 2, "the same call was found again"
    answers = [m for m in await log_of(user, session_id) if m["kind"] == "result"]
    assert [(m["from"], m["trace_id"]) for m in answers] == [(callee, trace_id)]
    session = (await user.call("GET", f"sessions/{session_id}")).json()
    assert session["waiting_for"] == []
