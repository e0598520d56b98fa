"""What has arrived in one session and how far it has been handled: nothing lost, nothing doubled, in order, bounded.

A session is *in step* (what arrives is taken from the socket) or *behind* (it is read page by page from the hub's log until
it has reached the highest sequence it heard of). It falls behind when a sequence is missing that is not one of our own
messages, or when its queue is full; the reading is the shell's, the decision is here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from hub.client.frames import Message, NewSession


class Offer(Enum):
    """What became of a message that was offered."""

    TAKEN = auto()
    DUPLICATE = auto()
    WAITING = auto()  # ahead of an own message whose ack is still on its way
    BEHIND = auto()  # dropped: the log will give it again


@dataclass(slots=True)
class Item:
    """One thing to handle, in its place: a message, a new session (with its first message), or a passing event."""

    payload: Any
    sequence: int | None = None
    attempts: int = 0
    not_before: float = 0.0
    finished_by: set[int] = field(default_factory=set)
    recorded: bool = False  # the cursor behind it is on the disk already

    @property
    def durable(self) -> bool:
        """Whether it is handled until it succeeds; passing events are shown once at the most."""
        return isinstance(self.payload, Message | NewSession)


class Gauge:
    """How many items all inboxes of a client hold together."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0


class SessionInbox:
    """One session as one agent reads it.

    `done` is the cursor: everything up to it was handled. `position` is the end of what was taken into the queue, or is our
    own. `heard` is the highest sequence that we know to exist. `confirmed` is the hub's copy of the cursor.
    """

    __slots__ = (
        "_held",
        "_own",
        "agent_id",
        "announced",
        "behind",
        "confirmed",
        "done",
        "ended",
        "gauge",
        "heard",
        "limit",
        "position",
        "queue",
        "sent",
        "session_id",
    )

    def __init__(
        self,
        session_id: str,
        *,
        agent_id: str,
        limit: int = 1000,
        done: int | None = None,
        gauge: Gauge | None = None,
    ) -> None:
        self.session_id = session_id
        self.gauge = gauge or Gauge()
        self.agent_id = agent_id
        self.limit = limit
        self.done = done or 0
        self.position: int | None = done
        self.heard = done or 0
        self.confirmed = 0
        self.sent = 0
        self.behind = False
        self.ended = False
        self.announced = False
        self.queue: deque[Item] = deque()
        self._own: set[int] = set()
        self._held: dict[int, Message] = {}

    # --- what arrives ---

    def offer(self, message: Message, *, own_in_flight: int = 0, room: bool = True) -> Offer:
        """Take a message from any socket.

        own_in_flight: sends into this session without an ack yet; so many missing sequences may be ours, and the message
        waits for their acks instead of being fetched again. room: whether the client as a whole can hold more.
        """
        sequence = message.sequence
        if self.position is None:
            self._start_at(sequence - 1)  # the hub replays from the cursor that it keeps for us: trust it for a start
        assert self.position is not None
        if sequence <= self.position or sequence in self._held:
            return Offer.DUPLICATE
        self.heard = max(self.heard, sequence)
        if self.behind:
            return Offer.BEHIND
        if not room or len(self.queue) + len(self._held) >= self.limit:
            self._fall_behind()
            return Offer.BEHIND
        self._skip_own()
        if sequence == self.position + 1:
            self._take(message)
            self._take_held()
            return Offer.TAKEN
        self._held[sequence] = message
        return self.settle(own_in_flight)

    def settle(self, own_in_flight: int) -> Offer:
        """Look again at what waits: an ack came, or will not come. BEHIND means: read the log from `position`."""
        if self.position is None or self.behind:
            return Offer.BEHIND if self.behind else Offer.TAKEN
        self._skip_own()
        self._take_held()
        if not self._held:
            return Offer.TAKEN
        missing = min(self._held) - 1 - self.position
        if missing > own_in_flight:
            self._fall_behind()
            return Offer.BEHIND
        return Offer.WAITING

    def own_stored(self, sequence: int) -> None:
        """One of our own messages was stored there: its sequence is not missing."""
        self.heard = max(self.heard, sequence)
        if self.position is None:
            return  # nothing to compare with yet: the first message from others sets the start
        if sequence > self.position:
            self._own.add(sequence)
            self._skip_own()
            self._take_held()

    def reached(self, sequence: int, *, recovered: bool = True, own_in_flight: int = 0) -> bool:
        """The hub says that its replay came to `sequence`. True when something before it is missing here."""
        self.heard = max(self.heard, sequence)
        if self.position is None:
            self._start_at(sequence)
            return False
        self._skip_own()
        if self.behind or self._held or sequence - self.position <= own_in_flight:
            return self.behind
        if not recovered:
            self.position = sequence  # what retention removed cannot be read any more: go on behind it
            return False
        self._fall_behind()
        return True

    def announce(self, frame: NewSession) -> bool:
        """Queue a new session; its first message then counts as arrived, and is not queued a second time.

        Taken even when the client is full: the hub announces it again only to a new connection.
        """
        first = frame.initial_message
        if self.announced:
            return False
        if first is not None and first.sender != self.agent_id:
            if self.position is None:
                self._start_at(first.sequence - 1)
            assert self.position is not None
            if first.sequence <= self.position:
                return self._announce_late(frame, first)
            self.heard = max(self.heard, first.sequence)
            if self.behind or first.sequence != self.position + 1:
                return False  # it comes as a message, or again with the next connection
            self.position = first.sequence
            self._push(Item(frame, first.sequence))
        else:
            self._push(Item(frame))
        self.announced = True
        return True

    def _announce_late(self, frame: NewSession, first: Message) -> bool:
        for item in self.queue:
            if item.sequence == first.sequence and isinstance(item.payload, Message) and not item.attempts:
                item.payload = frame
                self.announced = True
                return True
        return False

    def note(self, event: Any) -> None:
        """Queue a passing event behind what came before it, for those who watch; dropped when the queue is full."""
        if len(self.queue) < self.limit:
            self._push(Item(event))

    # --- reading the log ---

    def page_wanted(self, *, room: int) -> tuple[int, int] | None:
        """`(after, limit)` of the next page to read, or None: in step, or no room before the queue is half empty."""
        if not self.behind or self.position is None:
            return None
        free = min(self.limit - len(self.queue), room)
        if free < max(1, self.limit // 2) and self.queue:
            return None
        return self.position, max(1, min(free, 500))

    def page(self, messages: Iterable[Message], *, has_more: bool, last_sequence: int) -> None:
        """Take a page of the log, which holds our own messages too. The last page brings the session in step again."""
        assert self.position is not None
        for message in messages:
            if message.sequence > self.position:
                self._take(message)
        if not has_more:
            # What the log does not have (retention) will not come; what was stored after the page will be heard of.
            self.position = max(self.position, last_sequence)
        if self.position >= self.heard:
            self.behind = False
            self._skip_own()

    def start_at(self, sequence: int) -> None:
        """We know where we begin (a session of our own making); later knowledge stands."""
        if self.position is None:
            self._start_at(sequence)

    def _start_at(self, sequence: int) -> None:
        self.position = sequence
        self.done = self.confirmed = self.sent = max(self.done, sequence)

    def _fall_behind(self) -> None:
        self.behind = True
        self._held.clear()

    def _take(self, message: Message) -> None:
        self.position = message.sequence
        self.heard = max(self.heard, message.sequence)
        if message.sender != self.agent_id:
            self._push(Item(message, message.sequence))

    def _take_held(self) -> None:
        while self._held and self.position is not None and self.position + 1 in self._held:
            self._take(self._held.pop(self.position + 1))
            self._skip_own()

    def _skip_own(self) -> None:
        if self.position is None:
            return
        while self.position + 1 in self._own:
            self.position += 1
            self._own.discard(self.position)
        if self._own and min(self._own) <= self.position:
            self._own = {sequence for sequence in self._own if sequence > self.position}

    # --- what was handled ---

    def head(self) -> Item | None:
        return self.queue[0] if self.queue else None

    def finish(self, item: Item) -> int | None:
        """The head was handled; returns the new cursor, or None when it did not move."""
        assert self.queue
        assert self.queue[0] is item
        self.queue.popleft()
        self.gauge.held -= 1
        if item.sequence is None or item.sequence <= self.done:
            return None
        self.done = item.sequence
        return self.done

    def ack_due(self) -> int | None:
        """The cursor to send, when the hub has not been told of it on this connection."""
        return self.done if self.done > max(self.sent, self.confirmed) else None

    def ack_sent(self, sequence: int) -> None:
        self.sent = max(self.sent, sequence)

    def ack_confirmed(self, cursor: int) -> None:
        self.confirmed = max(self.confirmed, cursor)

    def disconnected(self) -> None:
        """What was sent and not confirmed must be sent again; what waited for acks is read again."""
        self.sent = self.confirmed
        if self._held:
            self._fall_behind()

    def reconcile(self, *, cursor: int, last_sequence: int) -> bool:
        """Compare with what the hub says at the start of a connection. True: our position is impossible and was reset.

        That happens when the hub was restored from an older copy: one fresh start from its cursor, and no loop.
        """
        self.confirmed = cursor if cursor <= last_sequence else self.confirmed
        if self.done <= last_sequence and (self.position or 0) <= last_sequence:
            self.heard = max(self.heard, last_sequence) if self.position is not None else self.heard
            return False
        self.done = self.confirmed = self.sent = self.heard = cursor
        self.position = cursor
        self.behind = last_sequence > cursor
        self.heard = max(cursor, last_sequence)
        self.clear()
        self._own.clear()
        self._held.clear()
        return True

    def clear(self) -> None:
        self.gauge.held -= len(self.queue)
        self.queue.clear()

    def _push(self, item: Item) -> None:
        self.queue.append(item)
        self.gauge.held += 1

    @property
    def idle(self) -> bool:
        """Nothing to handle, nothing to read, nothing to tell: the object may be forgotten once the session has ended."""
        return not self.queue and not self.behind and not self._held and self.done <= self.confirmed
