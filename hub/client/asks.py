"""Questions and their answers: which message answers which, by the rule of the wire contract. No I/O."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hub.client.errors import ClientError, HubError
from hub.client.frames import Chunk, Message

HUB = "hub"


@dataclass(eq=False)
class Ask:
    """One question under way.

    `answer` is set once. `nudged` tells when to ask the hub itself. `chunks` hold what was streamed meanwhile, when
    somebody listens.
    """

    session_id: str
    to: list[str] | None
    answer: asyncio.Future[Message]
    nudged: asyncio.Event
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    message_id: str | None = None
    sequence: int = 0
    kind: str = "chat"
    trace_id: str | None = None
    streaming: bool = False
    chunks: asyncio.Queue[Chunk | None] = field(default_factory=lambda: asyncio.Queue(1000))
    candidates: list[Message] = field(default_factory=list)

    def accepts(self, message: Message) -> bool:
        """Whether this is the response: a later message of kind `chat` or `result` from an addressed participant (anyone
        else's when nobody was addressed) with `reply_to` this message or none; a task's response is its trace's result,
        that to a status query the hub's."""
        if message.sequence <= self.sequence:
            return False
        if self.trace_id is not None:
            return message.kind == "result" and message.trace_id == self.trace_id
        if self.kind == "status_query":
            return message.sender == HUB and message.reply_to == self.message_id
        if message.kind not in ("chat", "result") or message.reply_to not in (None, self.message_id):
            return False
        return message.sender in self.to if self.to else message.sender != HUB or message.reply_to is not None


class Asks:
    """All questions of one client."""

    def __init__(self) -> None:
        self._open: dict[str, list[Ask]] = {}
        self._claimed: set[tuple[str, int]] = set()

    def open(self, ask: Ask) -> None:
        self._open.setdefault(ask.session_id, []).append(ask)

    def close(self, ask: Ask) -> None:
        ask.settled.set()
        asks = self._open.get(ask.session_id, [])
        if ask in asks:
            asks.remove(ask)
        if not asks:
            self._open.pop(ask.session_id, None)

    def sent(self, ask: Ask, *, message_id: str | None, sequence: int, kind: str | None, trace_id: str | None) -> None:
        """The question was stored; what arrived before we knew may be its answer."""
        ask.message_id, ask.sequence, ask.kind, ask.trace_id = message_id, sequence, kind or "chat", trace_id
        for message in sorted(ask.candidates, key=lambda candidate: candidate.sequence):
            if self._answer(ask, message):
                break
        ask.candidates.clear()
        ask.settled.set()

    def saw(self, message: Message) -> None:
        """A message arrived, for the first time, before any handler has seen it."""
        for ask in self._open.get(message.session_id, ()):
            if ask.answer.done():
                continue
            if not ask.settled.is_set():
                if len(ask.candidates) < 1000:
                    ask.candidates.append(message)
            elif self._answer(ask, message):
                return

    def chunk(self, chunk: Chunk) -> None:
        for ask in self._open.get(chunk.session_id, ()):
            if ask.streaming and not ask.chunks.full() and (not ask.to or chunk.sender in (*ask.to, HUB)):
                ask.chunks.put_nowait(chunk)

    def _answer(self, ask: Ask, message: Message) -> bool:
        if ask.answer.done() or not ask.accepts(message):
            return False
        ask.answer.set_result(message)
        if ask.streaming and not ask.chunks.full():
            ask.chunks.put_nowait(None)
        self._claimed.add((message.session_id, message.sequence))
        return True

    def take(self, message: Message) -> None:
        """The hub named the answer before the socket brought it: when it comes, it is no handler's."""
        for ask in self._open.get(message.session_id, ()):
            if not ask.answer.done() and ask.accepts(message):
                self._answer(ask, message)
                return

    async def settled(self, session_id: str) -> None:
        """Wait until no question of this session is between send and ack: until then, whose a message is, is open."""
        for ask in list(self._open.get(session_id, ())):
            await ask.settled.wait()

    def may_claim(self, message: Message) -> bool:
        return (message.session_id, message.sequence) in self._claimed

    def claim(self, message: Message) -> bool:
        """Whether the message was an answer, and so is no handler's; asked once."""
        key = (message.session_id, message.sequence)
        if key not in self._claimed:
            return False
        self._claimed.discard(key)
        return True

    def fail(self, error: HubError | ClientError, session_id: str | None = None) -> None:
        """No answer will come: for one session, or for all."""
        for asks in list(self._open.values()):
            for ask in list(asks):
                if session_id in (None, ask.session_id) and not ask.answer.done():
                    ask.answer.set_exception(error)
                    ask.answer.exception()  # read, so that an unawaited one is no complaint at exit
                    if ask.streaming and not ask.chunks.full():
                        ask.chunks.put_nowait(None)
                    ask.settled.set()
