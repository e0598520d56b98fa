from __future__ import annotations

from django.apps import AppConfig


class A2AConfig(AppConfig):
    name = "hub.a2a"
    label = "a2a"
    verbose_name = "A2A"
