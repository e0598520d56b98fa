"""`GET …/events`: a session as server-sent events. The delivery is `realtime/event_stream.py`; this is its door."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase

from sessions_app import states
from sessions_app.protocol.errors import NotFound
from sessions_app.protocol.ids import SESSION_ID
from sessions_app.realtime.event_stream import EventStream
from sessions_app.realtime.places import enter
from sessions_app.rest.answers import Answer
from sessions_app.rest.streams import admit, as_stream, position_in


async def events(request: HttpRequest, session_id: str) -> HttpResponseBase:
    """From `Last-Event-ID`, else `after`, else the cursor; 204 when an ended session has nothing more to tell."""
    runtime, principal = await admit(request)
    if SESSION_ID.fullmatch(session_id) is None:
        raise NotFound()
    place = await runtime.read(enter, session_id, principal.agent_pk, principal.is_operator)
    after = position_in(request, place.state.last_sequence, "session")
    if after == place.state.last_sequence and place.state.status in states.ENDED:
        return Answer(204).as_response()
    return as_stream(request, lambda: EventStream(runtime, principal).events(place, after))
