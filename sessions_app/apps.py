import atexit
import gc

from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """The conversation layer."""

    name = "sessions_app"
    label = "sessions_app"
    verbose_name = "Conversations"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # What a process leaves behind is the kernel's to free. Python would first look through all of it for cycles, which
        # takes each command, and each process that stops, the better part of a second.
        atexit.register(gc.freeze)
