"""Everything under `/api/` that is about traces."""

from __future__ import annotations

from django.urls import path

from traces_app.rest import views
from traces_app.rest.stream import stream

_trace = "a2a/traces/<str:trace_id>"

urlpatterns = [
    path("a2a/sessions/<str:session_id>/traces", views.SessionTraces.as_view()),
    path(_trace, views.OneTrace.as_view()),
    path(f"{_trace}/events", views.Events.as_view()),
    path(f"{_trace}/stream", stream),
    path(f"{_trace}/cancel", views.Cancel.as_view()),
    path(f"{_trace}/continue", views.Continue.as_view()),
    path(f"{_trace}/input", views.Input.as_view()),
]
