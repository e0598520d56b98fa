"""The door of `/api/`: resolves and calls its views itself, so that every answer has our envelope and no cookie, session or
CSRF machinery costs anything where only keys count (each of Django's own middlewares is a thread hop under ASGI)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.core.handlers.wsgi import WSGIRequest
from django.db import connection
from django.http import HttpRequest, HttpResponseBase
from django.urls import resolve

from sessions_app.protocol.errors import NotFound
from sessions_app.realtime.runtime import get_runtime, stop_runtime
from sessions_app.rest.errors import as_refusal, error_answer
from sessions_app.rest.metrics import observe

PREFIX = "/api/"
THREADS = 4
PLAIN = frozenset({"/healthz", "/readyz", "/metrics"})  # for probes, which come with any Host

GetResponse = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


class ApiMiddleware:
    """Outermost. What is not ours goes on to `get_response` untouched.

    Asynchronous only: were it both, Django would run it in a thread as soon as any middleware below is synchronous.
    """

    sync_capable = False
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not (request.path.startswith(PREFIX) or request.path == "/api" or request.path in PLAIN):
            return await self.get_response(request)
        with observe(request) as seen:
            response: HttpResponseBase
            try:
                view, arguments = _find(request)
                if isinstance(request, WSGIRequest):
                    response = await _without_a_server(view, request, arguments)
                else:
                    get_runtime()  # whoever writes must be able to tell the sockets, here and in other processes
                    response = await _run(view, request, arguments)
            except Exception as error:
                response = _refused(request, error)
            seen.status = response.status_code
            if not response.streaming and response.status_code != 204:
                response.headers.setdefault("Content-Length", str(len(response.content)))  # type: ignore[attr-defined]
            return response


# Threads of their own for synchronous views: a thread per request, as Django has it, opens a database connection per request.
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="hub-rest")


async def _run(view: Any, request: HttpRequest, arguments: dict[str, Any]) -> Any:
    if iscoroutinefunction(view):
        return await view(request, **arguments)
    return await asyncio.get_running_loop().run_in_executor(_threads, _in_a_thread, view, request, arguments)


def _in_a_thread(view: Any, request: HttpRequest, arguments: dict[str, Any]) -> Any:
    try:
        return view(request, **arguments)
    finally:
        # SQLite's connection stays, unless something was wrong with it; PostgreSQL's goes back into the driver's pool.
        if connection.vendor != "sqlite" or connection.errors_occurred:
            connection.close()


async def _without_a_server(view: Any, request: HttpRequest, arguments: dict[str, Any]) -> Any:
    """WSGI and Django's test client: the loop ends with the request, and what was started on it has to."""
    try:
        if iscoroutinefunction(view):
            return await view(request, **arguments)
        return await sync_to_async(view, thread_sensitive=True)(request, **arguments)
    finally:
        await stop_runtime()


def _find(request: HttpRequest) -> tuple[Any, dict[str, Any]]:
    """The view of this path; raises what Django raises for a bad Host, and `NotFound` for a path that nobody has."""
    if request.path not in PLAIN:
        request.get_host()
    match = resolve(request.path)
    if match.args:
        raise NotFound()
    request.resolver_match = match
    return match.func, match.kwargs


def _refused(request: HttpRequest, error: Exception) -> HttpResponseBase:
    writing = request.method not in ("GET", "HEAD", "OPTIONS")
    return error_answer(as_refusal(error, where=f"{request.method} {request.path}", writing=writing)).as_response()
