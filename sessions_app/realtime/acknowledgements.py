"""When a cursor moves: by the client's word, by its proper close, or because a socket stayed open long enough after a write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from django.conf import settings

from sessions_app.cursors import CursorMove, CursorNow
from sessions_app.protocol.errors import HubError
from sessions_app.realtime.feed import Feed
from sessions_app.realtime.registry import Registry
from sessions_app.realtime.subscriber import Subscriber
from sessions_app.threads import Writer

CLOSE_SECONDS = 2.0


class Acknowledgements:
    """Runs on the event loop; the moves themselves are the writer's."""

    def __init__(self, registry: Registry, writer: Writer) -> None:
        self._registry = registry
        self._writer = writer
        self._written: dict[Feed, Subscriber] = {}
        self._marks: dict[Feed, list[tuple[float, int]]] = {}
        self._closing: dict[int, set[asyncio.Future[None]]] = {}

    def move(
        self, subscriber: Subscriber, feed: Feed, up_to: int, done: Callable[[CursorNow | HubError], None] | None = None
    ) -> None:
        """Queue a cursor move for this subscriber's agent; `done` hears where the cursor stands."""
        if up_to > feed.acked or done is not None:
            self._writer.move_cursor(
                CursorMove(feed.session_pk, subscriber.principal.agent_pk, feed.agent_id, up_to), done
            )

    def wrote(self, subscriber: Subscriber, feed: Feed) -> None:
        """A subscriber has written up to `feed.written`; where that counts as read later, remember when."""
        if subscriber.acknowledges_itself and feed.written > feed.acked:
            self._written[feed] = subscriber

    def tick(self, now: float) -> None:
        """Acknowledge what was written on sockets that are still open `HUB_AUTO_ACK_SECONDS` after; `now` is monotonic."""
        followers, self._written = self._written, {}
        for feed in followers:
            self._marks.setdefault(feed, []).append((now, feed.written))
        for feed, marks in list(self._marks.items()):
            subscriber = followers.get(feed) or self._registry.follower(feed)
            if subscriber is None:
                del self._marks[feed]
                continue
            due = [at for at in marks if now - at[0] >= settings.HUB_AUTO_ACK_SECONDS]
            if due:
                self.move(subscriber, feed, due[-1][1])
                self._marks[feed] = marks[len(due) :]
                if not self._marks[feed]:
                    del self._marks[feed]

    def at_close(self, subscriber: Subscriber, feed: Feed) -> None:
        """The client has closed properly: it has read what was written. Its next connect waits for this to be stored."""
        if feed.written <= feed.acked:
            return
        agent_pk = subscriber.principal.agent_pk
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        moves = self._closing.setdefault(agent_pk, set())
        moves.add(stored)

        def done(_: CursorNow | HubError) -> None:
            moves.discard(stored)
            if not moves and self._closing.get(agent_pk) is moves:
                del self._closing[agent_pk]
            stored.set_result(None)

        self.move(subscriber, feed, feed.written, done)

    async def closes_stored(self, agent_pk: int) -> None:
        """Wait for what this agent's closed sockets acknowledged, so that it does not get it once more."""
        if moves := self._closing.get(agent_pk):
            await asyncio.wait(list(moves), timeout=CLOSE_SECONDS)
