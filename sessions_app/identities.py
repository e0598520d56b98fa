"""The hub's own identity: an agent row like any other, so that its messages need no special case."""

from __future__ import annotations

from sessions_app.models import Agent
from sessions_app.protocol.ids import HUB

_known: list[int] = []


def hub_agent_key() -> int:
    """The key of the agent `hub`, made on first use."""
    if not _known:
        agent, _ = Agent.objects.get_or_create(agent_id=HUB, defaults={"kind": Agent.SYSTEM, "name": "Session Hub"})
        _known.append(agent.pk)
    return _known[0]


def forget_everything() -> None:
    """For tests that replace the database under a running process."""
    _known.clear()
