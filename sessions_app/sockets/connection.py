"""One WebSocket: its own receive loop beside its pump, and the answers to client frames that every socket knows.

Channels' dispatch costs a thread hop per frame and handles frames strictly one after another; measured, that is eight
times the message itself. So the consumer routes and authenticates, and then runs the loop here.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
from django.conf import settings

from sessions_app.append import Outcome, Stored
from sessions_app.changes import Changes, Committed, unit_of_work
from sessions_app.cursors import CursorNow
from sessions_app.drafts import draft_message
from sessions_app.hooks import frame_handlers
from sessions_app.keys import Principal
from sessions_app.protocol import frames, limits
from sessions_app.protocol.bodies import SessionPatch, utf8_length
from sessions_app.protocol.errors import (
    Forbidden,
    HubError,
    Internal,
    Invalid,
    NotFound,
    RateLimited,
    TooLarge,
    Unsupported,
)
from sessions_app.protocol.frames import encode
from sessions_app.protocol.jsontext import decode
from sessions_app.realtime.feed import ChangeAnswer, Feed
from sessions_app.realtime.places import context_of
from sessions_app.realtime.runtime import Runtime
from sessions_app.realtime.subscriber import DIED, MALFORMED, TOO_FAST, Subscriber, context_frame
from sessions_app.services.sessions import close_session, load_states, patch_session
from sessions_app.sockets.handshake import TEXTS, Handshake

log = logging.getLogger("hub.socket")

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

BATCH_FRAMES = 100
BATCH_BYTES = 512 * 1024
LIMITED_IN_A_ROW = 500
COST_BYTES = 16 * 1024
STREAM_ID_CHARACTERS = 128
CLEAN_DISCONNECT_CODES = frozenset({1000, 1001, 1005})


class Socket(Subscriber):
    """Common to the session socket and the agent socket. Subclasses find the feed that a client frame is about."""

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
            self._malform(error, *_names_in(text))
            return
        except Exception:
            log.exception("a frame could not be decoded")
            self._malform(Internal(), *_names_in(text))
            return
        self._malformed = 0
        try:
            await self._answer(frame, text)
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

    # Answers

    async def feed_for(self, session_id: str | None) -> Feed:
        """The feed that a frame is about; raises `NotFound` or `Invalid`."""
        raise NotImplementedError

    async def _answer(self, frame: frames.AnyClientFrame, text: str) -> None:
        if isinstance(frame, frames.SendMessage):
            await self._send_message(frame, text)
        elif isinstance(frame, frames.Ack):
            await self._acknowledge(frame)
        elif isinstance(frame, frames.Ping):
            self.say(frames.encode("pong", id=frame.id))
        elif isinstance(frame, frames.SendChunk):
            await self._send_chunk(frame)
        elif isinstance(frame, frames.PatchContext):
            feed = await self.feed_for(frame.session_id)
            self._may_write()
            await self._change(frame, feed, _patch, SessionPatch(context=frame.patch))
        elif isinstance(frame, frames.Close):
            feed = await self.feed_for(frame.session_id)
            await self._change(frame, feed, _close, frame.reason)
        elif isinstance(frame, frames.Replay):
            await self.replay(frame)
        else:
            handler = frame_handlers().get(frame.__struct_config__.tag)  # type: ignore[arg-type]
            if handler is None:
                raise Invalid("This hub does not know that type of frame.", field="type")
            self._may_write()
            await handler(self, frame)

    def _may_write(self) -> None:
        if self.principal.is_operator:
            raise Forbidden("An operator's key may watch, close and cancel; send with an agent's own key.")

    async def _send_message(self, frame: frames.SendMessage, text: str) -> None:
        feed = await self.feed_for(frame.session_id)
        self._may_write()
        self.runtime.rates_messages.take(self.principal.agent_pk, 1 + len(text) // COST_BYTES)
        self._limited = 0
        draft = draft_message(frame, feed.session_pk, self.principal.agent_pk, self.principal.agent_id)
        feed.sent_here.add(draft.key)
        client_message_id, id_ = frame.client_message_id, frame.id

        def done(outcome: Outcome) -> None:
            if isinstance(outcome, Stored) and not outcome.duplicate:
                self.say(_ack(outcome.message, feed.session_id, client_message_id, id_))
                return
            feed.sent_here.discard(draft.key)
            if isinstance(outcome, Stored):
                self.say(_ack(outcome.message, feed.session_id, client_message_id, id_, duplicate=True))
            else:
                self.refuse(outcome, id_=id_, client_message_id=client_message_id)

        self.runtime.submit(draft, done)

    async def _acknowledge(self, frame: frames.Ack) -> None:
        feed = await self.feed_for(frame.session_id)
        self._may_write()
        id_ = frame.id
        if frame.sequence < 0:
            raise Invalid("sequence is a number from 0.", field="sequence", last_sequence=feed.heard)

        def done(now: CursorNow | HubError) -> None:
            if isinstance(now, HubError):
                self.refuse(now, id_=id_)
                return
            if feed.acknowledge(now.cursor):
                self.notify(feed)
            feed.read_told = max(feed.read_told, now.cursor)
            fields: dict[str, Any] = {} if id_ is None else {"id": id_}
            self.say(
                frames.encode(
                    "read",
                    session_id=feed.session_id,
                    agent_id=self.principal.agent_id,
                    cursor=now.cursor,
                    **fields,
                )
            )
            self.acknowledged(feed)

        self.runtime.acks.move(self, feed, frame.sequence, done)

    def acknowledged(self, feed: Feed) -> None:
        """The cursor of this feed has moved."""

    async def _send_chunk(self, frame: frames.SendChunk) -> None:
        feed = await self.feed_for(frame.session_id)
        self._may_write()
        if not 0 < len(frame.stream_id) <= STREAM_ID_CHARACTERS or not frame.stream_id.isprintable():
            raise Invalid(f"stream_id is 1 to {STREAM_ID_CHARACTERS} printable characters.", field="stream_id")
        if utf8_length(frame.text) > limits.CONTENT_BYTES:
            raise TooLarge(field="text")
        self.runtime.rates_messages.take(self.principal.agent_pk, 0.2)
        self.runtime.live.chunk(sender=self, feed=feed, stream_id=frame.stream_id, text=frame.text)

    async def _change(
        self, frame: frames.PatchContext | frames.Close, feed: Feed, change: Callable[..., None], argument: Any
    ) -> None:
        """Run a service in a reader thread. Its answer is the `session` frame, which others get by delivery and we only once."""
        feed.changing = True  # before the commit: its delivery may be here before the service is back
        answered = False
        try:
            await self.runtime.read(change, feed.session_pk, argument)
            state = (await self.runtime.read(load_states, [feed.session_pk]))[0]
            context = feed.held_context
            if isinstance(frame, frames.PatchContext):
                context = await self.runtime.read(context_of, feed.session_pk)
            feed.see_state(state)
            feed.answers.append(ChangeAnswer(frame.id, context))
            answered = True
        finally:
            held, feed.held_context, feed.changing = feed.held_context, None, False
            if held is not None and not answered and feed.state is not None:
                feed.held.append(partial(context_frame, feed.state, held))  # somebody else's change
            self.notify(feed)

    async def replay(self, frame: frames.Replay) -> None:
        raise Invalid("replay is for the agent socket; here connect with after=N.", field="type")


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


def _patch(session_pk: int, patch: SessionPatch) -> None:
    with unit_of_work() as changes:
        patch_session(session_pk=session_pk, patch=patch, changes=changes)


def _close(session_pk: int, reason: str | None) -> None:
    with unit_of_work() as changes:
        close_session(session_pk=session_pk, reason=reason, changes=changes)


def _ack(
    message: Committed,
    session_id: str,
    client_message_id: str | None,
    id_: str | int | None,
    duplicate: bool = False,
) -> str:
    fields: dict[str, Any] = {
        "type": "ack",
        "client_message_id": client_message_id,
        "message_id": message.public_id,
        "session_id": session_id,
        "sequence": message.sequence,
        "timestamp": message.timestamp,
        "kind": message.kind,
        "trace_id": message.trace_id,
        "duplicate": duplicate,
    }
    if id_ is not None:
        fields["id"] = id_
    return msgspec.json.encode(fields).decode()


def _names_in(text: str) -> tuple[str | int | None, str | None]:
    """`id` and `client_message_id` of a frame that was refused, where they can still be read, whatever else it holds.

    By the standard library, which also reads what our own rules refuse: NaN, lone surrogates, numbers beyond 64 bits.
    """
    if len(text) > limits.FRAME_BYTES:
        return None, None
    try:
        value = json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 19 else None)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(value, dict):
        return None, None
    id_, client_id = value.get("id"), value.get("client_message_id")
    return (
        id_ if _is_text(id_) or (isinstance(id_, int) and not isinstance(id_, bool)) else None,
        client_id if _is_text(client_id) else None,
    )


def _is_text(value: object) -> bool:
    """Whether it can be said back: short, and without what JSON text of ours never holds."""
    if not isinstance(value, str) or len(value) > 200 or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


__all__ = ["Changes", "NotFound", "Receive", "Send", "Socket"]
