from django.apps import AppConfig


class PushConfigApp(AppConfig):
    """Push notifications of A2A tasks."""

    name = "hub.a2a.push"
    label = "a2a_push"
    verbose_name = "A2A push notifications"
    default_auto_field = "django.db.models.BigAutoField"
