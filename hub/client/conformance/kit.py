"""What the checks are written with: raw calls, raw sockets, and a list of checks. Nothing of the SDK's own cleverness."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from hub.client.address import Address

SECONDS = 10.0


class Failed(Exception):
    """The server does not do what the contract says; the text says what was expected and what came."""


class Skipped(Exception):
    """The check needs something that was not given (a third agent, an operator's key)."""


@dataclass(frozen=True)
class Agent:
    agent_id: str
    key: str


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: httpx.Headers

    def expect(self, *statuses: int, code: str | None = None) -> Any:
        """The body, when status and error code are as the contract says."""
        if self.status not in statuses:
            raise Failed(f"expected HTTP {' or '.join(map(str, statuses))}, got {self.status}: {self.body!r}"[:400])
        if code is not None:
            expect_error(self.body, code)
        return self.body


def expect_error(body: Any, code: str) -> None:
    wanted = {"code": str, "message": str, "details": dict}
    if not isinstance(body, dict) or any(not isinstance(body.get(name), kind) for name, kind in wanted.items()):
        raise Failed(f"an error is {{code, message, details}}, got {body!r}"[:400])
    if body["code"] != code:
        raise Failed(f"expected the code {code!r}, got {body['code']!r}")


def check_that(condition: object, text: str) -> None:
    if not condition:
        raise Failed(text)


def same(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Failed(f"{what}: expected {wanted!r}, got {found!r}"[:600])


class RawSocket:
    """One WebSocket as it is: every frame that came is in `frames`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.frames: list[dict[str, Any]] = []
        self._ids = itertools.count(1)

    async def send(self, frame: Any) -> None:
        await self.connection.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    async def receive(self, seconds: float = SECONDS) -> dict[str, Any]:
        try:
            async with asyncio.timeout(seconds):
                data = await self.connection.recv()
        except ConnectionClosed:
            raise Failed(f"closed with {self.connection.close_code} while a frame was awaited") from None
        frame = json.loads(data)
        self.frames.append(frame)
        return dict(frame)

    async def until(self, type_: str, seconds: float = SECONDS, **match: Any) -> dict[str, Any]:
        """The next frame of this type with these fields."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    frame = await self.receive(seconds)
                    if frame.get("type") == type_ and all(frame.get(name) == value for name, value in match.items()):
                        return frame
        except TimeoutError:
            shown = [frame.get("type") for frame in self.frames[-8:]]
            raise Failed(f"no {type_} frame {match or ''} within {seconds:g} s; the last were {shown}") from None

    async def ready(self) -> dict[str, Any]:
        """Through the replay; the welcome."""
        await self.until("replay_complete", session_id=None) if self.is_agent_socket else await self.until(
            "replay_complete"
        )
        return self.frames[0]

    @property
    def is_agent_socket(self) -> bool:
        return bool(self.frames) and self.frames[0].get("session_id") is None

    async def close_code(self, seconds: float = SECONDS) -> int | None:
        """Read until the server has closed."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self.frames.append(json.loads(await self.connection.recv()))
        except ConnectionClosed:
            return self.connection.close_code
        except TimeoutError:
            raise Failed(f"not closed within {seconds:g} s") from None

    async def barrier(self) -> None:
        """Everything that was sent before has been answered."""
        number = f"barrier-{next(self._ids)}"
        await self.send({"type": "ping", "id": number})
        await self.until("pong", id=number)


class Bench:
    """The server under check and the agents that the checks may act as."""

    def __init__(self, url: str, agents: list[Agent], operator: Agent | None = None) -> None:
        self.address = Address.parse(url)
        self.agents = agents
        self.operator = operator
        self.http = httpx.AsyncClient(timeout=75.0, trust_env=not self.address.loopback)

    @property
    def a(self) -> Agent:
        return self.agents[0]

    @property
    def b(self) -> Agent:
        return self.agents[1]

    @property
    def c(self) -> Agent:
        if len(self.agents) < 3:
            raise Skipped("needs a third agent")
        return self.agents[2]

    async def call(
        self,
        agent: Agent | None,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
        **params: Any,
    ) -> Answer:
        sent = dict(headers or {})
        if agent is not None:
            sent.setdefault("Authorization", f"Bearer {agent.key}")
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        response = await self.http.request(
            method, self.address.rest(path), content=content, headers=sent, params=params or None
        )
        try:
            answer = response.json() if response.content else None
        except ValueError:
            answer = response.text
        return Answer(response.status_code, answer, response.headers)

    async def session(self, *agents: Agent, **body: Any) -> str:
        """A new session of these agents (A and B by default), begun by the first."""
        them = agents or (self.a, self.b)
        answer = await self.call(
            them[0], "POST", "sessions", {"participants": [agent.agent_id for agent in them], **body}
        )
        return str(answer.expect(201)["session_id"])

    async def offline(self, agent: Agent) -> None:
        """Until the directory no longer shows an agent whose sockets have closed: coming back sooner is no news to anybody."""
        async with asyncio.timeout(SECONDS):
            while (await self.call(self.a, "GET", f"agents/{agent.agent_id}")).expect(200)["online"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def say(self, agent: Agent, session_id: str, content: str, **body: Any) -> dict[str, Any]:
        answer = await self.call(agent, "POST", f"sessions/{session_id}/messages", {"content": content, **body})
        return dict(answer.expect(200, 201))

    @contextlib.asynccontextmanager
    async def socket(
        self, agent: Agent | None, session_id: str | None = None, **query: Any
    ) -> AsyncIterator[RawSocket]:
        headers = {"Authorization": f"Bearer {agent.key}"} if agent is not None else {}
        async with connect(
            self.address.socket(session_id, **query),
            additional_headers=headers,
            compression=None,
            max_size=None,
            proxy=None if self.address.loopback else True,
            close_timeout=2,
        ) as connection:
            yield RawSocket(connection)


Check = Callable[[Bench], Awaitable[None]]
CHECKS: list[tuple[str, str, Check]] = []


def check(group: str) -> Callable[[Check], Check]:
    """Register a check; its name is its sentence."""

    def add(function: Check) -> Check:
        CHECKS.append((group, function.__name__.replace("_", " "), function))
        return function

    return add


@dataclass
class Report:
    passed: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)


async def run(bench: Bench, *, only: str = "", tell: Callable[[str, str, str, str, float], None]) -> Report:
    """All checks, one after the other; `tell(result, group, name, why, seconds)` after each."""
    report = Report()
    for group, name, function in CHECKS:
        if only and only not in f"{group}: {name}":
            continue
        began, why = time.monotonic(), ""
        try:
            async with asyncio.timeout(90):
                await function(bench)
            result = "passed"
            report.passed.append(name)
        except Skipped as reason:
            result, why = "skipped", str(reason)
            report.skipped.append((name, why))
        except Exception as error:
            result, why = "failed", str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            report.failed.append((name, why))
        tell(result, group, name, why, time.monotonic() - began)
    await bench.http.aclose()
    return report


async def register(bench: Bench, count: int = 3) -> None:
    """Make the agents that are missing, with the operator's key."""
    if bench.operator is None:
        return
    while len(bench.agents) < count:
        agent_id = f"check-{secrets.token_hex(6)}"
        made = (await bench.call(bench.operator, "POST", "agents", {"agent_id": agent_id})).expect(201)
        key = made.get("api_key") if isinstance(made, dict) else None
        if not key:
            answer = await bench.call(bench.operator, "POST", f"agents/{agent_id}/keys", {})
            key = answer.expect(200, 201)["api_key"]
        bench.agents.append(Agent(agent_id, str(key)))
