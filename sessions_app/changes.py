"""What a unit of work has committed: the material of every push. Rows are the truth; losing one of these costs delay only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from django.db import transaction
from msgspec import Struct

from sessions_app.context.shared import Shared
from sessions_app.db import write_transaction
from sessions_app.protocol.frames import as_frame
from sessions_app.protocol.ids import message_id


class Committed(Struct, gc=False):
    """A stored message on its way to its readers; `body` is its JSON, encoded once for all of them.

    Outside the garbage collector, since nothing in it can point back: a replay makes thousands.

    `views` are what readers with a visibility profile get of it, by the profile's hash; `withheld` marks an empty one.
    """

    key: int
    session_pk: int
    sequence: int
    sender: str
    kind: str
    body: str
    reply_to: int | None = None
    trace_id: str | None = None
    stream_id: str | None = None
    timestamp: str = ""
    frame_text: str | None = None
    views: dict[str, Committed] | None = None
    withheld: bool = False

    @property
    def frame(self) -> str:
        if self.frame_text is None:
            self.frame_text = as_frame(self.body)
        return self.frame_text

    @property
    def public_id(self) -> str:
        return message_id(self.key)


class SessionState(Struct):
    """What a `session` frame says, and the counters by which a process notices what it was not told."""

    pk: int
    session_id: str
    status: str
    current_speaker: str | None
    waiting_for: list[str]
    round: int
    reason: str | None
    last_sequence: int
    state_revision: int
    members_revision: int
    context_revision: int

    def turn(self) -> tuple[Any, ...]:
        """What two frames must differ in to be worth sending both."""
        return (self.status, self.current_speaker, self.waiting_for, self.round, self.reason)


class SessionChange(Struct):
    """What happened in one session: messages in order, the state after them, who came or went, and who may now get
    something else of it than before (agent keys)."""

    pk: int
    members: list[int] = []
    messages: list[Committed] = []
    state: SessionState | None = None
    joined: list[int] = []
    removed: list[int] = []
    reviewed: list[int] = []
    shared: Shared | None = None


class ReadMoved(Struct):
    session_pk: int
    agent_pk: int
    agent_id: str
    cursor: int
    members: list[int] = []


class PresenceChanged(Struct):
    agent_pk: int
    agent_id: str
    online: bool


@dataclass(slots=True)
class Changes:
    """Collected inside a transaction, published after it. `touched_members` keeps half-done memberships out of caches.

    `reviewed` are agents whose own visibility profile has changed, in all their sessions.
    """

    sessions: dict[int, SessionChange] = field(default_factory=dict)
    reads: list[ReadMoved] = field(default_factory=list)
    presence: list[PresenceChanged] = field(default_factory=list)
    revoked_keys: list[int] = field(default_factory=list)
    touched_members: set[int] = field(default_factory=set)
    traces: list[dict[str, Any]] = field(default_factory=list)
    reviewed: list[int] = field(default_factory=list)

    def session(self, pk: int) -> SessionChange:
        change = self.sessions.get(pk)
        if change is None:
            change = self.sessions[pk] = SessionChange(pk)
        return change

    def take_over(self, other: Changes) -> None:
        """Add what a later transaction did."""
        for pk, change in other.sessions.items():
            mine = self.sessions.setdefault(pk, change)
            if mine is not change:
                mine.messages += change.messages
                mine.joined += change.joined
                mine.removed += change.removed
                mine.reviewed += change.reviewed
                mine.members = change.members or mine.members
                mine.state = change.state or mine.state
                mine.shared = change.shared if change.shared is not None else mine.shared
        self.reads += other.reads
        self.presence += other.presence
        self.revoked_keys += other.revoked_keys
        self.traces += other.traces
        self.reviewed += other.reviewed

    def __bool__(self) -> bool:
        return bool(self.sessions or self.reads or self.presence or self.revoked_keys or self.traces or self.reviewed)


Publisher = Callable[[Changes], None]
_publishers: list[Publisher] = []


def add_publisher(publisher: Publisher) -> None:
    """Have `publisher(changes)` called after every commit, in the thread that committed. It must not block or raise."""
    if publisher not in _publishers:
        _publishers.append(publisher)


def remove_publisher(publisher: Publisher) -> None:
    if publisher in _publishers:
        _publishers.remove(publisher)


def publish(changes: Changes) -> None:
    """Tell this process's sockets, and by them the other processes, what has been committed."""
    if changes:
        for publisher in list(_publishers):
            publisher(changes)


@contextmanager
def unit_of_work(*, synced: bool = True) -> Iterator[Changes]:
    """One write transaction whose changes are published once it is committed (with the caller's, when there is one)."""
    changes = Changes()
    with write_transaction(synced=synced):
        yield changes
    transaction.on_commit(lambda: publish(changes))


def encode_changes(changes: Changes) -> bytes:
    """For another process; the counterpart is `hints.decode_changes`."""
    return msgspec.msgpack.encode(
        [
            list(changes.sessions.values()),
            changes.reads,
            changes.presence,
            changes.revoked_keys,
            changes.traces,
            changes.reviewed,
        ]
    )
