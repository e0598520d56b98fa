"""The hot calls as Django views; behind `express.py` they are only met where Django is asked directly."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from django.http import HttpRequest, HttpResponse

from sessions_app.protocol.limits import FRAME_BYTES
from sessions_app.rest import hot
from sessions_app.rest.reading import declared_too_large

T = TypeVar("T")


class DjangoRequest:
    """A Django request as `hot.Request`. Django's handler cancels the view when the client goes."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self.method = request.method or "GET"
        self.path = request.path
        self.query = str(request.META.get("QUERY_STRING", ""))

    @property
    def headers(self) -> Mapping[str, str]:
        return self._request.headers

    async def body(self) -> bytes:
        return b"" if declared_too_large(self.headers) else self._request.read(FRAME_BYTES + 1)

    async def while_connected(self, waiting: Awaitable[T]) -> T:
        return await waiting


def hot_view(route: str) -> Callable[..., Coroutine[Any, Any, HttpResponse]]:
    """The view of one of `hot.ROUTES`."""
    handlers = hot.ROUTES[route]

    async def view(request: HttpRequest, **ids: str) -> HttpResponse:
        return (await hot.answer(DjangoRequest(request), handlers, *ids.values())).as_response()

    return view
