"""The filters of our lists: each has an index behind it, and none draws up a list of thousands."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from sessions_app.db import utc_now
from sessions_app.models import Agent, Participant, Session
from sessions_app.protocol.ids import AGENT_ID, SESSION_ID, MessageKeys

SPANS = {
    "hour": ("the last hour", timedelta(hours=1)),
    "day": ("the last 24 hours", timedelta(days=1)),
    "week": ("the last 7 days", timedelta(days=7)),
    "month": ("the last 30 days", timedelta(days=30)),
}


class ChoiceFilter(SimpleListFilter):
    """A filter by a few values; an unknown one is as good as none."""

    values: list[tuple[str, str]] = []

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return self.values

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        value = self.value()
        if value is None or value not in dict(self.values):
            return None
        return self.narrow(queryset, value)

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        raise NotImplementedError


class NameFilter(SimpleListFilter):
    """A filter by the one row that the address names, reached by a link and shown only then."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        named = self.used_parameters.get(self.parameter_name or "")
        return [(str(named), str(named)[:80])] if named else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any] | None:
        named = self.value()
        if not named:
            return None
        found = self.find(named)
        return queryset.none() if found is None else self.narrow(queryset, found.pk)

    def find(self, named: str) -> Model | None:
        raise NotImplementedError

    def narrow(self, queryset: QuerySet[Any], pk: int) -> QuerySet[Any]:
        raise NotImplementedError


class StatusFilter(ChoiceFilter):
    title = "status"
    parameter_name = "status"
    values = [("live", "live (not ended)"), *Session.STATUSES]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(status__in=Session.LIVE if value == "live" else [value])


class ChangedFilter(ChoiceFilter):
    title = "last change"
    parameter_name = "changed"
    values = [(name, label) for name, (label, _) in SPANS.items()]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(changed_at__gte=utc_now() - SPANS[value][1])


class SentFilter(ChoiceFilter):
    """By the key, which begins with the time: the column of the time itself needs no index.

    Not inside one session, which is read by its sequence: the two would have to be matched row by row.
    """

    title = "time"
    parameter_name = "sent"
    values = [(name, label) for name, (label, _) in SPANS.items()]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [] if request.GET.get("session") else self.values

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        since_ms = int((utc_now() - SPANS[value][1]).timestamp() * 1000) - MessageKeys.EPOCH_MS
        return queryset.filter(pk__gte=max(since_ms, 0) << 22)


class MessageSessionFilter(NameFilter):
    title = "session"
    parameter_name = "session"

    def find(self, named: str) -> Model | None:
        return Session.objects.only("pk").filter(public_id=named).first() if SESSION_ID.fullmatch(named) else None

    def narrow(self, queryset: QuerySet[Any], pk: int) -> QuerySet[Any]:
        return queryset.filter(session_id=pk)


class AgentFilter(NameFilter):
    """Rows that belong to one agent."""

    title = "agent"
    parameter_name = "agent"

    def find(self, named: str) -> Model | None:
        return Agent.objects.only("pk").filter(agent_id=named).first() if AGENT_ID.fullmatch(named) else None

    def narrow(self, queryset: QuerySet[Any], pk: int) -> QuerySet[Any]:
        return queryset.filter(agent_id=pk)


class ParticipantFilter(AgentFilter):
    """Sessions that an agent is or was in."""

    title = "participant"
    parameter_name = "participant"

    def narrow(self, queryset: QuerySet[Any], pk: int) -> QuerySet[Any]:
        return queryset.filter(pk__in=Participant.objects.filter(agent_id=pk).values("session_id"))
