"""What every door of server-sent events does before its stream and around it (WHATWG HTML, "Server-sent events")."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from sessions_app.keys import Principal
from sessions_app.protocol.errors import Invalid, MethodNotAllowed, Unavailable
from sessions_app.realtime.runtime import Runtime, get_runtime
from sessions_app.rest import quotas

MEDIA_TYPE = "text/event-stream"
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


async def admit(request: HttpRequest) -> tuple[Runtime, Principal]:
    """Who wants to follow, and by what; raises `MethodNotAllowed`, `Unavailable`, `Unauthenticated` and `RateLimited`."""
    if request.method not in ("GET", "HEAD"):
        raise MethodNotAllowed(allowed=["GET", "HEAD"])
    runtime = get_runtime()
    await runtime.ready.wait()
    if runtime.stopping:
        raise Unavailable(stored=False)
    principal = await runtime.authenticate(request.headers.get("Authorization"))
    quotas.requests().take(principal.agent_pk)
    return runtime, principal


def position_in(request: HttpRequest, last_sequence: int, of: str) -> int | None:
    """Where to go on: `Last-Event-ID`, else `after`, else None; raises `Invalid` for what is no sequence of this session or
    trace (`of`)."""
    for name, given in (("Last-Event-ID", request.headers.get("Last-Event-ID")), ("after", request.GET.get("after"))):
        if given is None:
            continue
        if _NUMBER.fullmatch(given) is None or int(given) > last_sequence:
            raise Invalid(f"That is no sequence of this {of}.", field=name, last_sequence=last_sequence)
        return int(given)
    return None


def as_stream(request: HttpRequest, events: Callable[[], AsyncIterator[str]]) -> HttpResponseBase:
    """The answer whose body is what `events()` yields, written at once, kept by nobody on the way; for HEAD without one."""
    response: HttpResponseBase
    if request.method == "HEAD":
        response = HttpResponse(content_type=MEDIA_TYPE)
    else:
        response = StreamingHttpResponse(events(), content_type=MEDIA_TYPE)
    response["Cache-Control"] = "private, no-store"
    response["Vary"] = "Authorization"
    response["X-Content-Type-Options"] = "nosniff"
    response["X-Accel-Buffering"] = "no"
    return response
