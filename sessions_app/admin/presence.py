"""Processes and who is connected to them: to look at."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet

from sessions_app.admin import text
from sessions_app.admin.base import ReadOnlyAdmin, column
from sessions_app.admin.filters import AgentFilter
from sessions_app.db import utc_now
from sessions_app.models import HubProcess, Presence
from sessions_app.protocol.ids import AGENT_ID


@admin.register(HubProcess)
class HubProcessAdmin(ReadOnlyAdmin):
    list_display = ["process", "host", "alive", "started", "lease"]
    list_display_links = None
    sortable_by = ["process"]
    ordering = ["-id"]

    @admin.display(description="process", ordering="id")
    def process(self, row: HubProcess) -> str:
        return str(row)

    @admin.display(description="alive", boolean=True)
    def alive(self, row: HubProcess) -> bool:
        return row.lease_until > utc_now()

    @admin.display(description="started")
    def started(self, row: HubProcess) -> str:
        return text.moment(row.started_at)

    @admin.display(description="lease until")
    def lease(self, row: HubProcess) -> str:
        return text.moment(row.lease_until)


@admin.register(Presence)
class PresenceAdmin(ReadOnlyAdmin):
    list_display = ["agent", "process", "alive", "takes_traces", "from_when"]
    list_display_links = None
    list_filter = [AgentFilter]
    list_select_related = ["agent", "process"]
    search_fields = ["agent__agent_id"]
    search_help_text = "An agent's whole id."
    ordering = ["-id"]

    takes_traces = column("runs_traces", "takes traces", boolean=True)

    @admin.display(description="alive", boolean=True)
    def alive(self, row: Presence) -> bool:
        return row.process.lease_until > utc_now()

    @admin.display(description="since")
    def from_when(self, row: Presence) -> str:
        return text.moment(row.since)

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(agent__agent_id=term) if AGENT_ID.fullmatch(term) else queryset.none()
