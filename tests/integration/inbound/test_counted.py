"""What /metrics says of calls of A2A: each is counted once, and 499 is a client that went before its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from sessions_app.rest.metrics import CALLS
from tests.integration.inbound.conftest import Peer, events_of, send_params, session_of


def counted() -> dict[str, float]:
    """POSTs by status so far; that of a message sent over REST is 201."""
    samples = [sample for metric in CALLS.collect() for sample in metric.samples]
    found = {
        sample.labels["status"]: sample.value
        for sample in samples
        if sample.name.endswith("_total") and sample.labels["method"] == "POST"
    }
    return {status: found.get(status, 0.0) for status in ("200", "499", "500")}


def since(before: dict[str, float]) -> dict[str, int]:
    return {status: int(number - before[status]) for status, number in counted().items() if number != before[status]}


@pytest.mark.parametrize("method", ["SendStreamingMessage", "SendMessage", "message/stream", "tasks/sendSubscribe"])
async def test_an_answer_that_was_given_whole_is_no_client_that_has_gone(alice: Peer, bob: Peer, method: str) -> None:
    new = method.startswith("Send")
    part = {"text": "hello"} if new else {"kind": "text", "type": "text", "text": "hello"}
    params = send_params(wait=True, parts=[part], role="ROLE_USER" if new else "user")
    if not new:
        params |= {"id": "t-1", "sessionId": "s-1", "configuration": {}}
    before = counted()
    asking = asyncio.create_task(alice.rpc("bob", method, params, version="1.0" if new else None))
    session_id = await session_of(bob)
    await bob.answer(session_id, "hi")
    answer = await asking
    if method == "SendMessage":
        assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    else:
        assert len(events_of(answer)) == 3
    assert since(before) == {"200": 1}


async def leave(application: Any, alice: Peer, method: str, params: Any, *, begun: bool) -> None:
    """Ask, and go: before there is an answer, or when it has `begun`."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"host": "testserver", "authorization": f"Bearer {alice.key}", "a2a-version": "1.0"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/a2a/agents/bob",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    given: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
    goes = asyncio.Event()

    async def receive() -> MutableMapping[str, Any]:
        if given:
            return given.pop()
        await goes.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            goes.set()

    calling = asyncio.ensure_future(application(scope, receive, send))
    if not begun:
        await session_of(alice)
        goes.set()
    await calling


async def test_a_client_that_goes_before_its_answer_is_counted_as_gone(
    application: Any, alice: Peer, bob: Peer
) -> None:
    before = counted()
    await leave(application, alice, "SendMessage", send_params(wait=True), begun=False)
    assert since(before) == {"499": 1}


async def test_a_stream_that_its_client_leaves_is_counted_once(application: Any, alice: Peer, bob: Peer) -> None:
    before = counted()
    await leave(application, alice, "SendStreamingMessage", send_params(), begun=True)
    assert since(before) == {"200": 1}
