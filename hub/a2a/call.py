"""One call at an agent's address: who asks whom, and what of the request the SDK's types do not keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sessions_app.keys import Principal
from sessions_app.models import Agent
from sessions_app.realtime.runtime import Runtime

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """`params` are the raw JSON-RPC params or query parameters; `protocol` is the version that is spoken: 1.0, 0.3, 0.1."""

    runtime: Runtime
    principal: Principal
    agent: Agent
    public_url: str
    protocol: str = "1.0"
    extensions: frozenset[str] = frozenset()
    params: Mapping[str, Any] = field(default_factory=dict)
    own_task_id: str = ""
    last_event_id: int | None = None

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call `function` in a thread that has a database connection; writes go through it, too, each a unit of work."""
        return await self.runtime.read(function, *arguments)

    def given(self, name: str) -> Any:
        """A parameter as the client wrote it, or None."""
        return self.params.get(name)
