"""Who in this process follows what. Everything here runs on the event loop, so nothing here locks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from sessions_app.changes import SessionChange, SessionState
from sessions_app.context.shared import Shared
from sessions_app.protocol.frames import encode
from sessions_app.realtime.feed import Feed
from sessions_app.realtime.pieces import Piece
from sessions_app.realtime.subscriber import Subscriber, context_frame, session_frame

READ_SECONDS = 0.1
MAX_FINISHED_STREAMS = 200


@dataclass(slots=True, eq=False)
class Topic:
    """One session that somebody in this process follows.

    `members_revision` is the last one up to which every change of the members was heard of, by each of its followers.
    """

    session_pk: int
    followers: dict[Feed, Subscriber] = field(default_factory=dict)
    waiters: set[asyncio.Event] = field(default_factory=set)
    reads: dict[str, int] = field(default_factory=dict)
    finished_streams: dict[str, None] = field(default_factory=dict)
    last_sequence: int = 0
    state_revision: int = 0
    members_revision: int = 0
    context_revision: int = 0


class Registry:
    def __init__(self) -> None:
        self.subscribers: set[Subscriber] = set()
        self.topics: dict[int, Topic] = {}
        self.everywhere: dict[int, set[Subscriber]] = {}  # agent sockets, by agent key
        self.sending: dict[Subscriber, float] = {}  # who waits for its transport, and since when (monotonic)
        self._counts: dict[int, int] = {}
        self._waits = 0
        self.revision = 0  # grows whenever a subscriber comes or goes
        self.empty = asyncio.Event()  # nobody is here: no socket, no stream, no request that waits
        self.empty.set()

    # Coming and going

    def join(self, subscriber: Subscriber) -> None:
        if subscriber not in self.subscribers:
            self.subscribers.add(subscriber)
            self.revision += 1
            self.empty.clear()
            pk = subscriber.principal.agent_pk
            self._counts[pk] = self._counts.get(pk, 0) + 1

    def follow(self, subscriber: Subscriber, feed: Feed) -> None:
        """Register before the first page is read: what is committed from now on reaches the feed, at least as a target."""
        topic = self.topics.get(feed.session_pk)
        if topic is None:
            topic = self.topics[feed.session_pk] = Topic(feed.session_pk)
        if feed.state is not None:  # as of when this place was looked up, which the others may have heard beyond
            as_of = feed.state.members_revision
            topic.members_revision = min(as_of, topic.members_revision) if topic.followers else as_of
        topic.followers[feed] = subscriber
        subscriber.feeds[feed.session_pk] = feed

    def unfollow(self, subscriber: Subscriber, feed: Feed) -> None:
        subscriber.feeds.pop(feed.session_pk, None)
        topic = self.topics.get(feed.session_pk)
        if topic is not None:
            topic.followers.pop(feed, None)
            self._tidy(topic)

    def leave(self, subscriber: Subscriber) -> None:
        pk = subscriber.principal.agent_pk
        if subscriber in self.subscribers:
            self.subscribers.discard(subscriber)
            self.revision += 1
            self._see_who_is_here()
            self._counts[pk] -= 1
            if not self._counts[pk]:
                del self._counts[pk]
        for feed in list(subscriber.feeds.values()):
            self.unfollow(subscriber, feed)
        mine = self.everywhere.get(pk)
        if mine is not None:
            mine.discard(subscriber)
            if not mine:
                del self.everywhere[pk]

    def follow_everywhere(self, subscriber: Subscriber) -> None:
        self.everywhere.setdefault(subscriber.principal.agent_pk, set()).add(subscriber)

    def _tidy(self, topic: Topic) -> None:
        if not topic.followers and not topic.waiters:
            self.topics.pop(topic.session_pk, None)

    def wait_on(self, session_pk: int) -> asyncio.Event:
        """An event that is set at the next change of this session; give it back with `forget_wait`."""
        topic = self.topics.setdefault(session_pk, Topic(session_pk))
        event = asyncio.Event()
        topic.waiters.add(event)
        self._waits += 1
        self.empty.clear()
        return event

    def forget_wait(self, session_pk: int, event: asyncio.Event) -> None:
        topic = self.topics.get(session_pk)
        if topic is not None:
            topic.waiters.discard(event)
            self._tidy(topic)
        self._waits -= 1
        self._see_who_is_here()

    def wake_waits(self) -> None:
        """Have everybody who waits look at what there is now."""
        for topic in self.topics.values():
            for event in topic.waiters:
                event.set()

    def _see_who_is_here(self) -> None:
        if not self.subscribers and not self._waits:
            self.empty.set()

    # What was committed

    def deliver(self, change: SessionChange) -> None:
        """Hand a session's change to everybody here who follows it; hints from other processes come the same way."""
        if self.everywhere:
            for agent_pk in {*change.members, *change.joined}:
                for subscriber in self.everywhere.get(agent_pk, ()):
                    if change.pk not in subscriber.feeds:
                        subscriber.meet(change)
        topic = self.topics.get(change.pk)
        if topic is None:
            return
        if change.removed:
            self._remove(topic, change)
        for agent_pk in change.reviewed:
            self._review(topic, agent_pk)
        if change.messages:
            last = change.messages[-1].sequence
            topic.last_sequence = max(topic.last_sequence, last)
            for message in change.messages:
                if message.stream_id is not None:
                    topic.finished_streams[message.stream_id] = None
                    if len(topic.finished_streams) > MAX_FINISHED_STREAMS:
                        del topic.finished_streams[next(iter(topic.finished_streams))]
            for feed, subscriber in topic.followers.items():
                if feed.offer(change.messages):
                    subscriber.notify(feed)
        if change.state is not None:
            self._see(topic, change.state)
            # Only what follows on what was heard: else a hint was lost, and its change of the members is for the look to find.
            told = change.joined or change.removed or change.reviewed
            if told and change.state.members_revision == topic.members_revision + 1:
                topic.members_revision += 1
        if change.shared is not None and change.state is not None:
            topic.context_revision = change.state.context_revision
            self._tell_context(topic, change.state, change.shared)
        for event in topic.waiters:
            event.set()

    def _tell_context(self, topic: Topic, state: SessionState, shared: Shared) -> None:
        """The shared context, encoded once for all who see all of it, and once for each view of it."""
        whole = session_frame(state, context=shared.values)
        by_view: dict[str, str] = {}
        for feed, subscriber in topic.followers.items():
            view = feed.view
            if feed.changing:
                feed.held_context = shared
                continue
            if view is None:
                feed.held.append(partial(context_frame, state, shared))
                continue
            if not view:
                subscriber.say(whole)
                continue
            if view.hash not in by_view:
                by_view[view.hash] = context_frame(state, shared, view)
            subscriber.say(by_view[view.hash])

    def review(self, agent_pks: Iterable[int]) -> None:
        """These agents' own profiles have changed, for all their sessions."""
        wanted = set(agent_pks)
        for topic in self.topics.values() if wanted else ():
            for agent_pk in wanted:
                self._review(topic, agent_pk)

    def _review(self, topic: Topic, agent_pk: int) -> None:
        for feed, subscriber in topic.followers.items():
            if subscriber.principal.agent_pk == agent_pk and feed.agent_id:
                feed.review()
                subscriber.notify(feed)

    def _see(self, topic: Topic, state: SessionState) -> None:
        topic.state_revision = max(topic.state_revision, state.state_revision)
        topic.last_sequence = max(topic.last_sequence, state.last_sequence)
        for feed, subscriber in topic.followers.items():
            feed.see_state(state)
            if feed.has_work or feed.state_due() is not None:
                subscriber.notify(feed)

    def _remove(self, topic: Topic, change: SessionChange) -> None:
        for feed, subscriber in list(topic.followers.items()):
            if subscriber.principal.agent_pk in change.removed and not subscriber.principal.is_operator:
                self.expel(subscriber, feed, change.state)

    def expel(self, subscriber: Subscriber, feed: Feed, state: SessionState | None) -> None:
        """This agent takes part no longer: it hears so, and nothing else of the session."""
        self.unfollow(subscriber, feed)
        if state is not None:
            subscriber.say(session_frame(state, reason="removed"))
        else:
            subscriber.say(encode("session", session_id=feed.session_id, status="active", reason="removed"))
        subscriber.removed_from(feed)

    def look(self, state: SessionState) -> bool:
        """Take what a look at the rows showed; True when members or context must be read anew."""
        topic = self.topics.get(state.pk)
        if topic is None:
            return False
        stale = (topic.members_revision, topic.context_revision) != (state.members_revision, state.context_revision)
        news = (topic.last_sequence, topic.state_revision) != (state.last_sequence, state.state_revision)
        if news:
            self._see(topic, state)
            for feed, subscriber in topic.followers.items():
                if feed.hear_of(state.last_sequence):
                    subscriber.notify(feed)
            for event in topic.waiters:
                event.set()
        return stale

    # What is not stored

    def tell(self, session_pk: int, frame: str, *, but: Subscriber | None = None) -> None:
        """A frame for everybody who follows this session here."""
        topic = self.topics.get(session_pk)
        if topic is not None:
            for subscriber in topic.followers.values():
                if subscriber is not but:
                    subscriber.say(frame)

    def read_moved(self, session_pk: int, agent_id: str, cursor: int) -> None:
        """Collect read cursors for a moment: many acknowledgements become one `read` frame."""
        topic = self.topics.get(session_pk)
        if topic is None:
            return
        first = not topic.reads
        topic.reads[agent_id] = max(cursor, topic.reads.get(agent_id, 0))
        for feed, subscriber in topic.followers.items():
            if feed.agent_id == agent_id and feed.acknowledge(cursor):
                subscriber.notify(feed)
        if first:
            asyncio.get_running_loop().call_later(READ_SECONDS, self._tell_reads, session_pk)

    def _tell_reads(self, session_pk: int) -> None:
        topic = self.topics.get(session_pk)
        if topic is None:
            return
        reads, topic.reads = topic.reads, {}
        for feed, subscriber in topic.followers.items():
            for agent_id, cursor in reads.items():
                if agent_id != feed.agent_id or cursor > feed.read_told:
                    subscriber.say(encode("read", session_id=feed.session_id, agent_id=agent_id, cursor=cursor))

    def chunk(self, session_pk: int, stream_id: str, piece: Piece, *, but: Subscriber | None = None) -> None:
        """Live text; nothing follows the message that completes its stream, and a slow reader does not get it."""
        topic = self.topics.get(session_pk)
        if topic is None or stream_id in topic.finished_streams:
            return
        for feed, subscriber in topic.followers.items():
            if subscriber is but or not feed.announced or len(subscriber.control) >= 200 or feed.waiting:
                continue
            if feed.view is not None and piece.is_for(feed.view):
                subscriber.say(piece.frame)

    def sockets_of(self, agent_pk: int) -> int:
        return self._counts.get(agent_pk, 0)

    def keys_in_use(self) -> set[int]:
        return {subscriber.principal.key_pk for subscriber in self.subscribers}

    def of_keys(self, key_pks: Iterable[int]) -> list[Subscriber]:
        wanted = set(key_pks)
        return [subscriber for subscriber in self.subscribers if subscriber.principal.key_pk in wanted]

    def agents_here(self) -> dict[int, bool]:
        """`{agent: whether one of its sockets takes delegated traces}` for presence."""
        here: dict[int, bool] = {}
        for subscriber in self.subscribers:
            if subscriber.counts_as_presence:
                pk = subscriber.principal.agent_pk
                here[pk] = here.get(pk, False) or subscriber.runs_traces
        return here

    def follower(self, feed: Feed) -> Subscriber | None:
        topic = self.topics.get(feed.session_pk)
        return topic.followers.get(feed) if topic is not None else None
