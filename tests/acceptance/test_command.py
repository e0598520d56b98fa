"""The command `hub` and the SDK's delegated work against a real hub: in a terminal, live, as a person sees it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hub.client import A2ASessionClient, Completed, Message, TraceFailed, TraceRun
from tests.acceptance.terminal import terminal
from tests.conftest import HUBS
from tests.hubs import Backends, Hub

HUB = (sys.executable, "-m", "hub.cli")
NASTY = "\x1b[2J\x1b]52;c;aGk=\x07 \x9b31m a\rb \u202edrow"
HARMFUL = ("\x1b[2J", "\x1b]52", "\x9b", "a\rb", "\u202e", "\x07")


@contextlib.asynccontextmanager
async def connected(hub: Hub, *names: str) -> AsyncIterator[list[A2ASessionClient]]:
    """Clients of new agents, each at the next web process; not yet connected, so that handlers come first."""
    keys = await asyncio.to_thread(hub.create_agents, names)
    clients = [A2ASessionClient(hub.webs[n % len(hub.webs)].url, name, keys[name]) for n, name in enumerate(names)]
    try:
        yield clients
    finally:
        for client in clients:
            await client.close()


async def key_of(hub: Hub, name: str) -> str:
    """One more key of an agent."""
    return str(json.loads(await asyncio.to_thread(hub.manage, "agent", "key", name, "--json"))["api_key"])


async def takes_traces(asker: A2ASessionClient, name: str) -> None:
    """Until the hub knows that this agent is there; it then knows whether it takes traces."""
    async with asyncio.timeout(30):
        while not (await asker.agent(name)).online:  # noqa: ASYNC110 - another process's row
            await asyncio.sleep(0.05)


@pytest.fixture(params=["embedded", "postgres"])
def anywhere(request: pytest.FixtureRequest, backends: Backends) -> Iterator[Hub]:
    """The module's embedded hub; and two web processes on PostgreSQL with Redis, asker and worker at different ones."""
    if request.param == "embedded":
        yield request.getfixturevalue("serve")
        return
    backend = backends.postgres(request.getfixturevalue("postgres_server"), request.getfixturevalue("redis_server"))
    hub = Hub(backend, backend.env)
    request.node.stash[HUBS] = [hub]
    hub.add_webs(2)
    yield hub
    hub.stop()


async def test_delegated_work_is_offered_runs_with_its_events_and_comes_back_as_one_message(anywhere: Hub) -> None:
    async with connected(anywhere, "d-boss", "d-worker") as (boss, worker):
        stopped = asyncio.Event()
        begun = asyncio.Event()

        @worker.run_traces
        async def execute(run: TraceRun) -> Completed:
            if "fail" in run.task:
                raise TraceFailed("too_hard", "I give up")
            if "for ever" in run.task:
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()
            await run.goal("all", "the whole", status="running")
            await run.goal("part", "a part", status="running", parent_id="all")
            await run.tool_call("c1", "look", {"at": "core"})
            run.chunk("I am ")
            run.chunk("looking")
            await run.tool_result("c1", "look", {"found": 3})
            await run.goal("part", "a part", status="done", parent_id="all")
            await run.log("nearly there")
            await run.goal("all", "the whole", status="done")
            return Completed("found 3 things", context_patch={"focus_module": "core"})

        await worker.connect()
        await boss.connect()
        session_id = await boss.create_session(other_agent="d-worker")
        await takes_traces(boss, "d-worker")
        sent_pieces = [p async for p in boss.stream(session_id, "look at core", requires_execution=True)]
        answer = sent_pieces[-1]
        assert isinstance(answer, Message)
        assert (answer.sender, answer.kind, answer.content) == ("d-worker", "result", "found 3 things")
        (trace,) = await boss.traces(session_id)
        assert (trace.status, trace.agent_id, trace.attempt, trace.executor) == ("completed", "d-worker", 1, "delegate")
        assert [(g["goal_id"], g["parent_id"], g["status"]) for g in trace.goals or []] == [
            ("all", None, "done"),
            ("part", "all", "done"),
        ]
        events = [json.loads(event.data) async for event in boss.trace_events(trace.trace_id) if event.event != "end"]
        stored = [event["type"] for event in events if "sequence" in event]
        assert [kind for kind in stored if kind not in ("context", "status")] == [
            *("goal", "goal", "tool_call", "tool_result", "goal", "log", "goal")
        ]
        assert [event["data"]["status"] for event in events if event["type"] == "status"] == [
            *("created", "running", "completed")
        ]
        assert (await boss.context(session_id))["focus_module"] == "core"

        refused = await boss.ask(session_id, "fail at this", requires_execution=True)
        assert "I give up" in refused.content
        assert refused.metadata is not None
        assert refused.metadata["trace_status"] == "failed"

        endless = await boss.send_message(session_id, "do it for ever", requires_execution=True)
        async with asyncio.timeout(30):
            await begun.wait()
        assert endless.trace_id is not None
        assert (await boss.cancel_trace(endless.trace_id)).status == "cancelled"
        async with asyncio.timeout(30):
            await stopped.wait()
        results = [m async for m in boss.history(session_id) if m.kind == "result"]
        assert len(results) == 3, "one message for each trace, however it ended"


async def test_the_goal_tree_of_a_trace_grows_in_the_terminal_and_ends_with_the_result(serve: Hub) -> None:
    async with connected(serve, "t-boss", "t-worker") as (boss, worker):
        watched, go_on = asyncio.Event(), asyncio.Event()

        @worker.run_traces
        async def execute(run: TraceRun) -> str:
            await run.goal("g1", "read the project", status="running")
            await run.goal("g2", f"read core {NASTY}", status="running", parent_id="g1")
            watched.set()
            await go_on.wait()
            await run.goal("g2", "read core", status="done", parent_id="g1")
            await run.goal("g1", "read the project", status="done")
            return f"core has 3 modules {NASTY}"

        await worker.connect()
        await boss.connect()
        session_id = await boss.create_session(other_agent="t-worker")
        await takes_traces(boss, "t-worker")
        sent = await boss.send_message(session_id, "look at core", requires_execution=True)
        assert sent.trace_id is not None
        async with asyncio.timeout(30):
            await watched.wait()
        env = {"HUB_URL": serve.url, "HUB_API_KEY": await key_of(serve, "t-boss"), "HUB_AGENT": "t-boss"}
        async with (
            terminal(*HUB, "trace", sent.trace_id, env=env) as live,
            terminal(*("sh", "-c", f"{sys.executable} -m hub.cli trace {sent.trace_id} | cat"), env=env) as piped,
            terminal(
                *("sh", "-c", f"{sys.executable} -m hub.cli trace {sent.trace_id} --json | cat"), env=env
            ) as exact,
        ):
            await live.until(r"running: look at core")
            await live.until(r"── ◐ read the project")
            await live.until(r"    └── ◐ read core")
            await piped.until(r"goal read the project \(running\)")
            await exact.until(r'"type": "goal"')
            go_on.set()
            await live.until(r"completed: look at core")
            await live.until(r"── ● read the project")
            await live.until(r"    └── ● read core")
            await live.until(r"core has 3 modules")
            await piped.until(r"\d+ goal read the project \(done\)")
            await piped.until(r"── ● read the project\s+└── ● read core")
            await piped.until(r"core has 3 modules")
            assert [await one.end() for one in (live, piped, exact)] == [0, 0, 0]
            for one in (live, piped):
                assert not [bad for bad in HARMFUL if bad in one.output]
        lines = [json.loads(line) for line in exact.output.splitlines()]
        assert lines[-1]["status"] == "completed"
        assert lines[-1]["result"]["summary"].endswith(NASTY), "exact for programs"


async def test_a_conversation_in_the_terminal_shows_replies_while_they_are_written(serve: Hub) -> None:
    async with connected(serve, "c-agent", "c-person") as (agent, person):
        go_on = asyncio.Event()

        @agent.on_message
        async def answer(message: Message) -> None:
            async with agent.reply_stream(message) as out:
                await out.write(f"first {NASTY} half, ")
                await go_on.wait()
                await out.write("second half")

        await agent.connect()
        env = {"HUB_URL": serve.url, "HUB_API_KEY": await key_of(serve, "c-person"), "HUB_AGENT": "c-person"}
        async with terminal(*HUB, "chat", "c-agent", env=env) as chat:
            session_id = (await chat.until(r"session (sess-\w+)"))[1]
            await chat.until("> ")
            chat.type("hello there\n")
            await chat.until(r"c-agent: first ")
            assert "second half" not in chat.output, "it is shown while it is written"
            go_on.set()
            await chat.until("second half")
            await chat.until("> ")
            chat.type("and again\n")
            await chat.until(r"c-agent: first .* half, second half")
            chat.type("\x04")
            await chat.until(f"left open; go on with: hub chat {session_id}")
            assert await chat.end() == 0
            assert not [bad for bad in HARMFUL if bad in chat.output]
        said = [(m.sender, m.content) async for m in person.history(session_id)]
        assert [who for who, _ in said] == ["c-person", "c-agent"] * 2
        assert [said[0][1], said[2][1]] == ["hello there", "and again"]


async def test_the_shell_completes_commands_options_and_sub_commands(tmp_path: Path) -> None:
    """An interactive bash, and the key Tab."""
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "PS1": "ready$ "}
    async with terminal("bash", "--norc", "--noprofile", "-i", env=env) as shell:
        await shell.until(r"\$ ")
        shell.type('eval "$(hub --show-completion bash)"; echo set""up\n')
        await shell.until("setup")
        shell.type("hub hist\t")
        await shell.until("hub history ")
        shell.type("\x15hub agent works\t")
        await shell.until("hub agent workspace ")
        shell.type("--ro\t")
        await shell.until("--root ")
        shell.type("\x15exit\n")
        await shell.end()
