"""What is on its way to the hub: kept until acked, in order within a session, sent again under the same id after a cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from hub.client.core.backoff import Backoff
from hub.client.core.verdicts import sane_seconds, should_resend
from hub.client.errors import HubError


class Where(Enum):
    WAITING = auto()
    SOCKET = auto()
    HTTP = auto()


@dataclass(slots=True)
class Entry:
    """One message that wants to be stored. `body` is the REST body; the frame adds `type` and `session_id`."""

    client_message_id: str
    session_id: str
    body: dict[str, Any]
    added_at: float
    size: int = 0
    durable: bool = False
    where: Where = Where.WAITING
    attempts: int = 0
    sent_at: float = 0.0
    not_before: float = 0.0


class Outbox:
    """Entries by session, oldest first. Times are seconds on the caller's monotonic clock.

    On the socket many of a session may be in flight, because one socket keeps their order. Over HTTP only the oldest is,
    and while it is none of that session goes to the socket. An entry that must wait (refused for now) holds up those
    behind it, not other sessions.
    """

    def __init__(
        self,
        *,
        ack_timeout: float = 20.0,
        http_after: float = 1.0,
        in_flight_max: int = 256,
        internal_tries: int = 5,
        backoff: Backoff | None = None,
    ) -> None:
        self.ack_timeout = ack_timeout
        self.http_after = http_after
        self.in_flight_max = in_flight_max
        self.internal_tries = internal_tries
        self._backoff = backoff or Backoff(base=0.5, cap=20.0, min_gap=0.2)
        self._entries: dict[str, Entry] = {}
        self._sessions: dict[str, dict[str, Entry]] = {}
        self._open = False
        self._closed_at = 0.0
        self._http_not_before = 0.0
        self._http_works = False
        self._on_socket = 0
        self._rate: float | None = None
        self._burst = 1.0
        self._tokens = 1.0
        self._refilled_at = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def get(self, client_message_id: str) -> Entry | None:
        return self._entries.get(client_message_id)

    def add(self, entry: Entry) -> None:
        if entry.client_message_id in self._entries:
            raise ValueError(f"{entry.client_message_id} is already on its way")
        self._entries[entry.client_message_id] = entry
        self._sessions.setdefault(entry.session_id, {})[entry.client_message_id] = entry

    def remove(self, client_message_id: str) -> Entry | None:
        """Acked, refused for good, or given up by its sender."""
        entry = self._entries.pop(client_message_id, None)
        if entry is not None:
            self._leave(entry)
            session = self._sessions[entry.session_id]
            del session[client_message_id]
            if not session:
                del self._sessions[entry.session_id]
        return entry

    def in_flight(self, session_id: str) -> int:
        """Entries of this session that may be stored already without our knowing."""
        return sum(1 for entry in self._sessions.get(session_id, {}).values() if entry.attempts)

    def has(self, session_id: str) -> bool:
        return session_id in self._sessions

    @property
    def socket_is_open(self) -> bool:
        return self._open

    # --- the socket ---

    def socket_opened(self, now: float, *, per_second: float | None = None, burst: float | None = None) -> None:
        """The hub's limits come with its welcome: keeping to them ourselves keeps the order that a refusal would break."""
        self._open = True
        self._http_works = False
        self._rate = per_second if per_second and per_second > 0 else None
        self._burst = max(1.0, burst or 1.0)
        self._tokens = self._burst
        self._refilled_at = now

    def socket_lost(self, now: float) -> None:
        """All that was in flight there is in doubt, and goes again."""
        if self._open:
            self._closed_at = now
        self._open = False
        for entry in self._entries.values():
            if entry.where is Where.SOCKET:
                self._leave(entry)

    def for_socket(self, now: float) -> list[Entry]:
        """Entries to write to the open socket now, in order; they count as sent."""
        batch: list[Entry] = []
        if not self._open:
            return batch
        for session in self._sessions.values():
            for entry in session.values():
                if self._on_socket >= self.in_flight_max:
                    return batch
                if entry.where is Where.SOCKET:
                    continue
                if entry.where is Where.HTTP or entry.not_before > now:
                    break
                if not self._take_token(now):
                    return batch
                self._sent(entry, Where.SOCKET, now)
                self._on_socket += 1
                batch.append(entry)
        return batch

    def overdue(self, now: float) -> bool:
        """Give up waiting for acks that should have come; True when there were any (they go again)."""
        found = False
        for entry in self._entries.values():
            if entry.where is Where.SOCKET and now - entry.sent_at >= self.ack_timeout:
                self._leave(entry)
                found = True
        return found

    # --- HTTP ---

    def for_http(self, now: float) -> list[Entry]:
        """The oldest entry of each session that has waited long enough for a socket; they count as sent."""
        batch: list[Entry] = []
        if self._open or now < self._http_not_before:
            return batch
        for session in self._sessions.values():
            entry = next(iter(session.values()))
            if entry.where is Where.WAITING and entry.not_before <= now and self._http_at(entry) <= now:
                self._sent(entry, Where.HTTP, now)
                batch.append(entry)
        return batch

    def http_failed(self, client_message_id: str, now: float) -> None:
        """Nobody answered: in doubt, and HTTP rests for a while."""
        entry = self._entries.get(client_message_id)
        if entry is not None:
            self._leave(entry)
        if now >= self._http_not_before:
            self._http_not_before = self._backoff.failed(now)

    def http_worked(self, now: float) -> None:
        self._http_works = not self._open
        self._backoff.failures = 0
        self._http_not_before = 0.0

    # --- answers ---

    def refused(self, client_message_id: str, error: HubError, now: float) -> bool:
        """True: it will be sent again, later. False: that answer is final, and the entry is gone."""
        entry = self._entries.get(client_message_id)
        if entry is None:
            return False
        if not should_resend(error) or (error.code == "internal" and entry.attempts >= self.internal_tries):
            self.remove(client_message_id)
            return False
        self._leave(entry)
        hint = sane_seconds(error.details.get("retry_after"))
        pause = self._backoff.failed(now) - now if hint is None else hint
        entry.not_before = now + max(0.05, pause)
        return True

    def next_wakeup(self, now: float) -> float | None:
        """When to look again even if nothing happens, or None."""
        times: list[float] = []
        for session in self._sessions.values():
            for entry in session.values():
                if entry.where is Where.SOCKET:
                    times.append(entry.sent_at + self.ack_timeout)
                    continue
                if entry.where is Where.WAITING:
                    if self._open and self._on_socket < self.in_flight_max:
                        times.append(max(entry.not_before, self._token_at(now)))
                    elif not self._open:
                        times.append(max(self._http_at(entry), entry.not_before, self._http_not_before))
                break
        return min(times, default=None)

    def _http_at(self, entry: Entry) -> float:
        """When the socket has had its moment; it needs none more once HTTP has worked in its place."""
        return self._closed_at if self._http_works else max(entry.added_at, self._closed_at) + self.http_after

    def _take_token(self, now: float) -> bool:
        if self._rate is None:
            return True
        self._tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._rate)
        self._refilled_at = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _token_at(self, now: float) -> float:
        if self._rate is None:
            return now
        tokens = min(self._burst, self._tokens + (now - self._refilled_at) * self._rate)
        return now if tokens >= 1.0 else now + (1.0 - tokens) / self._rate

    def _sent(self, entry: Entry, where: Where, now: float) -> None:
        entry.where = where
        entry.attempts += 1
        entry.sent_at = now

    def _leave(self, entry: Entry) -> None:
        if entry.where is Where.SOCKET:
            self._on_socket -= 1
        entry.where = Where.WAITING
