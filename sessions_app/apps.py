from django.apps import AppConfig


class SessionsConfig(AppConfig):
    """The conversation layer."""

    name = "sessions_app"
    label = "sessions_app"
    verbose_name = "Conversations"
    default_auto_field = "django.db.models.BigAutoField"
