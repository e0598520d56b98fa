"""Sessions: a list by latest change, a page with the conversation, and the one thing that may be done here, closing."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponseBase, QueryDict
from django.template.response import TemplateResponse
from django.utils.html import format_html

from sessions_app import states
from sessions_app.admin import text
from sessions_app.admin.asking import AskingAdmin
from sessions_app.admin.conversation import JSON_CHARACTERS, PARTICIPANTS, bound, page_of, places_of, shown_names
from sessions_app.admin.filters import ChangedFilter, ParticipantFilter, StatusFilter
from sessions_app.admin.reading import TooSlow, read_time_limit, starts_with
from sessions_app.changes import Changes
from sessions_app.models import Participant, Session
from sessions_app.protocol import limits
from sessions_app.protocol.ids import AGENT_ID, SESSION_ID
from sessions_app.services.sessions import close_session, load_states

BRANCHES = 20


class CloseForm(forms.Form):
    reason = forms.CharField(
        max_length=limits.REASON_CHARACTERS,
        required=False,
        help_text="The participants are told; “completed” when you leave it empty.",
        widget=forms.TextInput(attrs={"class": "vTextField", "autofocus": True}),
    )


@admin.register(Session)
class SessionAdmin(AskingAdmin):
    list_display = ["session", "title_line", "status_word", "who", "length", "changed", "created"]
    list_display_links = ["session"]
    list_filter = [StatusFilter, ChangedFilter, ParticipantFilter]
    search_fields = ["public_id"]
    search_help_text = "The beginning of a session's id (sess-…), or the whole id of an agent that is or was in it."
    sortable_by = ["changed", "created"]
    ordering = ["-changed_at"]
    actions = ["close_selected"]
    verb = "close"
    verb_titles = ("Close a session", "Close sessions")
    verb_question = "The participants can then read what was said, and write no more. Work that runs is cancelled."
    verb_button = "Close"

    # --- the list ----------------------------------------------------------------------------------------------------

    @admin.display(description="session")
    def session(self, row: Session) -> str:
        return text.short_id(row.public_id)

    @admin.display(description="title")
    def title_line(self, row: Session) -> str:
        return format_html('<span class="hub-line">{}</span>', text.one_line(row.title, 80))

    @admin.display(description="status")
    def status_word(self, row: Session) -> str:
        return format_html('<span class="hub-status hub-{}">{}</span>', row.status, row.status)

    @admin.display(description="participants")
    def who(self, row: Any) -> str:
        shown, total = row.shown_names
        return ", ".join(shown) + (f" +{total - len(shown)}" if total > len(shown) else "")

    @admin.display(description="messages")
    def length(self, row: Session) -> int:
        return row.last_sequence

    @admin.display(description="last change", ordering="changed_at")
    def changed(self, row: Session) -> str:
        return text.moment(row.changed_at)

    @admin.display(description="created", ordering="id")
    def created(self, row: Session) -> str:
        return text.moment(row.created_at)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        return (
            super().get_queryset(request).select_related("initiator").defer("context", "open_questions", "open_traces")
        )

    def complete_rows(self, rows: list[Any]) -> None:
        found = shown_names([row.pk for row in rows]) if rows else {}
        for row in rows:
            row.shown_names = found.get(row.pk, ([], 0))

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        if SESSION_ID.fullmatch(term):
            return queryset.filter(public_id=term)
        if term.startswith("sess-") and term.isascii():
            return queryset.filter(starts_with("public_id", term))
        if AGENT_ID.fullmatch(term):
            return queryset.filter(pk__in=Participant.objects.filter(agent__agent_id=term).values("session_id"))
        return queryset.none()

    # --- permissions: to change a session is to close it ---------------------------------------------------------------

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    # --- pages -------------------------------------------------------------------------------------------------------

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """By the key, or by the id that people know."""
        if SESSION_ID.fullmatch(object_id):
            return self.get_queryset(request).filter(public_id=object_id).first()
        return super().get_object(request, object_id, from_field)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        return self.show(request, object_id)

    def show(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """The session's page: state, turn, participants, and a page of the conversation."""
        session = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, session):
            raise PermissionDenied
        if session is None:
            return self.missing(request, object_id)
        try:
            with read_time_limit(5.0):
                context = self._page_context(request, session)
        except TooSlow:
            return self.refuse(request, "That took too long to read.", status=503)
        return TemplateResponse(request, "admin/sessions_app/session.html", self.context(request, **context))

    def _page_context(self, request: HttpRequest, session: Session) -> dict[str, Any]:
        state = load_states([session.pk])[0]
        shared = text.pretty(session.context)
        context_cut = len(shared) > JSON_CHARACTERS and request.GET.get("context") != "whole"
        places = places_of(session)
        may_read = request.user.has_perm("sessions_app.view_message")
        before, after = bound(request.GET.get("before")), bound(request.GET.get("after"))
        branches = list(session.branches.order_by("-id").only("id", "public_id", "status")[: BRANCHES + 1])
        return {
            "title": text.visible(session.title) or session.public_id,
            "session": session,
            "state": state,
            "is_live": session.status in states.LIVE,
            "close_reason": text.visible(session.close_reason or ""),
            "shared": text.cut(shared, JSON_CHARACTERS) if context_cut else shared,
            "has_context": bool(session.context),
            "context_cut": context_cut,
            "places": places[:PARTICIPANTS],
            "more_places": len(places) > PARTICIPANTS,
            "branches": branches[:BRANCHES],
            "more_branches": len(branches) > BRANCHES,
            "may_read": may_read,
            "page": page_of(session, before=before, after=after) if may_read else None,
            "is_last_page": before is None and after is None,
            "may_close": self.has_change_permission(request, session) and session.status in states.LIVE,
        }

    # --- closing -----------------------------------------------------------------------------------------------------

    def verb_form(self, data: QueryDict | None) -> forms.Form:
        return CloseForm(data)

    def named(self, row: Session) -> tuple[str, str]:
        return row.public_id, text.one_line(row.title, 80)

    @admin.action(description="Close selected sessions", permissions=["change"])
    def close_selected(self, request: HttpRequest, queryset: QuerySet[Session]) -> HttpResponseBase | None:
        return self.selected(request, queryset)

    def do(self, request: HttpRequest, rows: list[Session], form: forms.Form | None) -> None:
        reason = form.cleaned_data["reason"] if form is not None else ""

        def close(session: Session, changes: Changes) -> bool:
            closed = close_session(session_pk=session.pk, reason=reason or None, changes=changes)
            if closed:
                self.log_change(request, session, f"Closed: {reason or 'completed'}")
            return closed

        closed, ended = self.one_by_one(request, rows, close)
        if closed:
            self.message_user(request, f"Closed {closed} session{'s' if closed > 1 else ''}.", messages.SUCCESS)
        if ended:
            self.message_user(request, f"{ended} had ended already.", messages.WARNING)
