"""Who looks at the admin: a superuser, and staff who may only view."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from sessions_app import changes
from sessions_app.changes import Changes
from sessions_app.models import Agent
from tests.integration.admin.rows import make_agents


@pytest.fixture
def agents(db: None) -> list[Agent]:
    return make_agents(3)


@pytest.fixture
def superuser(db: None) -> User:
    return User.objects.create_superuser("root", password="secret")


@pytest.fixture
def admin(superuser: User) -> Client:
    client = Client()
    client.force_login(superuser)
    return client


@pytest.fixture
def published() -> Iterator[list[Changes]]:
    """What was told to this process's sockets."""
    heard: list[Changes] = []
    publisher = heard.append
    changes.add_publisher(publisher)
    yield heard
    changes.remove_publisher(publisher)


def staff_client(*permissions: str) -> Client:
    """A staff member with these permissions on our models, like `view_session`."""
    user = User.objects.create_user(
        f"staff-{len(permissions)}-{'-'.join(permissions)}"[:150], password="x", is_staff=True
    )
    found = Permission.objects.filter(content_type__app_label="sessions_app", codename__in=permissions)
    user.user_permissions.set(found)
    assert found.count() == len(permissions)
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def viewer(db: None) -> Client:
    return staff_client("view_agent", "view_apikey", "view_session", "view_message", "view_kindrule")


def agent_form(client: Client, agent: Agent) -> dict[str, str]:
    """What the browser would send back from an agent's page, with the box "active" left unticked."""
    form = client.get(f"/admin/sessions_app/agent/{agent.pk}/change/").context["adminform"].form
    found = {name: field.prepare_value(form.get_initial_for_field(field, name)) for name, field in form.fields.items()}
    return {name: value for name, value in found.items() if isinstance(value, str)}
