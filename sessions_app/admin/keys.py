"""Keys: issued and shown once, revoked, never deleted; their history tells when and by whom, and never the key itself."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.admin.widgets import AutocompleteSelect
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from django.utils.html import format_html

from sessions_app.admin import text
from sessions_app.admin.asking import AskingAdmin
from sessions_app.admin.base import is_key
from sessions_app.admin.fields import one_line
from sessions_app.admin.filters import AgentFilter, ChoiceFilter
from sessions_app.admin.reading import starts_with
from sessions_app.changes import unit_of_work
from sessions_app.db import utc_now
from sessions_app.keys import issue_key, revoke_keys
from sessions_app.models import Agent, ApiKey
from sessions_app.protocol.ids import AGENT_ID

DAYS_MAX = 3650
USED_FORMS = "hub_used_key_forms"
REMEMBERED_FORMS = 20


class KeyForm(forms.Form):
    agent = forms.ModelChoiceField(
        Agent.objects.filter(is_active=True).exclude(kind=Agent.SYSTEM),
        widget=AutocompleteSelect(ApiKey._meta.get_field("agent"), admin.site, attrs={"style": "width: 24em"}),
        error_messages={"invalid_choice": "There is no such agent that is active."},
    )
    scope = forms.ChoiceField(choices=ApiKey.SCOPES, initial=ApiKey.AGENT)
    label = forms.CharField(
        max_length=100,
        required=False,
        validators=[one_line],
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text="For you, to tell its keys apart: where it is used.",
    )
    days = forms.IntegerField(
        label="Valid for (days)",
        required=False,
        min_value=1,
        max_value=DAYS_MAX,
        widget=forms.NumberInput(attrs={"class": "vIntegerField"}),
        help_text="Empty: until it is revoked.",
    )
    once = forms.CharField(widget=forms.HiddenInput, max_length=64)


class StateFilter(ChoiceFilter):
    title = "state"
    parameter_name = "state"
    values = [("good", "good"), ("revoked", "revoked"), ("expired", "expired")]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == "revoked":
            return queryset.exclude(revoked_at=None)
        if value == "expired":
            return queryset.filter(revoked_at=None, expires_at__lte=utc_now())
        return queryset.filter(Q(expires_at=None) | Q(expires_at__gt=utc_now()), revoked_at=None, agent__is_active=True)


class ScopeFilter(ChoiceFilter):
    title = "scope"
    parameter_name = "scope"
    values = [(ApiKey.AGENT, "agent"), (ApiKey.OPERATOR, "operator")]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(scope=value)


@admin.register(ApiKey)
class ApiKeyAdmin(AskingAdmin):
    list_display = ["shown", "agent_link", "scope_word", "label_line", "state", "created", "ends", "used"]
    list_display_links = ["shown"]
    list_filter = [StateFilter, ScopeFilter, AgentFilter]
    list_select_related = ["agent"]
    search_fields = ["prefix"]
    search_help_text = "The beginning of a key (ak_ and up to twelve letters, no more), or an agent's whole id."
    sortable_by = ["created"]
    ordering = ["-id"]
    actions = ["revoke_selected"]
    verb = "revoke"
    verb_titles = ("Revoke a key", "Revoke keys")
    verb_question = "What uses it is shut out within seconds, for good."
    verb_button = "Revoke"

    @admin.display(description="key")
    def shown(self, row: ApiKey) -> str:
        return str(row)

    @admin.display(description="agent")
    def agent_link(self, row: ApiKey) -> str:
        return format_html('<a href="?agent={}">{}</a>', row.agent.agent_id, row.agent.agent_id)

    @admin.display(description="label")
    def label_line(self, row: ApiKey) -> str:
        return row.label

    @admin.display(description="state")
    def state(self, row: ApiKey) -> str:
        word = state_of(row)
        return format_html('<span class="hub-status hub-{}">{}</span>', word, word)

    @admin.display(description="issued", ordering="id")
    def created(self, row: ApiKey) -> str:
        return text.moment(row.created_at)

    @admin.display(description="valid until")
    def ends(self, row: ApiKey) -> str:
        return text.moment(row.expires_at)

    @admin.display(description="last used")
    def used(self, row: ApiKey) -> str:
        return text.moment(row.last_used_at)

    @admin.display(description="scope")
    def scope_word(self, row: ApiKey) -> str:
        return row.scope

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        if term.startswith("ak_") and term.isascii():
            return queryset.filter(starts_with("prefix", term[3:15])) if len(term) > 3 else queryset
        if AGENT_ID.fullmatch(term):
            return queryset.filter(agent__agent_id=term)
        return queryset.none()

    # --- issuing -----------------------------------------------------------------------------------------------------

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None) -> Any:
        return self.issue(request)

    def issue(self, request: HttpRequest) -> HttpResponseBase:
        """Issue a key, and show it in the answer to this very request: it is kept nowhere from where it could be shown again.

        A form works once, so that loading the answer again does not issue a second key.
        """
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = self._form(request)
        if request.method == "POST" and form.is_valid():
            used = list(request.session.get(USED_FORMS, []))
            if form.cleaned_data["once"] in used:
                self.message_user(
                    request,
                    "That key was shown already, and can't be shown again. If it was lost, revoke it and issue another.",
                    messages.WARNING,
                )
                return HttpResponseRedirect(
                    f"{self.page_url('changelist')}?agent={form.cleaned_data['agent'].agent_id}"
                )
            request.session[USED_FORMS] = [*used, form.cleaned_data["once"]][-REMEMBERED_FORMS:]
            return self._issued(request, form)
        return TemplateResponse(
            request,
            "admin/sessions_app/issue.html",
            self.context(request, title="Issue a key", form=form, media=self.media + form.media),
        )

    def _form(self, request: HttpRequest) -> KeyForm:
        if request.method == "POST":
            given = request.POST.copy()
            if not is_key(given.get("agent", "")):
                given["agent"] = ""  # the widget would ask the database for it
            return KeyForm(given)
        named = request.GET.get("agent", "")
        agent = Agent.objects.filter(agent_id=named).first() if AGENT_ID.fullmatch(named) else None
        return KeyForm(initial={"agent": None if agent is None else agent.pk, "once": secrets.token_urlsafe(16)})

    def _issued(self, request: HttpRequest, form: KeyForm) -> HttpResponseBase:
        agent: Agent = form.cleaned_data["agent"]
        days: int | None = form.cleaned_data["days"]
        with unit_of_work():
            key, row = issue_key(
                agent,
                scope=form.cleaned_data["scope"],
                label=form.cleaned_data["label"],
                expires_in=None if days is None else timedelta(days=days),
            )
            self.log_addition(request, row, f"Issued for {agent.agent_id}, scope {row.scope}.")
            self.log_change(request, agent, f"Issued the key {row}, scope {row.scope}.")
        response = TemplateResponse(
            request,
            "admin/sessions_app/issued.html",
            self.context(request, title="A new key", key=key, row=row, agent=agent),
        )
        add_never_cache_headers(response)
        return response

    # --- one key -----------------------------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        row = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            return self.missing(request, object_id)
        return TemplateResponse(
            request,
            "admin/sessions_app/key.html",
            self.context(
                request,
                title=f"Key {row}",
                row=row,
                state=state_of(row),
                scope=dict(ApiKey.SCOPES).get(row.scope, row.scope),
                may_revoke=self.has_change_permission(request, row) and row.revoked_at is None,
            ),
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        return super().get_queryset(request).select_related("agent")

    # --- revoking: to change a key is to revoke it -------------------------------------------------------------------

    def named(self, row: ApiKey) -> tuple[str, str]:
        return f"{row} of {row.agent.agent_id}", row.label

    @admin.action(description="Revoke selected keys", permissions=["change"])
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponseBase | None:
        return self.selected(request, queryset)

    def do(self, request: HttpRequest, rows: list[ApiKey], form: forms.Form | None) -> None:
        good = [row for row in rows if row.revoked_at is None]
        with unit_of_work():
            revoke_keys(good)
            for row in good:
                self.log_change(request, row, "Revoked.")
                self.log_change(request, row.agent, f"Revoked the key {row}.")
        if good:
            self.message_user(request, f"Revoked {len(good)} key{'s' if len(good) > 1 else ''}.", messages.SUCCESS)
        if len(good) < len(rows):
            self.message_user(request, f"{len(rows) - len(good)} had been revoked already.", messages.WARNING)


def state_of(row: ApiKey) -> str:
    """`good`, `revoked`, `expired`, or `off` when its agent is."""
    if row.revoked_at is not None:
        return "revoked"
    if row.expires_at is not None and row.expires_at <= utc_now():
        return "expired"
    return "good" if row.agent.is_active else "off"
