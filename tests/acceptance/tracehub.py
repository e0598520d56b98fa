"""Whole hubs that run traces: `manage.py serve` alone, or PostgreSQL and Redis with web processes and workers."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.acceptance.wire import Frame, Wire
from tests.hubs import Backend, Hub
from tests.processes import wait_until
from tests.services import HubProcess, RedisServer
from tests.unit.workspace.trees import SHOP, plant

QUICK = {
    "HUB_TRACE_LEASE_SECONDS": "2.5",  # a worker of a busy machine must come to renew it
    "HUB_DELEGATE_LEASE_SECONDS": "4",
    "HUB_RATE_MESSAGES": "0",
    "HUB_RATE_REQUESTS": "0",
    "HUB_RATE_SESSIONS": "0",
    "HUB_TRACE_STOP_SECONDS": "2",
}
TERMINAL = {"completed", "failed", "cancelled"}


class TraceHub:
    """One hub of either kind. `web(n)` is the address of a web process; there is only one in the embedded hub."""

    def __init__(self, directory: Path, backend: Backend, env: Mapping[str, str] | None = None) -> None:
        # The one place that built-in tools may read: a small project.
        self.project = plant(directory / "shop", SHOP)
        self.env = {**QUICK, "HUB_ROOTS": str(self.project), **(env or {})}
        self.directory = directory
        self.backend = backend
        self.hub: Hub | None = None
        self.serve: HubProcess | None = None
        self.redis: RedisServer | None = None
        if backend.name == "sqlite":
            argv = (*HubProcess.SERVE, "--data", str(backend.directory))
            self.serve = HubProcess(directory, {**backend.env, **self.env}, argv=argv, name="serve")
        else:
            # A Redis of its own: it is stopped in the middle of things.
            self.redis = RedisServer(directory)
            self.hub = Hub(backend, {**backend.env, **self.env, "REDIS_URL": self.redis.url})

    @property
    def embedded(self) -> bool:
        return self.serve is not None

    def start(self, webs: int = 1, workers: int = 1) -> TraceHub:
        if self.serve is not None:
            self.serve.start()
            self.worker_process()
        elif self.hub is not None and self.redis is not None:
            self.redis.start()
            for _ in range(webs):
                self.hub.add_web(start=False)
            for _ in range(workers):
                self.hub.add_worker(start=False)
            self.hub.start()
        return self

    def stop(self) -> None:
        if self.serve is not None:
            self.serve.stop()
        if self.hub is not None:
            self.hub.stop()
        if self.redis is not None:
            self.redis.stop()

    def web(self, number: int = 0) -> str:
        if self.serve is not None:
            return self.serve.url
        assert self.hub is not None
        return self.hub.webs[number % len(self.hub.webs)].url

    def logs(self) -> str:
        processes = [self.serve] if self.serve is not None else self.hub.processes if self.hub is not None else []
        return "\n".join(process.log_tail(200) for process in processes)

    # Workers

    def worker_process(self) -> psutil.Process:
        """The embedded hub's worker, once it is there."""
        assert self.serve is not None
        parent = psutil.Process(self.serve.pid)
        found: list[psutil.Process] = []

        def there() -> bool:
            found[:] = [child for child in parent.children() if "celery" in " ".join(_command_of(child))]
            return bool(found)

        wait_until(there, timeout=60, what="the embedded worker runs")
        return found[0]

    def kill_worker(self, number: int = 0) -> None:
        """As a machine that loses power would. The embedded hub starts another one by itself."""
        if self.serve is not None:
            os.kill(self.worker_process().pid, signal.SIGKILL)
        else:
            assert self.hub is not None
            self.hub.workers[number].kill9()

    def start_worker(self, number: int = 0) -> None:
        if self.hub is not None:
            self.hub.workers[number].start()

    def kill_workers(self) -> None:
        for number in range(1 if self.hub is None else len(self.hub.workers)):
            self.kill_worker(number)

    def start_workers(self) -> None:
        """Those that were killed; Redis too, if a test has left it stopped."""
        if self.hub is not None and self.redis is not None:
            self.redis.start()
            self.hub.start()

    # Agents

    def operator(self) -> Wire:
        return AgentWire(self.web(), self.backend.operator, "registrar")

    async def agents(self, *names: str) -> list[AgentWire]:
        """New agents, whose names begin so."""
        return [await self.agent(f"{name}-{next(_numbers)}") for name in names]

    async def agent(self, agent_id: str) -> AgentWire:
        operator = self.operator()
        answer = await operator.call("POST", "agents", {"agent_id": agent_id})
        assert answer.status_code == 201, answer.text
        key = (await operator.call("POST", f"agents/{agent_id}/keys")).json()["api_key"]
        return AgentWire(self.web(), key, agent_id)

    async def runs(self, agent: Wire, function: str, **config: Any) -> None:
        """Have an agent run `tests.executors.<function>`."""
        body = {"executor": f"python:tests.executors:{function}", "executor_config": config}
        answer = await self.operator().call("PATCH", f"agents/{name_of(agent)}", body)
        assert answer.status_code == 200, answer.text


class AgentWire(Wire):
    def __init__(self, url: str, key: str, agent_id: str) -> None:
        super().__init__(url, key)
        self.agent_id = agent_id

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        # Without reading the machine's certificates each time: these tests poll, beside the hub, on the same processors.
        async with httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=60, verify=False) as client:
            return await client.request(method, f"/api/a2a/{path}", json=body, **options)

    def at(self, url: str) -> AgentWire:
        return AgentWire(url, self.key, self.agent_id)


def name_of(wire: Wire) -> str:
    assert isinstance(wire, AgentWire)
    return wire.agent_id


_numbers = itertools.count(1)


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


async def ask(wire: Wire, session_id: str, text: str, **more: Any) -> Frame:
    """Send a request that is to be executed; the answer of the send."""
    body = {"content": text, "requires_execution": True, **more}
    answer = await wire.call("POST", f"sessions/{session_id}/messages", body)
    assert answer.status_code == 201, answer.text
    assert answer.json()["trace_id"], answer.text
    return dict(answer.json())


async def trace_of(wire: Wire, trace_id: str) -> Frame:
    answer = await wire.call("GET", f"traces/{trace_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def events_of(wire: Wire, trace_id: str) -> list[Frame]:
    found: list[Frame] = []
    while True:
        after = found[-1]["sequence"] if found else 0
        page = (await wire.call("GET", f"traces/{trace_id}/events?after={after}&limit=500")).json()
        found += page["events"]
        if not page["has_more"]:
            assert [event["sequence"] for event in found] == list(range(1, len(found) + 1))
            return found


async def eventually(condition: Callable[[], Awaitable[bool]], timeout: float = 60) -> None:
    """Ask again and again until it holds."""
    async with asyncio.timeout(timeout):
        while not await condition():  # noqa: ASYNC110 - it is another process that we wait for
            await asyncio.sleep(0.05)


async def until_trace(wire: Wire, trace_id: str, *statuses: str, timeout: float = 60) -> Frame:
    """The trace, once it has one of these statuses."""
    trace: Frame = {}

    async def reached() -> bool:
        trace.update(await trace_of(wire, trace_id))
        return trace["status"] in statuses

    await eventually(reached, timeout)
    return trace


async def until_at_least(wire: Wire, trace_id: str, field: str, value: int, timeout: float = 60) -> None:
    """Until a number of the trace has grown to that."""

    async def reached() -> bool:
        return int((await trace_of(wire, trace_id))[field]) >= value

    await eventually(reached, timeout)


async def until_it_says(wire: Wire, trace_id: str, text: str) -> None:
    """Until a trace has logged that."""

    async def said() -> bool:
        return any(e["type"] == "log" and e["data"]["text"] == text for e in await events_of(wire, trace_id))

    await eventually(said)


async def until_online(wire: Wire, agent_id: str) -> None:
    """Until the hub knows that an agent is there, and whether it takes traces: that is written every half second."""

    async def there() -> bool:
        return bool((await wire.call("GET", f"agents/{agent_id}")).json()["online"])

    await eventually(there)


def is_part_of(pieces: list[str], whole: str) -> bool:
    """Whether these pieces of live text came in order and are all of the whole. Some may be missing: nobody keeps them."""
    rest = iter(whole.split())
    return all(word in rest for word in "".join(pieces).split())


async def results_of(wire: Wire, session_id: str) -> dict[str, list[Frame]]:
    """The result messages of a session, by trace."""
    found: dict[str, list[Frame]] = {}
    after = 0
    while True:
        page = (await wire.call("GET", f"sessions/{session_id}/messages?after={after}&limit=500")).json()
        for message in page["messages"]:
            if message["kind"] == "result":
                found.setdefault(message["trace_id"], []).append(message)
            after = message["sequence"]
        if not page["has_more"]:
            return found
