"""One WebSocket: its own receive loop beside its pump, how frames are read and written, how it begins and ends.

Channels' dispatch costs a thread hop per frame and handles frames strictly one after another; measured, that is eight
times the message itself. So the consumer routes and authenticates, and then runs the loop here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from sessions_app.keys import Principal
from sessions_app.protocol import frames, limits
from sessions_app.protocol.bodies import utf8_length
from sessions_app.protocol.errors import HubError, Internal, RateLimited, TooLarge, Unsupported
from sessions_app.protocol.frames import encode, names_in
from sessions_app.protocol.jsontext import decode
from sessions_app.realtime.runtime import Runtime
from sessions_app.realtime.subscriber import DIED, MALFORMED, TOO_FAST, Subscriber
from sessions_app.sockets.handshake import TEXTS, Handshake

log = logging.getLogger("hub.socket")

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

BATCH_FRAMES = 100
BATCH_BYTES = 512 * 1024
LIMITED_IN_A_ROW = 500
CLEAN_DISCONNECT_CODES = frozenset({1000, 1001, 1005})


class Connection(Subscriber):
    """A transport, its loop and its pump, whatever the frames mean. The subclass answers them."""

    def __init__(self, runtime: Runtime, principal: Principal, handshake: Handshake, send: Send) -> None:
        super().__init__(runtime, principal, batch=handshake.batch)
        self.manual = handshake.manual
        self.runs_traces = handshake.runs_traces and not principal.is_operator
        self.acknowledges_itself = not handshake.manual and not principal.is_operator
        self._transport = send
        self._together = handshake.together
        self._malformed = 0
        self._limited = 0
        self._pump: asyncio.Task[int] | None = None
        self._abandoned = DIED

    @property
    def window(self) -> int | None:
        return settings.HUB_WINDOW if self.manual else None

    def limits(self) -> dict[str, Any]:
        return {
            "frame_bytes": limits.FRAME_BYTES,
            "content_bytes": limits.CONTENT_BYTES,
            "window": settings.HUB_WINDOW,
            "auto_ack_seconds": settings.HUB_AUTO_ACK_SECONDS,
            "messages_per_second": settings.HUB_RATE_MESSAGES,
            "burst": settings.HUB_BURST_MESSAGES,
        }

    # Writing

    @contextmanager
    def opening(self) -> Iterator[None]:
        """What is said in here goes out first: others may have told the socket of somebody's presence before its welcome."""
        early, self.control = self.control, []
        yield
        self.control += early

    def say_welcome(self, **fields: Any) -> None:
        """Say it within `opening`; `fields` are what the two kinds of socket know of their sessions."""
        self.say(
            encode(
                "welcome",
                protocol=limits.PROTOCOL,
                agent_id=self.principal.agent_id,
                connection_id=self.connection_id,
                heartbeat_seconds=settings.HUB_HEARTBEAT_SECONDS,
                limits=self.limits(),
                **fields,
            )
        )

    async def write(self, frames: Sequence[str]) -> None:
        send = self._transport
        for group in _groups(frames):
            if len(group) == 1:
                await send({"type": "websocket.send", "text": group[0]})
            elif self.batch:
                await send({"type": "websocket.send", "text": f"[{','.join(group)}]"})
            elif self._together:
                await send({"type": TEXTS, "texts": group})
            else:
                for frame in group:
                    await send({"type": "websocket.send", "text": frame})

    def refuse(
        self, error: HubError, *, id_: str | int | None = None, client_message_id: str | None = None, **more: Any
    ) -> None:
        """Say an `error` frame that names the frame at fault."""
        fields = error.body()
        if id_ is not None:
            fields["id"] = id_
        if client_message_id is not None:
            fields["client_message_id"] = client_message_id
        self.say(frames.encode("error", **fields, **more))

    # The life of the socket

    async def serve(self, receive: Receive) -> int:
        """Run until either side ends; returns the code to close with, or 0 when the client has gone."""
        self.runtime.joined(self)
        self._pump = asyncio.create_task(self.pump())
        reader = asyncio.create_task(self._receive(receive))
        try:
            await asyncio.wait({self._pump, reader}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                gone = reader.result()
                self._client_closed(gone)
                return 0
            if self._pump.cancelled():
                return self._abandoned
            if (error := self._pump.exception()) is not None:
                log.error("a socket's pump failed", exc_info=error)
                return DIED
            return self._pump.result()
        finally:
            for task in (self._pump, reader):
                task.cancel()
            await asyncio.gather(self._pump, reader, return_exceptions=True)
            self.runtime.registry.leave(self)

    def _client_closed(self, code: int) -> None:
        """Closing says: I have read it all. A dead connection says nothing."""
        if code in CLEAN_DISCONNECT_CODES or 3000 <= code <= 4999:
            for feed in self.feeds.values():
                if self.acknowledges_itself:
                    self.runtime.acks.at_close(self, feed)

    def abandon(self, code: int) -> None:
        self._abandoned = code
        if self._pump is not None:
            self._pump.cancel()

    async def _receive(self, receive: Receive) -> int:
        """Read frames until the client is gone; returns the close code."""
        while True:
            event = await receive()
            kind = event["type"]
            if kind == "websocket.receive":
                text = event.get("text")
                if text is None:
                    self._malform(Unsupported("Frames are JSON text."))
                else:
                    await self.take(text)
            elif kind == "websocket.disconnect":
                return int(event.get("code") or 1005)

    async def take(self, text: str) -> None:
        """One WebSocket message: a frame, or (`batch=1`) an array of frames."""
        if self.batch and text[:1] == "[":
            try:
                if utf8_length(text) > limits.FRAME_BYTES:
                    raise TooLarge()
                items = decode(text, frames.frame_list)
            except HubError as error:
                self._malform(error)
                return
            for item in items:
                await self._take_frame(bytes(item).decode())
        else:
            await self._take_frame(text)

    async def _take_frame(self, text: str) -> None:
        try:
            if len(text) * 4 > limits.FRAME_BYTES and utf8_length(text) > limits.FRAME_BYTES:
                raise TooLarge(f"A frame holds {limits.FRAME_BYTES} bytes at the most.")
            frame = decode(text, frames.client_frames)
        except HubError as error:
            self._malform(error, *names_in(text))
            return
        except Exception:
            log.exception("a frame could not be decoded")
            self._malform(Internal(), *names_in(text))
            return
        self._malformed = 0
        try:
            await self.answer(frame, text)
        except HubError as error:
            more: dict[str, Any] = {}
            if isinstance(error, RateLimited):
                self._limited += 1
                if self._limited > LIMITED_IN_A_ROW:
                    more["retry"] = True
                    self.end(TOO_FAST)
            self.refuse(error, id_=frame.id, client_message_id=getattr(frame, "client_message_id", None), **more)
        except Exception:
            log.exception("a frame could not be answered")
            self.refuse(Internal(), id_=frame.id, client_message_id=getattr(frame, "client_message_id", None))

    def _malform(self, error: HubError, id_: str | int | None = None, client_message_id: str | None = None) -> None:
        self._malformed += 1
        last = self._malformed >= limits.MALFORMED_IN_A_ROW
        self.refuse(error, id_=id_, client_message_id=client_message_id, **({"retry": False} if last else {}))
        if last:
            self.end(MALFORMED)

    async def answer(self, frame: frames.AnyClientFrame, text: str) -> None:
        """Do what a frame asks for; `text` is how it was written. What it raises is said as an `error` that names the frame."""
        raise NotImplementedError


def _groups(frames: Sequence[str]) -> Iterator[Sequence[str]]:
    """What may share a write: bounded in number and size, so that a slow reader is noticed in between."""
    for start in range(0, len(frames), BATCH_FRAMES):
        some = frames[start : start + BATCH_FRAMES]
        if len(some) == 1 or sum(map(len, some)) <= BATCH_BYTES:
            yield some
        else:
            yield from _bounded(some)


def _bounded(frames: Sequence[str]) -> Iterator[Sequence[str]]:
    group: list[str] = []
    size = 0
    for frame in frames:
        if group and size + len(frame) > BATCH_BYTES:
            yield group
            group, size = [], 0
        group.append(frame)
        size += len(frame)
    if group:
        yield group
