"""The answers to client frames that every socket knows: what each of them does, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from sessions_app.append import Outcome, Stored
from sessions_app.changes import Committed, unit_of_work
from sessions_app.cursors import CursorNow
from sessions_app.drafts import draft_message
from sessions_app.hooks import frame_handlers
from sessions_app.protocol import frames, limits
from sessions_app.protocol.bodies import SessionPatch, utf8_length
from sessions_app.protocol.errors import Forbidden, HubError, Invalid, TooLarge
from sessions_app.realtime.feed import ChangeAnswer, Feed
from sessions_app.realtime.places import context_of
from sessions_app.realtime.subscriber import context_frame
from sessions_app.services.sessions import close_session, load_states, patch_session
from sessions_app.sockets.connection import Connection

COST_BYTES = 16 * 1024  # a message costs one of the rate's units, and one more for each of these
CHUNK_COST = 0.2
STREAM_ID_CHARACTERS = 128


class Socket(Connection):
    """Common to the session socket and the agent socket. Subclasses find the feed that a client frame is about."""

    async def feed_for(self, session_id: str | None) -> Feed:
        """The feed that a frame is about; raises `NotFound` or `Invalid`."""
        raise NotImplementedError

    async def answer(self, frame: frames.AnyClientFrame, text: str) -> None:
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
            await self._change(frame, feed, partial(_patch, self.principal.agent_id), SessionPatch(context=frame.patch))
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
        self.runtime.rates_messages.take(self.principal.agent_pk, CHUNK_COST)
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
            shared = feed.held_context
            if isinstance(frame, frames.PatchContext):
                shared = await self.runtime.read(context_of, feed.session_pk)
            feed.see_state(state)
            feed.answers.append(ChangeAnswer(frame.id, shared))
            answered = True
        finally:
            held, feed.held_context, feed.changing = feed.held_context, None, False
            if held is not None and not answered and feed.state is not None:
                feed.held.append(partial(context_frame, feed.state, held))  # somebody else's change
            self.notify(feed)

    async def replay(self, frame: frames.Replay) -> None:
        raise Invalid("replay is for the agent socket; here connect with after=N.", field="type")


def _patch(by: str, session_pk: int, patch: SessionPatch) -> None:
    with unit_of_work() as changes:
        patch_session(session_pk=session_pk, patch=patch, by=by, changes=changes)


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
