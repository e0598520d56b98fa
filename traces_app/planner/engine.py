"""Runs a plan: goal by goal, tool call by tool call, telling what happens; the outcome says what came of it.

Nothing is kept between runs: after a lost lease the plan is made and run again from its start, with the same goal ids.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from traces_app.outcomes import Cancelled, Completed, Failed, Outcome
from traces_app.planner import goals
from traces_app.planner.events import (
    ArtifactEvent,
    ContextEvent,
    Event,
    GoalEvent,
    GoalStatus,
    LogEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from traces_app.planner.jsonable import as_json, clean, preview
from traces_app.planner.tasks import Call, Goal, ModuleReports, Overview, Plan, Refusal, Step, Task
from traces_app.planner.words import capabilities, say
from traces_app.tools import Registry, ToolContext, ToolError
from traces_app.workspace.words import Language

logger = logging.getLogger(__name__)

MAX_CALLS = 60
MAX_SUMMARY = 24_000
MAX_ARTIFACT = 512 * 1024
MAX_DATA = 32 * 1024

OnEvent = Callable[[Event], None]
_WORKSPACE_CODES = frozenset(
    "outside_roots not_found wrong_kind unreadable too_large binary timeout invalid_pattern".split()  # noqa: SIM905
)


def run(
    plan: Plan,
    tools: Registry,
    context: ToolContext,
    on_event: OnEvent,
    reraise: tuple[type[BaseException], ...] = (),
) -> Outcome:
    """Raises Cancelled when `context.cancelled()` says so, what `on_event` raises (a lost lease), and `reraise`.

    Before every call the flag and the deadline are looked at; the workspace's tools look at both while they work. A tool
    that fails any other way is a failed step, never a failed run: `reraise` names what must get through all the same,
    such as a worker's soft time limit.
    """
    return _Run(plan, tools, replace(context, language=plan.language), on_event, reraise).outcome()


class _Stop(Exception):
    """The run ends here, with what was found until now: no time, or no calls left."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class _Run:
    def __init__(
        self,
        plan: Plan,
        tools: Registry,
        context: ToolContext,
        on_event: OnEvent,
        reraise: tuple[type[BaseException], ...],
    ) -> None:
        self.plan = plan
        self.language: Language = plan.language
        self.tools = tools
        self.context = context
        self.emit = on_event
        self.reraise: tuple[type[BaseException], ...] = (Cancelled, *reraise)
        self.calls = 0
        self.started = time.monotonic()
        self.open: dict[str, Goal] = {}
        self.children: dict[str, list[Goal]] = {}
        self.texts: list[str] = []
        self.data: list[Any] = []
        self.failures: list[tuple[str, str]] = []
        self.patch: dict[str, Any] = {}

    def outcome(self) -> Outcome:
        plan = self.plan
        if plan.refusal is not None:
            return Failed(plan.refusal.code, refusal_text(plan.refusal, plan))
        if not plan.tasks:
            can = capabilities(self.language, plan.known_tools)
            return Completed(say(self.language, "hello", can=can))
        if plan.used:
            self.emit(ContextEvent(goals.ROOT, None, dict(plan.used)))
        for goal in plan.goals:
            self._create(goal)
        try:
            self._all_tasks()
        except BaseException as error:
            self._close_all("cancelled" if isinstance(error, Cancelled) else "failed", quiet=True)
            raise
        self.emit(UsageEvent(goals.ROOT, None, self.calls, self._since(self.started)))
        return self._result()

    def _all_tasks(self) -> None:
        root = self.plan.goals[0]
        self._update(root, "running")
        several = len(self.plan.tasks) > 1
        try:
            for number, task in enumerate(self.plan.tasks, 1):
                above = self.open[goals.task_goal(number)] if several else root
                before = len(self.failures)
                if several:
                    self._update(above, "running")
                self._task(task, above)
                if several:
                    self._update(above, "failed" if len(self.failures) > before else "done")
        except _Stop as stop:
            text = say(self.language, stop.code, count=self.calls)
            self.failures.append((stop.code if stop.code == "timeout" else "too_many", text))
            self.emit(LogEvent(goals.ROOT, None, "warning", text))
            self._close_all("failed")
            return
        done = bool(self.texts)
        self._update(root, "done" if done else "failed")

    def _task(self, task: Task, above: Goal) -> None:
        if isinstance(task, Overview):
            self._overview(task, above)
        elif isinstance(task, ModuleReports):
            self._reports(task, above)
        else:
            result = self._step(self.children[above.goal_id][0], task)
            if result is not None:
                self._say(_text(result), task)
                self._keep(result)

    def _overview(self, task: Overview, above: Goal) -> None:
        listing, scanning, looking, asking = self.children[above.goal_id]
        self._step(listing, task)
        scan = self._step(scanning, task)
        if scan is None:
            self._update(looking, "cancelled")
            self._update(asking, "cancelled")
            return
        self._update(looking, "running")
        found = []
        for goal in goals.numbered(looking.goal_id, goals.looked_at(task, scan, self.language)):
            self._create(goal)
        for goal in self.children.get(looking.goal_id, []):
            report = self._step(goal, task)
            if report is not None:
                found.append(f"- {report['architecture']}")
        self._update(looking, "done")
        self._update(asking, "running")
        lines = [scan["text"]]
        if found:
            lines += [say(self.language, "architectures"), *found]
        self.texts.append("\n".join([*lines, scan["question"]]))
        self._keep({key: scan[key] for key in ("name", "modules", "module_count", "files", "cycles", "problems")})
        self.patch["current_topic"] = say(self.language, "topic_project")
        if len(scan["modules"]) == 1:
            self.patch["focus_module"] = scan["modules"][0]["name"]
        self._update(asking, "done")

    def _reports(self, task: ModuleReports, above: Goal) -> None:
        scanning, *looking, concluding = self.children[above.goal_id]
        if self._step(scanning, task) is None:
            for goal in (*looking, concluding):
                self._update(goal, "cancelled")
            return
        reports = [report for goal in looking if (report := self._step(goal, task)) is not None]
        if not reports:
            self._update(concluding, "cancelled")
            return
        self._update(concluding, "running")
        texts = [report["text"] for report in reports]
        if len(reports) == 1:
            texts += filter(None, [reports[0]["offer"]])
        elif not task.full:
            texts = [f"{report['text']}\n{report['architecture']}" for report in reports]
        self.texts.append("\n".join(texts) if len(reports) == 1 else "\n\n".join(texts))
        self._keep([{k: r[k] for k in ("name", "module", "path", "files", "lines", "shape")} for r in reports])
        last = reports[-1]["name"]
        self.patch["focus_module"] = last
        self.patch["current_topic"] = say(self.language, "topic_module", module=last)
        self._update(concluding, "done")

    def _step(self, goal: Goal, task: Task) -> Any | None:
        """The result of the goal's call, or None after a failure, which is noted."""
        step = goal.step
        assert step is not None
        self._look()
        self._update(goal, "running")
        call_id = f"{goal.goal_id}#call"
        self.calls += 1
        self.emit(ToolCallEvent(call_id, goal.goal_id, call_id, step.tool, clean(dict(step.arguments))))
        started = time.monotonic()
        try:
            tool = self.tools.get(step.tool)
            if tool.needs_approval:
                raise ToolError("needs_approval", f"{tool.name} is only for executors that ask for leave.")
            result = as_json(tool.call(step.arguments, self.context))
        except self.reraise:
            raise
        except ToolError as error:
            if error.code == "cancelled":
                raise Cancelled from error
            self._failed(goal, call_id, started, error.code, self._told(error, step))
            return None
        except Exception:
            # Its text may hold anything: the log gets it, the conversation does not.
            logger.exception("tool %s failed", step.tool)
            message = say(self.language, "tool_failed", asked=step.tool)
            self._failed(goal, call_id, started, "tool_failed", message)
            return None
        shown = preview(result)
        taken = self._since(started)
        self.emit(ToolResultEvent(call_id, goal.goal_id, call_id, step.tool, True, shown, None, taken))
        self._update(goal, "done")
        return result

    def _failed(self, goal: Goal, call_id: str, started: float, code: str, message: str) -> None:
        error = {"code": code, "message": message}
        name = goal.step.tool if goal.step else ""
        self.emit(ToolResultEvent(call_id, goal.goal_id, call_id, name, False, None, error, self._since(started)))
        self._update(goal, "failed")
        self.failures.append((code, message))
        self._look()

    def _look(self) -> None:
        if self.context.cancelled():
            raise Cancelled
        if self.context.deadline is not None and time.monotonic() >= self.context.deadline:
            raise _Stop("timeout")
        if self.calls >= MAX_CALLS:
            raise _Stop("too_many")

    def _told(self, error: ToolError, step: Step) -> str:
        """A workspace's error in the language of the request; others as they are."""
        if error.code not in _WORKSPACE_CODES or step.tool not in _PATH_ARGUMENT:
            return clean(error.message)
        if error.code == "outside_roots" and not self.context.roots:
            return say(self.language, "no_roots")
        if error.code == "not_found" and step.tool == "module_report":
            return clean(error.message)
        argument = "query" if error.code == "invalid_pattern" else _PATH_ARGUMENT[step.tool]
        asked = clean(str(step.arguments.get(argument, ".")))[:200]
        near = getattr(error.__cause__, "near", ())
        names = say(self.language, "near", names=", ".join(near)) if near else ""
        return say(self.language, error.code, asked=asked, near=names)

    def _say(self, text: str, task: Task) -> None:
        text = clean(text)
        if len(text) > MAX_SUMMARY:
            name = f"{task.tool if isinstance(task, Call) else 'result'}.txt"
            cut = len(text.encode()) > MAX_ARTIFACT
            whole = text.encode()[:MAX_ARTIFACT].decode("utf-8", "ignore") if cut else text
            self.emit(ArtifactEvent(goals.ROOT, None, name, "text/plain", whole, len(text.encode()), cut))
            text = text[:MAX_SUMMARY] + "\n" + say(self.language, "cut", name=name)
        self.texts.append(text)

    def _keep(self, result: Any) -> None:
        """Structured facts go along with the text as long as they are small."""
        if isinstance(result, Mapping):
            result = {key: value for key, value in result.items() if key != "text"}
        if result and len(json.dumps(result, ensure_ascii=False)) <= MAX_DATA - len(json.dumps(self.data)):
            self.data.append(result)

    def _result(self) -> Outcome:
        if not self.texts:
            code, message = self.failures[0]
            return Failed(code, "\n".join(dict.fromkeys(text for _, text in self.failures)) or message)
        texts = list(self.texts)
        texts += [say(self.language, "partly", message=message) for _, message in self.failures]
        summary = clean("\n\n".join(texts))
        if len(summary) > 2 * MAX_SUMMARY:
            summary = summary[: 2 * MAX_SUMMARY] + "\n" + say(self.language, "cut_bare")
        parts: list[Mapping[str, Any]] = [{"text": summary}]
        parts += [{"data": fact, "mediaType": "application/json"} for fact in self.data]
        return Completed(summary, tuple(parts), clean(self.patch))

    def _create(self, goal: Goal) -> None:
        goal = replace(goal, title=clean(goal.title))
        self.open[goal.goal_id] = goal
        if goal.parent_id is not None:
            self.children.setdefault(goal.parent_id, []).append(goal)
        self.emit(GoalEvent(goal.goal_id, goal.parent_id, "created", goal.goal_id, goal.parent_id, goal.title, "open"))

    def _update(self, goal: Goal, status: GoalStatus) -> None:
        if status in ("done", "failed", "cancelled"):
            self.open.pop(goal.goal_id, None)
        self.emit(GoalEvent(goal.goal_id, goal.parent_id, "updated", goal.goal_id, goal.parent_id, goal.title, status))

    def _close_all(self, status: GoalStatus, quiet: bool = False) -> None:
        """No goal stays open behind a run that ended; the deepest first. `quiet`: another error is on its way out."""
        for goal in sorted(self.open.values(), key=lambda g: -g.goal_id.count(".")):
            try:
                self._update(goal, status)
            except Exception:
                if not quiet:
                    raise
                return

    def _since(self, started: float) -> int:
        return round((time.monotonic() - started) * 1000)


_PATH_ARGUMENT = {
    "list_directory": "path",
    "read_file": "path",
    "search_files": "path",
    "scan_project": "path",
    "module_report": "path",
    "project_facts": "path",
}


def _text(result: Any) -> str:
    if isinstance(result, Mapping) and isinstance(result.get("text"), str):
        return str(result["text"])
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=1)


def refusal_text(refusal: Refusal, plan: Plan) -> str:
    language = plan.language
    can = capabilities(language, plan.known_tools)
    tools = ", ".join(plan.known_tools[:50]) or say(language, "none")
    return clean(say(language, refusal.reason, quoted=refusal.quoted, can=can, tools=tools))
