"""Agents: registered, described, switched off. Written through the services, which know what a name may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import ValidationError
from django.db.models import Count, Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from sessions_app.admin import text
from sessions_app.admin.base import HubAdmin, column
from sessions_app.admin.conversation import online_agents
from sessions_app.admin.fields import JSONField, one_line
from sessions_app.admin.filters import ChoiceFilter
from sessions_app.changes import unit_of_work
from sessions_app.context.profiles import check_profile
from sessions_app.db import utc_now
from sessions_app.models import Agent, ApiKey
from sessions_app.protocol.bodies import CONTEXT_STRATEGIES, AgentBody, AgentPatch
from sessions_app.protocol.errors import HubError
from sessions_app.protocol.ids import is_agent_id
from sessions_app.services.agents import JSON_BYTES, TEXT_CHARACTERS, check_accepts, register_agent, update_agent
from sessions_app.services.setups import check_executor, check_setup

SHOWN_KEYS = 20
JSON_FIELDS = ("skills", "accepts", "visibility", "executor_config")


class AgentForm(forms.ModelForm):  # type: ignore[type-arg]  # not subscriptable when it runs
    agent_id = forms.CharField(
        label="Agent id",
        max_length=64,
        help_text="1 to 64 of a-z 0-9 . _ -, starting with a letter or digit. It never changes.",
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )
    kind = forms.CharField(
        max_length=16, initial=Agent.AGENT, validators=[one_line], help_text="agent, human, or what you like"
    )
    name = forms.CharField(
        max_length=200,
        required=False,
        validators=[one_line],
        widget=forms.TextInput(attrs={"class": "vTextField"}),
    )
    description = forms.CharField(
        max_length=TEXT_CHARACTERS,
        required=False,
        widget=forms.Textarea(attrs={"class": "vLargeTextField", "rows": 4}),
    )
    skills = JSONField(
        list[dict[str, Any] | str],
        empty=[],
        most_bytes=JSON_BYTES,
        help_text='A JSON list of names or objects: ["review"]',
    )
    accepts = JSONField(
        list[str] | None,
        empty=None,
        most_bytes=JSON_BYTES,
        help_text='Who may open sessions with it, as a JSON list of agent ids: ["planner"]. Empty: anyone. []: nobody.',
    )
    executor = forms.CharField(
        max_length=200,
        required=False,
        validators=[one_line],
        help_text="What runs its traces; empty: nothing does.",
    )
    executor_config = JSONField(dict[str, Any], empty={}, most_bytes=JSON_BYTES, help_text="A JSON object.")
    context_strategy = forms.ChoiceField(
        choices=[("", "as the session says"), *((name, name) for name in CONTEXT_STRATEGIES)], required=False
    )
    visibility = JSONField(
        dict[str, Any] | None,
        empty=None,
        most_bytes=JSON_BYTES,
        help_text='What it may get of a talk, as a JSON object: {"withheld_labels": ["secret"]}. Empty: everything.',
    )
    is_active = forms.BooleanField(
        label="Active",
        required=False,
        initial=True,
        help_text="Switching an agent off revokes its keys for good; switching it on again brings none of them back.",
    )

    remarks: Sequence[str] = ()
    """What is doubtful of the executor that was chosen."""

    class Meta:
        model = Agent
        fields = [
            "agent_id", "kind", "name", "description", "skills", "accepts", "executor", "executor_config",
            "context_strategy", "visibility", "is_active",
        ]  # fmt: skip

    def clean_agent_id(self) -> str:
        agent_id: str = self.cleaned_data["agent_id"]
        if not is_agent_id(agent_id):
            raise ValidationError("This can't be an agent's id: look at the letters below; a few names are reserved.")
        return agent_id

    def clean_accepts(self) -> list[str] | None:
        try:
            return check_accepts(self.cleaned_data["accepts"])
        except HubError as error:
            raise ValidationError(error.message) from None

    def clean_visibility(self) -> dict[str, Any] | None:
        try:
            return check_profile(self.cleaned_data["visibility"])
        except HubError as error:
            raise ValidationError(error.message) from None

    def clean(self) -> dict[str, Any] | None:
        given: dict[str, Any] | None = super().clean()
        if given is not None and "executor_config" in given:
            try:
                check_setup(given.get("executor"), given["executor_config"])
            except HubError as error:
                self.add_error("executor_config", error.message)
        return given

    def clean_executor(self) -> str | None:
        executor: str | None = self.cleaned_data["executor"] or None
        if executor is not None and executor != self.instance.executor:
            try:
                self.remarks = check_executor(executor)
            except HubError as error:
                raise ValidationError(error.message) from None
        return executor

    def clean_context_strategy(self) -> str | None:
        return self.cleaned_data["context_strategy"] or None


class ActiveFilter(ChoiceFilter):
    title = "state"
    parameter_name = "active"
    values = [("yes", "active"), ("no", "switched off")]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(is_active=value == "yes")


class KindFilter(ChoiceFilter):
    title = "kind"
    parameter_name = "kind"
    values = [(kind, kind) for kind in (Agent.AGENT, Agent.HUMAN, Agent.SYSTEM)]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(kind=value)


@admin.register(Agent)
class AgentAdmin(HubAdmin):
    form = AgentForm
    list_display = ["agent", "short_name", "kind", "state", "online", "good_keys", "seen"]
    list_display_links = ["agent"]
    list_filter = [ActiveFilter, KindFilter]
    search_fields = ["agent_id"]
    search_help_text = "A part of the id or of the name."
    sortable_by = ["agent"]
    ordering = ["agent_id"]
    unique_orders = ["agent_id"]
    actions = ["switch_off_selected"]
    change_form_template = "admin/sessions_app/agent.html"
    fieldsets = [
        (None, {"fields": ["agent_id", "kind", "name", "description", "is_active"]}),
        ("Sessions", {"fields": ["skills", "accepts", "context_strategy", "visibility"]}),
        ("Work", {"fields": ["executor", "executor_config"]}),
    ]

    # --- the list ----------------------------------------------------------------------------------------------------

    agent = column("agent_id", "agent")

    @admin.display(description="name")
    def short_name(self, row: Agent) -> str:
        return text.one_line(row.name, 60)

    @admin.display(description="active", boolean=True)
    def state(self, row: Agent) -> bool:
        return row.is_active

    @admin.display(description="online", boolean=True)
    def online(self, row: Any) -> bool:
        return bool(row.is_online)

    @admin.display(description="keys")
    def good_keys(self, row: Any) -> str:
        if not row.key_count:
            return "none"
        return format_html(
            '<a href="{}?agent={}&amp;state=good">{}</a>',
            reverse(f"{self.admin_site.name}:sessions_app_apikey_changelist"),
            row.agent_id,
            row.key_count,
        )

    @admin.display(description="last seen")
    def seen(self, row: Agent) -> str:
        return text.moment(row.last_seen)

    def complete_rows(self, rows: list[Any]) -> None:
        pks = [row.pk for row in rows]
        online = online_agents(pks) if rows else set()
        counts = (
            dict(good_keys().filter(agent_id__in=pks).order_by().values_list("agent_id").annotate(Count("pk")))
            if rows
            else {}
        )
        for row in rows:
            row.is_online = row.pk in online
            row.key_count = counts.get(row.pk, 0)

    def search(self, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        # The agents are the one list that is short enough to be looked through.
        return queryset.filter(Q(agent_id__icontains=term) | Q(name__icontains=term))

    # --- the form ----------------------------------------------------------------------------------------------------

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """The hub's own identities are not edited."""
        if isinstance(obj, Agent) and obj.kind == Agent.SYSTEM:
            return False
        return super().has_change_permission(request, obj)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if obj is None:  # a new one is active
            return _with_fields(fieldsets, lambda name: None if name == "is_active" else name)
        if not self.has_change_permission(request, obj):
            return _with_fields(fieldsets, lambda name: f"{name}_shown" if name in JSON_FIELDS else name)
        return fieldsets

    @admin.display(description="skills")
    def skills_shown(self, row: Agent) -> str:
        return _as_json(row.skills)

    @admin.display(description="accepts")
    def accepts_shown(self, row: Agent) -> str:
        return "anyone" if row.accepts is None else _as_json(row.accepts)

    @admin.display(description="visibility")
    def visibility_shown(self, row: Agent) -> str:
        return "by its kind" if row.visibility is None else _as_json(row.visibility)

    @admin.display(description="executor config")
    def executor_config_shown(self, row: Agent) -> str:
        return _as_json(row.executor_config)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        if obj is None:
            return []
        return ["agent_id", "kind", *(f"{name}_shown" for name in JSON_FIELDS)]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {}

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        given = form.cleaned_data
        for remark in form.remarks:
            self.message_user(request, f"Executor {remark}", messages.WARNING)
        if not change:
            agent = register_agent(
                body=AgentBody(
                    agent_id=given["agent_id"],
                    name=given["name"],
                    kind=given["kind"],
                    description=given["description"],
                    skills=given["skills"],
                    accepts=given["accepts"],
                    executor=given["executor"],
                    executor_config=given["executor_config"],
                    context_strategy=given["context_strategy"],
                    visibility=given["visibility"],
                )
            )
            obj.pk, obj.created_at, obj._state.adding = agent.pk, agent.created_at, False
            return
        patch = AgentPatch(
            name=given["name"],
            description=given["description"],
            skills=given["skills"],
            accepts="anyone" if given["accepts"] is None else given["accepts"],
            executor=given["executor"],
            executor_config=given["executor_config"],
            context_strategy=given["context_strategy"],
            visibility=given["visibility"],
            is_active=given["is_active"],
        )
        self.update(request, obj, patch)

    def update(self, request: HttpRequest, agent: Agent, patch: AgentPatch) -> None:
        """Change an agent; the keys that this revokes get a line in their history."""
        with unit_of_work():
            lost = list(ApiKey.objects.filter(agent=agent, revoked_at=None)) if patch.is_active is False else []
            # A fresh copy: the form's was read before we held the lock, and the service writes every column.
            update_agent(agent=Agent.objects.get(pk=agent.pk), patch=patch, is_operator=True)
            for key in lost:
                self.log_change(request, key, f"Revoked: {agent.agent_id} was switched off.")
        if lost:
            self.message_user(
                request, f"{agent.agent_id}: {len(lost)} key{'s' if len(lost) > 1 else ''} revoked.", messages.WARNING
            )

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """To the agent's page: the next thing is to issue it a key there."""
        if "_addanother" in request.POST or "_popup" in request.POST:
            return super().response_add(request, obj, post_url_continue)
        self.message_user(request, f"{obj.agent_id} is registered. It can't do anything before it has a key.")
        return HttpResponseRedirect(self.page_url("change", obj.pk))

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        agent = kwargs.get("obj")
        if isinstance(agent, Agent):
            may_see = request.user.has_perm("sessions_app.view_apikey") or request.user.has_perm(
                "sessions_app.change_apikey"
            )
            keys = list(ApiKey.objects.filter(agent=agent).order_by("-id")[: SHOWN_KEYS + 1]) if may_see else []
            context |= {
                "agent": agent,
                "is_online": bool(online_agents([agent.pk])),
                "may_see_keys": may_see,
                "may_issue": request.user.has_perm("sessions_app.add_apikey")
                and agent.is_active
                and agent.kind != Agent.SYSTEM,
                "keys": keys[:SHOWN_KEYS],
                "more_keys": len(keys) > SHOWN_KEYS,
                "now": utc_now(),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    # --- switching off -----------------------------------------------------------------------------------------------

    @admin.action(description="Switch off selected agents", permissions=["change"])
    def switch_off_selected(self, request: HttpRequest, queryset: QuerySet[Agent]) -> HttpResponseBase | None:
        agents = [agent for agent in queryset if agent.kind != Agent.SYSTEM and agent.is_active]
        if not agents:
            self.message_user(request, "None of them can be switched off.", messages.WARNING)
            return None
        if "confirmed" in request.POST:
            for agent in agents:
                with unit_of_work():
                    self.update(request, agent, AgentPatch(is_active=False))
                    self.log_change(request, agent, "Switched off.")
            self.message_user(request, f"Switched off: {', '.join(agent.agent_id for agent in agents)}.")
            return None
        return TemplateResponse(
            request,
            "admin/sessions_app/confirm.html",
            self.context(
                request,
                title="Switch off agents",
                question="Their keys are revoked for good, and their connections end within seconds.",
                things=[(agent.agent_id, text.one_line(agent.name, 60)) for agent in agents],
                keys=[agent.pk for agent in agents],
                key_field=ACTION_CHECKBOX_NAME,
                action="switch_off_selected",
                button="Switch off",
                back=self.page_url("changelist"),
            ),
        )


def good_keys() -> QuerySet[ApiKey]:
    """The keys that still open something."""
    return ApiKey.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=utc_now()), revoked_at=None, agent__is_active=True
    )


def _with_fields(fieldsets: Any, change: Callable[[str], str | None]) -> list[Any]:
    """The same groups of fields, each name changed, or left out where `change` gives None."""
    return [
        (title, {**options, "fields": [new for name in options["fields"] if (new := change(name)) is not None]})
        for title, options in fieldsets
    ]


def _as_json(value: Any) -> str:
    return format_html('<pre class="hub-json">{}</pre>', text.pretty(value))
