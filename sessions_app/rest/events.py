"""`GET …/events`: a session as server-sent events. The delivery is `realtime/event_stream.py`; this is its door."""

from __future__ import annotations

import re

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from sessions_app import states
from sessions_app.protocol.errors import Invalid, MethodNotAllowed, NotFound, Unavailable
from sessions_app.protocol.ids import SESSION_ID
from sessions_app.realtime.event_stream import EventStream
from sessions_app.realtime.places import enter
from sessions_app.realtime.runtime import get_runtime
from sessions_app.rest import quotas
from sessions_app.rest.answers import Answer

_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


async def events(request: HttpRequest, session_id: str) -> HttpResponseBase:
    """From `Last-Event-ID`, else `after`, else the cursor; 204 when an ended session has nothing more to tell."""
    if request.method not in ("GET", "HEAD"):
        raise MethodNotAllowed(allowed=["GET", "HEAD"])
    runtime = get_runtime()
    await runtime.ready.wait()
    if runtime.stopping:
        raise Unavailable(stored=False)
    principal = await runtime.authenticate(request.headers.get("Authorization"))
    quotas.requests().take(principal.agent_pk)
    if SESSION_ID.fullmatch(session_id) is None:
        raise NotFound()
    place = await runtime.read(enter, session_id, principal.agent_pk, principal.is_operator)
    after = _position(request, place.state.last_sequence)
    if after == place.state.last_sequence and place.state.status in states.ENDED:
        return Answer(204).as_response()
    kind = "text/event-stream"
    response: HttpResponseBase
    if request.method == "HEAD":
        response = HttpResponse(content_type=kind)
    else:
        response = StreamingHttpResponse(EventStream(runtime, principal).events(place, after), content_type=kind)
    response["Cache-Control"] = "private, no-store"
    response["Vary"] = "Authorization"
    response["X-Content-Type-Options"] = "nosniff"
    response["X-Accel-Buffering"] = "no"
    return response


def _position(request: HttpRequest, last_sequence: int) -> int | None:
    """Where to begin; raises `Invalid` for what is no sequence of this session."""
    for name, given in (("Last-Event-ID", request.headers.get("Last-Event-ID")), ("after", request.GET.get("after"))):
        if given is None:
            continue
        if _NUMBER.fullmatch(given) is None or int(given) > last_sequence:
            raise Invalid("That is no sequence of this session.", field=name, last_sequence=last_sequence)
        return int(given)
    return None
