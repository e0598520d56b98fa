"""Keys: shown once, kept nowhere, revoked for good; agents switched off lose theirs."""

from __future__ import annotations

import re
from contextlib import closing

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client

from sessions_app.changes import Changes
from sessions_app.keys import issue_key, verify_key
from sessions_app.models import Agent, ApiKey
from sessions_app.protocol.errors import Unauthenticated
from tests.integration.admin.conftest import agent_form, staff_client

ROOT = "/admin/sessions_app"
KEY = re.compile(r"ak_[a-z2-7]{12}_[A-Za-z0-9_-]{43}")


def form_of(client: Client, agent: Agent, **more: str) -> dict[str, str]:
    """The form as the browser would send it."""
    page = client.get(f"{ROOT}/apikey/add/?agent={agent.agent_id}").content.decode()
    once = re.search(r'name="once" value="([^"]+)"', page)
    assert once is not None
    return {"agent": str(agent.pk), "scope": "agent", "label": "laptop", "days": "", "once": once[1], **more}


def everything_stored() -> str:
    """All rows of all tables as text."""
    names = {model._meta.db_table for model in apps.get_models(include_auto_created=True)}
    with closing(connection.cursor()) as cursor:
        stored = []
        for name in sorted(names):
            cursor.execute(f'SELECT * FROM "{name}"')
            stored += [repr(row) for row in cursor.fetchall()]
    return "\n".join(stored)


def test_a_key_is_shown_once_works_and_is_kept_nowhere(admin: Client, agents: list[Agent]) -> None:
    form = form_of(admin, agents[0], scope="operator", days="30")
    response = admin.post(f"{ROOT}/apikey/add/", form)
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    found = set(KEY.findall(response.content.decode()))
    assert len(found) == 1
    key = found.pop()

    principal = verify_key(key)
    assert (principal.agent_id, principal.scope) == ("agent-0", "operator")
    assert principal.expires_at is not None

    row = ApiKey.objects.get()
    assert key.startswith(f"ak_{row.prefix}_")
    secret = key.removeprefix(f"ak_{row.prefix}_")
    pages = [
        f"{ROOT}/apikey/", f"{ROOT}/apikey/{row.pk}/change/", f"{ROOT}/apikey/{row.pk}/history/", "/admin/",
        f"{ROOT}/agent/{agents[0].pk}/change/", f"{ROOT}/agent/{agents[0].pk}/history/", f"{ROOT}/apikey/add/",
    ]  # fmt: skip
    for page in pages:
        again = admin.get(page)
        assert again.status_code == 200
        assert secret not in again.content.decode()
    assert secret not in everything_stored()


def test_a_form_that_is_sent_again_issues_no_second_key(admin: Client, agents: list[Agent]) -> None:
    form = form_of(admin, agents[0])
    assert KEY.search(admin.post(f"{ROOT}/apikey/add/", form).content.decode())
    again = admin.post(f"{ROOT}/apikey/add/", form, follow=True)
    assert not KEY.search(again.content.decode())
    assert "shown already" in again.content.decode()
    assert ApiKey.objects.count() == 1
    assert KEY.search(admin.post(f"{ROOT}/apikey/add/", form_of(admin, agents[0])).content.decode())
    assert ApiKey.objects.count() == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": "x"}, {"agent": "100000000000000000000000"}, {"agent": ""}, {"agent": "\0"}, {"scope": "root"}, {"days": "0"},
        {"days": "-1"}, {"days": "1e9"}, {"days": "99999999999999999999"}, {"label": "x" * 101}, {"label": "a\nb"}, {"once": ""},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_form_is_shown_again_and_issues_nothing(
    admin: Client, agents: list[Agent], wrong: dict[str, str]
) -> None:
    response = admin.post(f"{ROOT}/apikey/add/", {**form_of(admin, agents[0]), **wrong})
    assert response.status_code == 200
    assert response.context["form"].errors
    assert not ApiKey.objects.exists()


def test_no_key_is_issued_to_an_agent_that_is_off_or_to_the_hub_itself(admin: Client, agents: list[Agent]) -> None:
    hub = Agent.objects.create(agent_id="hub", kind=Agent.SYSTEM)
    Agent.objects.filter(pk=agents[0].pk).update(is_active=False)
    for agent in (agents[0], hub):
        response = admin.post(f"{ROOT}/apikey/add/", form_of(admin, agent))
        assert "There is no such agent that is active." in response.content.decode()
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize(
    "query", ["agent=x", "agent=%00", "agent=hub", "scope=root&days=x&once=y", "agent=" + "9" * 400]
)
def test_the_address_can_prefill_the_agent_and_nothing_else(admin: Client, agents: list[Agent], query: str) -> None:
    response = admin.get(f"{ROOT}/apikey/add/?{query}")
    assert response.status_code == 200
    assert set(response.context["form"].initial) == {"agent", "once"}
    assert response.context["form"].initial["once"] != "y"


def test_a_revoked_key_opens_nothing_and_its_sockets_are_told(
    admin: Client, agents: list[Agent], published: list[Changes], django_capture_on_commit_callbacks: object
) -> None:
    key, row = issue_key(agents[0])
    other, _ = issue_key(agents[0])
    verify_key(key)
    asked = admin.get(f"{ROOT}/apikey/{row.pk}/revoke/")
    assert asked.status_code == 200
    verify_key(key)
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        assert admin.post(f"{ROOT}/apikey/{row.pk}/revoke/", {"confirmed": "yes"}).status_code == 302
    assert [change.revoked_keys for change in published] == [[row.pk]]
    with pytest.raises(Unauthenticated):
        verify_key(key)
    verify_key(other)
    assert "revoked" in admin.get(f"{ROOT}/apikey/{row.pk}/change/").content.decode()


def test_selected_keys_are_revoked_after_a_question(
    admin: Client, agents: list[Agent], published: list[Changes], django_capture_on_commit_callbacks: object
) -> None:
    rows = [issue_key(agent)[1] for agent in agents]
    form = {"action": "revoke_selected", "index": "0", "_selected_action": [str(row.pk) for row in rows[:2]]}
    asked = admin.post(f"{ROOT}/apikey/", form)
    assert asked.status_code == 200
    assert not ApiKey.objects.exclude(revoked_at=None).exists()
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        admin.post(f"{ROOT}/apikey/", {**form, "confirmed": "yes"})
    assert set(ApiKey.objects.exclude(revoked_at=None)) == set(rows[:2])
    assert sorted(pk for change in published for pk in change.revoked_keys) == sorted(row.pk for row in rows[:2])


def test_switching_an_agent_off_revokes_its_keys(
    admin: Client, agents: list[Agent], published: list[Changes], django_capture_on_commit_callbacks: object
) -> None:
    key, row = issue_key(agents[0])
    form = agent_form(admin, agents[0])
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        response = admin.post(f"{ROOT}/agent/{agents[0].pk}/change/", {**form, "is_active": ""})
    assert response.status_code == 302
    agent = Agent.objects.get(pk=agents[0].pk)
    assert not agent.is_active
    assert row.pk in [pk for change in published for pk in change.revoked_keys]
    with pytest.raises(Unauthenticated):
        verify_key(key)
    # On again: the agent may get a new key, the old one stays revoked.
    admin.post(f"{ROOT}/agent/{agents[0].pk}/change/", {**form, "is_active": "on"})
    assert Agent.objects.get(pk=agents[0].pk).is_active
    with pytest.raises(Unauthenticated):
        verify_key(key)
    assert "switched off" in admin.get(f"{ROOT}/apikey/{row.pk}/history/").content.decode()


def test_the_history_tells_who_issued_and_revoked_without_the_key(admin: Client, agents: list[Agent]) -> None:
    response = admin.post(f"{ROOT}/apikey/add/", form_of(admin, agents[0]))
    [key] = set(KEY.findall(response.content.decode()))
    row = ApiKey.objects.get()
    admin.post(f"{ROOT}/apikey/{row.pk}/revoke/", {})
    of_key = admin.get(f"{ROOT}/apikey/{row.pk}/history/").content.decode()
    assert "Issued for agent-0" in of_key
    assert "Revoked." in of_key
    of_agent = admin.get(f"{ROOT}/agent/{agents[0].pk}/history/").content.decode()
    assert f"Issued the key ak_{row.prefix}…" in of_agent
    assert f"Revoked the key ak_{row.prefix}…" in of_agent
    assert key[16:] not in of_key + of_agent


def test_who_may_only_view_issues_and_revokes_nothing(viewer: Client, agents: list[Agent]) -> None:
    key, row = issue_key(agents[0])
    assert viewer.get(f"{ROOT}/apikey/add/").status_code == 403
    form = {"agent": str(agents[0].pk), "scope": "agent", "once": "x"}
    assert viewer.post(f"{ROOT}/apikey/add/", form).status_code == 403
    assert viewer.get(f"{ROOT}/apikey/{row.pk}/revoke/").status_code == 403
    assert viewer.post(f"{ROOT}/apikey/{row.pk}/revoke/", {}).status_code == 403
    selected = {"action": "revoke_selected", "index": "0", "_selected_action": [str(row.pk)], "confirmed": "yes"}
    viewer.post(f"{ROOT}/apikey/", selected)
    page = viewer.get(f"{ROOT}/apikey/{row.pk}/change/").content.decode()
    assert "/revoke/" not in page
    verify_key(key)
    assert ApiKey.objects.count() == 1


def test_keys_and_agents_are_never_deleted(admin: Client, agents: list[Agent]) -> None:
    _, row = issue_key(agents[0])
    assert admin.post(f"{ROOT}/apikey/{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin.post(f"{ROOT}/agent/{agents[0].pk}/delete/", {"post": "yes"}).status_code == 403
    assert ApiKey.objects.exists()


def test_each_page_of_a_key_needs_its_permission_and_survives_a_strange_id(admin: Client, agents: list[Agent]) -> None:
    assert staff_client("view_agent").get(f"{ROOT}/apikey/1/change/").status_code == 403
    for page in ("change", "revoke", "history"):
        for key in ("x", "0", "-1", "100000000000000000000000000", "%00", "_00", "1/2"):
            assert admin.get(f"{ROOT}/apikey/{key}/{page}/").status_code in {302, 404}


def test_keys_are_found_by_their_beginning_and_by_agent(admin: Client, agents: list[Agent]) -> None:
    rows = [issue_key(agent)[1] for agent in agents]

    def found(query: str) -> list[int]:
        return [row.pk for row in admin.get(f"{ROOT}/apikey/?{query}").context["cl"].result_list]

    assert found("") == [row.pk for row in reversed(rows)]
    assert found(f"q=ak_{rows[1].prefix}") == [rows[1].pk]
    assert found(f"q=ak_{rows[1].prefix}_and_the_rest_of_the_key") == [rows[1].pk]
    assert found("q=agent-2") == found("agent=agent-2") == [rows[2].pk]
    ApiKey.objects.filter(pk=rows[0].pk).update(revoked_at=rows[0].created_at)
    assert found("state=revoked") == [rows[0].pk]
    assert found("state=good") == [rows[2].pk, rows[1].pk]
