"""The admin in a real browser: its files arrive, its forms work, and what agents say has no power over it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.browser.chromium import Chromium, Page
from tests.hubs import Hub
from tests.processes import Missing

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("backend", ["sqlite"], indirect=True),
]

ATTACK = "<script>alert('obeyed')</script><img src=x onerror=\"alert('obeyed')\"><b>bold</b>"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    try:
        chromium = Chromium(tmp_path)
    except Missing as missing:
        pytest.skip(f"missing: {missing}")
    with chromium, chromium.open_page() as page:
        yield page


@pytest.fixture
def hub(live_hub: Hub) -> Hub:
    """A hub with a superuser `root`, password `secret`."""
    live_hub.env["DJANGO_SUPERUSER_PASSWORD"] = "secret"
    live_hub.manage("createsuperuser", "--noinput", "--username", "root", "--email", "root@example.org")
    return live_hub


def log_in(page: Page, hub: Hub) -> None:
    page.goto(f"{hub.url}/admin/")
    assert "/admin/login/" in page.address
    page.fill("#id_username", "root")
    page.fill("#id_password", "secret")
    page.click("[type=submit]")


def test_an_operator_registers_an_agent_issues_its_key_follows_its_talk_and_closes_it(page: Page, hub: Hub) -> None:
    other = hub.create_agent("cloud-1")
    log_in(page, hub)
    assert "Session Hub" in page.text

    page.goto(f"{hub.url}/admin/sessions_app/agent/add/")
    page.fill("#id_agent_id", "terminal-1")
    page.fill("#id_name", "Terminal")
    page.click("[name=_save]")
    assert "can't do anything before it has a key" in page.text

    page.click(".object-tools .addlink")
    assert page.evaluate("document.querySelector('#id_agent').selectedOptions[0].text") == "terminal-1"
    page.wait_for("document.querySelector('.select2-selection__rendered')?.title == 'terminal-1'")
    page.click("[type=submit][value='Issue the key']")
    key = str(page.evaluate("document.querySelector('#key').innerText"))
    assert re.fullmatch(r"ak_[a-z2-7]{12}_[A-Za-z0-9_-]{43}", key)
    page.reload()
    assert key not in str(page.evaluate("document.documentElement.outerHTML"))
    assert "shown already" in page.text

    with httpx.Client(base_url=hub.url, headers={"Authorization": f"Bearer {key}"}) as terminal:
        body = {"participants": ["cloud-1"], "title": ATTACK, "initial_message": ATTACK, "context": {"x": ATTACK}}
        session = terminal.post("/api/a2a/sessions", json=body).raise_for_status().json()["session_id"]
    with httpx.Client(base_url=hub.url, headers={"Authorization": f"Bearer {other}"}) as cloud:
        cloud.post(f"/api/a2a/sessions/{session}/messages", json={"content": "你好"}).raise_for_status()

    for path in (
        "session/",
        f"session/{session}/change/",
        "message/",
        "agent/",
        "kindrule/add/",
        "apikey/",
        "presence/",
    ):
        page.goto(f"{hub.url}/admin/sessions_app/{path}")
    page.goto(f"{hub.url}/admin/sessions_app/session/{session}/change/")
    said = page.evaluate("[...document.querySelectorAll('.hub-text')].map(one => one.innerText)")
    assert said == [ATTACK, "你好"]
    # The style sheet arrived, too.
    assert page.evaluate("getComputedStyle(document.querySelector('.hub-text')).whiteSpace") == "pre-wrap"

    page.click(".object-tools .hub-danger-link")
    page.fill("#id_reason", "that is enough")
    page.click("[type=submit][value='Close']")
    assert "that is enough" in page.text
    assert page.evaluate("document.querySelector('.hub-facts .hub-status').innerText") == "completed"
    assert page.problems == []
