"""Agents are registered and changed through the services, and a form that they would refuse is shown again."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions_app.db import utc_now
from sessions_app.models import Agent, HubProcess, Presence
from tests.integration.admin.conftest import agent_form, staff_client
from tests.integration.admin.rows import START, make_agents

ROOT = "/admin/sessions_app/agent"
NEW = {
    "agent_id": "terminal-1", "kind": "agent", "name": "Terminal", "description": "Reads files.\nWrites none.",
    "skills": '["scan", {"id": "read", "tags": ["文件"]}]', "accepts": '["cloud-1"]', "executor": "delegate",
    "executor_config": '{"depth": 12345678901234567}', "context_strategy": "shared",
}  # fmt: skip


def test_an_agent_is_registered_as_it_was_typed(admin: Client, db: None) -> None:
    response = admin.post(f"{ROOT}/add/", NEW)
    agent = Agent.objects.get()
    assert response["Location"] == f"{ROOT}/{agent.pk}/change/"
    assert (agent.agent_id, agent.kind, agent.name, agent.is_active) == ("terminal-1", "agent", "Terminal", True)
    assert agent.skills == ["scan", {"id": "read", "tags": ["文件"]}]
    assert agent.accepts == ["cloud-1"]
    assert agent.executor_config == {"depth": 12345678901234567}
    assert (agent.executor, agent.context_strategy) == ("delegate", "shared")


def test_an_executor_whose_module_is_not_here_is_registered_with_a_warning(admin: Client, db: None) -> None:
    for executor, warned in (("python:not_here.at_all:f", True), ("python:tests.executors:echo", False)):
        body = {**NEW, "agent_id": f"a-{warned}".lower(), "executor": executor}
        page = admin.post(f"{ROOT}/add/", body, follow=True)
        assert Agent.objects.get(agent_id=body["agent_id"]).executor == executor
        assert ("there is no module not_here here" in page.content.decode()) == warned


def test_a_new_agents_form_can_be_sent_as_it_comes(admin: Client, db: None) -> None:
    form = admin.get(f"{ROOT}/add/").context["adminform"].form
    shown = {bound.html_name: bound.value() for bound in form if bound.value() is not None}
    assert admin.post(f"{ROOT}/add/", {**shown, "agent_id": "a"}).status_code == 302


def test_empty_fields_mean_what_the_contract_means(admin: Client, db: None) -> None:
    admin.post(f"{ROOT}/add/", {"agent_id": "a", "kind": "agent"})
    agent = Agent.objects.get()
    assert (agent.skills, agent.accepts, agent.executor, agent.executor_config) == ([], None, None, {})
    assert agent.context_strategy is None
    form = agent_form(admin, agent)
    assert form["accepts"] == ""
    # [] is nobody, which is not the same.
    admin.post(f"{ROOT}/{agent.pk}/change/", {**form, "accepts": "[]", "is_active": "on"})
    agent.refresh_from_db()
    assert agent.accepts == []
    assert agent_form(admin, agent)["accepts"] == "[]"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent_id", "Cloud"), ("agent_id", "hub"), ("agent_id", "me"), ("agent_id", "human.tom"),
        ("agent_id", "-x"), ("agent_id", ""), ("agent_id", "a" * 65), ("agent_id", "agent-0"), ("agent_id", "a\0"),
        ("kind", ""), ("kind", "a\x1bb"), ("name", "x" * 201), ("name", "a\u202eb"), ("description", "x" * 10_001),
        ("description", "\0"), ("skills", "{}"), ("skills", "[1]"), ("skills", "["), ("skills", "[NaN]"),
        ("skills", '["\\u0000"]'), ("skills", '["\\ud800"]'), ("skills", "[" * 100_000), ("accepts", "true"),
        ("accepts", '"anyone"'), ("accepts", '[""]'), ("executor", "x" * 201), ("executor", "a\tb\tc"), ("executor", "planer"),
        ("executor_config", "[]"), ("executor_config", '{"a": ' + "9" * 30 + "}"),
        ("executor_config", '{"a": "' + "x" * 70_000 + '"}'), ("context_strategy", "telepathy"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_what_the_service_would_refuse_is_a_form_error(
    admin: Client, agents: list[Agent], field: str, value: str
) -> None:
    response = admin.post(f"{ROOT}/add/", {**NEW, field: value})
    assert response.status_code == 200
    assert list(response.context["adminform"].form.errors) == [field]
    assert Agent.objects.count() == len(agents)


def test_an_agent_is_changed_and_its_name_and_kind_are_not(admin: Client, agents: list[Agent]) -> None:
    agent = agents[0]
    Agent.objects.filter(pk=agent.pk).update(last_seen=START)
    form = {**agent_form(admin, agent), "is_active": "on", "name": "Zero", "agent_id": "other", "kind": "human"}
    assert admin.post(f"{ROOT}/{agent.pk}/change/", form).status_code == 302
    agent.refresh_from_db()
    assert (agent.agent_id, agent.kind, agent.name) == ("agent-0", "agent", "Zero")
    assert agent.last_seen == START
    assert "Changed name" in admin.get(f"{ROOT}/{agent.pk}/history/").content.decode()


def test_the_hub_itself_is_not_changed(admin: Client, agents: list[Agent]) -> None:
    hub = Agent.objects.create(agent_id="hub", kind=Agent.SYSTEM)
    page = admin.get(f"{ROOT}/{hub.pk}/change/")
    assert page.status_code == 200
    assert "_save" not in page.content.decode()
    assert admin.post(f"{ROOT}/{hub.pk}/change/", {"name": "x"}).status_code == 403
    off = {"action": "switch_off_selected", "index": "0", "confirmed": "yes", "_selected_action": [str(hub.pk)]}
    admin.post(f"{ROOT}/", off)
    hub.refresh_from_db()
    assert hub.is_active


def test_selected_agents_are_switched_off_after_a_question(admin: Client, agents: list[Agent]) -> None:
    form: dict[str, Any] = {
        "action": "switch_off_selected", "index": "0", "_selected_action": [str(agent.pk) for agent in agents[:2]]
    }  # fmt: skip
    assert "Their keys are revoked" in admin.post(f"{ROOT}/", form).content.decode()
    assert Agent.objects.filter(is_active=True).count() == 3
    admin.post(f"{ROOT}/", {**form, "confirmed": "yes"})
    assert list(Agent.objects.filter(is_active=True)) == [agents[2]]


def test_who_may_only_view_changes_nothing(viewer: Client, agents: list[Agent]) -> None:
    Agent.objects.filter(pk=agents[0].pk).update(skills=["scan"])
    page = viewer.get(f"{ROOT}/{agents[0].pk}/change/").content.decode()
    assert "&quot;scan&quot;" in page
    assert "Issue a key" not in page
    assert viewer.get(f"{ROOT}/add/").status_code == 403
    assert viewer.post(f"{ROOT}/add/", NEW).status_code == 403
    assert viewer.post(f"{ROOT}/{agents[0].pk}/change/", {"name": "x"}).status_code == 403
    form = {"action": "switch_off_selected", "index": "0", "confirmed": "yes", "_selected_action": [str(agents[0].pk)]}
    viewer.post(f"{ROOT}/", form)
    assert Agent.objects.filter(is_active=True, name="").count() == 3


def test_keys_are_shown_to_those_who_may_see_keys(agents: list[Agent], admin: Client) -> None:
    assert "so it can't connect" in _text(admin.get(f"{ROOT}/{agents[0].pk}/change/"))
    assert "so it can't connect" not in _text(staff_client("view_agent").get(f"{ROOT}/{agents[0].pk}/change/"))


def _text(response: Any) -> str:
    return str(response.content.decode()).replace("&#x27;", "'")


def test_online_is_whoever_has_a_socket_in_a_process_that_lives(admin: Client, agents: list[Agent]) -> None:
    alive = HubProcess.objects.create(started_at=START, lease_until=utc_now().replace(year=2100))
    dead = HubProcess.objects.create(started_at=START, lease_until=START)
    Presence.objects.create(process=alive, agent=agents[0], since=START)
    Presence.objects.create(process=dead, agent=agents[0], since=START)
    Presence.objects.create(process=dead, agent=agents[1], since=START)
    rows = admin.get(f"{ROOT}/").context["cl"].result_list
    assert {row.agent_id: row.is_online for row in rows} == {"agent-0": True, "agent-1": False, "agent-2": False}


def test_agents_are_completed_as_one_types_and_never_listed_whole(admin: Client, db: None) -> None:
    make_agents(200)
    url = "/admin/autocomplete/?app_label=sessions_app&model_name=apikey&field_name=agent"
    with CaptureQueriesContext(connection) as captured:
        answer = admin.get(f"{url}&term=agent-19").json()
    assert [one["text"] for one in answer["results"]][:2] == ["agent-19", "agent-190"]
    assert len(answer["results"]) <= 50
    assert len(captured) <= 8
    for query in ("term=%00", "term=" + "x" * 5000, "page=x", "page=99999999999999999999", "page=-1"):
        assert admin.get(f"{url}&{query}").status_code in {200, 404}
    form = admin.get("/admin/sessions_app/apikey/add/").content.decode()
    assert "agent-19" not in form


@pytest.mark.parametrize("key", ["x", "0", "-1", "100000000000000000000000000", "%00", "_00", "1/2"])
def test_a_strange_id_is_no_agent(admin: Client, agents: list[Agent], key: str) -> None:
    for page in ("change", "history"):
        assert admin.get(f"{ROOT}/{key}/{page}/").status_code in {302, 404}
