"""The position of one subscriber in one session. No I/O and no loop: the subscriber asks, the feed decides.

A feed is *live* (what was just committed is handed to it from memory) or *catching up* (pages are read from the database
until it has reached the newest sequence it heard of). Whatever arrives in memory while it catches up only raises the
target, so a lost, doubled or late hint can cost time and nothing else.

Promises, per feed: no message is lost, doubled or reordered between `start` and the end of the subscription.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sessions_app import states
from sessions_app.changes import Committed, SessionState
from sessions_app.context.profiles import View, open_view
from sessions_app.context.shared import Shared

MAX_WAITING = 256
PAGE = 500


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """A frame that changed the session is answered with its state; `shared` where that may be news."""

    id: str | int | None
    shared: Shared | None


@dataclass(slots=True, eq=False)
class Feed:
    """`position`: everything up to it was handed over. `acked`: the cursor, which bounds how far ahead we send.

    `replay_to` is the last sequence at the time of connecting: what is not above it is a replay, and is marked as such.
    Own messages up to it are left out unless `own_too`; those in `sent_here` (message keys, noted before the commit, since a
    page may show the row before its outcome is back) came in through this very subscriber. `view` is what the reader may get;
    None while it has to be read anew. While a frame of this very subscriber is `changing` the session, what the change causes is
    held back: the answer to that frame says it. `held` are the frames that came while the view was read anew, to be told then.
    """

    session_pk: int
    session_id: str
    agent_id: str
    position: int
    replay_to: int
    acked: int
    window: int | None
    own_too: bool = False
    heard: int = 0
    live: bool = False
    announced: bool = False
    recovered: bool = True
    written: int = 0
    queued: bool = False
    read_told: int = 0
    waiting: list[Committed] = field(default_factory=list)
    sent_here: set[int] = field(default_factory=set)
    state: SessionState | None = None
    told_state: tuple[object, ...] | None = None
    told_at: float = 0.0
    state_timer: bool = False
    view: View | None = field(default_factory=open_view)
    reviews: int = 0
    changing: bool = False
    answers: list[ChangeAnswer] = field(default_factory=list)
    held_context: Shared | None = None
    held: list[Callable[[View], str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.heard = max(self.heard, self.replay_to)
        self.written = self.position

    # What comes in

    def offer(self, messages: list[Committed]) -> bool:
        """Hand over what was just committed, ascending and without gaps; True when the subscriber has something to do."""
        last = messages[-1].sequence
        if last > self.heard:
            self.heard = last
        if not self.live:
            return self.room > 0
        expected = (self.waiting[-1].sequence if self.waiting else self.position) + 1
        if last < expected:
            return False
        first = messages[0].sequence
        if first > expected or len(self.waiting) >= MAX_WAITING or self._window_closed(last):
            # A gap, a slow reader or a used-up window: the database has it all, memory need not.
            self.waiting.clear()
            self.live = False
            return self.room > 0
        self.waiting.extend(messages[expected - first :] if first < expected else messages)
        return True

    def hear_of(self, last_sequence: int) -> bool:
        """A hint without content: there is something up to `last_sequence`."""
        if last_sequence <= self.heard:
            return False
        self.heard = last_sequence
        if self.live:
            # Even with messages waiting: they end below this, and nobody would tell us of the rest again.
            self.waiting.clear()
            self.live = False
        return not self.live and self.room > 0

    def acknowledge(self, cursor: int) -> bool:
        """The cursor moved; True when that reopens the window."""
        was_shut = self.room <= 0
        if cursor > self.acked:
            self.acked = cursor
        return was_shut and self.room > 0 and self.position < self.heard

    def see_state(self, state: SessionState) -> None:
        """Remember the newest state; an older one, which a late hint may bring, changes nothing."""
        known = self.state
        if known is None or (state.state_revision, state.last_sequence) >= (known.state_revision, known.last_sequence):
            self.state = state
        self.hear_of(state.last_sequence)

    def review(self) -> None:
        """What the reader may get has changed: nothing is shown from memory until that was read."""
        self.view = None
        self.reviews += 1
        self.waiting.clear()
        self.live = False

    # What goes out

    def _window_closed(self, last: int) -> bool:
        return self.window is not None and last > self.acked + self.window

    @property
    def room(self) -> int:
        """How many sequences may still be sent ahead of the cursor."""
        return PAGE if self.window is None else self.acked + self.window - self.position

    @property
    def wants_page(self) -> bool:
        return not self.live and self.room > 0

    def page_size(self) -> int:
        return min(PAGE, self.room)

    def take(self, limit: int) -> list[Committed]:
        """Up to `limit` waiting messages, in order; the position moves over them."""
        taken = self.waiting[:limit]
        del self.waiting[:limit]
        if taken:
            if taken[0].sequence <= self.position:
                taken = [message for message in taken if message.sequence > self.position]
            if taken:
                self.position = taken[-1].sequence
        return taken

    def page_read(self, page: list[Committed], asked: int, target: int) -> list[Committed]:
        """Take a page that was read after `position`; `target` is what had been heard of when the reading began.

        Live again with a short page that reaches everything heard of by now, or an empty one when nothing newer was heard
        meanwhile. Decided here, in one synchronous step, so that no hint can fall between.
        """
        if page:
            self.position = page[-1].sequence
            self.heard = max(self.heard, self.position)
            if len(page) < asked and self.position >= self.heard:
                self.live = True
        elif self.heard <= target:
            self.heard = self.position
            self.live = True
        return page

    def is_mine_to_skip(self, message: Committed) -> bool:
        """Whether this message shall not be shown here: sent by this subscriber, or an own one of the past."""
        if message.sender != self.agent_id:
            return False
        if message.key in self.sent_here:
            self.sent_here.discard(message.key)
            return True
        return not self.own_too and message.sequence <= self.replay_to

    @property
    def replay_due(self) -> bool:
        """Whether `replay_complete` is to be sent now."""
        return not self.announced and self.position >= self.replay_to

    def state_due(self) -> SessionState | None:
        """The state to tell, once the messages that caused it have been handed over, and only if it says something new."""
        state = self.state
        if state is None or self.changing or not self.shows_state:
            return None
        return state if state.turn() != self.told_state else None

    @property
    def shows_state(self) -> bool:
        """Whether the messages that caused the newest state have been handed over."""
        return self.state is not None and self.announced and self.position >= self.state.last_sequence

    @property
    def answer_due(self) -> bool:
        """Whether answers can be given: after what caused them, unless the window is shut, since the client may wait for one."""
        return bool(self.answers) and (self.shows_state or self.room <= 0)

    @property
    def has_ended(self) -> bool:
        return self.state is not None and self.state.status in states.ENDED and self.told_state == self.state.turn()

    @property
    def has_work(self) -> bool:
        return bool(self.waiting) or self.wants_page or self.replay_due
