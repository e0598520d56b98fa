"""A lane: one sender and its receivers, with a window of unacknowledged messages. Counts, and checks what it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from hub.bench.sockets import Frame

WINDOW = 32
FRAME_BYTES = 200

Encode = Callable[[int], bytes]


class Sender(Protocol):
    def send(self, text: bytes) -> None: ...


class Receiver:
    """Counts one receiver's messages and notices any that is not the next one after sequence `after`."""

    def __init__(self, after: int = 0) -> None:
        self.received = 0
        self._after = after
        self.misordered = 0
        self.errors: Counter[str] = Counter()

    def on_frames(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.type == "message":
                self.received += 1
                if frame.sequence != self._after + self.received:
                    self.misordered += 1
            elif frame.type == "error":
                self.errors[frame.code or "?"] += 1


class Lane:
    """Keeps `window` messages in flight from the moment that `run` is called until `stop`, or until `limit` were sent.

    With `batched`, what the window allows at one moment travels as one array. `after`: the room's last sequence so far.
    """

    def __init__(
        self,
        encode: Encode,
        *,
        receivers: int = 1,
        window: int = WINDOW,
        batched: bool = False,
        limit: int | None = None,
        after: int = 0,
    ) -> None:
        self.sent = 0
        self.acked = 0
        self.errors: Counter[str] = Counter()
        self.receivers = [Receiver(after) for _ in range(receivers)]
        self._encode = encode
        self._window = window
        self._batched = batched
        self._limit = limit
        self._sender: Sender | None = None

    def run(self, sender: Sender) -> None:
        self._sender = sender
        self._pump()

    def stop(self) -> None:
        self._sender = None

    def send_one(self, sender: Sender) -> None:
        """Send one message now, whatever the window."""
        self.sent += 1
        sender.send(self._encode(self.sent))

    def on_sender_frames(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.type == "ack":
                self.acked += 1
            elif frame.type == "error":
                self.errors[frame.code or "?"] += 1
        self._pump()

    @property
    def received(self) -> int:
        """Deliveries to all receivers together."""
        return sum(receiver.received for receiver in self.receivers)

    @property
    def finished(self) -> int:
        """Messages that were acknowledged and have reached every receiver."""
        return min(self.acked, *(receiver.received for receiver in self.receivers)) if self.receivers else self.acked

    @property
    def settled(self) -> bool:
        return self.finished >= self.sent

    def problems(self) -> list[str]:
        """What a correct server would not have done; ask when the lane has been stopped and given time to settle."""
        found = []
        if self.acked < self.sent:
            found.append(f"{self.sent - self.acked} of {self.sent} sends without an ack")
        lost = self.sent * len(self.receivers) - self.received
        if lost > 0:
            found.append(f"{lost} deliveries missing")
        misordered = sum(receiver.misordered for receiver in self.receivers)
        if misordered:
            found.append(f"{misordered} deliveries out of order or doubled")
        errors = sum((receiver.errors for receiver in self.receivers), self.errors)
        found.extend(f"error {code} ×{count}" for code, count in sorted(errors.items()))
        return found

    def _pump(self) -> None:
        if self._sender is None:
            return
        room = self._window - (self.sent - self.acked)
        if self._limit is not None:
            room = min(room, self._limit - self.sent)
        if room <= 0:
            return
        frames = [self._encode(number) for number in range(self.sent + 1, self.sent + room + 1)]
        self.sent += room
        if self._batched and room > 1:
            self._sender.send(b"[" + b",".join(frames) + b"]")
            return
        for frame in frames:
            self._sender.send(frame)
