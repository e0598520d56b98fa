"""A hub inside the test's own loop: agents with keys, and a client that speaks to the whole application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator  # type: ignore[import-untyped]
from django.core.asgi import get_asgi_application
from django.db import connection

from hub.asgi import application as whole_application
from sessions_app import hooks, identities, keys, members
from sessions_app.models import Agent, ApiKey
from sessions_app.protocol.bodies import AgentBody
from sessions_app.realtime.runtime import get_runtime, stop_runtime
from sessions_app.rest import hot, quotas
from sessions_app.rest.express import Express
from sessions_app.services.agents import register_agent

BASE = "http://testserver"
django_application: Any = get_asgi_application()


def forget_everything() -> None:
    for module in (hot, identities, keys, members, quotas):
        module.forget_everything()
    hooks._resolved.cache_clear()


class Door:
    """One agent's way in. `await door.get("sessions")` is under /api/a2a/; an absolute path is taken as it is."""

    def __init__(self, client: httpx.AsyncClient, agent_id: str, key: str) -> None:
        self.client = client
        self.agent_id = agent_id
        self.key = key

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}", **options.pop("headers", {})}
        if isinstance(options.get("content"), bytes):
            headers.setdefault("Content-Type", "application/json")
        url = path if path.startswith("/") else f"/api/a2a/{path}"
        return await self.client.request(method, url, headers=headers, **options)

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.call("GET", path, **options)

    async def post(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        if json is not None:
            options["json"] = json
        return await self.call("POST", path, **options)

    async def patch(self, path: str, json: Any = None, **options: Any) -> httpx.Response:
        return await self.call("PATCH", path, json=json, **options)

    async def delete(self, path: str, **options: Any) -> httpx.Response:
        return await self.call("DELETE", path, **options)

    async def open(self, *others: str, **body: Any) -> str:
        """Open a session; returns its id."""
        answer = await self.post("sessions", {"participants": [self.agent_id, *others], **body})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["session_id"])

    async def say(self, session_id: str, content: str, **body: Any) -> dict[str, Any]:
        """Send; returns the answer's body."""
        answer = await self.post(f"sessions/{session_id}/messages", {"content": content, **body})
        assert answer.status_code in (200, 201), answer.text
        return dict(answer.json())


@asynccontextmanager
async def socket_of(reader: Door, path: str) -> AsyncIterator[WebsocketCommunicator]:
    """A WebSocket of the application, open; `path` is under /api/a2a/."""
    headers = [(b"authorization", f"Bearer {reader.key}".encode())]
    socket = WebsocketCommunicator(whole_application, f"/api/a2a/{path}", headers=headers)
    assert (await socket.connect(timeout=30))[0]
    yield socket
    await socket.disconnect()


MakeDoor = Callable[..., Any]


@pytest.fixture(params=["django", "express"])
async def application(request: pytest.FixtureRequest, transactional_db: None) -> AsyncIterator[Any]:
    """The whole application, with the hot calls as Django's views and in front of Django."""
    forget_everything()
    yield django_application if request.param == "django" else Express(django_application)
    await get_runtime().ready.wait()
    await stop_runtime()
    await sync_to_async(_leave_the_database)()  # PostgreSQL can't drop a database that a thread is connected to
    forget_everything()


@pytest.fixture
async def client(application: Any) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url=BASE, timeout=60) as client:
        yield client


@pytest.fixture
def door(client: httpx.AsyncClient) -> MakeDoor:
    """`await door("a")`: the agent is registered; `scope="operator"` for an operator's key."""

    async def make(agent_id: str, scope: str = ApiKey.AGENT, **body: Any) -> Door:
        return Door(client, agent_id, await sync_to_async(_register)(agent_id, scope, body))

    return make


def _leave_the_database() -> None:
    connection.close()


def _register(agent_id: str, scope: str, body: dict[str, Any]) -> str:
    agent = Agent.objects.filter(agent_id=agent_id).first()
    if agent is None:
        agent = register_agent(body=AgentBody(agent_id=agent_id, **body))
    return keys.issue_key(agent, scope)[0]


@pytest.fixture
async def a(door: MakeDoor) -> Door:
    return await door("a")  # type: ignore[no-any-return]


@pytest.fixture
async def b(door: MakeDoor) -> Door:
    return await door("b")  # type: ignore[no-any-return]


@pytest.fixture
async def stranger(door: MakeDoor) -> Door:
    return await door("stranger")  # type: ignore[no-any-return]


@pytest.fixture
async def operator(door: MakeDoor) -> Door:
    return await door("op", scope=ApiKey.OPERATOR)  # type: ignore[no-any-return]
