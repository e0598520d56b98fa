"""`manage.py agent`: identities from the command line."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from sessions_app import keys
from sessions_app.models import Agent
from sessions_app.protocol.errors import Unauthenticated

pytestmark = pytest.mark.django_db(transaction=True)


def agent(*arguments: str) -> str:
    out = StringIO()
    call_command("agent", *arguments, stdout=out)
    return out.getvalue()


def test_several_agents_are_made_with_one_key_and_one_line_each() -> None:
    lines = [json.loads(line) for line in agent("create", "x", "y", "--json", "--executor", "planner").splitlines()]
    assert [line["agent_id"] for line in lines] == ["x", "y"]
    for line in lines:
        assert set(line) == {"agent_id", "api_key"}
        principal = keys.verify_key(line["api_key"])
        assert (principal.agent_id, principal.is_operator) == (line["agent_id"], False)
    assert Agent.objects.get(agent_id="x").executor == "planner"
    with pytest.raises(CommandError, match="z: No executor is called planer"):
        agent("create", "z", "--executor", "planer")


def test_one_that_can_not_be_made_leaves_none() -> None:
    for name in ("hub", "A", "x"):
        with pytest.raises(CommandError, match=name):
            agent("create", "x", "x" if name == "x" else name)
        assert not Agent.objects.filter(agent_id="x").exists()


def test_an_operators_key_is_issued_listed_and_revoked() -> None:
    agent("create", "x")
    key = json.loads(agent("key", "x", "--scope", "operator", "--json"))["api_key"]
    assert keys.verify_key(key).is_operator
    prefix = key.split("_")[1]
    assert prefix in agent("list")
    listed = json.loads(agent("list", "--json"))
    assert [shown["scope"] for shown in listed["keys"]] == ["agent", "operator"]
    for _ in range(2):
        agent("revoke", prefix)
    with pytest.raises(Unauthenticated):
        keys.verify_key(key)
    assert "revoked" in agent("list")


def test_what_there_is_not_can_not_be_changed() -> None:
    for arguments in (("key", "nobody"), ("key", "hub"), ("revoke", "aaaaaaaaaaaa"), ("revoke", "")):
        with pytest.raises(CommandError):
            agent(*arguments)
    with pytest.raises(CommandError):
        agent("create", "x", "--expires-in-days", "-1")
