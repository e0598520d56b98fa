"""What a task's owner may get of it: its session seen through its own visibility profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from sessions_app.context.profiles import View
from sessions_app.context.viewing import find_view, show_all
from sessions_app.protocol.jsontext import loads
from sessions_app.sql import messages_by_key
from traces_app.models import TraceEvent
from traces_app.news import Followed, followed
from traces_app.sight import shown_event, shown_result


class Sight:
    """One look: the profile is read when it is first needed, and once. All of it raises `NotFound` when the owner takes no
    part any more. `trace_pk` is the task's trace; a question has none."""

    def __init__(self, session_pk: int, owner_pk: int, trace_pk: int | None) -> None:
        self._session_pk = session_pk
        self._owner_pk = owner_pk
        self._trace_pk = trace_pk

    @cached_property
    def view(self) -> View:
        return find_view(self._session_pk, self._owner_pk)

    @cached_property
    def _trace(self) -> Followed:
        assert self._trace_pk is not None
        return followed([self._trace_pk])[self._trace_pk]

    def events(self, events: list[TraceEvent]) -> list[TraceEvent]:
        """The trace's events as the owner, who asked for them, may get them."""
        if not events or not self.view:
            return events
        seen = []
        for event in events:
            given = {"type": event.type, "data": event.data}
            shown = shown_event(given, self.view, self._trace.log)
            if event.type == "status":
                shown["data"] = {"action": event.data.get("action"), **shown["data"]}  # a word of ours
            elif shown.get("withheld"):
                continue
            event.data = shown["data"]
            seen.append(event)
        return seen

    def result(self, result: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The trace's result as the owner may get it."""
        if not result or not self.view:
            return result
        return shown_result(result, self._trace.agent_id, self.view, self._trace.made_of)

    def messages(self, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Rows of messages (`id`, `content`, `parts`, `metadata`) as the owner may get them, without the withheld ones."""
        if not rows or not self.view:
            return rows
        messages = list(messages_by_key([row["id"] for row in rows]).values())
        shown = {message.key: message for message in show_all(messages, self.view, self._session_pk, self._owner_pk)}
        found = []
        for row in rows:
            message = shown.get(row["id"])
            if message is not None and not message.withheld:
                said = loads(message.body)
                found.append({**row, **{name: said[name] for name in ("content", "parts", "metadata")}})
        return found
