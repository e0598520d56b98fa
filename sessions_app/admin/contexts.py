"""What agents were told: deliveries, the injection ledger, own histories, summaries. To look at; the hub writes them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from sessions_app.admin import text
from sessions_app.admin.base import ReadOnlyAdmin
from sessions_app.admin.filters import AgentFilter, MessageSessionFilter
from sessions_app.models import AgentHistory, Delivery, HistoryEntry, Injection, Session, Summary
from sessions_app.protocol.ids import SESSION_ID, message_id, message_key

LINE_CHARACTERS = 100
PAGE_CHARACTERS = 200_000
ENTRIES = 200


def _block(value: str) -> str:
    return format_html('<pre class="hub-json">{}</pre>', text.cut(value, PAGE_CHARACTERS))


class ContextAdmin(ReadOnlyAdmin):
    """Rows of a session and an agent, newest first; found by a session's id, or filtered by a link."""

    list_filter = [MessageSessionFilter, AgentFilter]
    search_fields = ["id"]
    search_help_text = "A session's id (sess-…)."
    ordering = ["-id"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.select_related("session", "agent")

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        if SESSION_ID.fullmatch(term) is None:
            return queryset.none()
        session = Session.objects.only("pk").filter(public_id=term).first()
        return queryset.none() if session is None else queryset.filter(session_id=session.pk)

    @admin.display(description="session")
    def session_link(self, row: Any) -> str:
        address = reverse(f"{self.admin_site.name}:sessions_app_session_change", args=[row.session_id])
        return format_html('<a href="{}">{}</a>', address, text.short_id(row.session.public_id))

    @admin.display(description="agent")
    def agent_name(self, row: Any) -> str:
        return str(row.agent.agent_id)


def message_link(admin_site: Any, key: int | None) -> str:
    if key is None:
        return "–"
    name = message_id(key)
    return format_html(
        '<a href="{}">{}</a>', reverse(f"{admin_site.name}:sessions_app_message_change", args=[key]), name
    )


@admin.register(Delivery)
class DeliveryAdmin(ContextAdmin):
    list_display = [
        "delivery",
        "question",
        "agent_name",
        "strategy",
        "status",
        "estimated_tokens",
        "session_link",
        "made",
    ]
    list_display_links = ["delivery"]
    search_fields = ["public_id"]
    search_help_text = "A delivery's whole id (dlv-…), or a session's id (sess-…)."
    sortable_by = ["delivery"]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "delivery", "agent_name", "session_link", "status", "strategy", "asked_by", "round", "message",
                    "through_sequence", "rebuilt", "error", "made", "settled",
                ]
            },
        ),
        ("What was sent, byte for byte", {"fields": ["sent_parts", "sent_metadata", "sent_body"]}),
        ("Why", {"fields": ["why", "estimated_tokens", "visibility_hash"]}),
    ]  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        rows = rows.annotate(head=Left("query", LINE_CHARACTERS * 4 + 1))
        return rows.defer("parts", "metadata", "sent", "reasons", "query")

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(public_id=term) if term.startswith("dlv-") else super().search(queryset, term)

    @admin.display(description="delivery", ordering="id")
    def delivery(self, row: Delivery) -> str:
        return text.short_id(row.public_id)

    @admin.display(description="question")
    def question(self, row: Any) -> str:
        return format_html('<span class="hub-line">{}</span>', text.one_line(row.head, LINE_CHARACTERS))

    @admin.display(description="created")
    def made(self, row: Delivery) -> str:
        return text.moment(row.created_at)

    @admin.display(description="settled")
    def settled(self, row: Delivery) -> str:
        return text.moment(row.settled_at)

    @admin.display(description="message")
    def message(self, row: Delivery) -> str:
        return message_link(self.admin_site, row.message_key)

    @admin.display(description="parts")
    def sent_parts(self, row: Delivery) -> str:
        return _block(row.parts)

    @admin.display(description="metadata")
    def sent_metadata(self, row: Delivery) -> str:
        return _block(row.metadata)

    @admin.display(description="the body on the wire")
    def sent_body(self, row: Delivery) -> str:
        return "–" if row.sent is None else _block(row.sent)

    @admin.display(description="reasons")
    def why(self, row: Delivery) -> str:
        return _block(text.pretty(row.reasons))


@admin.register(Injection)
class InjectionAdmin(ContextAdmin):
    """The ledger."""

    list_display = ["number", "message", "agent_name", "state", "delivery_link", "session_link"]
    list_display_links = None
    sortable_by = ["number"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("session", "agent", "delivery")

    @admin.display(description="row", ordering="id")
    def number(self, row: Injection) -> int:
        return int(row.pk)

    @admin.display(description="message")
    def message(self, row: Injection) -> str:
        return message_link(self.admin_site, row.message_key)

    @admin.display(description="delivery")
    def delivery_link(self, row: Injection) -> str:
        address = reverse(f"{self.admin_site.name}:sessions_app_delivery_change", args=[row.delivery_id])
        return format_html('<a href="{}">{}</a>', address, text.short_id(row.delivery.public_id))

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        key = message_key(term)
        if key is None:
            return super().search(queryset, term)
        # By the index on (session, agent, message): a message names its session.
        session = Session.objects.filter(messages__pk=key).only("pk").first()
        return queryset.none() if session is None else queryset.filter(session_id=session.pk, message_key=key)


@admin.register(AgentHistory)
class AgentHistoryAdmin(ContextAdmin):
    list_display = ["name", "agent_name", "last_position", "used", "session_link"]
    list_display_links = ["name"]
    sortable_by = ["name"]
    fields = ["name", "agent_name", "session_link", "last_position", "used", "entries"]

    @admin.display(description="history", ordering="id")
    def name(self, row: AgentHistory) -> str:
        return f"{row.session.public_id[:13]}…_{row.agent.agent_id}"

    @admin.display(description="last used")
    def used(self, row: AgentHistory) -> str:
        return text.moment(row.used_at)

    @admin.display(description=f"the last {ENTRIES} entries")
    def entries(self, row: AgentHistory) -> str:
        rows = HistoryEntry.objects.filter(history=row).order_by("-position")
        newest = rows.annotate(head=Left("content", 2001)).defer("content")[:ENTRIES]
        lines = (
            (entry.position, entry.kind, entry.role, entry.source_agent, text.cut(entry.head, 2000))
            for entry in reversed(newest)
        )
        cell = "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><pre>{}</pre></td></tr>"
        return format_html("<table>{}</table>", format_html_join("", cell, lines))


@admin.register(Summary)
class SummaryAdmin(ContextAdmin):
    list_display = ["covers", "of", "method", "tier", "beginning", "session_link", "made"]
    list_display_links = ["covers"]
    list_filter = [MessageSessionFilter]
    sortable_by = ["covers"]
    fields = ["covers", "of", "method", "tier", "session_link", "whole", "structured", "source_hash", "visibility_hash"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = ReadOnlyAdmin.get_queryset(self, request)
        rows = rows.annotate(head=Left("text", LINE_CHARACTERS * 4 + 1))
        return rows.select_related("session", "history__agent").defer("text", "data")

    @admin.display(description="covers", ordering="id")
    def covers(self, row: Summary) -> str:
        return f"{row.covers_from}–{row.covers_to} (rounds {row.rounds_from}–{row.rounds_to})"

    @admin.display(description="of")
    def of(self, row: Summary) -> str:
        return "the session" if row.history is None else row.history.agent.agent_id

    @admin.display(description="text")
    def beginning(self, row: Any) -> str:
        return format_html('<span class="hub-line">{}</span>', text.one_line(row.head, LINE_CHARACTERS))

    @admin.display(description="created")
    def made(self, row: Summary) -> str:
        return text.moment(row.created_at)

    @admin.display(description="text")
    def whole(self, row: Summary) -> str:
        return _block(row.text)

    @admin.display(description="structured")
    def structured(self, row: Summary) -> str:
        return "–" if row.data is None else _block(text.pretty(row.data))
