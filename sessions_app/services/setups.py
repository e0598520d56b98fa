"""What executors have to say when an agent is given one: `EXECUTOR_SETUPS` names them, another call upwards.

`check(config)` is called by every door, in the writing transaction, and asks nobody. `complete(config)` may go to the network
for what the agent's directory entry should say; the doors that can wait call it before their transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

from django.conf import settings
from django.utils.module_loading import import_string
from msgspec import UNSET
from msgspec.structs import replace

from sessions_app.hooks import executor_hooks
from sessions_app.models import Agent
from sessions_app.protocol.bodies import AgentBody, AgentPatch


class Setup(Protocol):
    def check(self, config: Mapping[str, Any]) -> None: ...

    def complete(self, config: Mapping[str, Any]) -> Mapping[str, Any]: ...


@cache
def _setup(name: str) -> Setup:
    made: Setup = import_string(name)()
    return made


def setup_of(executor: str | None) -> Setup | None:
    name = settings.EXECUTOR_SETUPS.get(executor) if executor else None
    return _setup(name) if name else None


def check_executor(name: str) -> list[str]:
    """Raises `Invalid` when there is no executor of that name; returns what an operator should know of it."""
    return [remark for hook in executor_hooks() if (remark := hook(name)) is not None]


def check_setup(executor: str | None, config: Mapping[str, Any]) -> None:
    """Raises what the executor has against its config."""
    setup = setup_of(executor)
    if setup is not None:
        setup.check(config)


def completed(body: AgentBody) -> AgentBody:
    """A registration with what its executor finds out; what was given stays. Not to be called in a transaction."""
    setup = setup_of(body.executor)
    if setup is None:
        return body
    found = setup.complete(body.executor_config or {})
    return replace(body, **{name: value for name, value in found.items() if not getattr(body, name)})


def completed_patch(agent: Agent, patch: AgentPatch) -> AgentPatch:
    """The same for a change of executor or config."""
    executor = agent.executor if patch.executor is UNSET else patch.executor
    config = agent.executor_config if patch.executor_config is UNSET else patch.executor_config
    same = executor == agent.executor and config == agent.executor_config
    setup = None if same else setup_of(executor)
    if setup is None:
        return patch
    found = setup.complete(config or {})
    wanted = {
        name: value
        for name, value in found.items()
        if getattr(patch, name) is UNSET and (not getattr(agent, name) or executor != agent.executor)
    }
    return replace(patch, **wanted)
