"""Push notifications, to be looked at: who is told, and what became of each. The clients' secrets are not shown."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from hub.a2a.push.models import PushConfig, PushNotification
from sessions_app.admin import text
from sessions_app.admin.base import ReadOnlyAdmin, column
from sessions_app.admin.filters import AgentFilter


@admin.register(PushConfig)
class PushConfigAdmin(ReadOnlyAdmin):
    list_display = ["task", "config", "owner", "agent", "host", "scheme", "protocol", "notifications", "ended", "made"]
    list_display_links = None
    list_filter = [AgentFilter]
    ordering = ["-id"]
    sortable_by = ["task"]
    unique_orders = ["task_id"]
    search_fields = ["task_id"]
    search_help_text = "A task's whole id."
    fields = ["task_id", "config_id", "owner", "agent", "host", "scheme", "protocol", "cursor", "numbered", "ended"]
    readonly_fields = ["host"]

    task = column("task_id", "task")
    config = column("config_id", "configuration")
    notifications = column("numbered", "notifications")

    @admin.display(description="receiver")
    def host(self, row: PushConfig) -> str:
        """Without its path, which may be a secret of the client's."""
        return text.one_line(urlsplit(row.url).hostname or "", 60)

    @admin.display(description="made")
    def made(self, row: PushConfig) -> str:
        return text.moment(row.created_at)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("owner", "agent")

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(task_id=term)


@admin.register(PushNotification)
class PushNotificationAdmin(ReadOnlyAdmin):
    list_display = ["place", "task", "status", "attempts", "last_error", "due", "settled"]
    list_display_links = None
    ordering = ["-id"]
    sortable_by = ["place"]
    search_fields = ["config__task_id"]
    search_help_text = "A task's whole id."
    fields = ["number", "task", "status", "attempts", "last_error", "due_at", "settled_at"]
    readonly_fields = ["task"]

    @admin.display(description="number", ordering="id")
    def place(self, row: PushNotification) -> int:
        return row.number

    @admin.display(description="task")
    def task(self, row: PushNotification) -> str:
        return row.config.task_id

    @admin.display(description="due")
    def due(self, row: PushNotification) -> str:
        return text.moment(row.due_at)

    @admin.display(description="settled")
    def settled(self, row: PushNotification) -> str:
        return text.moment(row.settled_at)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("config").defer("body")

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(config__task_id=term)
