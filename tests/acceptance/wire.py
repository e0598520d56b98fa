"""A small client written against the wire contract alone, for tests that watch the hub from outside."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

Frame = dict[str, Any]
PATIENCE = 30.0  # seconds: what takes longer hangs, on a busy machine too
_TLS = ssl.create_default_context()  # unused on loopback, but httpx would load one for each client


class Wire:
    """One agent's way to one hub: REST by `call`, sockets by `socket`. `urls` are the web processes'."""

    def __init__(self, url: str, key: str, agent_id: str = "") -> None:
        self.url = url
        self.key = key
        self.agent_id = agent_id
        self.headers = {"Authorization": f"Bearer {key}"}

    def at(self, url: str) -> Wire:
        return Wire(url, self.key, self.agent_id)

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=60, verify=_TLS) as client:
            return await client.request(method, f"/api/a2a/{path}", json=body, **options)

    async def open_session(self, participants: list[str], **body: Any) -> Frame:
        answer = await self.call("POST", "sessions", {"participants": participants, **body})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    @asynccontextmanager
    async def socket(self, path: str, **options: Any) -> AsyncIterator[ClientConnection]:
        async with connect(
            f"{self.url.replace('http', 'ws', 1)}/api/a2a/{path}",
            additional_headers=self.headers,
            compression=None,
            max_size=None,
            open_timeout=PATIENCE,
            close_timeout=1,
            **options,
        ) as socket:
            yield socket

    def session_socket(self, session_id: str, query: str = "", **options: Any) -> Any:
        return self.socket(f"sessions/{session_id}/stream{query}", **options)

    def agent_socket(self, query: str = "", **options: Any) -> Any:
        return self.socket(f"stream{query}", **options)


async def receive(socket: ClientConnection, timeout: float = PATIENCE) -> Frame:
    """The next frame."""
    async with asyncio.timeout(timeout):
        return dict(json.loads(await socket.recv()))


async def until(socket: ClientConnection, kind: str, timeout: float = PATIENCE, **wanted: Any) -> Frame:
    """The next frame of this type with these fields; others are passed over."""
    async with asyncio.timeout(timeout):
        while True:
            frame = json.loads(await socket.recv())
            if frame["type"] == kind and all(frame.get(name) == value for name, value in wanted.items()):
                return dict(frame)


async def collect_messages(socket: ClientConnection, last: int, timeout: float = 60) -> list[int]:
    """The sequences of `message` frames up to `last`, as they came."""
    seen: list[int] = []
    async with asyncio.timeout(timeout):
        while not seen or seen[-1] < last:
            frame = json.loads(await socket.recv())
            if frame["type"] == "message":
                seen.append(frame["sequence"])
    return seen


async def send(socket: ClientConnection, **frame: Any) -> None:
    await socket.send(json.dumps(frame))
