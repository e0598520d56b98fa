"""The event stream of one session (server-sent events): the delivery path of the sockets, written as text/event-stream.

Format: WHATWG HTML, "Server-sent events". `id:` is the sequence and stands on `message` only, so that `Last-Event-ID`
resumes exactly there. Following moves no cursor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from sessions_app.changes import Committed
from sessions_app.keys import Principal
from sessions_app.realtime.feed import Feed
from sessions_app.realtime.places import Place, enter
from sessions_app.realtime.runtime import Runtime
from sessions_app.realtime.subscriber import EVENTS, NORMAL, Subscriber
from sessions_app.states import ENDED

log = logging.getLogger("hub.realtime")

COMMENT_SECONDS = 15.0
MAX_QUEUED = 16


class EventStream(Subscriber):
    """Frames go through a short queue, whose fullness holds the pump back as a slow transport would."""

    transport = EVENTS

    def __init__(self, runtime: Runtime, principal: Principal) -> None:
        super().__init__(runtime, principal)
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(MAX_QUEUED)

    def follow(self, place: Place, after: int | None) -> Feed:
        """Register from `after` (default: the cursor), own messages included."""
        state = place.state
        start = place.cursor if after is None else after
        feed = Feed(
            session_pk=state.pk,
            session_id=state.session_id,
            agent_id=self.principal.agent_id if place.member else "",
            position=max(start, place.first_sequence - 1),
            replay_to=state.last_sequence,
            acked=0,
            window=None,
            own_too=True,
            recovered=start + 1 >= place.retained_from,
            view=place.view,
        )
        feed.told_state = state.turn() if state.status not in ENDED else None
        feed.see_state(state)
        self.runtime.registry.join(self)
        self.runtime.registry.follow(self, feed)
        return feed

    async def write(self, frames: Sequence[str]) -> None:
        for frame in frames:
            await self._lines.put(_event(frame))

    async def write_messages(self, feed: Feed, messages: Sequence[Committed]) -> None:
        for message in messages:
            await self._lines.put(_event(self.message_frame(feed, message), message.sequence))

    async def session_ended(self, feed: Feed) -> None:
        self.end(NORMAL)

    def abandon(self, code: int) -> None:
        """Nobody takes from the queue: let the generator find the end."""
        self.end(code)

    async def events(self, place: Place, after: int | None) -> AsyncIterator[str]:
        """The text of the stream, comments included; ends after an ended session's frame, or with the key."""
        yield ": connected\n\n"
        feed = self.follow(place, after)
        pump = None
        try:
            # Registered: what was committed since the place was read is now heard of, or found by this one more look.
            now = await self.runtime.read(
                enter, place.state.session_id, self.principal.agent_pk, self.principal.is_operator
            )
            feed.see_state(now.state)
            self.notify(feed)
            pump = asyncio.create_task(self._pump_to_end())
            while True:
                try:
                    async with asyncio.timeout(COMMENT_SECONDS):  # `wait_for` may swallow a cancellation (Python 3.11)
                        line = await self._lines.get()
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if line is None:
                    return
                yield line
        finally:
            if pump is not None:
                pump.cancel()
                await asyncio.gather(pump, return_exceptions=True)
            self.runtime.registry.leave(self)

    async def _pump_to_end(self) -> None:
        try:
            await self.pump()
        except Exception:  # the client comes back and goes on where it was; without an end it would wait for ever
            log.exception("an event stream's pump failed")
        await self._lines.put(None)


def _event(frame: str, sequence: int | None = None) -> str:
    kind = frame[9 : frame.index('"', 9)]  # every frame begins with {"type":"…"
    number = f"id: {sequence}\n" if sequence is not None else ""
    return f"event: {kind}\n{number}data: {frame}\n\n"
