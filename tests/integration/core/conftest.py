from __future__ import annotations

import pytest

from sessions_app.changes import unit_of_work
from sessions_app.models import Agent, Session
from sessions_app.protocol.bodies import SessionBody
from sessions_app.services.sessions import create_session


@pytest.fixture
def agents(transactional_db: None) -> dict[str, Agent]:
    return {name: Agent.objects.create(agent_id=name) for name in ("alice", "bob", "carol")}


@pytest.fixture
def session(agents: dict[str, Agent]) -> Session:
    """A session of alice (the initiator), bob and carol."""
    with unit_of_work() as changes:
        body = SessionBody(participants=["bob", "carol"])
        return create_session(body=body, caller=agents["alice"], is_operator=False, changes=changes).session
