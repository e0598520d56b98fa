from django.apps import AppConfig


class OutboundConfig(AppConfig):
    """Remote A2A agents."""

    name = "hub.a2a.outbound"
    label = "a2a_outbound"
    verbose_name = "Remote A2A agents"
    default_auto_field = "django.db.models.BigAutoField"
