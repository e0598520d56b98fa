"""What the generator must know of a system under test: the addresses of a room, and how a message is written.

The hub's part is written against the wire contract alone, as any foreign client would be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any, Protocol

import httpx
from msgspec import Struct

from hub.bench.lanes import FRAME_BYTES, Lane
from hub.bench.sockets import Address, connect

BACKLOG_WINDOW = 256
PARALLEL_CALLS = 8
EXECUTOR = "bench-executor"
EMPTY = "python:hub.bench.executors:empty"


class Room(Struct, frozen=True):
    """A place with one sender and its receivers, existing but not yet connected."""

    sender: Address
    receivers: list[Address]


class Target(Protocol):
    def encode(self, number: int) -> bytes:
        """The frame of a sender's message `number`, about 200 bytes."""
        ...

    async def rooms(self, rooms: int, receivers: int) -> list[Room]:
        """So many new rooms."""
        ...

    async def backlog(self, messages: int) -> Address:
        """A receiver's address in a room where `messages` wait for it, numbered from 1. The same on each call."""
        ...

    async def aclose(self) -> None: ...


class Baseline:
    """The relays and the tutorial chat: a room is a path, and nobody needs a key."""

    def __init__(self, port: int) -> None:
        self._base = f"ws://127.0.0.1:{port}/ws"
        self._numbers = count(1)

    def encode(self, number: int) -> bytes:
        return _padded('{"type":"message","sequence":%d,"content":"%s"}', number)

    async def rooms(self, rooms: int, receivers: int) -> list[Room]:
        return [self._room(f"{self._base}/room{next(self._numbers)}", receivers) for _ in range(rooms)]

    async def backlog(self, messages: int) -> Address:
        # The tutorial chat stored them when it started (BENCH_BACKLOG): by its own sends that would take minutes.
        return Address(f"{self._base}/replay/reader?after=0")

    async def aclose(self) -> None:
        pass

    def _room(self, base: str, receivers: int) -> Room:
        return Room(Address(f"{base}/sender"), [Address(f"{base}/receiver{number}") for number in range(receivers)])


class Hub:
    """The hub, by the wire contract: agents and keys made by an operator, a session for each room, automatic acks."""

    def __init__(
        self, port: int, operator_key: str, *, batched: bool, transport: httpx.AsyncBaseTransport | None = None
    ):
        self._sockets = f"ws://127.0.0.1:{port}/api/a2a/sessions"
        self._batched = batched
        self._operator_key = operator_key
        self._keys: dict[str, str] = {}
        self._free = asyncio.Semaphore(PARALLEL_CALLS)
        self._backlog: Address | None = None
        self._http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}/api/a2a", timeout=30.0, trust_env=False, transport=transport
        )

    def encode(self, number: int) -> bytes:
        return _padded('{"type":"message","client_message_id":"%d","content":"%s"}', number)

    async def rooms(self, rooms: int, receivers: int) -> list[Room]:
        await self._ensure_agents(["bench-sender", *(_receiver(number) for number in range(receivers))])
        names = [_receiver(number) for number in range(receivers)]
        return await asyncio.gather(*(self._room(names) for _ in range(rooms)))

    async def trace_rooms(self, rooms: int) -> list[Address]:
        """The sender's address in so many new sessions, in which an executor that does nothing runs what is asked."""
        await self._ensure_agents(["bench-sender", EXECUTOR])
        changed = await self._call("PATCH", f"/agents/{EXECUTOR}", self._operator_key, {"executor": EMPTY})
        if changed.status_code != 200:
            raise RuntimeError(f"PATCH /agents/{EXECUTOR}: {changed.status_code} {changed.text[:300]}")
        return [(await self._room([EXECUTOR], busy_policy="parallel")).sender for _ in range(rooms)]

    async def backlog(self, messages: int) -> Address:
        if self._backlog is None:
            [room] = await self.rooms(1, 1)
            lane = Lane(self.encode, receivers=0, window=BACKLOG_WINDOW, batched=self._batched, limit=messages)
            sender = await connect(room.sender, lane.on_sender_frames)
            lane.run(sender)
            while lane.acked < messages:
                if lane.errors or not sender.is_open:
                    raise RuntimeError(f"the backlog ended at {lane.acked} of {messages}: {dict(lane.errors)}")
                await asyncio.sleep(0.02)
            sender.close()
            self._backlog = room.receivers[0]
        return self._backlog

    async def page(self, session_id: str, *, before: int, limit: int) -> None:
        """Read a page of a session's history, as its sender."""
        path = f"/sessions/{session_id}/messages?before={before}&limit={limit}"
        answer = await self._call("GET", path, self._keys["bench-sender"])
        found = len(answer.json()["messages"]) if answer.status_code == 200 else 0
        if found != limit:
            raise RuntimeError(f"GET {path}: {answer.status_code}, {found} messages")

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _room(self, names: Sequence[str], **options: str) -> Room:
        session = await self._post(
            "/sessions",
            self._keys["bench-sender"],
            {"participants": ["bench-sender", *names], "timeout_seconds": None, **options},
        )
        url = f"{self._sockets}/{session['session_id']}/stream" + ("?batch=1" if self._batched else "")
        return Room(self._address(url, "bench-sender"), [self._address(url, name) for name in names])

    def _address(self, url: str, agent_id: str) -> Address:
        return Address(url, {"Authorization": f"Bearer {self._keys[agent_id]}"}, ready="replay_complete")

    async def _ensure_agents(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self._keys]
        for name, key in zip(missing, await asyncio.gather(*(self._agent(name) for name in missing)), strict=True):
            self._keys[name] = key

    async def _agent(self, agent_id: str) -> str:
        # An agent may be there already: rows with and without `batch=1` share one hub.
        found = await self._call("GET", f"/agents/{agent_id}", self._operator_key)
        if found.status_code == 404:
            created = await self._post("/agents", self._operator_key, {"agent_id": agent_id})
            if "api_key" in created:
                return str(created["api_key"])
        return str((await self._post(f"/agents/{agent_id}/keys", self._operator_key, {}))["api_key"])

    async def _post(self, path: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._call("POST", path, key, body)
        if answer.status_code not in (200, 201):
            raise RuntimeError(f"POST {path}: {answer.status_code} {answer.text[:300]}")
        document: dict[str, Any] = answer.json()
        return document

    async def _call(self, method: str, path: str, key: str, body: dict[str, Any] | None = None) -> httpx.Response:
        async with self._free:
            return await self._http.request(method, path, json=body, headers={"Authorization": f"Bearer {key}"})


def _receiver(number: int) -> str:
    return f"bench-receiver-{number}"


def _padded(template: str, number: int) -> bytes:
    bare = len(template % (number, ""))
    return (template % (number, "x" * max(1, FRAME_BYTES - bare))).encode()
