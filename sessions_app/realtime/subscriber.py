"""A live reader: one WebSocket or one event stream, its feeds, and the one task that writes to it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sessions_app import states
from sessions_app.changes import Committed, PresenceChanged, SessionChange, SessionState
from sessions_app.context.profiles import View
from sessions_app.context.shared import Shared
from sessions_app.context.viewing import find_views, page_after, show_all
from sessions_app.keys import Principal
from sessions_app.protocol.errors import HubError
from sessions_app.protocol.frames import as_replayed, encode
from sessions_app.protocol.ids import new_connection_id
from sessions_app.realtime.feed import Feed
from sessions_app.sql import messages_after

if TYPE_CHECKING:
    from sessions_app.realtime.runtime import Runtime

log = logging.getLogger("hub.realtime")

TURN_SECONDS = 0.25
MAX_CONTROL = 10_000
TAKE = 64

NORMAL, UNAUTHENTICATED, GONE, TOO_SLOW, TOO_FAST, STOPPING = 1000, 4401, 4404, 4408, 4429, 4503
MALFORMED, DIED = 4400, 1011


TRANSPORTS = SESSION_SOCKET, AGENT_SOCKET, EVENTS = "session", "agent", "events"


class Ended(Exception):
    """The subscriber is over; `code` is the WebSocket close code that says why."""

    def __init__(self, code: int) -> None:
        self.code = code


class Subscriber:
    """Feeds and the pump. Subclasses say how frames are written and what happens at the end of a session.

    `write(frames)` awaits the transport, so that a slow reader slows this pump and nothing else.
    """

    def __init__(self, runtime: Runtime, principal: Principal, *, batch: bool = False) -> None:
        self.runtime = runtime
        self.principal = principal
        self.connection_id = new_connection_id()
        self.batch = batch
        self.feeds: dict[int, Feed] = {}
        self.control: list[str] = []
        self.ready: list[Feed] = []
        self.closing: Ended | None = None
        self._sleeping: asyncio.Future[None] | None = None  # an event and a deque would be 1.3 KB per idle socket

    # To be said by subclasses

    async def write(self, frames: Sequence[str]) -> None:
        raise NotImplementedError

    async def write_messages(self, feed: Feed, messages: Sequence[Committed]) -> None:
        """Write messages of one feed; those up to `feed.replay_to` are marked as replayed."""
        if messages[-1].sequence <= feed.replay_to:
            await self.write([as_replayed(message.body) for message in messages])
        else:
            await self.write([self.message_frame(feed, message) for message in messages])

    transport = SESSION_SOCKET  # one of `TRANSPORTS`
    runs_traces = False
    acknowledges_itself = False

    @property
    def counts_as_presence(self) -> bool:
        return not self.principal.is_operator

    def meet(self, change: SessionChange) -> None:
        """Something happened in a session of this agent that has no feed here yet (agent sockets)."""

    def removed_from(self, feed: Feed) -> None:
        """The agent takes no part in that session any more."""
        self.end(GONE)

    def abandon(self, code: int) -> None:
        """The transport takes nothing: end without waiting for it."""
        self.end(code)

    async def session_ended(self, feed: Feed) -> None:
        """The last frame of an ended session has been written."""

    # From the loop

    def say(self, frame: str) -> None:
        """Queue a frame that belongs to no feed: an answer, an error, a notice."""
        if len(self.control) >= MAX_CONTROL:
            self.end(TOO_SLOW)
            return
        self.control.append(frame)
        self._wake()

    def notify(self, feed: Feed) -> None:
        """There is something to do for `feed`."""
        if not feed.queued:
            feed.queued = True
            self.ready.append(feed)
            self._wake()

    def end(self, code: int) -> None:
        """Have the pump finish: what is queued as control goes out, then the connection closes with `code`."""
        if self.closing is None:
            self.closing = Ended(code)
        self._wake()

    def _wake(self) -> None:
        """There is something for the pump, which has looked for it before it slept: nothing is between its look and its sleep."""
        sleeping = self._sleeping
        if sleeping is not None and not sleeping.done():
            sleeping.set_result(None)

    def message_frame(self, feed: Feed, message: Committed) -> str:
        return message.frame if message.sequence > feed.replay_to else as_replayed(message.body)

    # The pump

    async def pump(self) -> int:
        """Write until the end; returns the close code."""
        try:
            while True:
                if self.control:
                    frames, self.control = self.control, []
                    await self._send(frames)
                elif self.closing is not None:
                    return self.closing.code
                elif self.ready:
                    feed = self.ready.pop(0)
                    feed.queued = False
                    await self._serve(feed)
                else:
                    self._sleeping = asyncio.get_running_loop().create_future()
                    await self._sleeping
        except Ended as ended:
            return ended.code
        except HubError as error:  # the database can't be read: the client comes back and resumes
            self.control.clear()
            await self._send([encode("error", **error.body(), retry=True)])
            return STOPPING

    async def _send(self, frames: Sequence[str]) -> None:
        sending = self.runtime.registry.sending
        sending[self] = time.monotonic()
        try:
            await self.write(frames)
        finally:
            del sending[self]

    async def _serve(self, feed: Feed) -> None:
        """One bounded step for one feed, so that no session of a socket starves another."""
        if self.feeds.get(feed.session_pk) is not feed:
            return
        view = feed.view if feed.view is not None else await self._look_again(feed)
        if view is None:
            return
        if feed.waiting:
            taken = feed.take(TAKE)
            if view.looks_up:
                agent_pk = self.principal.agent_pk
                taken = await self.runtime.read(show_all, taken, view, feed.session_pk, agent_pk)
            elif view:
                taken = [view.show(message) for message in taken]
            await self._hand_over(feed, taken)
        elif feed.wants_page:
            asked, target = feed.page_size(), feed.heard
            if view:
                page = await self.runtime.read(
                    page_after, feed.session_pk, feed.position, asked, view, self.principal.agent_pk
                )
            else:
                page = await self.runtime.read(messages_after, feed.session_pk, feed.position, asked)
            if feed.view is view:  # else the page was read with eyes that it has no more
                await self._hand_over(feed, feed.page_read(page, asked, target))
        if feed.replay_due:
            await self._complete_replay(feed)
        if feed.held and feed.view is view:
            held, feed.held = feed.held, []
            await self._send([frame_for(view) for frame_for in held])
        if feed.answer_due and feed.view is view:  # else it is reviewed, and this comes again
            await self._answer_changes(feed, view)
        state = feed.state_due()
        if state is not None:
            await self._tell_state(feed, state)
        if feed.has_work:
            self.notify(feed)

    async def _look_again(self, feed: Feed) -> View | None:
        """Read what the reader may get; None when that has changed meanwhile, or when it takes no part any more."""
        reviews, agent_pk = feed.reviews, self.principal.agent_pk
        view = (await self.runtime.read(find_views, feed.session_pk, [agent_pk])).get(agent_pk)
        if feed.reviews != reviews:
            self.notify(feed)
            return None
        feed.view = view
        return view

    async def _hand_over(self, feed: Feed, messages: list[Committed]) -> None:
        me = feed.agent_id
        shown = [message for message in messages if message.sender != me or not feed.is_mine_to_skip(message)]
        if not feed.announced and shown and shown[-1].sequence > feed.replay_to:
            split = next(i for i, message in enumerate(shown) if message.sequence > feed.replay_to)
            if split:
                await self._send_messages(feed, shown[:split])
            await self._complete_replay(feed)
            shown = shown[split:]
        if shown:
            await self._send_messages(feed, shown)
        feed.written = feed.position
        self.runtime.acks.wrote(self, feed)

    async def _send_messages(self, feed: Feed, messages: list[Committed]) -> None:
        sending = self.runtime.registry.sending
        sending[self] = time.monotonic()
        try:
            await self.write_messages(feed, messages)
        finally:
            del sending[self]

    async def _complete_replay(self, feed: Feed) -> None:
        feed.announced = True
        await self._send(
            [
                encode(
                    "replay_complete",
                    session_id=feed.session_id,
                    sequence=min(feed.position, max(feed.replay_to, 0)) if feed.replay_to else feed.position,
                    recovered=feed.recovered,
                )
            ]
        )
        self.replayed(feed)

    def replayed(self, feed: Feed) -> None:
        """`replay_complete` of this feed has been written."""

    async def _tell_state(self, feed: Feed, state: SessionState) -> None:
        """Write a `session` frame. What differs in speaker and round alone may wait a moment for the next."""
        now = time.monotonic()
        calm = (
            feed.told_state is not None
            and feed.told_state[0] == state.status
            and feed.told_state[2] == state.waiting_for
        )
        wait = feed.told_at + TURN_SECONDS - now
        if calm and wait > 0:
            if not feed.state_timer:
                feed.state_timer = True
                asyncio.get_running_loop().call_later(wait, self._tell_later, feed)
            return
        feed.told_state, feed.told_at = state.turn(), now
        await self._send([session_frame(state)])
        if state.status in states.ENDED:
            await self.session_ended(feed)

    async def _answer_changes(self, feed: Feed, view: View) -> None:
        """Answer the frames that changed the session. In its place this is also how the subscriber hears of the state."""
        assert feed.state is not None
        state, answers, in_place = feed.state, feed.answers, feed.shows_state
        feed.answers = []
        if in_place:
            feed.told_state, feed.told_at = state.turn(), time.monotonic()
        frames = []
        for answer in answers:
            more: dict[str, object] = {} if answer.shared is None else {"context": view.context(answer.shared)}
            frames.append(session_frame(state, **more, **({} if answer.id is None else {"id": answer.id})))
        await self._send(frames)
        if in_place and state.status in states.ENDED:
            await self.session_ended(feed)

    def _tell_later(self, feed: Feed) -> None:
        feed.state_timer = False
        if self.closing is None:
            self.notify(feed)


def session_frame(state: SessionState, **more: object) -> str:
    fields: dict[str, object] = {
        "session_id": state.session_id,
        "status": state.status,
        "current_speaker": state.current_speaker,
        "waiting_for": state.waiting_for,
        "round": state.round,
        "reason": state.reason,
    }
    return encode("session", **{**fields, **more})


def context_frame(state: SessionState, shared: Shared, view: View) -> str:
    """The `session` frame that tells a reader of the shared context."""
    return session_frame(state, context=view.context(shared))


def presence_frame(session_id: str, changed: PresenceChanged) -> str:
    status = "online" if changed.online else "offline"
    return encode("presence", session_id=session_id, agent_id=changed.agent_id, status=status)
