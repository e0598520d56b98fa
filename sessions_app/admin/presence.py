"""Processes and who is connected to them: to look at."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet

from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.admin.filters import AgentFilter
from sessions_app.db import utc_now
from sessions_app.models import HubProcess, Presence
from sessions_app.protocol.ids import AGENT_ID


@admin.register(HubProcess)
class HubProcessAdmin(ReadOnlyAdmin):
    list_display = ["process", "host", "alive", "started_at", "lease_until"]
    list_display_links = None
    sortable_by = ["process"]
    ordering = ["-id"]

    @admin.display(description="process", ordering="id")
    def process(self, row: HubProcess) -> str:
        return str(row)

    @admin.display(description="alive", boolean=True)
    def alive(self, row: HubProcess) -> bool:
        return row.lease_until > utc_now()


@admin.register(Presence)
class PresenceAdmin(ReadOnlyAdmin):
    list_display = ["agent", "process", "alive", "runs_traces", "since"]
    list_display_links = None
    list_filter = [AgentFilter]
    list_select_related = ["agent", "process"]
    search_fields = ["agent__agent_id"]
    search_help_text = "An agent's whole id."
    ordering = ["-id"]

    @admin.display(description="alive", boolean=True)
    def alive(self, row: Presence) -> bool:
        return row.process.lease_until > utc_now()

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(agent__agent_id=term) if AGENT_ID.fullmatch(term) else queryset.none()
