"""Traces through the eyes of a reader with a visibility profile: what is asked, done and found, as far as it may get it.

Nothing here is called for a reader who sees everything. Who runs a trace sees what it says itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sessions_app.changes import Committed
from sessions_app.context.profiles import View
from sessions_app.context.provenance import Provenance, joined, of_message
from sessions_app.context.shared import Shared, Words, said_by
from sessions_app.protocol.jsontext import loads


def shown_trace(
    shape: Mapping[str, Any],
    view: View,
    request: Committed | None,
    *,
    called: bool,
    made_of: Provenance | None,
    asked_with: Provenance | None,
    context_words: Sequence[Words],
) -> dict[str, Any]:
    """A trace's shape as this reader gets it; `request` is the message that asked for it, as shown to the same reader.

    `made_of`: whose words the trace holds; `asked_with`: whose words the one held that called it; `context_words`: whose
    words stand in its context.
    """
    runs_it = shape["agent_id"] == view.agent_id
    shown = {
        **shape,
        "task": shown_task(shape, view, request, called=called, asked_with=asked_with),
        "context": view.context(Shared(shape["context"], list(context_words))),
    }
    if runs_it:
        return shown
    asked = shape["requested_by"] == view.agent_id
    if not view.trusts_result(shape["agent_id"], made_of, asked=asked):
        shown["goals"] = [{**goal, "title": ""} for goal in shape["goals"]]
        shown["error"] = {**shape["error"], "message": ""} if shape["error"] else None
        shown["pending_input"] = None
    else:
        for name in ("goals", "error", "pending_input"):
            shown[name] = view.redact(shape[name])
    shown["result"] = shown_result(shape["result"], shape["agent_id"], view, made_of)
    return shown


def shown_task(
    shape: Mapping[str, Any],
    view: View,
    request: Committed | None,
    *,
    called: bool,
    asked_with: Provenance | None,
) -> str:
    """What is asked: the message's text, or for a called trace the question that a main agent made of it."""
    if called:
        if view.agent_id in (shape["agent_id"], shape["requested_by"]):
            return str(shape["task"])
        return str(view.redact(shape["task"])) if view.trusts_result(shape["requested_by"], asked_with) else ""
    return "" if request is None else str(loads(request.body)["content"])


def shown_result(
    result: Mapping[str, Any] | None, agent_id: str, view: View, made_of: Provenance | None
) -> dict[str, Any] | None:
    """A trace's result; its parts bear labels and types as those of its message do."""
    if result is None or not view.admits(agent_id, "result", made_of):
        return None
    given: Sequence[Mapping[str, Any]] = result.get("parts") or [{"text": result.get("summary") or ""}]
    parts = view.show_parts(given)
    texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    whole = parts == list(given)
    # The patch itself bears no labels: it is made of what the parts are made of.
    patch = said_by(result.get("context_patch") or {}, agent_id, joined([of_message(agent_id, {}, given), made_of]))
    return {
        **result,
        "summary": result.get("summary") if whole else "\n".join(texts),
        "parts": parts if result.get("parts") else None,
        "context_patch": view.context(patch),
    }


def shown_event(
    event: Mapping[str, Any], view: View, agent_id: str, made_of: Provenance | None, *, asked: bool = False
) -> dict[str, Any]:
    """An event of a trace that `agent_id` runs. What can't be judged keeps its place, and of a move its status."""
    if not view or agent_id == view.agent_id:
        return dict(event)
    if view.trusts_result(agent_id, made_of, asked=asked):
        data = event["data"]
        if event["type"] == "context":  # names of keys are words, too, and not all of them the runner's
            data = {name: value for name, value in data.items() if name != "context_keys"}
        return {**event, "data": view.redact(data)}
    kept = {"status": event["data"]["status"]} if event["type"] == "status" and "status" in event["data"] else {}
    return {**event, "data": kept, "withheld": True}
