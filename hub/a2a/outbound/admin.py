"""Remote agents, to be looked at: their cards, and what traces are on the other side."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from hub.a2a.outbound.models import RemoteCard, RemoteTask
from sessions_app.admin import text
from sessions_app.admin.base import ReadOnlyAdmin, column
from sessions_app.admin.filters import AgentFilter


@admin.register(RemoteCard)
class RemoteCardAdmin(ReadOnlyAdmin):
    list_display = ["url", "name", "fetched", "fresh", "problem"]
    ordering = ["-id"]
    sortable_by = ["url"]
    unique_orders = ["url"]
    search_fields = ["url"]
    search_help_text = "The whole URL."
    fields = ["url", "pretty", "etag", "fetched_at", "fresh_until", "due_at", "failed_at", "failure"]
    readonly_fields = ["pretty"]

    @admin.display(description="name")
    def name(self, row: RemoteCard) -> str:
        return text.one_line(str((row.card or {}).get("name", "")), 60) if isinstance(row.card, dict) else ""

    @admin.display(description="card")
    def pretty(self, row: RemoteCard) -> str:
        return format_html('<pre class="hub-json">{}</pre>', text.pretty(row.card))

    @admin.display(description="fetched")
    def fetched(self, row: RemoteCard) -> str:
        return text.moment(row.fetched_at)

    @admin.display(description="fresh until")
    def fresh(self, row: RemoteCard) -> str:
        return text.moment(row.fresh_until)

    @admin.display(description="problem")
    def problem(self, row: RemoteCard) -> str:
        return text.one_line(row.failure, 80)

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(url=term)


@admin.register(RemoteTask)
class RemoteTaskAdmin(ReadOnlyAdmin):
    list_display = ["message", "trace_link", "agent", "task", "state", "turn", "attempts", "changed"]
    list_display_links = None
    list_filter = [AgentFilter]
    ordering = ["-id"]
    sortable_by = ["message"]
    search_fields = ["trace__public_id"]
    search_help_text = "A trace's whole id."
    fields = [
        "message_id",
        "agent",
        "task_id",
        "context_id",
        "state",
        "turn",
        "end_attempts",
        "end_due_at",
        "changed_at",
    ]

    message = column("message_id", "message")
    task = column("task_id", "remote task")
    attempts = column("end_attempts", "attempts to end it")

    @admin.display(description="trace")
    def trace_link(self, row: RemoteTask) -> str:
        address = reverse(f"{self.admin_site.name}:traces_app_trace_change", args=[row.trace_id])
        return format_html('<a href="{}">{}</a>', address, row.trace.public_id)

    @admin.display(description="changed")
    def changed(self, row: RemoteTask) -> str:
        return text.moment(row.changed_at)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("trace", "agent")

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(trace__public_id=term)
