"""Traces through the eyes of a reader with a visibility profile: what is asked, done and found, as far as it may get it.

Nothing here is called for a reader who sees everything. Who runs a trace sees what it says itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sessions_app.changes import Committed
from sessions_app.context.profiles import View
from sessions_app.context.provenance import Provenance, joined, of_message
from sessions_app.context.shared import Shared, Words, said_by
from sessions_app.protocol.jsontext import loads


class Log(NamedTuple):
    """Whose words the log of a trace holds, its goals and calls: they quote what was asked.

    `made_of`: as the trace says it; `asked_with`: whose words the one held that called it.
    """

    agent_id: str
    requested_by: str
    made_of: Provenance | None = None
    asked_with: Provenance | None = None

    def may_be_read(self, view: View) -> bool:
        """All of it but what redaction takes out. Who runs the trace reads it anyhow."""
        if self.requested_by == view.agent_id:
            return view.trusts_result(self.agent_id, self.made_of, asked=True)
        asked = joined([Provenance((self.requested_by,)), self.asked_with])
        return view.trusts_result(self.agent_id, joined([self.made_of, asked]))


def shown_trace(
    shape: Mapping[str, Any],
    view: View,
    request: Committed | None,
    *,
    called: bool,
    log: Log,
    context_words: Sequence[Words],
) -> dict[str, Any]:
    """A trace's shape as this reader gets it; `request` is the message that asked for it, as shown to the same reader.

    `context_words`: whose words stand in its context.
    """
    runs_it = shape["agent_id"] == view.agent_id
    shown = {
        **shape,
        "task": shown_task(shape, view, request, called=called, asked_with=log.asked_with),
        "context": view.context(Shared(shape["context"], list(context_words))),
    }
    if runs_it:
        return shown
    if not log.may_be_read(view):
        shown["goals"] = [{**goal, "title": ""} for goal in shape["goals"]]
        shown["error"] = {**shape["error"], "message": ""} if shape["error"] else None
        shown["pending_input"] = None
    else:
        for name in ("goals", "error", "pending_input"):
            shown[name] = view.redact(shape[name])
    shown["result"] = shown_result(shape["result"], shape["agent_id"], view, log.made_of)
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


def shown_event(event: Mapping[str, Any], view: View, log: Log) -> dict[str, Any]:
    """An event of a trace's log. What can't be judged keeps its place, and of a move its status."""
    if not view or log.agent_id == view.agent_id:
        return dict(event)
    if log.may_be_read(view):
        data = event["data"]
        if event["type"] == "context":  # names of keys are words, too, and not all of them the runner's
            data = {name: value for name, value in data.items() if name != "context_keys"}
        return {**event, "data": view.redact(data)}
    kept = {"status": event["data"]["status"]} if event["type"] == "status" and "status" in event["data"] else {}
    return {**event, "data": kept, "withheld": True}
