"""Traces for operators: a list that never counts, a page with the goal tree, tool calls and events, and cancelling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet, TextField
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from sessions_app.admin import text
from sessions_app.admin.asking import AskingAdmin
from sessions_app.admin.base import column
from sessions_app.admin.conversation import bound
from sessions_app.admin.filters import ChoiceFilter, NameFilter
from sessions_app.admin.reading import TooSlow, read_time_limit, starts_with
from sessions_app.changes import Changes
from sessions_app.models import Session
from sessions_app.protocol.ids import SESSION_ID, message_id
from sessions_app.protocol.jsontext import dumps
from traces_app import states
from traces_app.lifecycle import cancel_trace
from traces_app.models import Goal, ToolCall, Trace, TraceEvent

TASK_CHARACTERS = 100
JSON_CHARACTERS = 4000
EVENTS = 100
CALLS = 200
GOALS = 500
READ_SECONDS = 5.0


class StatusFilter(ChoiceFilter):
    title = "status"
    parameter_name = "status"
    values = [("open", "open (not ended)"), *Trace.STATUSES]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(status__in=sorted(states.OPEN) if value == "open" else [value])


class SessionFilter(NameFilter):
    title = "session"
    parameter_name = "session"

    def find(self, named: str) -> Session | None:
        return Session.objects.only("pk").filter(public_id=named).first() if SESSION_ID.fullmatch(named) else None

    def narrow(self, queryset: QuerySet[Any], pk: int) -> QuerySet[Any]:
        return queryset.filter(session_id=pk)


@dataclass(frozen=True, slots=True)
class Node:
    """A goal where it stands in its tree."""

    title: str
    status: str
    depth: int


@admin.register(Trace)
class TraceAdmin(AskingAdmin):
    """Read-only but for cancelling: rows are written by whoever runs the trace."""

    list_display = ["trace", "task_line", "status_word", "runner", "executor", "session_link", "attempt", "created"]
    list_display_links = ["trace"]
    list_filter = [StatusFilter, SessionFilter]
    search_fields = ["public_id"]
    search_help_text = "The beginning of a trace's id (trace-…), or a session's id (sess-…)."
    sortable_by = ["created"]
    ordering = ["-id"]
    actions = ["cancel_selected"]
    verb = "cancel"
    verb_titles = ("Cancel a trace", "Cancel traces")
    verb_question = "What runs is stopped, and its session is told. A trace that has ended is left as it is."
    verb_button = "Cancel the work"

    # --- the list ----------------------------------------------------------------------------------------------------

    trace = column("public_id", "trace")

    @admin.display(description="task")
    def task_line(self, row: Any) -> str:
        return format_html('<span class="hub-line">{}</span>', text.one_line(row.head, TASK_CHARACTERS))

    @admin.display(description="status")
    def status_word(self, row: Trace) -> str:
        return format_html('<span class="hub-status hub-{}">{}</span>', row.status, row.status)

    @admin.display(description="agent")
    def runner(self, row: Trace) -> str:
        return row.agent.agent_id

    @admin.display(description="session")
    def session_link(self, row: Trace) -> str:
        address = reverse(f"{self.admin_site.name}:sessions_app_session_change", args=[row.session_id])
        return format_html('<a href="{}">{}</a>', address, row.session.public_id)

    @admin.display(description="created", ordering="id")
    def created(self, row: Trace) -> Any:
        return row.created_at

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).select_related("session", "agent")
        rows = rows.only(
            "id", "public_id", "status", "executor", "attempt", "created_at", "session__public_id", "agent__agent_id"
        )
        heads: QuerySet[Any] = rows.annotate(head=Left("task", TASK_CHARACTERS * 4, output_field=TextField()))
        return heads

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        if SESSION_ID.fullmatch(term):
            return queryset.filter(session__public_id=term)
        if term.startswith("trace-") and term.isascii() and len(term) <= 40:
            return queryset.filter(starts_with("public_id", term))
        return queryset.none()

    # --- permissions: to change a trace is to cancel it ------------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    # --- pages -------------------------------------------------------------------------------------------------------

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """By the key, or by the id that people know."""
        if object_id.startswith("trace-") and len(object_id) <= 40:
            return Trace.objects.filter(public_id=object_id).first()
        if object_id.isascii() and object_id.isdigit() and len(object_id) < 19:
            return Trace.objects.filter(pk=int(object_id)).first()
        return None

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        return self.show(request, object_id)

    def show(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """The trace's page: how it stands, its goals as a tree, its tool calls, and a page of its events."""
        trace = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, trace):
            raise PermissionDenied
        if trace is None:
            return self.missing(request, object_id)
        try:
            with read_time_limit(READ_SECONDS):
                return TemplateResponse(
                    request, "admin/traces_app/trace.html", self.context(request, **self._page(request, trace))
                ).render()
        except TooSlow:
            return self.refuse(request, "That took too long to find.", status=503)

    def _page(self, request: HttpRequest, trace: Trace) -> dict[str, Any]:
        after = bound(request.GET.get("after")) or 0
        rows = list(
            TraceEvent.objects.filter(trace_id=trace.pk, sequence__gt=after)
            .order_by("sequence")
            .annotate(head=Left("data", JSON_CHARACTERS + 1, output_field=TextField()))
            .values("sequence", "type", "attempt", "timestamp", "span_id", "head")[: EVENTS + 1]
        )
        events = [{**row, "data": _shown(row["head"])} for row in rows[:EVENTS]]
        calls = list(
            ToolCall.objects.filter(trace_id=trace.pk)
            .order_by("id")
            .annotate(
                arguments_head=Left("arguments", JSON_CHARACTERS + 1, output_field=TextField()),
                result_head=Left("result", JSON_CHARACTERS + 1, output_field=TextField()),
            )
            .values("name", "status", "attempt", "started_at", "ended_at", "arguments_head", "result_head")[: CALLS + 1]
        )
        return {
            "title": f"Trace {trace.public_id}",
            "trace": trace,
            "task": text.cut(trace.task, 2000),
            "owner": text.visible(trace.owner),
            "message_id": message_id(trace.message_key),
            "result": _laid_out(trace.result),
            "error": _laid_out(trace.error),
            "pending_input": _laid_out(trace.pending_input),
            "usage": _laid_out(trace.usage),
            "shared": _laid_out(trace.context),
            "parent": Trace.objects.filter(pk=trace.parent_id).first() if trace.parent_id else None,
            "children": list(Trace.objects.filter(parent_id=trace.pk).only("public_id", "status").order_by("id")[:20]),
            "goals": goal_tree(trace.pk),
            "calls": [
                {**call, "arguments": _shown(call["arguments_head"]), "result": _shown(call["result_head"])}
                for call in calls[:CALLS]
            ],
            "more_calls": len(calls) > CALLS,
            "events": events,
            "newer": events[-1]["sequence"] if len(rows) > EVENTS else None,
            "first_page": after == 0,
            "may_cancel": self.has_change_permission(request, trace) and trace.status in states.OPEN,
        }

    # --- cancelling --------------------------------------------------------------------------------------------------

    def named(self, row: Trace) -> tuple[str, str]:
        return row.public_id, text.one_line(row.task, 80)

    @admin.action(description="Cancel selected traces", permissions=["change"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Trace]) -> HttpResponseBase | None:
        return self.selected(request, queryset)

    def do(self, request: HttpRequest, rows: list[Trace], form: forms.Form | None) -> None:
        reason = f"by {request.user.get_username()} in the admin"

        def cancel(trace: Trace, changes: Changes) -> bool:
            cancelled = cancel_trace(
                trace_pk=trace.pk, session_pk=trace.session_id, by="hub", reason=reason, changes=changes
            )
            if cancelled:
                self.log_change(request, trace, "Cancelled")
            return cancelled

        cancelled, ended = self.one_by_one(request, rows, cancel)
        if cancelled:
            self.message_user(request, f"Cancelled {cancelled} trace{'s' if cancelled > 1 else ''}.", messages.SUCCESS)
        if ended:
            self.message_user(request, f"{ended} had ended already.", messages.WARNING)


def goal_tree(trace_pk: int) -> list[Node]:
    """The goals in the order of their tree; one whose parent is missing, or in a circle, stands at the top."""
    rows = list(Goal.objects.filter(trace_id=trace_pk).order_by("position")[:GOALS])
    known = {row.goal_id for row in rows}
    children: dict[str | None, list[Goal]] = {}
    for row in rows:
        children.setdefault(row.parent_goal if row.parent_goal in known else None, []).append(row)
    nodes: list[Node] = []
    seen: set[str] = set()

    def walk(parent: str | None, depth: int) -> None:
        for row in children.get(parent, []):
            if row.goal_id not in seen:
                seen.add(row.goal_id)
                nodes.append(Node(text.one_line(row.title, 160), row.status, min(depth, 20)))
                if depth < 50:
                    walk(row.goal_id, depth + 1)

    walk(None, 0)
    nodes += [Node(text.one_line(row.title, 160), row.status, 0) for row in rows if row.goal_id not in seen]
    return nodes


def _laid_out(value: Any) -> str:
    return "" if value in (None, {}, []) else text.cut(text.pretty_text(dumps(value)), JSON_CHARACTERS * 4)


def _shown(head: str | None) -> str:
    if not head or head in ("{}", "null"):
        return ""
    return text.cut(head, JSON_CHARACTERS) if len(head) > JSON_CHARACTERS else text.pretty_text(head)
