"""Messages: read, never written here (`append` is their only writer)."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from sessions_app.admin import text
from sessions_app.admin.base import ReadOnlyAdmin, is_key
from sessions_app.admin.conversation import names
from sessions_app.admin.filters import MessageSessionFilter, SentFilter
from sessions_app.models import Message, Session
from sessions_app.protocol.ids import SESSION_ID, message_id, message_key
from sessions_app.protocol.jsontext import dumps

LIST_CHARACTERS = 160


@admin.register(Message)
class MessageAdmin(ReadOnlyAdmin):
    """Newest first, by the key; of one session by its sequence."""

    list_display = ["message", "beginning", "sender", "kind", "session_link", "number", "sent"]
    list_display_links = ["message"]
    list_filter = [SentFilter, MessageSessionFilter]
    search_fields = ["id"]
    search_help_text = "A message's id (msg-…), or a session's id (sess-…)."
    sortable_by = ["message"]
    unique_orders = ["sequence"]

    @admin.display(description="message", ordering="id")
    def message(self, row: Message) -> str:
        return row.public_id

    @admin.display(description="session")
    def session_link(self, row: Message) -> str:
        return format_html(
            '<a href="{}?after={}#m{}">{}</a>',
            reverse(f"{self.admin_site.name}:sessions_app_session_change", args=[row.session_id]),
            max(row.sequence - 10, 0),
            row.sequence,
            text.short_id(row.session.public_id),
        )

    @admin.display(description="content")
    def beginning(self, row: Any) -> str:
        return format_html('<span class="hub-line">{}</span>', text.one_line(row.head, LIST_CHARACTERS))

    @admin.display(description="sent")
    def sent(self, row: Message) -> str:
        return text.moment(row.created_at)

    def get_list_display(self, request: HttpRequest) -> Any:
        """Inside one session, without the column that names it."""
        return [name for name in self.list_display if name != "session_link" or not request.GET.get("session")]

    @admin.display(description="#")
    def number(self, row: Message) -> int:
        return row.sequence

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request).select_related("session", "sender")
        rows = rows.only("id", "sequence", "kind", "created_at", "session__public_id", "sender__agent_id")
        rows = rows.annotate(head=Left("content", LIST_CHARACTERS * 4 + 1))
        return rows.order_by()

    def get_ordering(self, request: HttpRequest) -> list[str | Combinable]:
        # Inside one session the key's order is not the session's: the index on (session, sequence) must do it.
        return ["-sequence"] if request.GET.get("session") else ["-id"]

    def order_field(self, request: HttpRequest, field: str) -> str:
        return "sequence" if request.GET.get("session") else field

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        if (key := message_key(term)) is not None:
            return queryset.filter(pk=key)
        if SESSION_ID.fullmatch(term):
            session = Session.objects.only("pk").filter(public_id=term).first()
            return queryset.none() if session is None else queryset.filter(session_id=session.pk).order_by("-sequence")
        return queryset.none()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        """One message, whole."""
        return self.show(request, object_id)

    def show(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        if not self.has_view_permission(request):
            raise PermissionDenied
        key = message_key(object_id)
        if key is None and is_key(object_id):
            key = int(object_id)
        found = None if key is None else Message.objects.select_related("session", "sender").filter(pk=key).first()
        if found is None:
            return self.missing(request, object_id)
        beside = Message.objects.filter(
            session_id=found.session_id, sequence__in=[found.sequence - 1, found.sequence + 1]
        ).values_list("sequence", "pk")
        return TemplateResponse(
            request,
            "admin/sessions_app/message.html",
            self.context(
                request,
                title=f"Message {found.public_id}",
                message=found,
                content=text.visible(found.content),
                to="all" if found.to is None else names(dumps(found.to)),
                parts=None if found.parts is None else text.pretty(found.parts),
                metadata=None if found.metadata is None else text.pretty(found.metadata),
                reply_to=None if found.reply_to is None else message_id(found.reply_to),
                beside={("older" if sequence < found.sequence else "newer"): pk for sequence, pk in beside},
                # Enough before it to see what it answers.
                page_from=max(found.sequence - 10, 0),
            ),
        )
