"""Answers that are written piece by piece, from both ends."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hub.client.asks import Ask
from hub.client.frames import Chunk, Message
from hub.client.handlers import handling
from hub.client.sending import Sent

if TYPE_CHECKING:
    from hub.client.client import A2ASessionClient

FLUSH_SECONDS = 0.05
FLUSH_CHARACTERS = 4096


async def chunks_then_answer(
    ask: Ask, answer: asyncio.Task[Message], deadline: float | None
) -> AsyncIterator[Chunk | Message]:
    """The chunks that come before the answer, then the answer."""
    while True:
        nothing = asyncio.create_task(ask.chunks.get())
        try:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            done, _ = await asyncio.wait({nothing, answer}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise TimeoutError
            if nothing in done:
                chunk = nothing.result()
                if chunk is not None:
                    yield chunk
                    continue
                await asyncio.wait({answer}, timeout=left)
            yield await answer
            return
        finally:
            nothing.cancel()


class ReplyStream:
    """Text that others see while it grows, and that is stored as one message at the end.

    Leaving the block sends the message; an exception inside sends what there is, marked `interrupted`, and goes on.
    `metadata` goes with the message and may be filled meanwhile; `sent` is what the hub said of it.
    """

    def __init__(self, client: A2ASessionClient, target: Message | str, options: dict[str, Any]) -> None:
        self._client = client
        self._session_id = target if isinstance(target, str) else target.session_id
        self._options = {name: value for name, value in options.items() if value is not None}
        if isinstance(target, Message):
            self._options.setdefault("reply_to", target.message_id)
        # The same for a message that is delivered again: then the same text is stored once.
        now = handling.get()
        self.stream_id = now.next_id(self._session_id, {}) if now is not None else f"st-{secrets.token_hex(8)}"
        self.sent: Sent | None = None
        self.metadata: dict[str, Any] = dict(self._options.pop("metadata", None) or {})
        self._text: list[str] = []
        self._pending: list[str] = []
        self._flushed_at = 0.0

    @property
    def text(self) -> str:
        return "".join(self._text)

    async def write(self, text: str) -> None:
        """Add text. Pieces that come fast are put together, so that a token is not a frame."""
        if not text:
            return
        self._text.append(text)
        self._pending.append(text)
        now = time.monotonic()
        if now - self._flushed_at >= FLUSH_SECONDS or sum(map(len, self._pending)) >= FLUSH_CHARACTERS:
            self._flush(now)

    def _flush(self, now: float) -> None:
        if self._pending:
            self._client.send_chunk(self._session_id, self.stream_id, "".join(self._pending))
            self._pending.clear()
            self._flushed_at = now

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and (not isinstance(error, Exception) or not self._text):
            return
        self._flush(time.monotonic())
        metadata = self.metadata | {"stream_id": self.stream_id}
        if error is not None:
            metadata["interrupted"] = True
        self.sent = await self._client.send_message(self._session_id, self.text, metadata=metadata, **self._options)
