"""Two hubs, by A2A: an agent of the far one is a participant on the near one, and neither knows that the other is a hub."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.acceptance.tracehub import (
    TERMINAL,
    AgentWire,
    TraceHub,
    ask,
    events_of,
    eventually,
    is_part_of,
    results_of,
    trace_of,
    until_trace,
)
from tests.acceptance.wire import receive, send, until
from tests.hubs import Backends

LOOPBACK = {"HUB_A2A_ALLOW": "127.0.0.1"}


@dataclass
class Hubs:
    """`far` has the agents; `near` knows them by their cards, and comes with the key of `far`'s agent `guest`."""

    far: TraceHub
    near: TraceHub
    guest: AgentWire

    async def known(self, agent: AgentWire, name: str, **config: Any) -> AgentWire:
        """An agent of the far hub, registered at the near one; returns somebody who can ask it."""
        operator = self.near.operator()
        body = {
            "agent_id": name,
            "executor": "a2a",
            "executor_config": {
                "card_url": f"{self.far.web()}/a2a/agents/{agent.agent_id}", "credential": "FAR", **config
            },
        }  # fmt: skip
        answer = await operator.call("POST", "agents", body)
        assert answer.status_code == 201, answer.text
        (alice,) = await self.near.agents("alice")
        return alice

    async def traces_there(self, agent: AgentWire) -> list[dict[str, Any]]:
        """What the far hub runs for its agent."""
        found = []
        operator = self.far.operator()
        for session in (await operator.call("GET", f"sessions?participant={agent.agent_id}")).json()["sessions"]:
            found += (await operator.call("GET", f"sessions/{session['session_id']}/traces")).json()["traces"]
        return found


@pytest.fixture(scope="module")
def hubs(tmp_path_factory: pytest.TempPathFactory, backends: Backends) -> Iterator[Hubs]:
    far = TraceHub(tmp_path_factory.mktemp("far"), backends.sqlite(), LOOPBACK).start()
    guest = asyncio.run(far.agent("guest"))
    secret = {"HUB_A2A_SECRET_FAR": guest.key}
    near = TraceHub(tmp_path_factory.mktemp("near"), backends.sqlite(), {**LOOPBACK, **secret}).start()
    yield Hubs(far, near, guest)
    near.stop()
    far.stop()


async def test_what_is_said_to_it_is_answered_from_over_there_piece_by_piece(hubs: Hubs) -> None:
    (talker,) = await hubs.far.agents("talker")
    await hubs.far.runs(talker, "talker", words=400)
    alice = await hubs.known(talker, "far-talker")
    session_id = (await alice.open_session(["far-talker"]))["session_id"]
    pieces = []
    async with alice.session_socket(session_id) as socket:
        await until(socket, "replay_complete")
        await send(socket, type="message", content="hello there")  # talk, not work: it is asked all the same
        while True:
            frame = await receive(socket, timeout=60)
            if frame["type"] == "chunk":
                pieces.append(frame["text"])
            if frame["type"] == "message" and frame["kind"] == "result":
                break
    assert frame["content"] == "".join(f"word{index} " for index in range(400))
    assert len(pieces) > 1
    assert is_part_of(pieces, frame["content"])


async def test_a_cancel_is_passed_on(hubs: Hubs) -> None:
    (sleeper,) = await hubs.far.agents("sleeper")
    await hubs.far.runs(sleeper, "sleeper", seconds=60)
    alice = await hubs.known(sleeper, "far-sleeper")
    session_id = (await alice.open_session(["far-sleeper"]))["session_id"]
    trace_id = (await ask(alice, session_id, "sleep"))["trace_id"]

    async def runs_there() -> bool:
        return [trace["status"] for trace in await hubs.traces_there(sleeper)] == ["running"]

    await eventually(runs_there)
    assert (await alice.call("POST", f"traces/{trace_id}/cancel")).json()["status"] == "cancelled"

    async def is_cancelled_there() -> bool:
        return [trace["status"] for trace in await hubs.traces_there(sleeper)] == ["cancelled"]

    await eventually(is_cancelled_there)


async def test_a_question_from_over_there_is_answered_here(hubs: Hubs) -> None:
    (asker,) = await hubs.far.agents("asker")
    await hubs.far.runs(asker, "asks")
    alice = await hubs.known(asker, "far-asker")
    session_id = (await alice.open_session(["far-asker"]))["session_id"]
    trace_id = (await ask(alice, session_id, "paint"))["trace_id"]
    trace = await until_trace(alice, trace_id, "waiting")
    assert trace["pending_input"]["question"] == "Which colour?"
    assert (await alice.call("POST", f"traces/{trace_id}/input", {"answer": "red"})).status_code == 200
    trace = await until_trace(alice, trace_id, *TERMINAL)
    assert (trace["status"], trace["result"]["summary"]) == ("completed", "painted red")
    assert len(await hubs.traces_there(asker)) == 1


async def test_an_agent_that_is_only_connected_over_there_answers_a_session_here(hubs: Hubs) -> None:
    (laptop,) = await hubs.far.agents("laptop")
    alice = await hubs.known(laptop, "far-laptop")
    session_id = (await alice.open_session(["far-laptop"]))["session_id"]
    trace_id = (await ask(alice, session_id, "are you there?"))["trace_id"]
    async with laptop.agent_socket() as socket:  # it comes after the question
        asked = await until(socket, "message")
        assert asked["content"].startswith("are you there?")
        await send(
            socket, type="message", session_id=asked["session_id"], content="I am.", reply_to=asked["message_id"]
        )
        trace = await until_trace(alice, trace_id, *TERMINAL)
    assert (trace["status"], trace["result"]["summary"]) == ("completed", "I am.")


async def test_a_worker_killed_in_the_middle_takes_the_same_task_up_again(hubs: Hubs) -> None:
    (steps,) = await hubs.far.agents("steps")
    go_on = hubs.far.directory / "the-steps-go-on"
    await hubs.far.runs(steps, "steps", steps=40, seconds=0.01, until=str(go_on))
    alice = await hubs.known(steps, "far-steps")
    session_id = (await alice.open_session(["far-steps"]))["session_id"]
    trace_id = (await ask(alice, session_id, "forty steps"))["trace_id"]

    async def runs_there() -> bool:
        return [trace["status"] for trace in await hubs.traces_there(steps)] == ["running"]

    await eventually(runs_there)
    await asyncio.to_thread(hubs.near.kill_worker)
    go_on.touch()
    trace = await until_trace(alice, trace_id, *TERMINAL, timeout=60)
    assert (trace["status"], trace["attempt"], trace["result"]["summary"]) == ("completed", 2, "40 steps in attempt 1")
    assert len(await hubs.traces_there(steps)) == 1, "it was not asked twice"
    assert {key: len(found) for key, found in (await results_of(alice, session_id)).items()} == {trace_id: 1}
    (done,) = [event for event in await events_of(alice, trace_id) if event["type"] == "tool_result"]
    assert done["data"]["result"]["state"] == "TASK_STATE_COMPLETED"


async def test_the_far_hub_pushes_what_happens_to_a_task(hubs: Hubs) -> None:
    """As its client, over A2A: the receiver fails twice, and has each event in the end, in order."""
    (echo,) = await hubs.far.agents("echo")
    await hubs.far.runs(echo, "sleeper", seconds=1)
    got: list[dict[str, Any]] = []
    failing = [500, 503]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            code = failing.pop() if failing else 200
            if code == 200:
                got.append(body)
                assert self.headers["x-a2a-notification-token"] == "a-token"
            self.send_response(code)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    push = {"url": f"http://127.0.0.1:{server.server_port}/hook", "token": "a-token"}
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "sleep"}]}
    params = {
        "message": message,
        "configuration": {"returnImmediately": True, "taskPushNotificationConfig": push},
    }
    async with httpx.AsyncClient(headers={**hubs.guest.headers, "A2A-Version": "1.0"}) as client:
        answer = await client.post(
            f"{hubs.far.web()}/a2a/agents/{echo.agent_id}/",
            json={"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params},
        )
    assert "result" in answer.json(), answer.text

    async def told_of_the_end() -> bool:
        return bool(got) and got[-1].get("statusUpdate", {}).get("status", {}).get("state") == "TASK_STATE_COMPLETED"

    await eventually(told_of_the_end)
    server.shutdown()
    server.server_close()
    states = [event["statusUpdate"]["status"]["state"] for event in got if "statusUpdate" in event]
    assert states[-2:] == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
    assert await trace_of(hubs.guest, answer.json()["result"]["task"]["id"])
