"""`GET traces/{id}/stream`: a trace's log as server-sent events; replay, then live, then `end`.

It reads rows and is woken by hints, so it does not matter which process the work runs in, or when it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import NamedTuple

from django.http import HttpRequest, HttpResponseBase

from sessions_app.keys import Principal, bad_keys
from sessions_app.protocol.errors import HubError, Unavailable
from sessions_app.protocol.jsontext import dumps
from sessions_app.realtime.runtime import Runtime
from sessions_app.rest.streams import admit, as_stream, position_in
from traces_app.board import MAX_FOLLOWER_FRAMES, board_of
from traces_app.models import TraceEvent
from traces_app.news import Followed, followed
from traces_app.selectors import TraceAccess, event_view, events_after, find_trace
from traces_app.states import CREATED, TERMINAL

PAGE = 200
COMMENT_SECONDS = 15.0
CHECK_SECONDS = 2.0


async def stream(request: HttpRequest, trace_id: str) -> HttpResponseBase:
    """From `Last-Event-ID`, else `after`, else its beginning."""
    runtime, principal = await admit(request)
    access = await runtime.read(find_trace, trace_id, principal)
    last = (await runtime.read(followed, [access.pk]))[access.pk].last_sequence
    after = position_in(request, last, "trace") or 0
    return as_stream(request, lambda: follow_trace(runtime, principal, access, after))


async def follow_trace(
    runtime: Runtime, principal: Principal, access: TraceAccess, position: int
) -> AsyncGenerator[str]:
    """The text of the stream from after `position`, comments included; ends with the trace, or with the key."""
    yield ": connected\n\n"  # before anything is held that a reader who leaves at once would leave behind
    board = board_of(runtime)
    # Registered before the first page is read: what is committed from now on wakes us.
    follower = board.follow(access.pk, access.trace_id, session_pk=access.session_pk, agent_pk=access.agent_pk)
    now = runtime.loop.time
    said, checked = now(), now()
    try:
        while True:
            follower.wake.clear()
            frames, follower.frames = follower.frames, []
            # Read after the text was taken: if its writer's claim is committed, the page says so; else the text waits for it.
            trace, page, begun = await runtime.read(_page, access, position)
            if trace.status == CREATED:
                frames, follower.frames = [], [*frames, *follower.frames][:MAX_FOLLOWER_FRAMES]
            for shown in page[:begun]:
                yield shown.text
            for piece in frames:
                if piece.is_for(access.view):
                    yield f"event: chunk\ndata: {piece.frame}\n\n"
            for shown in page[begun:]:
                yield shown.text
            position = page[-1].sequence if page else position
            if frames or page:
                said = now()
            if position < trace.last_sequence and page:
                continue
            if trace.status in TERMINAL and position >= trace.last_sequence:
                end = {"trace_id": trace.trace_id, "status": trace.status, "last_sequence": trace.last_sequence}
                yield f"event: end\ndata: {dumps(end)}\n\n"
                return
            if runtime.stopping:
                return
            try:
                async with asyncio.timeout(CHECK_SECONDS):  # `wait_for` may swallow a cancellation (Python 3.11)
                    await follower.wake.wait()
            except TimeoutError:
                pass
            if now() - checked >= CHECK_SECONDS:
                checked = now()
                access = await _check(runtime, principal, access)
            if now() - said >= COMMENT_SECONDS:
                said = now()
                yield ": still here\n\n"
    except HubError:  # the key, the place or the database has gone: the client comes back and learns which
        return
    finally:
        board.unfollow(access.pk, access.trace_id, follower)


async def _check(runtime: Runtime, principal: Principal, access: TraceAccess) -> TraceAccess:
    """What the reader may still see of it."""
    gone: set[int] = await runtime.read(bad_keys, {principal.key_pk})
    if gone:
        raise Unavailable(stored=False)
    return await runtime.read(find_trace, access.trace_id, principal)


class _Shown(NamedTuple):
    sequence: int
    text: str


def _page(access: TraceAccess, after: int) -> tuple[Followed, list[_Shown], int]:
    """The trace, its events after `after` as they are sent, and before how many of them no live text can have come."""
    trace = followed([access.pk])[access.pk]
    events = events_after(access.pk, after, PAGE)
    views = (event_view(event, access.trace_id, access.view, trace.log) for event in events)
    shown = [
        _Shown(view["sequence"], f"event: {view['type']}\nid: {view['sequence']}\ndata: {dumps(view)}\n\n")
        for view in views
    ]
    claims = [place for place, event in enumerate(events, 1) if _begins(event)]
    return trace, shown, claims[-1] if claims else 0


def _begins(event: TraceEvent) -> bool:
    return event.type == "status" and event.data.get("action") == "claim"
