"""What operators see of remote agents and push notifications: lists and pages that open, and no secret in them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from hub.a2a.outbound.models import RemoteCard, RemoteTask
from hub.a2a.push.models import PushConfig, PushNotification
from sessions_app.db import utc_now
from tests.integration.traces.conftest import Talk

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows() -> dict[str, Any]:
    talk = Talk("bob")
    trace = talk.ask("work")
    now = utc_now()
    config = PushConfig.objects.create(
        owner=talk.agents["alice"], agent=talk.agents["bob"], task_id=trace.public_id, config_id="c", created_at=now,
        url="https://hooks.example.org/very-secret-path", token="tok-tok-tok", scheme="Bearer", credentials="cred-cred",
    )  # fmt: skip
    return {
        "a2a_outbound/remotecard": RemoteCard.objects.create(
            url="https://x.example.org/", card={"name": "X"}, due_at=now
        ),
        "a2a_outbound/remotetask": RemoteTask.objects.create(
            trace=trace, agent=talk.agents["bob"], message_id=f"{trace.public_id}.0", created_at=now, changed_at=now
        ),
        "a2a_push/pushconfig": config,
        "a2a_push/pushnotification": PushNotification.objects.create(
            config=config, number=1, body="{}", due_at=now, created_at=now
        ),
    }


def test_lists_searches_and_pages_open_and_show_no_secret(rows: dict[str, Any]) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("boss", password="x"))
    for path, row in rows.items():
        for address in (f"/admin/{path}/", f"/admin/{path}/?q=nothing", f"/admin/{path}/{row.pk}/change/"):
            answer = client.get(address)
            assert answer.status_code == 200, (address, answer.status_code)
            shown = answer.content.decode()
            assert not any(secret in shown for secret in ("very-secret-path", "tok-tok-tok", "cred-cred"))
        assert client.get(f"/admin/{path}/add/").status_code == 403
        assert client.post(f"/admin/{path}/{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert b"hooks.example.org" in client.get("/admin/a2a_push/pushconfig/").content
