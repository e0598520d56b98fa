"""Keys at the door of DRF. Cookies open nothing here, and neither does a query string."""

from __future__ import annotations

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from sessions_app.keys import Principal, bearer, verify_key


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer ak_…`; `request.auth` is the `Principal`. Raises `Unauthenticated`, the same for every reason."""

    def authenticate(self, request: Request) -> tuple[None, Principal]:
        return None, verify_key(bearer(request.META.get("HTTP_AUTHORIZATION")))

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="hub"'
