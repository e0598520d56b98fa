"""Registering agents and what they say of themselves."""

from __future__ import annotations

import logging
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F
from msgspec import UNSET

from sessions_app.changes import unit_of_work
from sessions_app.context.profiles import check_profile
from sessions_app.db import write_transaction
from sessions_app.keys import revoke_keys
from sessions_app.models import Agent, ApiKey, Participant, Session
from sessions_app.protocol.bodies import CONTEXT_STRATEGIES, AgentBody, AgentPatch, check_choice
from sessions_app.protocol.errors import Conflict, Forbidden, Invalid
from sessions_app.protocol.ids import is_agent_id
from sessions_app.protocol.jsontext import dumps
from sessions_app.services.setups import check_executor, check_setup

log = logging.getLogger("hub.agents")
TEXT_CHARACTERS = 10_000
JSON_BYTES = 64 * 1024


def register_agent(*, body: AgentBody) -> Agent:
    """Make an agent; raises `Invalid` for a name that may not be one, `Conflict` for one that is taken."""
    if not is_agent_id(body.agent_id):
        raise Invalid(
            "agent_id is 1 to 64 of a-z 0-9 . _ -, starts with a letter or digit, and is not reserved.",
            field="agent_id",
        )
    agent = Agent(agent_id=body.agent_id, kind=_line(body.kind or Agent.AGENT, "kind", 16))
    agent.name = _line(body.name or "", "name", 200)
    agent.description = _text(body.description or "", "description")
    agent.skills = _json(body.skills or [], "skills")
    agent.accepts = check_accepts(body.accepts)
    agent.executor = _executor(body.executor)
    agent.executor_config = _json(body.executor_config or {}, "executor_config")
    agent.context_strategy = check_choice(body.context_strategy, CONTEXT_STRATEGIES, "context_strategy")
    agent.visibility = check_profile(body.visibility)
    check_setup(agent.executor, agent.executor_config)
    try:
        with transaction.atomic():
            agent.save(force_insert=True)
    except IntegrityError:
        raise Conflict("There is an agent of this name.", field="agent_id") from None
    return agent


def update_agent(*, agent: Agent, patch: AgentPatch, is_operator: bool) -> Agent:
    """Change a card. An agent may say of itself who it is; what the hub runs for it, and what it may get of the talk, is an
    operator's to set."""
    if not is_operator:
        if isinstance(patch.executor, str) and patch.executor != "delegate":
            raise Forbidden("Only an operator may set an executor; you may set delegate or null.", field="executor")
        for name in ("executor_config", "context_strategy", "visibility", "is_active"):
            if getattr(patch, name) is not UNSET:
                raise Forbidden("Only an operator may set this.", field=name)
    if isinstance(patch.name, str):
        agent.name = _line(patch.name, "name", 200)
    if isinstance(patch.description, str):
        agent.description = _text(patch.description, "description")
    if isinstance(patch.skills, list):
        agent.skills = _json(patch.skills, "skills")
    if isinstance(patch.accepts, list | str):
        agent.accepts = check_accepts(patch.accepts)
    had = agent.executor
    if patch.executor is None or isinstance(patch.executor, str):
        # Unchanged is not asked: of an agent whose plug-in is gone the rest can still be changed.
        agent.executor = _executor(patch.executor) if patch.executor != had else had
    if isinstance(patch.executor_config, dict):
        agent.executor_config = _json(patch.executor_config, "executor_config")
    if patch.context_strategy is None or isinstance(patch.context_strategy, str):
        agent.context_strategy = check_choice(patch.context_strategy, CONTEXT_STRATEGIES, "context_strategy")
    if patch.visibility is not UNSET:
        agent.visibility = check_profile(patch.visibility)
    if isinstance(patch.is_active, bool):
        agent.is_active = patch.is_active
    if patch.executor is not UNSET or patch.executor_config is not UNSET:
        check_setup(agent.executor, agent.executor_config)
    with unit_of_work() as changes:
        agent.save()
        if patch.visibility is not UNSET or agent.executor != had:
            changes.reviewed.append(agent.pk)
    if agent.executor != had:
        _tell_sessions(agent)
    if patch.is_active is False:
        revoke_keys(list(ApiKey.objects.filter(agent=agent, revoked_at=None)))
    return agent


def _tell_sessions(agent: Agent) -> None:
    """Processes remember who in a session talks through an executor, by the session's revision."""
    places = Participant.objects.filter(agent=agent, left_at=None, session__status__in=Session.LIVE)
    with write_transaction():
        live = Session.objects.filter(pk__in=places.values("session_id")).order_by("pk").select_for_update()
        keys = list(live.values_list("pk", flat=True))
        Session.objects.filter(pk__in=keys).update(members_revision=F("members_revision") + 1)


def check_accepts(value: list[str] | str | None) -> list[str] | None:
    """`"anyone"` (stored as null) or a list of agent ids."""
    if value is None or value == "anyone":
        return None
    if isinstance(value, str) or len(value) > 1000 or not all(0 < len(name) <= 64 and name.isascii() for name in value):
        raise Invalid('accepts is "anyone" or a list of agent ids.', field="accepts")
    return list(dict.fromkeys(value))


def _executor(value: str | None) -> str | None:
    if value is not None and (not value or len(value) > 200 or not value.isprintable()):
        raise Invalid("executor is the name of one.", field="executor")
    if value is not None:
        for remark in check_executor(value):
            log.warning("executor %s", remark)
    return value


def _line(value: str, field: str, length: int) -> str:
    if len(value) > length or not (value.isprintable() or value == ""):
        raise Invalid(f"{field} is one line of {length} characters at the most.", field=field)
    return value


def _text(value: str, field: str) -> str:
    if len(value) > TEXT_CHARACTERS:
        raise Invalid(f"{field} holds {TEXT_CHARACTERS} characters at the most.", field=field)
    return value


def _json(value: Any, field: str) -> Any:
    if len(dumps(value)) > JSON_BYTES:
        raise Invalid(f"{field} holds {JSON_BYTES} bytes at the most.", field=field)
    return value
