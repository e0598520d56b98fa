"""The socket of an agent: `/api/a2a/stream`, all its sessions, those to come included."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from msgspec import structs

from sessions_app.changes import Committed, SessionChange
from sessions_app.context.viewing import page_after
from sessions_app.keys import Principal
from sessions_app.protocol import frames
from sessions_app.protocol.errors import Invalid, NotFound
from sessions_app.protocol.frames import encode
from sessions_app.realtime.feed import Feed
from sessions_app.realtime.places import Place, Whereabouts, enter, find_place
from sessions_app.realtime.runtime import Runtime
from sessions_app.realtime.subscriber import AGENT_SOCKET, context_frame
from sessions_app.session_views import session_view
from sessions_app.sockets.answering import Socket
from sessions_app.sockets.connection import Send
from sessions_app.sockets.handshake import Handshake

log = logging.getLogger("hub.socket")
WELCOME_SESSIONS = 100


class AgentSocket(Socket):
    """Each session replays on its own; a feed is made when something happens in a session that has none yet."""

    transport = AGENT_SOCKET

    def __init__(self, runtime: Runtime, principal: Principal, handshake: Handshake, send: Send) -> None:
        super().__init__(runtime, principal, handshake, send)
        self._standing: dict[int, int] | None = None
        self._early: dict[int, SessionChange] = {}
        self._meeting: dict[int, SessionChange] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._replaying: set[int] = set()
        self._known: dict[str, int] = {}

    def welcome(self, found: Whereabouts) -> None:
        with self.opening():
            self.say_welcome(
                session_id=None,
                session=None,
                cursor=None,
                last_sequence=None,
                sessions=[
                    {
                        "session_id": place.state.session_id,
                        "status": place.state.status,
                        "cursor": place.cursor,
                        "last_sequence": place.state.last_sequence,
                        "unread": place.unread,
                    }
                    for place in found.open
                    if place.unread
                ][:WELCOME_SESSIONS],
            )

    async def replay_everything(self, found: Whereabouts) -> None:
        """Introduce the new sessions and start the replay of each that has something unread."""
        for place in found.open:
            if not place.initiated and not place.acknowledged:
                await self._introduce(place)
            if place.unread and place.state.pk not in self.feeds:
                self._replaying.add(place.state.pk)
                self._follow(place, max(place.cursor, place.first_sequence - 1), place.state.last_sequence)
        if not self._replaying:
            self._all_replayed()
        self._standing = found.standing
        early, self._early = self._early, {}
        for change in early.values():
            if change.pk not in self.feeds:
                self.meet(change)

    def _follow(self, place: Place, position: int, replay_to: int) -> Feed:
        state = place.state
        feed = Feed(
            session_pk=state.pk,
            session_id=state.session_id,
            agent_id=self.principal.agent_id,
            position=position,
            replay_to=replay_to,
            acked=place.cursor,
            window=self.window,
            announced=replay_to == 0,
            recovered=position + 1 >= place.retained_from,
            view=place.view,
        )
        feed.told_state = state.turn() if state.status not in ("completed", "timeout") else None
        feed.see_state(state)
        self._known[state.session_id] = state.pk
        self.runtime.registry.follow(self, feed)
        self.notify(feed)
        return feed

    def replayed(self, feed: Feed) -> None:
        if feed.session_pk in self._replaying:
            self._replaying.discard(feed.session_pk)
            if not self._replaying:
                self._all_replayed()

    def _all_replayed(self) -> None:
        self.say(encode("replay_complete", session_id=None, sequence=None, recovered=True))

    async def _introduce(self, place: Place) -> None:
        """`new_session`, with a copy of the first message; the message itself still follows."""
        session = await self.runtime.read(session_view, place.state.pk, self.principal.agent_pk)
        first: list[Committed] = []
        if place.first_sequence <= 1:
            agent_pk = self.principal.agent_pk
            first = await self.runtime.read(page_after, place.state.pk, 0, 1, place.view, agent_pk)
        body = first[0].body if first else "null"
        plain = encode("new_session", session_id=place.state.session_id, session=session)
        self.say(f'{plain[:-1]},"initial_message":{body}}}')

    # Sessions that come up while the socket is open

    def meet(self, change: SessionChange) -> None:
        if self._standing is None:  # still reading where we stand
            self._early[change.pk] = _both(change, self._early.get(change.pk))
        elif change.pk in self._meeting:
            self._meeting[change.pk] = _both(change, self._meeting[change.pk])
        else:
            self._meeting[change.pk] = change
            task = asyncio.create_task(self._meet(change.pk))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _meet(self, session_pk: int) -> None:
        try:
            feed = await self._start_feed(session_pk)
        except Exception:  # the next change, or the look, tries again
            log.exception("a session could not be taken up")
            del self._meeting[session_pk]
            return
        # From here on the feed hears for itself. What was told before: messages are in the rows, and this is the rest.
        change = self._meeting.pop(session_pk)
        if feed is not None and change.state is not None:
            feed.see_state(change.state)
            if change.shared is not None:
                feed.held.append(partial(context_frame, change.state, change.shared))
            self.notify(feed)

    async def _start_feed(self, session_pk: int) -> Feed | None:
        """Take up a session: from where it stood when this socket connected, or, for a new one, from its beginning for us.

        What is committed between the reading of the place and the registration is in the rows, and `_meet` is told of it.
        """
        standing = (self._standing or {}).get(session_pk)
        place = await self.runtime.read(find_place, session_pk, self.principal.agent_pk)
        if place is None:
            return None
        if session_pk in self.feeds:
            return self.feeds[session_pk]
        if standing is None and not place.initiated and not place.acknowledged:
            await self._introduce(place)
            if session_pk in self.feeds:
                return self.feeds[session_pk]
        beginning = max(place.cursor, place.first_sequence - 1) if place.acknowledged else place.first_sequence - 1
        return self._follow(place, beginning if standing is None else standing, 0)

    def removed_from(self, feed: Feed) -> None:
        """Only that session is over for us; the socket goes on."""
        self._known.pop(feed.session_id, None)
        if self._standing is not None:
            self._standing.pop(feed.session_pk, None)

    # Frames

    async def feed_for(self, session_id: str | None) -> Feed:
        if session_id is None:
            raise Invalid("On this socket a frame names its session.", field="session_id")
        feed = self.feeds.get(self._known.get(session_id, 0))
        if feed is not None:
            return feed
        place = await self.runtime.read(enter, session_id, self.principal.agent_pk, False)
        found = self.feeds.get(place.state.pk) or await self._start_feed(place.state.pk)
        if found is None:
            raise NotFound()
        self._known[session_id] = found.session_pk
        return found

    async def replay(self, frame: frames.Replay) -> None:
        """Replay a session from `after`, own messages included: a new feed takes the old one's place."""
        if frame.session_id is None:
            raise Invalid("Name the session to replay.", field="session_id")
        place = await self.runtime.read(enter, frame.session_id, self.principal.agent_pk, False)
        last = place.state.last_sequence
        after = place.cursor if frame.after is None else frame.after
        if not 0 <= after <= last:
            raise Invalid("That sequence does not exist yet.", field="after", last_sequence=last)
        old = self.feeds.get(place.state.pk)
        if old is not None:
            self.runtime.registry.unfollow(self, old)
        self._replaying.discard(place.state.pk)
        feed = self._follow(place, max(after, place.first_sequence - 1), last)
        feed.announced = False
        feed.own_too = True
        if old is not None:
            feed.sent_here |= old.sent_here
            feed.answers += old.answers
        self.notify(feed)

    def stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()


def _both(change: SessionChange, known: SessionChange | None) -> SessionChange:
    """The later change, with the state and the context of which only the earlier one tells. Messages are in the rows."""
    if known is None:
        return change
    shared = known.shared if change.shared is None else change.shared
    return structs.replace(change, state=change.state or known.state, shared=shared)
