"""What a fresh hub needs before anybody can try it: a staff login and two sample agents with keys."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from django.contrib.auth import get_user_model

from sessions_app.keys import issue_key
from sessions_app.models import Agent

SAMPLES = {
    "cloud-agent-123": "Asks about projects from afar.",
    "terminal-agent-456": "Lives on a laptop and can look into local projects.",
}


@dataclass(frozen=True, slots=True)
class FirstStart:
    """Shown once: the login's password and the agents' keys are stored as hashes only."""

    username: str
    password: str
    keys: dict[str, str]


def first_start() -> FirstStart | None:
    """Make login and sample agents when this hub has neither users nor agents; else None."""
    users = get_user_model()
    if users.objects.exists() or Agent.objects.exclude(kind=Agent.SYSTEM).exists():
        return None
    password = secrets.token_urlsafe(12)
    users.objects.create_superuser(username="admin", password=password)
    keys = {}
    for agent_id, description in SAMPLES.items():
        agent = Agent.objects.create(agent_id=agent_id, description=description)
        keys[agent_id], _ = issue_key(agent, label="made on the first start")
    return FirstStart("admin", password, keys)
