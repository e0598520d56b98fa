"""Traces in real processes: killed workers, stopped brokers, cancels, closes, laptops that sleep. Each result once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection

from tests.acceptance.tracehub import (
    TERMINAL,
    AgentWire,
    TraceHub,
    ask,
    events_of,
    eventually,
    results_of,
    trace_of,
    until_at_least,
    until_it_says,
    until_online,
    until_trace,
)
from tests.acceptance.wire import Frame, Wire, receive, send, until


@pytest.fixture(scope="module", params=["embedded", "postgres"])
def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, backends: Any) -> Iterator[TraceHub]:
    """One hub of each kind for all of these tests; the second has two web processes, two workers and its own Redis."""
    made = TraceHub(tmp_path_factory.mktemp("traces"), backends.chosen(request))
    yield made.start(webs=2, workers=2)
    made.stop()


@pytest.fixture(autouse=True)
def everybody_at_work(hub: TraceHub) -> None:
    """Whatever the test before has killed is running again."""
    hub.start_workers()


def only(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("hub", [kind], indirect=True, scope="module")


async def talk(hub: TraceHub, function: str, **config: Any) -> tuple[AgentWire, AgentWire, str]:
    """Alice asks, bob has an executor: `(alice, bob, session id)`."""
    alice, bob = await hub.agents("alice", "bob")
    await hub.runs(bob, function, **config)
    session_id = (await alice.open_session([bob.agent_id]))["session_id"]
    return alice, bob, session_id


async def test_a_worker_killed_twice_in_30_steps_leaves_one_result_and_the_third_loss_fails(hub: TraceHub) -> None:
    alice, bob, session_id = await talk(hub, "steps", steps=30, seconds=0.01, lives=3)
    (carol,) = await hub.agents("carol")
    await hub.runs(carol, "sleeper", seconds=60)
    sent = await ask(alice, session_id, "do thirty steps")
    trace_id = sent["trace_id"]
    parallel = (await alice.open_session([carol.agent_id]))["session_id"]
    doomed = (await ask(alice, parallel, "sleep long"))["trace_id"]
    for round_ in (1, 2):
        await until_at_least(alice, doomed, "attempt", round_)
        await until_it_says(alice, trace_id, f"attempt {round_} waits for its end")
        await asyncio.to_thread(hub.kill_workers)
        if hub.redis is not None and round_ == 1:
            await asyncio.to_thread(hub.redis.stop_server)
            await until_trace(alice, trace_id, "created")  # the sweep needs no broker
            await asyncio.to_thread(hub.redis.start)
        await asyncio.to_thread(hub.start_workers)
        await until_at_least(alice, trace_id, "attempt", round_ + 1)
    trace = await until_trace(alice, trace_id, *TERMINAL, timeout=60)
    assert (trace["status"], trace["attempt"], trace["losses"]) == ("completed", 3, 2)
    assert {goal["status"] for goal in trace["goals"]} == {"done"}
    assert len(trace["goals"]) == 30
    statuses = [event["data"]["status"] for event in await events_of(alice, trace_id) if event["type"] == "status"]
    assert statuses == ["created", "running", "created", "running", "created", "running", "completed"]
    results = await results_of(alice, session_id)
    assert [message["content"] for message in results[trace_id]] == ["30 steps in attempt 3"]
    assert results[trace_id][0]["reply_to"] == sent["message_id"]
    session = (await alice.call("GET", f"sessions/{session_id}")).json()
    assert session["context"]["focus_module"] == "core"
    assert session["context"]["previous_results"][trace_id]["agent_id"] == bob.agent_id
    assert (session["status"], session["waiting_for"]) == ("active", [])

    await until_at_least(alice, doomed, "attempt", 3)
    await asyncio.to_thread(hub.kill_workers)
    lost = await until_trace(alice, doomed, *TERMINAL)
    assert (lost["status"], lost["error"]["code"], lost["losses"]) == ("failed", "worker_lost", 3)
    assert len((await results_of(alice, parallel))[doomed]) == 1


@only("postgres")
async def test_a_send_while_the_broker_is_down_is_acked_at_once_and_runs_when_it_is_back(hub: TraceHub) -> None:
    assert hub.redis is not None
    alice, _, session_id = await talk(hub, "echo")
    # Restarted while idle, with its data lost: the worker must not stay deaf.
    await asyncio.to_thread(hub.redis.stop_server, lose_data=True)
    await asyncio.to_thread(hub.redis.start)
    first = await ask(alice, session_id, "after a restart")
    await until_trace(alice, first["trace_id"], "completed", timeout=60)
    (sleepy,) = await hub.agents("sleepy")
    await hub.runs(sleepy, "sleeper", seconds=60)
    elsewhere = (await alice.open_session([sleepy.agent_id]))["session_id"]
    running = (await ask(alice, elsewhere, "sleep long"))["trace_id"]
    await until_trace(alice, running, "running")
    await asyncio.to_thread(hub.redis.stop_server)
    async with alice.session_socket(session_id) as socket:
        await until(socket, "welcome")
        await send(socket, type="message", content="work", requires_execution=True, id=7)
        acked = await until(socket, "ack", id=7)  # while the broker is down
    assert (await trace_of(alice, acked["trace_id"]))["status"] == "created"
    cancelled = (await ask(alice, session_id, "never mind"))["trace_id"]
    answer = await alice.call("POST", f"traces/{cancelled}/cancel")
    assert answer.json()["status"] == "cancelled", "a cancel is a row; it needs no broker"
    assert (await alice.call("POST", f"traces/{running}/cancel")).json()["status"] == "cancelled"
    await asyncio.to_thread(hub.redis.start)
    await until_trace(alice, acked["trace_id"], "completed", timeout=60)
    results = await results_of(alice, session_id)
    assert {trace_id: len(messages) for trace_id, messages in results.items()} == {
        first["trace_id"]: 1,
        acked["trace_id"]: 1,
        cancelled: 1,
    }
    assert (await trace_of(alice, cancelled))["attempt"] == 0
    assert (await trace_of(alice, running))["status"] == "cancelled"
    assert [m["metadata"]["trace_status"] for m in (await results_of(alice, elsewhere))[running]] == ["cancelled"]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_200_traces_at_once_of_which_every_fifth_attempt_is_killed_each_have_one_result(hub: TraceHub) -> None:
    """With two workers each attempt dies with the process that runs it by a chance of 20 %, and one worker as a whole.

    The embedded hub's one worker takes all that it runs with it: there it is killed once, and the traces are fewer.
    """
    number = 40 if hub.embedded else 200
    alice, bob = await hub.agents("alice", "bob")
    await hub.runs(bob, "mortal", percent=0 if hub.embedded else 20)
    sessions = [(await alice.open_session([bob.agent_id], busy_policy="parallel"))["session_id"] for _ in range(8)]
    asked = await asyncio.gather(*(ask(alice, sessions[n % 8], f"step {n}") for n in range(number)))
    trace_ids = {sent["trace_id"]: sessions[n % 8] for n, sent in enumerate(asked)}
    assert len(trace_ids) == number

    async def ended() -> bool:
        """Each request is one message, and each end one more."""
        pages = [(await alice.call("GET", f"sessions/{s}")).json() for s in sessions]
        return sum(int(page["last_sequence"]) for page in pages) == 2 * number

    await asyncio.to_thread(hub.kill_worker, 1)
    await asyncio.to_thread(hub.start_worker, 1)
    await eventually(ended, 240)  # a hang, not a measure: the machine may be busy
    losses = 0
    for session_id in sessions:
        results = await results_of(alice, session_id)
        mine = {trace_id for trace_id, session in trace_ids.items() if session == session_id}
        assert {trace_id: len(found) for trace_id, found in results.items()} == dict.fromkeys(mine, 1)
        session = (await alice.call("GET", f"sessions/{session_id}")).json()
        assert session["waiting_for"] == []
        for trace in (await alice.call("GET", f"sessions/{session_id}/traces?limit=500")).json()["traces"]:
            losses += trace["losses"]
            (result,) = results[trace["trace_id"]]
            if trace["status"] == "completed":
                assert trace["losses"] == trace["attempt"] - 1 < 3
                assert result["content"] == f"lived in attempt {trace['attempt']}"
            else:  # its attempts have run out, and that is said, too
                assert (trace["status"], trace["error"]["code"], trace["losses"]) == ("failed", "worker_lost", 3)
                assert result["metadata"]["trace_status"] == "failed"
            assert {goal["status"] for goal in trace["goals"]} <= {"done", "failed"}, "no goal is left under way"
    assert hub.embedded or losses >= 20


async def test_cancel_before_the_start_in_the_middle_and_after_the_end(hub: TraceHub) -> None:
    alice, bob, session_id = await talk(hub, "sleeper", seconds=30)
    running = (await ask(alice, session_id, "first"))["trace_id"]
    queued = (await ask(alice, session_id, "second"))["trace_id"]  # in line behind the first
    await until_trace(alice, running, "running")
    async with alice.session_socket(session_id) as socket:
        await until(socket, "welcome")
        assert (await bob.call("POST", f"traces/{queued}/cancel")).json()["status"] == "cancelled"
        assert (await alice.call("POST", f"traces/{running}/cancel")).json()["status"] == "cancelled"
        for trace_id in (queued, running):
            posted = await until(socket, "message", trace_id=trace_id)
            assert posted["metadata"]["trace_status"] == "cancelled"
    await hub.runs(bob, "echo")
    finished = (await ask(alice, session_id, "third"))["trace_id"]
    before = await until_trace(alice, finished, "completed")
    answers = await asyncio.gather(*(alice.call("POST", f"traces/{finished}/cancel") for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert all(answer.json() == before for answer in answers), "a finished trace is left as it is"
    results = await results_of(alice, session_id)
    assert {trace_id: len(found) for trace_id, found in results.items()} == {running: 1, queued: 1, finished: 1}
    assert (await trace_of(alice, queued))["attempt"] == 0
    assert [e["type"] for e in await events_of(alice, running)][-1] == "status"


async def test_a_session_outlives_its_time_out_while_a_trace_runs_and_a_close_cancels_it(hub: TraceHub) -> None:
    alice, bob, session_id = await talk(hub, "sleeper", seconds=3)
    question = {"content": "longer than the session would live", "requires_execution": True}
    opened = await alice.open_session([bob.agent_id], timeout_seconds=1, initial_message=question)
    short, slow = opened["session_id"], opened["trace_id"]
    trace = await until_trace(alice, slow, *TERMINAL)
    assert trace["status"] == "completed"
    assert len((await results_of(alice, short))[slow]) == 1

    async def timed_out() -> bool:
        return bool((await alice.call("GET", f"sessions/{short}")).json()["status"] == "timeout")

    await eventually(timed_out)

    closed = (await ask(alice, session_id, "will be cut off"))["trace_id"]
    await until_trace(alice, closed, "running")
    assert (await alice.call("POST", f"sessions/{session_id}/close")).json()["status"] == "completed"
    trace = await trace_of(alice, closed)
    assert (trace["status"], trace["result"]) == ("cancelled", None)
    results = await results_of(alice, session_id)
    assert [message["metadata"]["trace_status"] for message in results[closed]] == ["cancelled"]
    last = (await alice.call("GET", f"sessions/{session_id}")).json()["last_sequence"]

    # An executor that heeds no cancel: what it returns after the close stays on the trace, and nowhere else.
    end = hub.directory / f"the-deaf-ends-{bob.agent_id}"
    await hub.runs(bob, "deaf", until=str(end))
    third = (await alice.open_session([bob.agent_id]))["session_id"]
    heedless = (await ask(alice, third, "will not stop"))["trace_id"]
    await until_trace(alice, heedless, "running")
    await alice.call("POST", f"sessions/{third}/close")
    cancelled = await trace_of(alice, heedless)
    assert (cancelled["status"], cancelled["result"]) == ("cancelled", None)
    end.touch()

    async def has_its_result() -> bool:
        return (await trace_of(alice, heedless))["result"] is not None

    await eventually(has_its_result)
    late = await trace_of(alice, heedless)
    assert late["result"]["summary"] == "a late result"
    assert {**late, "result": None} == cancelled
    assert [m["metadata"]["trace_status"] for m in (await results_of(alice, third))[heedless]] == ["cancelled"]
    assert (await alice.call("GET", f"sessions/{third}")).json()["context"] == {}

    await hub.runs(bob, "echo")
    other = (await alice.open_session([bob.agent_id]))["session_id"]
    await until_trace(alice, (await ask(alice, other, "next"))["trace_id"], "completed")
    assert (await alice.call("GET", f"sessions/{session_id}")).json()["last_sequence"] == last


async def follow(wire: Wire, trace_id: str, last_event_id: int | None = None) -> list[tuple[str, int | None]]:
    """The events of the stream up to its end, as (type, id)."""
    headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    seen: list[tuple[str, int | None]] = []
    async with (
        httpx.AsyncClient(base_url=wire.url, headers={**wire.headers, **headers}, timeout=60, verify=False) as client,
        client.stream("GET", f"/api/a2a/traces/{trace_id}/stream") as answer,
    ):
        assert answer.status_code == 200
        kind, number = "", None
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                kind, number = line[7:], None
            elif line.startswith("id: "):
                number = int(line[4:])
            elif line.startswith("data: "):
                json.loads(line[6:])
                seen.append((kind, number))
    return seen


async def test_following_a_trace_that_runs_and_one_that_has_ended_gives_the_same_and_ends(hub: TraceHub) -> None:
    alice, bob, session_id = await talk(hub, "steps", steps=8, seconds=0.05)
    elsewhere = alice.at(hub.web(1))
    async with elsewhere.session_socket(session_id) as socket:
        await until(socket, "replay_complete")
        trace_id = (await ask(alice, session_id, "eight steps"))["trace_id"]
        live, other, frames = await asyncio.gather(
            follow(alice, trace_id), follow(elsewhere, trace_id), frames_of(socket, trace_id)
        )
    late = await follow(elsewhere, trace_id)
    assert live == other == late
    assert late[-1] == ("end", None)
    numbers = [number for kind_, number in late if kind_ != "end"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert await follow(alice, trace_id, 10) == late[10:]
    assert await follow(alice, trace_id, len(numbers)) == [("end", None)]
    assert frames == sorted(frames)
    assert frames[-1] == numbers[-1]

    await hub.runs(bob, "talker", words=100)
    async with elsewhere.session_socket(session_id) as socket:
        await until(socket, "replay_complete")
        talking = (await ask(alice, session_id, "talk"))["trace_id"]
        pieces: list[Frame] = []
        while True:
            frame = await receive(socket)
            if frame["type"] == "chunk":
                pieces.append(frame)
            elif frame["type"] == "message" and frame["kind"] == "result":
                break
    assert frame["metadata"]["stream_id"] == talking
    assert pieces, "live text reaches the sockets of other processes"
    assert {piece["trace_id"] for piece in pieces} == {talking}
    indexes = [piece["index"] for piece in pieces]
    assert indexes == sorted(set(indexes))
    if len(pieces) == indexes[-1] + 1:
        assert frame["content"].startswith("".join(piece["text"] for piece in pieces))


async def frames_of(socket: ClientConnection, trace_id: str) -> list[int]:
    """The events that `trace` frames brought, until the trace had ended."""
    seen = []
    while True:
        frame = await until(socket, "trace", trace_id=trace_id)
        seen.append(frame["event"]["sequence"])
        if frame["status"] in TERMINAL:
            return seen


async def test_the_planner_answers_with_facts_of_the_project_and_nothing_from_beyond_it(hub: TraceHub) -> None:
    alice, bob = await hub.agents("alice", "bob")
    session_id = (await alice.open_session([bob.agent_id]))["session_id"]

    async def answer_to(text: str) -> tuple[Frame, Frame]:
        trace = await until_trace(alice, (await ask(alice, session_id, text))["trace_id"], *TERMINAL)
        (result,) = (await results_of(alice, session_id))[trace["trace_id"]]
        return trace, result

    trace, result = await answer_to("请分析本地项目")
    assert (trace["status"], trace["executor"], result["from"]) == ("completed", "planner", "hub")
    assert "我看到有3个模块：" in result["content"]
    assert {goal["status"] for goal in trace["goals"]} == {"done"}
    await answer_to("重点分析core模块")
    session = (await alice.call("GET", f"sessions/{session_id}")).json()
    assert session["context"]["focus_module"] == "core", "the patch of the result is the session's context"
    _, result = await answer_to("是的，请详细说明架构设计和关键组件")
    assert "Item（core/models.py:1）" in result["content"]
    (hub.directory / "secret.txt").write_text("the combination is 1234")
    for text in ("read file ../secret.txt", f"read file {hub.directory}/secret.txt"):
        trace, result = await answer_to(text)
        assert trace["status"] == "failed"
        assert "1234" not in json.dumps([trace, result, await events_of(alice, trace["trace_id"])])


async def test_a_delegated_trace_survives_a_laptop_that_sleeps(hub: TraceHub) -> None:
    alice, laptop = await hub.agents("alice", "laptop")
    elsewhere = laptop.at(hub.web(1))
    async with laptop.agent_socket("?run=1") as asleep:
        await until(asleep, "replay_complete", session_id=None)
        await until_online(alice, laptop.agent_id)
        session_id = (await alice.open_session([laptop.agent_id]))["session_id"]
        sent = (await alice.call("POST", f"sessions/{session_id}/messages", {"content": "分析core模块"})).json()
        trace_id = sent["trace_id"]
        assert trace_id, "a connected agent that takes traces is given what the rules take for a task"
        offer = await until(asleep, "trace.run")
        assert (offer["trace"]["trace_id"], offer["attempt"]) == (trace_id, 1)
        name = {"trace_id": trace_id, "session_id": session_id}
        await send(asleep, type="trace.accept", attempt=1, id="a", **name)
        assert (await until(asleep, "trace", id="a"))["status"] == "running"
        event = {"type": "log", "data": {"text": "I begin"}}
        await send(asleep, type="trace.event", attempt=1, event=event, id="b", **name)
        await until(asleep, "trace", id="b")
        # It sleeps: nothing more for longer than the lease. The offer comes again, to a socket on another process.
        async with elsewhere.agent_socket("?run=1") as awake:
            again = await until(awake, "trace.run")
            assert (again["trace"]["trace_id"], again["attempt"]) == (trace_id, 2)
            await send(awake, type="trace.accept", attempt=2, id="c", **name)
            await until(awake, "trace", id="c")
            await send(asleep, type="trace.accept", attempt=2, id="d", **name)
            assert (await until(asleep, "error", id="d"))["code"] == "conflict"
            for late in ("trace.complete", "trace.event", "trace.fail"):
                await send(asleep, type=late, attempt=1, id=late, summary="too late", **name)
                assert (await until(asleep, "error", id=late))["code"] == "conflict"
            await send(awake, type="trace.complete", attempt=2, summary="core has 3 modules", id="e", **name)
            assert (await until(awake, "trace", id="e"))["status"] == "completed"
    trace = await trace_of(alice, trace_id)
    assert (trace["attempt"], trace["losses"], trace["result"]["summary"]) == (2, 1, "core has 3 modules")
    results = (await results_of(alice, session_id))[trace_id]
    assert [(m["from"], m["content"], m["reply_to"]) for m in results] == [
        (laptop.agent_id, "core has 3 modules", sent["message_id"])
    ]
