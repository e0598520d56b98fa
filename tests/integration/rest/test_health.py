"""Probes and figures."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError

from sessions_app.health import CHECKS
from tests.integration.rest.conftest import Door

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
    assert "10.0.0.1" not in answer.text
    assert (await client.get("/healthz")).status_code == 200


async def test_a_redis_that_is_not_there_is_named(client: Any, settings: Any) -> None:
    settings.REDIS_URL = settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["broker"]) == (503, "failed")


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
