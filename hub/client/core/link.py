"""One connection that is kept alive: when to connect, when it counts as dead, when to give up. No socket, no clock in here."""

from __future__ import annotations

import math
from enum import Enum, auto

from hub.client.core.backoff import Backoff
from hub.client.core.verdicts import Verdict, after_close
from hub.client.errors import ClientError, HubError, ProtocolFault
from hub.client.frames import Closing, ErrorFrame, ServerFrame, SessionUpdate, Welcome

PROTOCOL = 1


class Phase(Enum):
    WAITING = auto()
    CONNECTING = auto()
    GREETING = auto()  # the socket is open, `welcome` has not come
    OPEN = auto()
    OVER = auto()


class Pulse(Enum):
    """What the watchdog asks for."""

    NOTHING = auto()
    PING = auto()
    DEAD = auto()


class Link:
    """The life of one socket address over many connections. Times are seconds on the caller's monotonic clock.

    only_session: the session of a session socket, whose end ends the link; None on the agent socket.
    heartbeat: silence after which we ask for a pong; `grace` later the connection counts as dead. The hub's own value
    (`welcome.heartbeat_seconds`) is taken when it is shorter.
    """

    def __init__(
        self,
        *,
        only_session: str | None = None,
        backoff: Backoff | None = None,
        heartbeat: float = 20.0,
        grace: float = 10.0,
        welcome_timeout: float = 10.0,
    ) -> None:
        self.only_session = only_session
        self.backoff = backoff or Backoff()
        self.phase = Phase.WAITING
        self.verdict: Verdict | None = None
        self.error: HubError | ClientError | None = None
        self.connects = 0
        self.next_attempt = -math.inf
        self._heartbeat = heartbeat
        self._beat = heartbeat
        self._grace = grace
        self._welcome_timeout = welcome_timeout
        self._heard_at = 0.0
        self._pinged_at: float | None = None
        self._last_error: ErrorFrame | None = None
        self._session_ended = False
        self._retry_after: float | None = None

    @property
    def open(self) -> bool:
        return self.phase is Phase.OPEN

    # --- connecting ---

    def connecting(self, now: float) -> None:
        self.phase = Phase.CONNECTING
        self.backoff.trying(now)
        self._last_error = None
        self._session_ended = False
        self._retry_after = None

    def connected(self, now: float) -> None:
        self.phase = Phase.GREETING
        self._heard_at = now
        self._pinged_at = None
        self._beat = self._heartbeat

    def not_connected(self, now: float, verdict: Verdict) -> None:
        """The handshake was refused, or nobody answered (`Verdict()`)."""
        self._ended(now, verdict)

    # --- connected ---

    def received(self, frame: ServerFrame, now: float) -> None:
        """Look at a frame on its way to others: only what concerns the connection."""
        self._heard_at = now
        self._pinged_at = None
        if isinstance(frame, Welcome):
            self._welcomed(frame, now)
        elif isinstance(frame, ErrorFrame):
            self._last_error = frame
        elif isinstance(frame, Closing):
            self._retry_after = frame.retry_after
        elif isinstance(frame, SessionUpdate) and frame.ended and frame.session_id == self.only_session:
            self._session_ended = True
        # An error belongs to a close only when nothing else came between; frames of other kinds say life went on.
        if not isinstance(frame, ErrorFrame | Closing):
            self._last_error = None

    def _welcomed(self, frame: Welcome, now: float) -> None:
        if frame.protocol != PROTOCOL:
            self.verdict = Verdict(ProtocolFault(f"the hub speaks protocol {frame.protocol}, this client {PROTOCOL}"))
            return
        if self.phase is Phase.GREETING:
            self.phase = Phase.OPEN
            self.connects += 1
            self.backoff.opened(now)
        if frame.heartbeat_seconds is not None and frame.heartbeat_seconds > 0:
            self._beat = min(self._heartbeat, frame.heartbeat_seconds)
        if frame.session is not None and frame.session.ended and frame.session.session_id == self.only_session:
            self._session_ended = True

    def pulse(self, now: float) -> Pulse:
        """Ask the watchdog; a PING counts as sent."""
        if self.phase is Phase.GREETING:
            return Pulse.DEAD if now - self._heard_at >= self._welcome_timeout else Pulse.NOTHING
        if self.phase is not Phase.OPEN:
            return Pulse.NOTHING
        if self._pinged_at is not None:
            return Pulse.DEAD if now - self._pinged_at >= self._grace else Pulse.NOTHING
        if now - self._heard_at >= self._beat:
            self._pinged_at = now
            return Pulse.PING
        return Pulse.NOTHING

    def next_pulse(self) -> float:
        """When to ask the watchdog again."""
        if self.phase is Phase.GREETING:
            return self._heard_at + self._welcome_timeout
        if self._pinged_at is not None:
            return self._pinged_at + self._grace
        return self._heard_at + self._beat

    # --- the end ---

    def closed(self, code: int, reason: str, now: float) -> None:
        """The connection ended; `phase` then says whether there will be another, and `next_attempt` when."""
        verdict = self.verdict or after_close(
            code,
            reason,
            last_error=self._last_error,
            session_ended=self._session_ended,
            retry_after=self._retry_after,
        )
        self._ended(now, verdict)

    def _ended(self, now: float, verdict: Verdict) -> None:
        self.verdict = None
        if verdict.again:
            self.phase = Phase.WAITING
            self.next_attempt = self.backoff.failed(now, retry_after=verdict.retry_after)
        else:
            self.phase = Phase.OVER
            self.error = verdict.error
