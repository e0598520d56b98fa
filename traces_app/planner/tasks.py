"""What a plan consists of: tasks, each a few bounded tool calls, and the goals that show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from traces_app.workspace.words import Language


@dataclass(frozen=True, slots=True)
class Step:
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Goal:
    """`goal_id` is the same whenever the same request is planned: `g`, `g.1`, `g.1.2`."""

    goal_id: str
    parent_id: str | None
    title: str
    step: Step | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """The project as a whole, and the question which module to look at."""

    path: str = "."
    detail: bool = False


@dataclass(frozen=True, slots=True)
class ModuleReports:
    """`full`: the detailed report instead of the summary with its offer."""

    modules: tuple[str, ...]
    full: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    topic: Literal["cycles", "dependencies", "entry_points", "tests", "problems"]


@dataclass(frozen=True, slots=True)
class ReadFile:
    path: str
    first_line: int = 1
    last_line: int | None = None


@dataclass(frozen=True, slots=True)
class ListDirectory:
    path: str = "."


@dataclass(frozen=True, slots=True)
class Search:
    query: str
    path: str = "."
    regex: bool = False
    glob: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """`/tool name {json}`."""

    tool: str
    arguments: Mapping[str, Any]


Task = Overview | ModuleReports | Facts | ReadFile | ListDirectory | Search | Call


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing is done: `reason` is a key of the planner's sentences, `quoted` the words it is about."""

    code: Literal["unsupported", "unknown_tool", "invalid"]
    reason: str
    quoted: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A request as tasks, or a refusal, or (neither) the answer of what can be asked for.

    `goals` is the tree as far as it is known before anything has run; a scan makes it grow. `used` are the entries of
    the session's context that the plan took something from.
    """

    request: str
    language: Language
    tasks: tuple[Task, ...] = ()
    goals: tuple[Goal, ...] = ()
    refusal: Refusal | None = None
    used: Mapping[str, Any] = field(default_factory=dict)
    known_tools: tuple[str, ...] = ()
