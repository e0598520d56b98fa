"""Probes and figures."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError

from sessions_app import health
from sessions_app.health import CHECKS
from sessions_app.hooks import NotReady
from tests.integration.rest.conftest import Door, socket_of

pytestmark = pytest.mark.parametrize("application", ["express"], indirect=True)


async def test_probes_answer_without_a_key_and_with_any_host(client: Any) -> None:
    for path in ("/healthz", "/readyz"):
        answer = await client.get(path, headers={"Host": "10.1.2.3:80"})
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    assert (await client.get("/readyz")).json() == {
        "status": "ready",
        "checks": {"database": "ok", "broker": "ok", "channel_layer": "ok", "workers": "ok"},
    }
    refused = await client.post("/healthz")
    assert (refused.status_code, refused.json()["code"]) == (405, "method_not_allowed")


async def test_what_is_broken_is_named_and_nothing_more(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise OperationalError("could not connect to postgres at 10.0.0.1")

    monkeypatch.setitem(CHECKS, "database", away)
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"] == {"database": "failed", "broker": "ok", "channel_layer": "ok", "workers": "ok"}
    assert answer.json()["reasons"]["database"]["code"] == "unavailable"
    assert "10.0.0.1" not in answer.text
    assert (await client.get("/healthz")).status_code == 200


async def test_work_that_no_worker_takes_is_told_in_a_users_words(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def waits() -> None:
        raise NotReady("no_worker", "Work waits.")

    monkeypatch.setitem(CHECKS, "workers", waits)
    monkeypatch.setattr(health, "ready_checks", dict)
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
    assert answer.json()["reasons"] == {"workers": {"code": "no_worker", "message": "Work waits."}}
    assert "not ready: workers: Work waits. (no_worker)" in caplog.text
    assert "NotReady" not in answer.text + caplog.text


async def test_a_redis_that_is_not_there_is_named(client: Any, settings: Any) -> None:
    settings.REDIS_URL = settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["broker"]) == (503, "failed")


async def test_messages_and_live_sockets_are_counted(client: Any, a: Door, b: Door) -> None:
    async def figures() -> dict[str, float]:
        text = (await client.get("/metrics")).text
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith(("hub_messages_", "hub_sockets"))]
        return {name: float(value) for name, value in lines}

    chats, none = 'hub_messages_stored_total{kind="chat"}', {"session": 0.0, "agent": 0.0, "events": 0.0}
    before = (await figures()).get(chats, 0.0)
    session = await a.open("b")
    for n in range(3):
        await a.say(session, f"hello {n}", client_message_id=str(n))
    await a.say(session, "hello 2", client_message_id="2")  # a resend is no message
    found = await figures()
    assert found[chats] == before + 3
    assert {kind: found[f'hub_sockets{{kind="{kind}"}}'] for kind in none} == none
    async with socket_of(b, "stream") as one, socket_of(b, f"sessions/{session}/stream") as other:
        for socket in (one, other):
            await socket.receive_from(timeout=10)  # its welcome
        found = await figures()
        assert {kind: found[f'hub_sockets{{kind="{kind}"}}'] for kind in none} == none | {"session": 1.0, "agent": 1.0}


async def test_calls_are_counted(client: Any, a: Door, b: Door) -> None:
    session = await a.open("b")

    async def counted() -> float:
        text = (await client.get("/metrics")).text
        lines = [
            line for line in text.splitlines() if line.startswith('hub_http_requests_total{method="GET",status="404"')
        ]
        return float(lines[0].split()[-1]) if lines else 0.0

    before = await counted()
    await a.get(f"sessions/{session}/messages/msg-0000000000000/response")
    await a.get("/api/nothing")
    assert await counted() == before + 2
    text = (await client.get("/metrics")).text
    assert "hub_agents_online 0.0" in text
    assert "hub_http_request_seconds_bucket" in text
