"""The hot calls without Django's request machinery, which costs more than they do (a thread, two hops and a file each).

An ASGI application to put in front of Django's: what it knows it answers, everything else goes on untouched. The answers
are the same as those of `views.py`; a test holds both against each other.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from sessions_app.protocol.limits import FRAME_BYTES
from sessions_app.rest import hot
from sessions_app.rest.answers import Answer
from sessions_app.rest.errors import bad_host, error_answer
from sessions_app.rest.hot import ClientGone
from sessions_app.rest.metrics import CLIENT_GONE, count
from sessions_app.rest.reading import declared_too_large

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

PREFIX = "/api/a2a/sessions/"
_ROUTES = [
    (re.compile("([^/]+)/" + re.sub(r"{\w+}", "([^/]+)", route)), handlers) for route, handlers in hot.ROUTES.items()
]


class AsgiRequest:
    """An ASGI request as `hot.Request`."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope = scope
        self._receive = receive
        self._all_read = False
        self.method: str = scope["method"].upper()
        self.path: str = scope["path"]
        self.query: str = scope.get("query_string", b"").decode("latin-1")

    @cached_property
    def headers(self) -> dict[str, str]:
        joined: dict[str, str] = {}
        for name, value in self._scope["headers"]:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            joined[key] = f"{joined[key]},{text}" if key in joined else text
        return joined

    async def body(self) -> bytes:
        if declared_too_large(self.headers):
            return b""
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece = message.get("body", b"")
            size += len(piece)
            if piece:
                pieces.append(piece)
            self._all_read = not message.get("more_body", False)
            if self._all_read or size > FRAME_BYTES:
                return b"".join(pieces) if len(pieces) != 1 else pieces[0]

    async def while_connected(self, waiting: Awaitable[T]) -> T:
        task = asyncio.ensure_future(waiting)
        gone = asyncio.ensure_future(self._until_gone())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientGone
            return task.result()
        finally:
            task.cancel()
            gone.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Express:
    """`Express(application)` answers the hot calls itself and passes on everything else."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _find(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._application(scope, receive, send)
            return
        begun = time.perf_counter()
        handlers, ids = found
        request = AsgiRequest(scope, receive)
        try:
            if host_is_allowed(request.headers.get("host", "")):
                answer = await hot.answer(request, handlers, *ids)
            else:
                answer = error_answer(bad_host())
        except ClientGone:
            count(request.method, CLIENT_GONE, time.perf_counter() - begun)
            return
        count(request.method, answer.status, time.perf_counter() - begun)
        await _send(answer, send, head=request.method == "HEAD")


def _find(path: str) -> tuple[dict[str, hot.Handler], tuple[str, ...]] | None:
    if path.startswith(PREFIX):
        for pattern, handlers in _ROUTES:
            if match := pattern.fullmatch(path, len(PREFIX)):
                return handlers, match.groups()
    return None


@lru_cache(maxsize=256)
def host_is_allowed(host: str) -> bool:
    """As Django checks it; forwarded hosts are ignored."""
    allowed = settings.ALLOWED_HOSTS
    if settings.DEBUG and not allowed:
        allowed = [".localhost", "127.0.0.1", "[::1]"]
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, allowed)


async def _send(answer: Answer, send: Send, *, head: bool) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.all_headers().items()]
    headers.append((b"Content-Length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else answer.body})
