"""A source of updates for tests of push notifications: `TASKS[(task_id, agent_pk)]` is the list of its updates."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from a2a.types import Task, TaskState, TaskStatus, TaskStatusUpdateEvent


@dataclass
class Source:
    updates: list[tuple[int, Any]] = field(default_factory=list)
    over: bool = False


@dataclass(frozen=True)
class Page:
    updates: list[tuple[int, Any]]
    position: int
    more: bool
    over: bool


TASKS: dict[tuple[str, int], Source] = {}


def status(task_id: str, state: TaskState) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent(task_id=task_id, context_id="sess-1", status=TaskStatus(state=state))


def positions_of(tasks: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
    return {task: max((n for n, _ in TASKS[task].updates), default=0) for task in tasks if task in TASKS}


def page_of(task_id: str, agent_pk: int, after: int) -> Page | None:
    source = TASKS.get((task_id, agent_pk))
    if source is None:
        return None
    fresh = [(number, update) for number, update in source.updates if number > after]
    shown = fresh[:2]  # pages of two
    more = len(fresh) > 2
    return Page(shown, shown[-1][0] if shown else after, more, source.over and not more)


def task_proto(task_id: str, owner_pk: int, agent_pk: int) -> Task | None:
    source = TASKS.get((task_id, agent_pk))
    if source is None:
        return None
    return Task(id=task_id, context_id="sess-1", status=source.updates[-1][1].status)
