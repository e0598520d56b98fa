"""The directory, cards and keys, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.rest.conftest import Door
from traces_app.executors import registry

# None of this is called all the time: one way in is enough.
pytestmark = pytest.mark.parametrize("application", ["express"], indirect=True)


async def test_anybody_sees_the_directory_and_only_itself_what_is_private(a: Door, b: Door, operator: Door) -> None:
    await b.patch("agents/me", {"description": "Knows B", "skills": [{"id": "s", "name": "S"}], "accepts": ["a"]})
    seen = (await a.get("agents/b")).json()
    assert seen["description"] == "Knows B"
    assert seen["online"] is False
    assert not {"accepts", "executor", "executor_config", "is_active"} & set(seen)
    own = (await b.get("agents/me")).json()
    assert (own["accepts"], own["executor"]) == (["a"], None)
    assert (await operator.get("agents/b")).json() == own
    names = [agent["agent_id"] for agent in (await a.get("agents")).json()["agents"]]
    assert names == ["a", "b", "op"]


async def test_the_directory_pages_by_name(a: Door, b: Door, stranger: Door) -> None:
    first = (await a.get("agents?limit=2")).json()
    second = (await a.get("agents", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [x["agent_id"] for x in first["agents"] + second["agents"]] == ["a", "b", "stranger"]
    assert second["next_cursor"] is None
    assert (await a.get("agents?cursor=%FF")).json()["details"] == {"field": "cursor"}


@pytest.mark.parametrize("name", ["nobody", "..", "%2e%2e", "a%00", "A", "caf%C3%A9", "x" * 65, "hub%20"])
async def test_an_agent_that_there_is_not_is_not_found(a: Door, name: str) -> None:
    answer = await a.get(f"agents/{name}")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


async def test_an_agent_gives_itself_delegate_or_nothing_and_no_more(a: Door) -> None:
    assert (await a.patch("agents/me", {"executor": "delegate"})).json()["executor"] == "delegate"
    assert (await a.patch("agents/me", {"executor": None})).json()["executor"] is None
    bodies: list[dict[str, Any]] = [
        {"executor": "planner"},
        {"executor": "python:os:system"},
        {"executor_config": {"root": "/"}},
        {"context_strategy": "shared"},
        {"is_active": True},
    ]
    for body in bodies:
        refused = await a.patch("agents/me", body)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), body
    for wrong in ({"accepts": "everybody"}, {"accepts": None}, {"name": "a\nb"}, {"skills": "x"}):
        body = {**wrong}
        assert (await a.patch("agents/me", body)).status_code == 400, body


async def test_operators_register_agents_and_nobody_else_does(a: Door, operator: Door) -> None:
    assert (await a.post("agents", {"agent_id": "new"})).status_code == 403
    assert (await a.patch("agents/a", {"name": "x"})).status_code == 403
    assert (await a.post("agents/a/keys")).status_code == 403
    assert (await a.delete("agents/a/keys/abc")).status_code == 403
    body = {"agent_id": "new", "name": "N", "executor": "planner", "executor_config": {"x": 1}}
    made = await operator.post("agents", body)
    assert made.status_code == 201
    assert (made.json()["agent_id"], made.json()["executor"], made.json()["accepts"]) == ("new", "planner", "anyone")
    again = await operator.post("agents", body)
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    changed = await operator.patch("agents/new", {"executor": None, "is_active": False})
    assert (changed.json()["executor"], changed.json()["is_active"]) == (None, False)
    assert "new" not in [agent["agent_id"] for agent in (await a.get("agents")).json()["agents"]]


@pytest.mark.parametrize(
    "executor", ["planer", "Planner", "a2a:x", "", "python:", "python:os", "python:os:", "python:a b:c"]
)
async def test_an_executor_that_there_is_not_is_refused_when_it_is_given(
    a: Door, operator: Door, executor: str
) -> None:
    made = await operator.post("agents", {"agent_id": "new", "executor": executor})
    changed = await operator.patch("agents/a", {"executor": executor})
    for answer in (made, changed):
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
        assert answer.json()["details"]["field"] == "executor"
    assert (await operator.get("agents/new")).status_code == 404
    assert (await operator.get("agents/a")).json()["executor"] is None


async def test_an_executor_is_one_that_comes_with_the_hub_or_is_installed_or_a_function(
    a: Door, operator: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_installed", lambda: {"plugged": lambda: None})
    for executor in ("planner", "delegate", "plugged", "python:worker.only:made.here"):
        answer = await operator.patch("agents/a", {"executor": executor})
        assert (answer.status_code, answer.json()["executor"]) == (200, executor)


async def test_what_is_left_of_an_agent_whose_executor_is_gone_can_be_changed(
    a: Door, operator: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as installed:
        installed.setattr(registry, "_installed", lambda: {"plugged": lambda: None})
        await operator.patch("agents/a", {"executor": "plugged"})
    answer = await operator.patch("agents/a", {"executor": "plugged", "name": "Alone"})
    assert (answer.status_code, answer.json()["name"]) == (200, "Alone")


@pytest.mark.parametrize(
    "name",
    ["hub", "me", "system", "human", "human.x", "A", "", "-x", "a/b", "a\\b", "..", "C:x", "café", "аgent", "x" * 65,
     "a\u200b", "a\u202e", " ", "a\n"],
)  # fmt: skip
async def test_a_name_that_no_agent_may_have_is_invalid(operator: Door, name: str) -> None:
    answer = await operator.post("agents", {"agent_id": name})
    assert (answer.status_code, answer.json()["details"]) == (400, {"field": "agent_id"})


async def test_a_key_is_shown_once_opens_the_door_and_is_revoked_by_its_prefix(
    a: Door, b: Door, operator: Door
) -> None:
    issued = await operator.post("agents/b/keys", {"label": "laptop", "expires_in_seconds": 3600})
    assert issued.status_code == 201
    key = issued.json()
    assert key["api_key"].startswith(f"ak_{key['prefix']}_")
    assert (key["scope"], key["agent_id"], key["label"]) == ("agent", "b", "laptop")
    assert key["expires_at"].endswith("Z")
    until = await operator.post("agents/b/keys", {"expires_at": "2029-02-03T04:05:06+00:00"})
    assert until.json()["expires_at"].startswith("2029-02-03T04:05:0")
    other = Door(b.client, "b", key["api_key"])
    assert (await other.get("agents/me")).json()["agent_id"] == "b"
    for prefix in (key["prefix"], f"ak_{key['prefix']}"):
        assert (await operator.delete(f"agents/b/keys/{prefix}")).status_code == 204
        assert (await other.get("agents/me")).status_code == 401
        assert (await other.get(f"sessions/{'sess-' + 'a' * 26}/messages")).status_code == 401
    assert (await b.get("agents/me")).status_code == 200
    for agent, prefix in (("a", key["prefix"]), ("b", "nokeyhasthis"), ("b", "%00"), ("nobody", key["prefix"])):
        assert (await operator.delete(f"agents/{agent}/keys/{prefix}")).status_code == 404


async def test_a_key_is_issued_once_per_idempotency_key_and_kept_nowhere(b: Door, operator: Door) -> None:
    headers = {"Idempotency-Key": "k"}
    first = (await operator.post("agents/b/keys", {}, headers=headers)).json()
    again = await operator.post("agents/b/keys", {}, headers=headers)
    assert again.status_code == 201
    assert again.json() == {**first, "api_key": None}

    from asgiref.sync import sync_to_async

    from sessions_app.models import IdempotentAnswer

    kept = await sync_to_async(lambda: list(IdempotentAnswer.objects.values_list("answer", flat=True)))()
    assert len(kept) == 1
    assert "ak_" not in kept[0]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scope": "root"}, "scope"),
        ({"expires_in_seconds": 0}, "expires_in_seconds"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2999-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2030-01-01T00:00:00"}, "expires_at"),
        ({"expires_at": "yesterday"}, "expires_at"),
        ({"expires_at": "2030-01-01T00:00:00Z", "expires_in_seconds": 60}, "expires_at"),
        ({"expires_in_seconds": 10**18}, "expires_in_seconds"),
        ({"label": "x" * 101}, "label"),
        ({"label": "a\nb"}, "label"),
    ],
)
async def test_an_impossible_key_is_invalid(a: Door, operator: Door, body: dict[str, Any], field: str) -> None:
    answer = await operator.post("agents/a/keys", body)
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, field)


async def test_nobody_speaks_for_the_hub(a: Door, b: Door, operator: Door) -> None:
    session = await a.open("b")
    await a.say(session, "how far are you?")  # makes the hub's own row
    for answer in (await operator.post("agents/hub/keys"), await operator.patch("agents/hub", {"executor": "x"})):
        assert answer.status_code in (403, 404)


async def test_switching_an_agent_off_ends_its_keys(a: Door, operator: Door) -> None:
    assert (await a.get("agents/me")).status_code == 200
    await operator.patch("agents/a", {"is_active": False})
    assert (await a.get("agents/me")).status_code == 401
    await operator.patch("agents/a", {"is_active": True})
    assert (await a.get("agents/me")).status_code == 401
