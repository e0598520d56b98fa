"""The event stream of one session (server-sent events): the delivery path of the sockets, written as text/event-stream.

Format: WHATWG HTML, "Server-sent events". `id:` is the sequence and stands on `message` only, so that `Last-Event-ID`
resumes exactly there. Following moves no cursor.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from sessions_app.changes import Committed
from sessions_app.keys import Principal
from sessions_app.protocol.errors import Invalid
from sessions_app.realtime.feed import Feed
from sessions_app.realtime.places import Place
from sessions_app.realtime.runtime import Runtime
from sessions_app.realtime.subscriber import NORMAL, Subscriber

COMMENT_SECONDS = 15.0
MAX_QUEUED = 16


class EventStream(Subscriber):
    """Frames go through a short queue, whose fullness holds the pump back as a slow transport would."""

    def __init__(self, runtime: Runtime, principal: Principal) -> None:
        super().__init__(runtime, principal)
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(MAX_QUEUED)

    def follow(self, place: Place, after: int | None) -> None:
        """Register; raises `Invalid` for a position that does not exist."""
        state = place.state
        if after is not None and after > state.last_sequence:
            raise Invalid("That sequence does not exist yet.", field="after", last_sequence=state.last_sequence)
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
        )
        feed.told_state = state.turn() if state.status not in ("completed", "timeout") else None
        feed.see_state(state)
        self.runtime.registry.join(self)
        self.runtime.registry.follow(self, feed)
        self.notify(feed)

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

    async def events(self) -> AsyncIterator[str]:
        """The text of the stream, comments included; ends after an ended session's frame, or with the key."""
        pump = asyncio.create_task(self._pump_to_end())
        yield ": connected\n\n"
        try:
            while True:
                try:
                    line = await asyncio.wait_for(self._lines.get(), COMMENT_SECONDS)
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if line is None:
                    return
                yield line
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
            self.runtime.registry.leave(self)

    async def _pump_to_end(self) -> None:
        await self.pump()
        await self._lines.put(None)


def _event(frame: str, sequence: int | None = None) -> str:
    kind = frame[9 : frame.index('"', 9)]  # every frame begins with {"type":"…"
    number = f"id: {sequence}\n" if sequence is not None else ""
    return f"event: {kind}\n{number}data: {frame}\n\n"
