"""An A2A agent is registered by its card's URL, and is a participant like any other."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from hub.a2a.outbound import cards, refreshing
from hub.a2a.outbound.cards import CardRefused, card_of
from hub.a2a.outbound.config import read_config
from hub.a2a.outbound.models import RemoteCard
from sessions_app.db import utc_now
from sessions_app.keys import issue_key
from sessions_app.models import Agent
from sessions_app.protocol.bodies import AgentBody
from sessions_app.protocol.errors import Invalid
from sessions_app.services.agents import register_agent
from tests.integration.a2a.conftest import RemoteProcess
from tests.remote_agent import SECRET

pytestmark = pytest.mark.django_db(transaction=True)


def post(client: Any, body: dict[str, Any], method: str = "post", path: str = "") -> Any:
    operator, _ = Agent.objects.get_or_create(agent_id="boss")
    key, _ = issue_key(operator, "operator", "", None)
    return getattr(client, method)(
        f"/api/a2a/agents{path}",
        data=json.dumps(body),
        content_type="application/json",
        headers={"authorization": f"Bearer {key}"},
    )


def test_an_operator_registers_a_remote_agent_over_rest_and_the_directory_says_what_its_card_says(
    client: Any, remote: RemoteProcess
) -> None:
    answer = post(
        client,
        {"agent_id": "painter", "executor": "a2a", "executor_config": {"card_url": f"{remote.url}/v1"}, "name": "Ours"},
    )
    assert answer.status_code == 201, answer.content
    told = answer.json()
    assert (told["name"], told["description"]) == ("Ours", "An agent for tests.")
    assert told["skills"] == [{"id": "colours", "name": "Colours", "description": "Paints.", "tags": ["paint"]}]
    assert RemoteCard.objects.get().card["name"] == "Remote v1"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "needs card_url"),
        ({"card_url": "{remote}/nothing"}, "HTTP 404"),
        ({"card_url": "{remote}/seen.json"}, "HTTP 404"),
        ({"card_url": "http://10.0.0.1/"}, "not at a public address"),
        ({"card_url": "http://[::1]:1/x"}, "not at a public address"),
        ({"card_url": "https://user:pass@example.org/"}, "user name"),
        ({"card_url": "{remote}/bearer"}, "asks for a credential"),
        ({"card_url": "{remote}/bearer", "credential": "UNSET"}, "HUB_A2A_SECRET_UNSET is not set"),
        ({"card_url": "{remote}/v1", "credential": "path"}, "in capitals"),
        ({"card_url": "{remote}/v1", "binding": "GRPC"}, "binding is"),
        ({"card_url": "{remote}/v1", "binding": "HTTP+JSON"}, "The card offers JSONRPC 1.0"),
        ({"card_url": "{remote}/v1", "timeout_seconds": 0}, "timeout_seconds is"),
        ({"card_url": "{remote}/v1", "token": "abc"}, "has no token"),
    ],
)
def test_what_could_not_be_spoken_to_is_not_registered(
    client: Any, remote: RemoteProcess, config: dict[str, Any], words: str
) -> None:
    filled = {
        name: str(value).format(remote=remote.url) if name == "card_url" else value for name, value in config.items()
    }
    answer = post(client, {"agent_id": "painter", "executor": "a2a", "executor_config": filled})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert words in answer.json()["message"]
    assert answer.json()["details"] == {"field": "executor_config"}
    assert not Agent.objects.filter(agent_id="painter").exists()


def test_an_agent_becomes_a_remote_one_by_a_patch(client: Any, remote: RemoteProcess) -> None:
    Agent.objects.create(agent_id="painter", description="Old words.")
    change = {"executor": "a2a", "executor_config": {"card_url": f"{remote.url}/rest"}}
    answer = post(client, change, "patch", "/painter")
    assert answer.status_code == 200, answer.content
    assert answer.json()["name"] == "Remote rest"


def test_the_command_line_registers_one_with_its_credential_by_name(
    remote: RemoteProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_A2A_SECRET_PAINT", SECRET)
    call_command(
        "agent", "create", "painter", "--card", f"{remote.url}/bearer", "--credential", "PAINT", stdout=StringIO()
    )
    agent = Agent.objects.get(agent_id="painter")
    assert (agent.executor, agent.name) == ("a2a", "Remote bearer")
    assert agent.executor_config == {"card_url": f"{remote.url}/bearer", "credential": "PAINT"}
    with pytest.raises(CommandError, match="HTTP 404"):
        call_command("agent", "create", "other", "--card", f"{remote.url}/nothing", stdout=StringIO())
    with pytest.raises(CommandError, match="belongs to --card"):
        call_command("agent", "create", "other", "--credential", "PAINT", stdout=StringIO())


def test_a_door_that_can_not_wait_leaves_the_card_to_the_sweep(remote: RemoteProcess) -> None:
    body = AgentBody(agent_id="painter", executor="a2a", executor_config={"card_url": f"{remote.url}/v1"})
    register_agent(body=body)
    (row,) = RemoteCard.objects.all()
    assert row.card is None
    assert refreshing.take_due(utc_now()) == [("a2a.card", [row.pk])]
    assert refreshing.take_due(utc_now()) == []
    assert refreshing.refresh_card(row.pk)
    assert Agent.objects.get(agent_id="painter").name == "Remote v1"
    Agent.objects.all().delete()
    assert not refreshing.refresh_card(row.pk)
    assert not RemoteCard.objects.exists()


def test_a_fresh_card_is_not_fetched_again_and_a_stale_one_is_confirmed_by_its_tag(
    remote: RemoteProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_config({"card_url": f"{remote.url}/v1"})
    card_of(config)
    row = RemoteCard.objects.get()
    assert row.etag
    assert row.fresh_until is not None
    assert row.fetched_at is not None
    assert row.fresh_until - row.fetched_at == timedelta(seconds=120)  # its Cache-Control
    asked: list[str] = []
    real = cards._get

    async def get(client: Any, url: str, etag: str, secret: str | None) -> Any:
        asked.append(etag)
        return await real(client, url, etag, secret)

    monkeypatch.setattr(cards, "_get", get)
    card_of(config)
    assert asked == []
    RemoteCard.objects.update(fresh_until=utc_now())
    assert card_of(config).name == "Remote v1"
    assert asked == [row.etag]
    assert RemoteCard.objects.get().card == row.card


def test_an_old_card_is_used_while_no_newer_one_can_be_had() -> None:
    raw = {
        "name": "Old",
        "supportedInterfaces": [{"url": "http://127.0.0.1:1/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
    }
    url = "http://127.0.0.1:1/agent"
    past = utc_now() - timedelta(days=1)
    RemoteCard.objects.create(url=url, card=raw, fresh_until=past, due_at=past)
    assert card_of(read_config({"card_url": url})).name == "Old"
    assert "can't be fetched" in RemoteCard.objects.get().failure
    with pytest.raises(CardRefused):
        card_of(read_config({"card_url": "http://127.0.0.1:1/other"}))


def test_the_directory_follows_the_card_where_an_operator_has_not_written_something_else(remote: RemoteProcess) -> None:
    config = {"card_url": f"{remote.url}/v1"}
    old = {"name": "Before", "description": "Old.", "supportedInterfaces": []}
    now = utc_now()
    RemoteCard.objects.create(url=config["card_url"], card=old, fresh_until=now, due_at=now)
    Agent.objects.create(agent_id="a", executor="a2a", executor_config=config, name="Before", description="Ours.")
    card_of(read_config(config))
    agent = Agent.objects.get()
    assert (agent.name, agent.description) == ("Remote v1", "Ours.")


def test_services_refuse_a_config_of_the_wrong_shape_at_every_door() -> None:
    with pytest.raises(Invalid, match="needs card_url"):
        register_agent(body=AgentBody(agent_id="painter", executor="a2a"))
