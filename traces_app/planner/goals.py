"""The goals of a plan: known before the run, and those that a scan adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from traces_app.planner.tasks import (
    Call,
    Facts,
    Goal,
    ListDirectory,
    ModuleReports,
    Overview,
    ReadFile,
    Search,
    Step,
    Task,
)
from traces_app.planner.words import say
from traces_app.workspace.words import Language

ROOT = "g"
MAX_LOOKED_AT = 8
Draft = tuple[str, Step | None]


def outline(request: str, tasks: tuple[Task, ...], language: Language) -> tuple[Goal, ...]:
    """The root (the request itself) and below it the steps of the task; with several tasks one goal for each between."""
    title = " ".join(request.split())
    goals = [Goal(ROOT, None, title if len(title) <= 80 else title[:79] + "…")]
    for number, task in enumerate(tasks, 1):
        above = ROOT
        if len(tasks) > 1:
            above = task_goal(number)
            goals.append(Goal(above, ROOT, task_title(task, language)))
        goals += numbered(above, steps(task, language))
    return tuple(goals)


def task_goal(number: int) -> str:
    return f"{ROOT}.{number}"


def numbered(above: str, drafts: Iterable[Draft]) -> list[Goal]:
    return [Goal(f"{above}.{n}", above, title, step) for n, (title, step) in enumerate(drafts, 1)]


def steps(task: Task, language: Language) -> list[Draft]:
    if isinstance(task, Overview):
        return [
            (say(language, "list", path=task.path), Step("list_directory", {"path": task.path})),
            (say(language, "scan"), Step("scan_project", {"path": task.path})),
            (say(language, "modules"), None),
            (say(language, "ask"), None),
        ]
    if isinstance(task, ModuleReports):
        detail = "full" if task.full else "summary"
        key = "module_full" if task.full else "module"
        reports: list[Draft] = [
            (say(language, key, module=m), Step("module_report", {"module": m, "detail": detail})) for m in task.modules
        ]
        return [(say(language, "scan"), Step("scan_project", {})), *reports, (say(language, "conclude"), None)]
    return [(task_title(task, language), _step(task))]


def looked_at(task: Overview, scan: Mapping[str, Any], language: Language) -> list[Draft]:
    """What a scan adds to an overview: a look at each of the largest modules."""
    return [
        (say(language, "module", module=m["name"]), Step("module_report", {"module": m["name"], "path": task.path}))
        for m in scan.get("modules", [])[:MAX_LOOKED_AT]
    ]


def task_title(task: Task, language: Language) -> str:
    if isinstance(task, Overview):
        return say(language, "topic_project")
    if isinstance(task, ModuleReports):
        key = "module_full" if task.full else "module"
        return say(language, key, module=", ".join(task.modules))
    if isinstance(task, Facts):
        return say(language, task.topic)
    if isinstance(task, ReadFile):
        return say(language, "read", path=task.path)
    if isinstance(task, ListDirectory):
        return say(language, "list", path=task.path)
    if isinstance(task, Search):
        return say(language, "search", query=task.query[:60])
    return say(language, "call", tool=task.tool)


def _step(task: Facts | ReadFile | ListDirectory | Search | Call) -> Step:
    if isinstance(task, Facts):
        return Step("project_facts", {"topic": task.topic})
    if isinstance(task, ReadFile):
        arguments: dict[str, Any] = {"path": task.path}
        if task.first_line > 1:
            arguments["first_line"] = task.first_line
        if task.last_line is not None:
            arguments["last_line"] = max(1, task.last_line)
        return Step("read_file", arguments)
    if isinstance(task, ListDirectory):
        return Step("list_directory", {"path": task.path})
    if isinstance(task, Search):
        arguments = {"query": task.query, "path": task.path}
        if task.regex:
            arguments["regex"] = True
        if task.glob:
            arguments["glob"] = task.glob
        return Step("search_files", arguments)
    return Step(task.tool, task.arguments)
