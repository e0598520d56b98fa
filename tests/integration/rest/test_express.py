"""What the door in front of Django does on its own: bodies in pieces, clients that go, and what it lets through."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sessions_app.realtime.runtime import get_runtime
from sessions_app.rest.express import Express
from tests.integration.rest.conftest import Door

pytestmark = pytest.mark.parametrize("application", ["express"], indirect=True)


class Server:
    """One request as a server drives it: `feed` what the client sends, read what the application answers."""

    def __init__(self, door: Door, method: str, path: str, app: Callable[..., Awaitable[None]]) -> None:
        self.scope = {
            "type": "http",
            "method": method,
            "path": f"/api/a2a/{path}",
            "query_string": b"",
            "headers": [(b"host", b"testserver"), (b"authorization", f"Bearer {door.key}".encode())],
        }
        self.app = app
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.answers: list[dict[str, Any]] = []

    def feed(self, *events: dict[str, Any]) -> Server:
        for event in events:
            self.incoming.put_nowait(event)
        return self

    async def run(self) -> Server:
        async def send(event: dict[str, Any]) -> None:
            self.answers.append(event)

        await self.app(self.scope, self.incoming.get, send)
        return self

    @property
    def status(self) -> int:
        return int(self.answers[0]["status"])

    @property
    def body(self) -> Any:
        return json.loads(b"".join(event.get("body", b"") for event in self.answers[1:]))


GONE = {"type": "http.disconnect"}


def piece(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_pieces_is_one_body(a: Door, b: Door, application: Any) -> None:
    session = await a.open("b")
    server = Server(a, "POST", f"sessions/{session}/messages", application)
    pieces = [piece(bytes([byte]), more=True) for byte in b'{"content":"x"}']
    await server.feed(*pieces, piece(b"")).run()
    assert (server.status, server.body["message"]["content"]) == (201, "x")


async def test_no_more_of_an_endless_body_is_read_than_is_taken(a: Door, b: Door, application: Any) -> None:
    session = await a.open("b")
    server = Server(a, "POST", f"sessions/{session}/messages", application)
    await server.feed(*[piece(b"x" * 100_000, more=True) for _ in range(30)]).run()
    assert (server.status, server.body["code"]) == (413, "too_large")
    assert server.incoming.qsize() > 15


async def test_a_client_that_goes_in_the_middle_of_its_body_stores_nothing(a: Door, b: Door, application: Any) -> None:
    session = await a.open("b")
    server = Server(a, "POST", f"sessions/{session}/messages", application)
    await server.feed(piece(b'{"content":"x"}', more=True), GONE).run()
    assert server.answers == []
    assert (await a.get(f"sessions/{session}")).json()["last_sequence"] == 0


def waiting() -> bool:
    return any(topic.waiters for topic in get_runtime().registry.topics.values())


async def test_a_wait_ends_when_its_client_goes_and_the_message_stays(a: Door, b: Door, application: Any) -> None:
    session = await a.open("b")
    body = b'{"content":"x","wait_for_response":true,"timeout":50}'
    server = Server(a, "POST", f"sessions/{session}/messages", application)
    running = asyncio.create_task(server.feed(piece(body)).run())
    while not waiting():
        await asyncio.wait({running}, timeout=0.01)
    server.feed(GONE)
    await asyncio.wait_for(running, 20)
    assert server.answers == []
    assert not waiting()
    shown = (await a.get(f"sessions/{session}")).json()
    assert (shown["last_sequence"], shown["waiting_for"]) == (1, ["b"])


async def test_what_it_does_not_know_goes_on_untouched(application: Any) -> None:
    seen: list[Any] = []

    async def beyond(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    express = Express(beyond)
    for scope in (
        {"type": "lifespan"},
        {"type": "websocket", "path": "/api/a2a/sessions/x/messages"},
        {"type": "http", "path": "/api/a2a/sessions/x/events"},
        {"type": "http", "path": "/api/a2a/sessions/x/messages/"},
        {"type": "http", "path": "/admin/"},
    ):
        await express(scope, "receive", "send")  # type: ignore[arg-type]
        assert seen.pop() == (scope, "receive", "send")


async def test_a_hub_that_stops_says_so(a: Door, b: Door, application: Any) -> None:
    session = await a.open("b")
    get_runtime().stopping = True
    try:
        answer = await a.post(f"sessions/{session}/messages", {"content": "x"})
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer.json()["details"] == {"stored": False}
    finally:
        get_runtime().stopping = False
