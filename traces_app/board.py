"""A serving process's view of traces: tells the sockets what happened, wakes those who follow one trace, makes the offers.

Hints say only which trace has moved; what is told is read from its rows, from where we last told, so that nobody here
sees a gap or a double whatever was lost on the way. Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.conf import settings

from sessions_app.context.profiles import View
from sessions_app.db import utc_now
from sessions_app.protocol.frames import encode
from sessions_app.realtime.pieces import Piece
from sessions_app.realtime.runtime import Runtime
from sessions_app.realtime.subscriber import Subscriber
from traces_app import chunks, news
from traces_app.keeper import Keeper, ring_celery
from traces_app.news import Followed
from traces_app.offers import Offers
from traces_app.sight import shown_event
from traces_app.states import RUNNING

log = logging.getLogger("hub.traces")
K = TypeVar("K", int, str)

OVERLAP_SECONDS = 5.0
NEAR_SECONDS = 0.25
LOOK_LIMIT = 2000
EVENTS_AT_ONCE = 500
MAX_KNOWN = 50_000
CROWDED = 200  # frames waiting for a slow reader; from here on it gets states only
MAX_FOLLOWER_FRAMES = 1000


class Follower:
    """Somebody who follows one trace (an event stream): woken when there is something to read."""

    def __init__(self, session_pk: int, agent_pk: int) -> None:
        self._place = session_pk, agent_pk
        self.wake = asyncio.Event()
        self.frames: list[Piece] = []

    def takes(self, fields: dict[str, Any]) -> bool:
        """Whether this text is the trace's: of a worker, or of the agent that runs it, in its session."""
        by = fields.get("by")
        return by is None or (fields["session_pk"], by) == self._place


class Board:
    """One of `RUNTIME_PARTS`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.offers = Offers(runtime)
        self._followers: dict[int, set[Follower]] = {}
        self._streams: dict[str, set[Follower]] = {}
        self._told: OrderedDict[int, int] = OrderedDict()
        self._pending: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._looked_until = utc_now()
        self._looked_back = 0.0
        self._keeper = Keeper(None if settings.HUB_BROKERLESS else ring_celery)
        self._inbox = chunks.Inbox(runtime.live.heard, runtime.hear_changes) if settings.HUB_EMBEDDED else None

    def start(self) -> None:
        if settings.HUB_TRACE_KEEPER:
            self._keeper.start()
        if self._inbox is not None:
            self._inbox.open(self._runtime.loop)

    def wake(self) -> None:
        for followers in self._followers.values():
            for follower in followers:
                follower.wake.set()

    def stop(self) -> None:
        self._keeper.stop()
        if self._inbox is not None:
            self._inbox.close(self._runtime.loop)
        if self._task is not None:
            self._task.cancel()

    # Hearing

    def moved(self, hints: list[dict[str, Any]]) -> None:
        for hint in hints:
            try:
                first = hint["last_sequence"] - hint.get("new", 1)
                self._hear(hint["pk"], hint["session_pk"], first)
                if hint.get("delegate") is not None:
                    self.offers.moved(hint["delegate"], hint["status"])
            except (KeyError, TypeError):
                log.warning("a hint about a trace could not be read")

    def _hear(self, pk: int, session_pk: int, before: int) -> None:
        """Something after `before` is new. For a trace that we have told nothing of, that is where telling begins."""
        for follower in self._followers.get(pk, ()):
            follower.wake.set()
        if session_pk in self._runtime.registry.topics:
            if pk not in self._told:
                self._remember(pk, before)
            self._pending[pk] = session_pk
            if self._task is None or self._task.done():
                self._task = self._runtime.loop.create_task(self._tell_pending())

    def _remember(self, pk: int, position: int) -> None:
        self._told[pk] = position
        self._told.move_to_end(pk)
        if len(self._told) > MAX_KNOWN:
            self._told.popitem(last=False)

    async def look(self) -> None:
        registry = self._runtime.registry
        begun = utc_now()
        if registry.topics or self._followers:
            # The doorbell may ring a hundred times a second: a look far back is for one in a second.
            now = self._runtime.loop.time()
            far = now - self._looked_back >= 1.0
            self._looked_back = now if far else self._looked_back
            back = self._looked_until - timedelta(seconds=OVERLAP_SECONDS)
            since = back if far else self._looked_until - timedelta(seconds=NEAR_SECONDS)
            rows = await self._runtime.read(news.moved_since, since, back, LOOK_LIMIT)
            for pk, session_pk, last_sequence, new in rows:
                known = self._told.get(pk)
                if known is None:
                    # New since we last looked: nothing of it was told. Older: we came late, the latest event will do.
                    known = 0 if new else last_sequence - 1
                if last_sequence > known:
                    self._hear(pk, session_pk, known)
        self._looked_until = begun
        await self.offers.look()

    # Telling

    async def _tell_pending(self) -> None:
        while self._pending:
            pending, self._pending = self._pending, {}
            try:
                await self._tell([pk for pk, session in pending.items() if session in self._runtime.registry.topics])
            except Exception as error:  # the look comes back to it
                log.warning("what happened in a trace could not be told: %r", error)
                return

    async def _tell(self, pks: list[int]) -> None:
        wanted = [(pk, self._told.get(pk, 0)) for pk in pks]
        for trace, events in await self._runtime.read(_news, wanted):
            for event in events:
                self._tell_event(trace, event)
            if events:
                self._remember(trace.pk, events[-1]["sequence"])
            if events and events[-1]["sequence"] < trace.last_sequence:
                self._pending[trace.pk] = trace.session_pk

    def _tell_event(self, trace: Followed, event: dict[str, Any]) -> None:
        topic = self._runtime.registry.topics.get(trace.session_pk)
        if topic is None:
            return
        is_status = event["type"] == "status"
        frame = _frame(trace, event)
        by_view: dict[tuple[str, bool], str] = {}
        for feed, subscriber in topic.followers.items():
            view = feed.view
            if not (is_status or len(subscriber.control) + len(feed.held) < CROWDED):
                continue
            if view is None:  # what the reader may get is read just now
                feed.held.append(partial(_frame_for, trace, event))
                continue
            if not view or trace.agent_id == view.agent_id:
                subscriber.say(frame)
                continue
            seen_by = view.frames, trace.requested_by == view.agent_id
            if seen_by not in by_view:
                by_view[seen_by] = _frame_for(trace, event, view)
            subscriber.say(by_view[seen_by])

    # Following one trace

    def follow(self, pk: int, trace_id: str, *, session_pk: int, agent_pk: int) -> Follower:
        """Follow a trace of that session, run by that agent; give it back with `unfollow`."""
        follower = Follower(session_pk, agent_pk)
        self._followers.setdefault(pk, set()).add(follower)
        self._streams.setdefault(trace_id, set()).add(follower)
        return follower

    def unfollow(self, pk: int, trace_id: str, follower: Follower) -> None:
        _discard(self._followers, pk, follower)
        _discard(self._streams, trace_id, follower)

    def frame(self, fields: dict[str, Any]) -> None:
        followers = [*self._streams.get(fields["stream_id"], ()), *self._streams.get(fields.get("also", ""), ())]
        for follower in followers:
            if follower.takes(fields) and len(follower.frames) < MAX_FOLLOWER_FRAMES:
                follower.frames.append(Piece(fields))
                follower.wake.set()

    def joined(self, subscriber: Subscriber) -> None:
        self.offers.joined(subscriber)


def _frame_for(trace: Followed, event: dict[str, Any], view: View) -> str:
    return _frame(trace, shown_event(event, view, trace.log))


def _frame(trace: Followed, event: dict[str, Any]) -> str:
    # As of the event: only a running attempt records any but `status`, and who reads late still is told the end last.
    status = event["data"].get("status", trace.status) if event["type"] == "status" else RUNNING
    return encode(
        "trace",
        session_id=trace.session_id,
        trace_id=trace.trace_id,
        status=status,
        agent_id=trace.agent_id,
        event=event,
    )


def _discard(followers: dict[K, set[Follower]], key: K, follower: Follower) -> None:
    mine = followers.get(key, set())
    mine.discard(follower)
    if not mine:
        followers.pop(key, None)


def _news(wanted: list[tuple[int, int]]) -> list[tuple[Followed, list[dict[str, Any]]]]:
    """Traces and their events after these positions; of all together a page."""
    return list(news.news_of(wanted, EVENTS_AT_ONCE)) if wanted else []


def board_of(runtime: Runtime) -> Board:
    return next(part for part in runtime.parts if isinstance(part, Board))
