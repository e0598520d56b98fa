from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hub.client import A2ASessionClient
from tests.integration.client.fakehub import FakeHub, fake_hub


@pytest.fixture
async def hub() -> AsyncIterator[FakeHub]:
    async with fake_hub() as hub:
        yield hub


@pytest.fixture
async def make_client(hub: FakeHub) -> AsyncIterator[Callable[..., A2ASessionClient]]:
    """`make_client("a")`: a client of that agent, closed after the test; then no task of it may be left."""
    before = asyncio.all_tasks()
    clients: list[A2ASessionClient] = []

    def make(agent_id: str, **options: Any) -> A2ASessionClient:
        options.setdefault("close_grace", 1.0)
        client = A2ASessionClient(hub.url, agent_id, hub.agent(agent_id), **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()
    left = {task for task in asyncio.all_tasks() - before if "hub" in task.get_name()}
    assert not left, f"tasks left behind: {left}"
