from django.apps import AppConfig


class TracesConfig(AppConfig):
    """The execution layer."""

    name = "traces_app"
    label = "traces_app"
    verbose_name = "Traces"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from traces_app.health import count_rows

        count_rows()
