"""A hub inside the test's own loop, spoken to by A2A: a client with a key, agents that answer over REST, and a worker at hand."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from hub.a2a.handler import HubHandler
from hub.a2a.mount import A2AMount
from hub.a2a.updates import Update
from sessions_app.models import Agent
from sessions_app.realtime.runtime import get_runtime, stop_runtime
from sessions_app.rest.express import Express
from tests.integration.rest.conftest import (
    BASE,
    Door,
    _leave_the_database,
    _register,
    django_application,
    forget_everything,
)
from traces_app.leases import claimable_keys
from traces_app.runner import run_trace

_numbers = itertools.count(1)
JSON = dict[str, Any]


class Peer(Door):
    """One agent with a key, over REST (as `Door`) and A2A."""

    async def rpc(
        self, to: str, method: str, params: Any = None, *, version: str | None = "1.0", **headers: str
    ) -> httpx.Response:
        """A JSON-RPC call at an agent's address. A method of A2A 0.3 or before goes with `version=None`."""
        sent = {"A2A-Version": version} if version else {}
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params if params is not None else {}}
        return await self.call("POST", f"/a2a/agents/{to}", json=body, headers=sent | headers)

    async def result(self, to: str, method: str, params: Any = None, **options: Any) -> JSON:
        answer = (await self.rpc(to, method, params, **options)).json()
        assert "error" not in answer, answer
        assert answer["id"] == 7
        return dict(answer["result"])

    async def error(self, to: str, method: str, params: Any = None, **options: Any) -> JSON:
        answer = (await self.rpc(to, method, params, **options)).json()
        assert "result" not in answer, answer
        return dict(answer["error"])

    async def send(self, to: str, text: str = "hello", *, wait: bool = False, **message: Any) -> JSON:
        """`SendMessage`; returns the task."""
        result = await self.result(to, "SendMessage", send_params(text, wait=wait, **message))
        return dict(result["task"])

    async def task(self, to: str, task_id: str, **params: Any) -> JSON:
        return await self.result(to, "GetTask", {"id": task_id, **params})

    async def rest(self, to: str, method: str, path: str, **options: Any) -> httpx.Response:
        """A call of HTTP+JSON below an agent's address."""
        headers = {"A2A-Version": "1.0"} | options.pop("headers", {})
        return await self.call(method, f"/a2a/agents/{to}{path}", headers=headers, **options)

    async def answer(self, session_id: str, text: str, **body: Any) -> JSON:
        """Say something in a session as an agent does, over REST."""
        return await self.say(session_id, text, **body)


def send_params(text: str = "hello", *, wait: bool = False, **message: Any) -> JSON:
    message.setdefault("messageId", f"m-{next(_numbers)}")
    message.setdefault("role", "ROLE_USER")
    message.setdefault("parts", [{"text": text}])
    return {"message": message, "configuration": {"returnImmediately": not wait}}


def events_of(response: httpx.Response) -> list[JSON]:
    """The `data` of a stream's events, with the event's name under `event` where it has one."""
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    found = []
    for block in response.text.replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if "data" in lines:
            found.append({**json.loads(lines["data"]), **({"event": lines["event"]} if "event" in lines else {})})
    return found


def state_of(task: JSON) -> str:
    return str(task["status"]["state"]).removeprefix("TASK_STATE_").lower()


def texts_of(task: JSON) -> list[str]:
    return [part["text"] for artifact in task.get("artifacts", []) for part in artifact["parts"] if "text" in part]


MakePeer = Callable[..., Awaitable[Peer]]


@pytest.fixture
async def application(transactional_db: None) -> AsyncIterator[Any]:
    forget_everything()
    yield A2AMount(Express(django_application))
    await get_runtime().ready.wait()
    await stop_runtime()
    await sync_to_async(_leave_the_database)()
    forget_everything()


@pytest.fixture
async def client(application: Any) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url=BASE, timeout=60) as client:
        yield client


@pytest.fixture
def peer(client: httpx.AsyncClient) -> MakePeer:
    """`await peer("a")`: the agent is registered; `executor=…` gives it one."""

    async def make(agent_id: str, scope: str = "agent", **body: Any) -> Peer:
        return Peer(client, agent_id, await sync_to_async(_register)(agent_id, scope, body))

    return make


@pytest.fixture
async def alice(peer: MakePeer) -> Peer:
    """Who asks."""
    return await peer("alice")


@pytest.fixture
async def bob(peer: MakePeer) -> Peer:
    """An agent that just answers."""
    return await peer("bob", description="Answers questions.")


@pytest.fixture
async def echo(peer: MakePeer) -> Peer:
    """An agent with an executor: it answers `done: …`."""
    return await peer("echo", executor="python:tests.executors:echo")


class Streams:
    """How many streams of tasks have told where their task stands: from then on they tell what happens."""

    def __init__(self) -> None:
        self._number = 0
        self._more = asyncio.Event()

    def count(self) -> None:
        self._number += 1
        self._more.set()

    async def begun(self, number: int = 1) -> None:
        async with asyncio.timeout(30):
            while self._number < number:
                self._more.clear()
                await self._more.wait()


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    counted = Streams()
    updates = HubHandler._updates

    def counting(self: HubHandler, *given: Any, **options: Any) -> AsyncGenerator[Update]:
        counted.count()
        return updates(self, *given, **options)

    monkeypatch.setattr(HubHandler, "_updates", counting)
    return counted


async def work() -> int:
    """Run what is to be run, as a worker does; returns how many."""
    return await asyncio.to_thread(_work)


def _work() -> int:
    try:
        keys = claimable_keys()
        return sum(run_trace(pk) for pk in keys)
    finally:
        connection.close()


async def work_soon() -> None:
    """Run the next trace that comes; another task of the test makes it."""
    while True:
        if await work():
            return
        await asyncio.sleep(0.01)


async def session_of(peer: Peer) -> str:
    """The session that another task of the test opens with it."""
    while True:
        sessions = (await peer.get("sessions")).json()["sessions"]
        if sessions:
            return str(sessions[0]["session_id"])
        await asyncio.sleep(0.01)


async def set_agent(agent_id: str, **columns: Any) -> None:
    await Agent.objects.filter(agent_id=agent_id).aupdate(**columns)
