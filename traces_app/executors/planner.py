"""The executor `planner`: the planner without a model, over the roots that the settings allow and the registered tools."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from traces_app.executors.contract import Cancelled, Outcome, Report, Request
from traces_app.planner import engine
from traces_app.planner.events import Event, StatusEvent
from traces_app.planner.plan import plan
from traces_app.tools import Registry, Tool, ToolContext
from traces_app.workspace.roots import Roots
from traces_app.workspace.tools import workspace_registry

GROUP = "session_hub.tools"
MARGIN_SECONDS = 2.0  # what was found until then is still told before the run's own limit


def registered_tools() -> Registry:
    """The workspace's tools, those of `HUB_TOOLS` (dotted names), and those of installed distributions."""
    registry = workspace_registry()
    for found in _added(tuple(settings.HUB_TOOLS)):
        registry.add(found, replace=True)
    return registry


@cache
def _added(names: tuple[str, ...]) -> tuple[Tool, ...]:
    loaded: list[Any] = [import_string(name) for name in names]
    loaded += [point.load() for point in entry_points(group=GROUP)]
    flat: list[Any] = []
    for one in loaded:
        flat += [one] if isinstance(one, Tool) else list(one) if isinstance(one, Iterable) else []
    return tuple(tool for tool in flat if isinstance(tool, Tool))


class PlannerExecutor:
    def run(self, request: Request, report: Report) -> Outcome:
        tools = registered_tools()
        roots = Roots(settings.HUB_ROOTS)
        made = plan(request.task, request.context, tools=tools.names)
        deadline = request.deadline
        if deadline is not None:
            deadline = max(deadline - MARGIN_SECONDS, time.monotonic() + 0.5)
        context = ToolContext(roots=roots, deadline=deadline, cancelled=report.cancelled)

        def tell(event: Event) -> None:
            if isinstance(event, StatusEvent):  # a status of the log is the trace's own
                report.log(event.note)
            else:
                report.event(event.type, event.data(), span_id=event.span_id, parent_id=event.parent_id)

        return engine.run(made, tools, context, tell, reraise=(Cancelled,))
