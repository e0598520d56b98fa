"""`hub trace`: a trace's goals and what it did, live."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from hub.cli.app import AsJson, Run
from hub.cli.screen import Screen, harmless, one_line
from hub.client.calls import Calls, Trace
from hub.client.frames import TRACE_ENDED

MARKS = {"open": "○", "running": "◐", "done": "●", "failed": "✗", "cancelled": "–"}


def register(app: typer.Typer) -> None:
    app.command()(trace)


def trace(
    context: typer.Context,
    trace_id: Annotated[str, typer.Argument(metavar="TRACE", help="A trace's id, like trace-….")],
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Stay until it has ended.")] = True,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel it.")] = False,
    as_json: AsJson = False,
) -> None:
    """The goal tree of a trace and its events, until it has ended.

    With `--json`: its events, one a line, and at last the trace itself.
    """
    run = Run(context, as_json)

    async def work(calls: Calls) -> None:
        if cancel:
            await calls.cancel_trace(trace_id)
        found = await calls.trace(trace_id)
        if follow and found.status not in TRACE_ENDED:
            found = await _follow(run.screen, calls, found)
        if as_json:
            run.screen.data(found.as_dict())
            return
        if not (follow and run.screen.is_terminal) or not found.goals:
            run.screen.console.print(_tree(found, {}))
        _outcome(run.screen, found)

    run.go(lambda: run.asked(work))


async def _follow(screen: Screen, calls: Calls, found: Trace) -> Trace:
    goals = {str(goal.get("goal_id")): goal for goal in found.goals or []}
    live = Live(_tree(found, goals), console=screen.console, refresh_per_second=8) if screen.is_terminal else None
    if live is not None:
        live.start()
    try:
        async for event in calls.trace_events(found.trace_id):
            try:
                value = msgspec.json.decode(event.data)
            except msgspec.DecodeError:
                continue
            value = value if isinstance(value, dict) else {"data": value}
            if screen.as_json:
                screen.data({"event": event.event, **value})
                continue
            given = value.get("data")
            data: dict[str, Any] = given if isinstance(given, dict) else {}
            kind = str(value.get("type") or event.event)
            if kind == "goal":
                goals[str(data.get("goal_id") or data.get("id"))] = data
            if kind == "status" and data.get("status"):
                found.status = str(data["status"])
            if live is not None:
                live.update(_tree(found, goals))
            elif kind not in ("chunk", "end"):
                screen.line(f"{value.get('sequence', '')} {kind} {_brief(data)}".strip())
    finally:
        if live is not None:
            live.stop()
    return await calls.trace(found.trace_id)


def _tree(found: Trace, goals: dict[str, dict[str, Any]]) -> Tree:
    rows = goals or {str(goal.get("goal_id")): goal for goal in found.goals or []}
    root = Tree(Text(f"{harmless(found.trace_id)} {found.status}: {one_line(found.task or '', 80)}", style="bold"))
    branches: dict[str, Tree] = {}
    for key, goal in rows.items():
        # A parent that has not come yet (or never will) must not hide its child.
        parent = branches.get(str(goal.get("parent_id") or goal.get("parent")), root)
        status = str(goal.get("status") or "open")
        branches[key] = parent.add(Text(f"{MARKS.get(status, '?')} {one_line(goal.get('title') or key, 90)}"))
    return root


def _brief(data: dict[str, Any]) -> str:
    for name in ("title", "name", "status", "text", "message", "content"):
        if data.get(name):
            return one_line(
                f"{data[name]}" + (f" ({data['status']})" if name == "title" and data.get("status") else "")
            )
    return one_line(msgspec.json.encode(data).decode()) if data else ""


def _outcome(screen: Screen, found: Trace) -> None:
    if found.result is not None:
        screen.line(found.result.get("summary") or "")
    elif found.error is not None:
        screen.line(f"{found.error.get('code')}: {found.error.get('message')}", style="red")
    elif found.pending_input is not None:
        screen.line(f"waiting for an answer: {found.pending_input.get('question') or found.pending_input}")
