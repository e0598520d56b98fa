"""What is where. `/api/…` and the probes are answered at the door (`sessions_app.rest.middleware`), which looks here, too."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from sessions_app import health

urlpatterns = [
    path("api/", include("sessions_app.rest.urls")),
    path("api/", include("traces_app.rest.urls")),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("metrics", health.metrics),
    path("admin/", admin.site.urls),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
