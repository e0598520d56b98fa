"""Everything under `/api/` that is the conversation's."""

from __future__ import annotations

from django.urls import path

from sessions_app.rest import agents, contexts, events, hot, participants, schema, sessions
from sessions_app.rest.views import hot_view


def _as_path(route: str) -> str:
    return route.replace("{", "<str:").replace("}", ">")


_session = "a2a/sessions/<str:session_id>"

urlpatterns = [
    *(path(f"{_session}/{_as_path(route)}", hot_view(route)) for route in hot.ROUTES),
    path("a2a/sessions", sessions.Sessions.as_view()),
    path(_session, sessions.OneSession.as_view()),
    path(f"{_session}/events", events.events),
    path(f"{_session}/participants", participants.Participants.as_view()),
    path(f"{_session}/participants/<str:agent_id>", participants.OneParticipant.as_view()),
    path(f"{_session}/branches", sessions.Branches.as_view()),
    path(f"{_session}/merge", sessions.Merge.as_view()),
    path(f"{_session}/close", sessions.Close.as_view()),
    path(f"{_session}/deliveries", contexts.Deliveries.as_view()),
    path(f"{_session}/summaries", contexts.Summaries.as_view()),
    path("a2a/contexts/<str:session_id>", contexts.Contexts.as_view()),
    path("a2a/agents", agents.Agents.as_view()),
    path("a2a/agents/me", agents.Me.as_view()),
    path("a2a/agents/<str:agent_id>", agents.OneAgent.as_view()),
    path("a2a/agents/<str:agent_id>/keys", agents.Keys.as_view()),
    path("a2a/agents/<str:agent_id>/keys/<str:prefix>", agents.OneKey.as_view()),
    path("schema", schema.schema, name="schema"),
    path("docs", schema.docs, name="docs"),
]
