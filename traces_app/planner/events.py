"""What happens during a run, as plain data for the trace's log. `type` and `data()` are what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

GoalStatus = Literal["open", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Event:
    """`span_id` is what the event is about (a goal, a call); `parent_id` what that is part of."""

    type: ClassVar[str]
    span_id: str
    parent_id: str | None

    def data(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("span_id", "parent_id")}


@dataclass(frozen=True, slots=True)
class StatusEvent(Event):
    """A word on what is being done; the trace's own state belongs to the lifecycle."""

    type: ClassVar[str] = "status"
    note: str


@dataclass(frozen=True, slots=True)
class GoalEvent(Event):
    """Ids come again in a run that starts anew: a goal that is there already is simply opened again."""

    type: ClassVar[str] = "goal"
    action: Literal["created", "updated"]
    goal_id: str
    parent_goal_id: str | None
    title: str
    status: GoalStatus


@dataclass(frozen=True, slots=True)
class ToolCallEvent(Event):
    type: ClassVar[str] = "tool_call"
    call_id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResultEvent(Event):
    """`result` is JSON, cut to a preview when it is large; `error` is {code, message} when the call failed."""

    type: ClassVar[str] = "tool_result"
    call_id: str
    name: str
    ok: bool
    result: Any
    error: Mapping[str, str] | None
    milliseconds: int


@dataclass(frozen=True, slots=True)
class ArtifactEvent(Event):
    """What was too long for the answer. `size` is that of the whole; `text` may be cut (`truncated`)."""

    type: ClassVar[str] = "artifact"
    name: str
    media_type: str
    text: str
    size: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class ContextEvent(Event):
    """Which entries of the session's context the plan used, and as what."""

    type: ClassVar[str] = "context"
    used: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UsageEvent(Event):
    type: ClassVar[str] = "usage"
    tool_calls: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class LogEvent(Event):
    type: ClassVar[str] = "log"
    level: Literal["info", "warning", "error"]
    text: str
