"""How much one agent may ask of this process; sends have a bucket of their own, shared with the sockets."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from sessions_app.rates import Rates


@cache
def requests() -> Rates:
    """Every authenticated request."""
    return Rates(settings.HUB_RATE_REQUESTS, settings.HUB_BURST_REQUESTS)


@cache
def sessions() -> Rates:
    """Sessions and branches that are opened."""
    return Rates(settings.HUB_RATE_SESSIONS, settings.HUB_BURST_SESSIONS)


def forget_everything() -> None:
    """For tests that change the settings."""
    requests.cache_clear()
    sessions.cache_clear()
