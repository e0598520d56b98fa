"""What one serving process owns: its threads, its subscribers, its tickers. Started on first use, stopped explicitly.

Daphne sends no lifespan events, so there is no other moment to start at.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from django.conf import settings

from sessions_app.append import Draft, Outcome, Stored
from sessions_app.changes import Changes, Committed, PresenceChanged, SessionChange, add_publisher, remove_publisher
from sessions_app.context.profiles import View
from sessions_app.context.viewing import find_views, own_profiles
from sessions_app.cursors import CursorMove, CursorNow
from sessions_app.db import column_time, utc_now, wire_time
from sessions_app.drafts import kinds
from sessions_app.hooks import runtime_parts
from sessions_app.keys import Principal, bad_keys, bearer, forget_key, remembered, verify_key
from sessions_app.protocol.errors import HubError, Unavailable
from sessions_app.protocol.frames import encode
from sessions_app.rates import Rates
from sessions_app.realtime import places
from sessions_app.realtime.acknowledgements import Acknowledgements
from sessions_app.realtime.figures import count_stored
from sessions_app.realtime.hints import Doorbell, LayerHints, decode_changes
from sessions_app.realtime.live import LiveText
from sessions_app.realtime.parts import Part
from sessions_app.realtime.registry import Registry
from sessions_app.realtime.subscriber import STOPPING, TOO_SLOW, UNAUTHENTICATED, Subscriber, presence_frame
from sessions_app.realtime.vouching import Vouching
from sessions_app.responses import find_response
from sessions_app.services.sessions import expire_sessions
from sessions_app.threads import Readers, Writer

log = logging.getLogger("hub.runtime")
T = TypeVar("T")

MAX_BACKLOG = 50_000
LOOK_LIMIT = 5_000
OWN_COMMIT_SECONDS = 0.05
OVERLAP_SECONDS = 5.0  # clocks of processes differ, and a commit comes later than the moment its row names


class Answer:
    """What a wait brought: `answered` with the response, `pending`, or `ended` when the session is over without one."""

    def __init__(self, status: str, response: Committed | None = None) -> None:
        self.status = status
        self.response = response


class Runtime:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.registry = Registry()
        self.readers = Readers()
        self.vouching = Vouching(self.registry, self.readers)
        self.writer = Writer(self.loop, self._committed)
        self.hints = LayerHints(self._deliver, lambda fields: self.live.heard(fields))
        self.doorbell = Doorbell(self._ring) if Doorbell.fits() else None
        self.rates_messages = Rates(settings.HUB_RATE_MESSAGES, settings.HUB_BURST_MESSAGES)
        self.stopping = False
        self.ready = asyncio.Event()
        self._look_now = asyncio.Event()
        self._look_planned = False
        self._looked_until = utc_now() - timedelta(seconds=OVERLAP_SECONDS)
        self._profiles: dict[int, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._starting: asyncio.Task[None] | None = None
        self.acks = Acknowledgements(self.registry, self.writer)
        self.live = LiveText(self)
        self.parts: list[Part] = [make(self) for make in runtime_parts()]

    # Starting and stopping

    def start(self) -> None:
        # Two threads share one interpreter lock all day long: at the default of 5 ms each hand-over would cost that much.
        sys.setswitchinterval(0.0005)
        self.writer.start()
        if self.doorbell is not None:
            self.doorbell.start()
        add_publisher(self._published)
        for part in self.parts:
            part.start()
        self._starting = self.loop.create_task(self._start())

    async def _start(self) -> None:
        await self.hints.start()
        await self._guarded(self.vouching.register)
        await self._guarded(lambda: self.read(kinds.refresh))
        self._tasks = [
            self.loop.create_task(self._every(settings.HUB_LOOK_SECONDS, self._look, self._look_now)),
            self.loop.create_task(self._every(0.5, self._tick)),
            self.loop.create_task(self._every(settings.HUB_LEASE_SECONDS / 3, self.vouching.renew)),
            self.loop.create_task(self._every(1.0, self._sweep)),
            self.loop.create_task(self._every(2.0, self._check_keys)),
            self.loop.create_task(self._every(settings.HUB_KIND_RULES_SECONDS, lambda: self.read(kinds.refresh))),
        ]
        self.ready.set()

    async def stop(self) -> None:
        """Tell the sockets when to come back, close them, write what is queued, and give up the lease."""
        if self.stopping:
            return
        self.stopping = True
        self.ready.set()  # who still waits for the start learns that there is none
        for subscriber in list(self.registry.subscribers):
            subscriber.say(encode("closing", retry_after=round(random.uniform(0.5, 3.0), 2)))
            subscriber.end(STOPPING)
        self.registry.wake_waits()  # a request that waits is answered with what is known
        for part in self.parts:
            part.wake()
        try:
            await asyncio.wait_for(self.registry.empty.wait(), settings.HUB_CLOSE_SECONDS)
        except TimeoutError:
            log.info("%d sockets and what waits did not end in time", len(self.registry.subscribers))
        for task in [*self._tasks, *([self._starting] if self._starting is not None else [])]:
            task.cancel()
        for part in self.parts:
            part.stop()
        self.writer.stop()
        await asyncio.to_thread(self.writer.join, 5)
        await self._guarded(self.vouching.give_up)
        await self.hints.stop()
        if self.doorbell is not None:
            self.doorbell.stop()
        remove_publisher(self._published)
        self.readers.stop()

    async def _every(
        self, seconds: float, action: Callable[[], Awaitable[Any]], early: asyncio.Event | None = None
    ) -> None:
        # The flag, because a cancellation that meets a ringing event is swallowed by `wait_for` (Python 3.11).
        while not self.stopping:
            if early is None:
                await asyncio.sleep(seconds)
            else:
                try:
                    await asyncio.wait_for(early.wait(), seconds)
                    early.clear()
                except TimeoutError:
                    pass
            await self._guarded(action)

    async def _guarded(self, action: Callable[[], Awaitable[Any]]) -> None:
        """Whatever goes wrong in one round of a ticker, the next one comes."""
        try:
            await action()
        except HubError as error:
            log.warning("skipped a round: %s", error)
        except Exception:
            log.exception("a round failed")

    # Database work for the loop

    async def read(self, function: Callable[..., T], *arguments: Any) -> T:
        return await self.readers.run(function, *arguments)

    async def append(self, draft: Draft) -> Stored:
        """Have a draft stored; raises its refusal. Cancelling the caller takes nothing back."""
        future: asyncio.Future[Outcome] = self.loop.create_future()
        self.submit(draft, lambda outcome: None if future.done() else future.set_result(outcome))
        outcome = await future
        if isinstance(outcome, HubError):
            raise outcome
        return outcome

    def submit(self, draft: Draft, done: Callable[[Outcome], None]) -> None:
        """Queue a draft; `done(outcome)` is called on the loop, before anybody is told of the message."""
        if self.stopping or self.writer.backlog > MAX_BACKLOG:
            done(Unavailable(stored=False))
        else:
            self.writer.append(draft, done)

    async def move_cursor(self, move: CursorMove) -> CursorNow:
        """Have a cursor moved; raises the refusal, and `Unavailable` when the process stops."""
        if self.stopping:  # the writer may have ended, and nobody would answer
            raise Unavailable(stored=False)
        future: asyncio.Future[CursorNow | HubError] = self.loop.create_future()
        self.writer.move_cursor(move, lambda now: None if future.done() else future.set_result(now))
        outcome = await future
        if isinstance(outcome, HubError):
            raise outcome
        return outcome

    async def authenticate(self, header: str | None) -> Principal:
        """Who this `Authorization` header is; raises `Unauthenticated`."""
        key = bearer(header)
        known = remembered(key)
        return known if known is not None else await self.read(verify_key, key)

    async def wait_response(
        self, session_pk: int, question_key: int, timeout: float, principal: Principal | None = None
    ) -> Answer:
        """Wait up to `timeout` seconds for the response to a message. The rows decide; events only say when to look."""
        deadline = self.loop.time() + timeout
        event = self.registry.wait_on(session_pk)
        looked = 0
        try:
            while True:
                event.clear()
                response, ended, looked = await self.read(find_response, session_pk, question_key, looked)
                if response is not None:
                    return Answer("answered", response)
                if ended:
                    return Answer("ended")
                left = deadline - self.loop.time()
                if left <= 0 or self.stopping:
                    return Answer("pending")
                try:
                    async with asyncio.timeout(min(left, 2.0)):  # `wait_for` may swallow a cancellation (Python 3.11)
                        await event.wait()
                except TimeoutError:
                    if principal is not None:
                        gone: set[int] = await self.read(bad_keys, {principal.key_pk})
                        if gone:
                            return Answer("pending")
        finally:
            self.registry.forget_wait(session_pk, event)

    # What was committed, here and elsewhere

    def _committed(self, changes: Changes) -> None:
        """On the loop, after a commit of this process."""
        count_stored(changes)
        self._deliver(changes)
        self.hints.send(changes)

    def _published(self, changes: Changes) -> None:
        """From any thread of this process that ran a unit of work."""
        for key_pk in changes.revoked_keys:
            forget_key(key_pk)
        try:
            self.loop.call_soon_threadsafe(self._committed, changes)
        except RuntimeError:
            log.info("the loop has ended; other processes will find the rows")

    def hear_changes(self, data: bytes) -> None:
        """A hint of another process that came by a way of its own; on the loop."""
        changes = decode_changes(data)
        count_stored(changes)
        self._deliver(changes)

    def _deliver(self, changes: Changes) -> None:
        for change in changes.sessions.values():
            self.registry.deliver(change)
        for read in changes.reads:
            self.registry.read_moved(read.session_pk, read.agent_id, read.cursor)
        if changes.revoked_keys:
            for key_pk in changes.revoked_keys:
                forget_key(key_pk)
            self._dismiss(set(changes.revoked_keys))
        if changes.reviewed:
            self.registry.review(changes.reviewed)
        if changes.traces:
            for part in self.parts:
                part.moved(changes.traces)
        if changes.presence:
            self.loop.create_task(self._guarded(lambda: self._tell_presence(changes.presence)))

    def _dismiss(self, key_pks: set[int]) -> None:
        for subscriber in self.registry.of_keys(key_pks):
            subscriber.say(
                encode("error", code="unauthenticated", message="This key is no longer valid.", details={}, retry=False)
            )
            subscriber.end(UNAUTHENTICATED)

    async def _tell_presence(self, changed: list[PresenceChanged]) -> None:
        """A `presence` frame for everybody here who shares a session with the agent."""
        followed = list(self.registry.topics)
        names = {item.agent_pk: item for item in changed}
        for start in range(0, len(followed), 500):
            shared = await self.read(places.present_among, followed[start : start + 500], list(names))
            for session_pk, agent_pks in shared.items():
                topic = self.registry.topics.get(session_pk)
                for feed, subscriber in list(topic.followers.items()) if topic else []:
                    for agent_pk in agent_pks:
                        if names[agent_pk].agent_id != feed.agent_id:
                            subscriber.say(presence_frame(feed.session_id, names[agent_pk]))
        # Agent sockets hear of sessions, too, in which nothing has happened since they came.
        everywhere = list(self.registry.everywhere)
        for session_pk, session_id, agent_pk, reader in await self.read(
            places.shared_sessions, list(names), everywhere
        ):
            for subscriber in self.registry.everywhere.get(reader, ()):
                if session_pk not in subscriber.feeds:
                    subscriber.say(presence_frame(session_id, names[agent_pk]))

    def joined(self, subscriber: Subscriber) -> None:
        """A socket is open from now on."""
        self.registry.join(subscriber)
        for part in self.parts:
            part.joined(subscriber)

    # Tickers

    def _ring(self) -> None:
        """From the doorbell's thread. Right after a commit of our own it was most likely that one: look, but not at once."""
        delay = OWN_COMMIT_SECONDS if time.monotonic() - self.writer.committed_at < OWN_COMMIT_SECONDS else 0.0
        try:
            self.loop.call_soon_threadsafe(self._look_in, delay)
        except RuntimeError:
            pass

    def _look_in(self, delay: float) -> None:
        if not delay:
            self._look_now.set()
        elif not self._look_planned:
            self._look_planned = True
            self.loop.call_later(delay, self._look_as_planned)

    def _look_as_planned(self) -> None:
        self._look_planned = False
        self._look_now.set()

    async def _look(self) -> None:
        """Find what no hint told us."""
        await self._look_at_sessions()
        for part in self.parts:
            await part.look()

    async def _look_at_sessions(self) -> None:
        """Sessions whose rows have moved since the last look."""
        registry = self.registry
        if not registry.topics and not registry.everywhere:
            self._looked_until = utc_now()
            return
        begun = utc_now()
        since = column_time(wire_time(self._looked_until - timedelta(seconds=OVERLAP_SECONDS)) or "")
        states = await self.read(places.moved_since, since, LOOK_LIMIT)
        stale = [state for state in states if registry.look(state)]
        if registry.everywhere:
            keys = [state.pk for state in states]
            mine = await self.read(places.present_among, keys, list(registry.everywhere)) if keys else {}
            for state in states:
                if state.pk in mine:
                    registry.deliver(SessionChange(state.pk, mine[state.pk], state=state))
        for state in stale:
            await self._reread(state)
        if len(states) < LOOK_LIMIT:
            self._looked_until = begun
        else:
            self._looked_until = max(self._looked_until + timedelta(seconds=1), begun - timedelta(seconds=60))

    async def _reread(self, state: Any) -> None:
        """Members or context have changed without a word: check who still takes part, and tell the new context."""
        topic = self.registry.topics.get(state.pk)
        if topic is None:
            return
        asked = {feed: feed.reviews for feed in topic.followers}
        if asked:
            agents = {s.principal.agent_pk for s in topic.followers.values() if not s.principal.is_operator}
            views: dict[int, View] = await self.read(find_views, state.pk, list(agents))
            for feed, subscriber in list(topic.followers.items()):
                agent_pk = subscriber.principal.agent_pk
                if agent_pk in agents - views.keys():
                    self.registry.expel(subscriber, feed, state)
                elif (
                    agent_pk in views and feed.agent_id and asked.get(feed) == feed.reviews
                ):  # else newer than what was read
                    feed.view = views[agent_pk]
        if topic.context_revision < state.context_revision:
            shared = await self.read(places.context_of, state.pk)
            self.registry.deliver(SessionChange(state.pk, [], state=state, shared=shared))
        topic.context_revision = state.context_revision
        if topic.followers.keys() <= asked.keys():  # else the next look is for who came meanwhile
            topic.members_revision = state.members_revision

    async def _tick(self) -> None:
        now = time.monotonic()
        for subscriber, since in list(self.registry.sending.items()):
            if now - since > settings.HUB_STALL_SECONDS:
                log.info("%s takes nothing, closing", subscriber.connection_id)
                subscriber.abandon(TOO_SLOW)
        self.acks.tick(now)
        await self.vouching.flush()

    async def _sweep(self) -> None:
        await self.read(expire_sessions)

    async def _check_keys(self) -> None:
        """What revocation, expiry or a switched-off agent has ended without a hint reaching us."""
        in_use = self.registry.keys_in_use()
        if in_use:
            bad: set[int] = await self.read(bad_keys, in_use)
            self._dismiss(bad)
            await self._check_profiles()

    async def _check_profiles(self) -> None:
        """Agents whose own visibility profile has changed without a hint reaching us."""
        agents = {subscriber.principal.agent_pk for subscriber in self.registry.subscribers}
        profiles: dict[int, str] = await self.read(own_profiles, list(agents))
        known, self._profiles = self._profiles, profiles
        self.registry.review(pk for pk in agents if known.get(pk) != profiles.get(pk))


_runtimes: dict[asyncio.AbstractEventLoop, Runtime] = {}


def runtimes() -> list[Runtime]:
    """Those of this process; there is one, besides in tests."""
    return list(_runtimes.values())


def get_runtime() -> Runtime:
    """The runtime of the running loop (one per serving process), started if need be."""
    loop = asyncio.get_running_loop()
    runtime = _runtimes.get(loop)
    if runtime is None:
        for old in [known for known in _runtimes if known.is_closed()]:
            del _runtimes[old]
        runtime = _runtimes[loop] = Runtime()
        runtime.start()
    return runtime


async def stop_runtime() -> None:
    """Stop the running loop's runtime, if there is one."""
    runtime = _runtimes.pop(asyncio.get_running_loop(), None)
    if runtime is not None:
        await runtime.stop()
