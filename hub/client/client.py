"""`A2ASessionClient`: an agent's side of its sessions. Handlers in, messages out; the rest is kept from you."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar

from hub.client.asks import Ask
from hub.client.engine import ConnectionHandler, Engine
from hub.client.frames import Chunk, Message, Session, read
from hub.client.handlers import ErrorHandler, MessageHandler, SessionHandler, handling
from hub.client.iterators import EventStream
from hub.client.journal import Journal
from hub.client.life import Life
from hub.client.sending import Sent
from hub.client.streaming import ReplyStream, chunks_then_answer
from hub.client.tracework import TraceHandler

H = TypeVar("H", bound=Callable[..., Any])


class A2ASessionClient(Life):
    """An agent at a hub.

        client = A2ASessionClient("https://hub.example.org", "cloud-agent-123", "ak_…")

        @client.on_message
        async def handle(message):
            await client.send_message(message["session_id"], "…")

    One socket carries all sessions of the agent; it opens by itself when it is needed and stays open until `close()`.
    A message is acknowledged after all handlers have returned; one that raises is reported and delivered again.

    state: a file for the cursor and the messages still to be sent, so that a crash loses and doubles nothing.
    queue: messages held per session and messages on their way; beyond, senders wait and sessions are read later.
    parallel: sessions whose handlers run at the same time (within one session they run in order).
    max_attempts: give a message up after so many failures of its handler (never, by default).
    reconnect_cap: the longest pause before a new attempt to connect; what many clients of one hub spread over.
    """

    def __init__(
        self,
        base_url: str,
        agent_id: str,
        api_key: str,
        *,
        state: str | os.PathLike[str] | None = None,
        queue: int = 1000,
        parallel: int = 64,
        parallel_traces: int = 4,
        max_attempts: int | None = None,
        timeout: float = 30.0,
        retry_for: float = 60.0,
        send_timeout: float | None = 60.0,
        reconnect_cap: float = 20.0,
        close_grace: float = 5.0,
    ) -> None:
        super().__init__(base_url, agent_id, api_key, timeout=timeout, retry_for=retry_for, close_grace=close_grace)
        self.send_timeout = send_timeout
        self._engine = Engine(
            self.address,
            agent_id,
            api_key,
            self.rest,
            journal=Journal(state) if state is not None else None,
            queue=queue,
            parallel=parallel,
            parallel_traces=parallel_traces,
            max_attempts=max_attempts,
            reconnect_cap=reconnect_cap,
        )

    # --- handlers ---

    def on_message(self, handler: H) -> H:
        """Decorator: `handler(message)` for each message of others, once, in order within a session."""
        message_handler: MessageHandler = handler
        self._engine.dispatcher.handlers.message.append(message_handler)
        self._autostart()
        return handler

    def on_new_session(self, handler: H) -> H:
        """Decorator: `handler(session_id, initial_message)` for each session that others begin with us.

        That first message is then not given to `on_message`. It is "" when the session begins without one.
        """
        session_handler: SessionHandler = handler
        self._engine.dispatcher.handlers.session.append(session_handler)
        self._autostart()
        return handler

    def on_error(self, handler: H) -> H:
        """Decorator: `handler(error, message, attempt)` when a handler has raised; the message is delivered again."""
        error_handler: ErrorHandler = handler
        self._engine.dispatcher.handlers.error.append(error_handler)
        return handler

    def on_connection(self, handler: H) -> H:
        """Decorator: `handler(state, error)`; state is `connected`, `disconnected` or `stopped`."""
        connection_handler: ConnectionHandler = handler
        self._engine.connection_handlers.append(connection_handler)
        return handler

    def run_traces(self, handler: H) -> H:
        """Decorator: `handler(run)` does work that the hub delegates to this agent; what it returns is the result."""
        trace_handler: TraceHandler = handler
        self._engine.take_traces(trace_handler)
        self._autostart()
        return handler

    def events(self, session_id: str | None = None) -> EventStream:
        """`async for event in client.events()`: messages, new sessions, turns, presence, chunks, as typed frames.

        A message counts as handled when the next event is asked for.
        """
        stream = EventStream(session_id, leave=self._engine.dispatcher.streams.remove)
        self._engine.dispatcher.streams.append(stream)
        self._autostart()
        return stream

    def once(self, message: Message) -> contextlib.AbstractAsyncContextManager[sqlite3.Connection]:
        """A transaction in the state file that also moves the cursor behind `message`: effects exactly once.

        async with client.once(message) as db:
            db.execute("INSERT INTO …")
        """
        return self._engine.once(message)

    # --- talking ---

    async def create_session(
        self,
        other_agent: str | Iterable[str] | None = None,
        initial_message: str | dict[str, Any] | None = None,
        *,
        participants: Iterable[str] | None = None,
        title: str | None = None,
        context: dict[str, Any] | None = None,
        timeout_seconds: int | object | None = ...,
        busy_policy: str | None = None,
        context_strategy: str | None = None,
    ) -> str:
        """Begin a session with one agent or several; returns its id. The agent's socket opens by itself."""
        await self._ensure()
        first = [other_agent] if isinstance(other_agent, str) else list(other_agent or ())
        others = [*first, *(participants or ())]
        body: dict[str, Any] = {"participants": list(dict.fromkeys([self.agent_id, *others]))}
        options = {
            "initial_message": initial_message,
            "title": title,
            "context": context,
            "busy_policy": busy_policy,
            "context_strategy": context_strategy,
        }
        body.update({name: value for name, value in options.items() if value is not None})
        if timeout_seconds is not ...:
            body["timeout_seconds"] = timeout_seconds
        session = read(Session, await self.rest.post("sessions", body))
        self._engine.dispatcher.inbox(session.session_id).start_at(1 if initial_message is not None else 0)
        return session.session_id

    async def send_message(
        self,
        session_id: str,
        content: str | None = None,
        *,
        parts: Sequence[dict[str, Any]] | None = None,
        to: str | Sequence[str] | None = None,
        reply_to: str | None = None,
        requires_execution: bool | None = None,
        wait_for_response: bool | None = None,
        context_refs: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
        client_message_id: str | None = None,
        timeout: float | object | None = ...,
    ) -> Sent:
        """Send, and return when the hub has stored it: by the socket, or by HTTP with the same id while there is none.

        wait_for_response only marks the others as owing an answer; `ask` waits for it. A final refusal is raised as the
        `HubError` it is; no ack in `timeout` seconds is a `SendTimeout`.
        """
        await self._ensure()
        body: dict[str, Any] = {}
        options: dict[str, Any] = {
            "content": content,
            "parts": list(parts) if parts is not None else None,
            "to": [to] if isinstance(to, str) else list(to) if to is not None else None,
            "reply_to": reply_to,
            "requires_execution": requires_execution,
            "wait_for_response": wait_for_response,
            "context_refs": list(context_refs) if context_refs is not None else None,
            "metadata": metadata,
        }
        body.update({name: value for name, value in options.items() if value is not None})
        now = handling.get()
        if client_message_id is None and now is not None:
            client_message_id = now.next_id(session_id, body)
        seconds = self.send_timeout if timeout is ... else timeout
        return await self._engine.sender.send(
            session_id,
            body,
            client_message_id=client_message_id,
            timeout=seconds,  # type: ignore[arg-type]
        )

    async def reply(self, message: Message, content: str | None = None, **options: Any) -> Sent:
        """Answer a message: into its session, with `reply_to`."""
        return await self.send_message(message.session_id, content, reply_to=message.message_id, **options)

    async def ask(
        self,
        session_id: str,
        content: str | None = None,
        *,
        timeout: float | None = 300.0,
        to: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Message:
        """Send and wait for the answer, which is then not given to `on_message`. `TimeoutError` when none came in time."""
        async with asyncio.timeout(timeout), self._asking(session_id, to) as ask:
            await self._send_ask(ask, content, to, options)
            return await self._engine.waits.answer(ask)

    async def stream(
        self,
        session_id: str,
        content: str | None = None,
        *,
        timeout: float | None = 300.0,
        to: str | Sequence[str] | None = None,
        **options: Any,
    ) -> AsyncIterator[Chunk | Message]:
        """Send, then yield the answer's chunks as they are written, then the answer: the last one, and the whole truth."""
        deadline = None if timeout is None else time.monotonic() + timeout
        async with self._asking(session_id, to) as ask:
            ask.streaming = True
            async with asyncio.timeout(timeout):
                await self._send_ask(ask, content, to, options)
            answer = asyncio.create_task(self._engine.waits.answer(ask))
            try:
                async for piece in chunks_then_answer(ask, answer, deadline):
                    yield piece
            finally:
                answer.cancel()
                await asyncio.gather(answer, return_exceptions=True)

    def reply_stream(
        self, message: Message | str, *, to: str | Sequence[str] | None = None, **options: Any
    ) -> ReplyStream:
        """Write an answer piece by piece: `async with client.reply_stream(message) as out: await out.write("…")`."""
        return ReplyStream(self, message, {"to": to, **options})

    @contextlib.asynccontextmanager
    async def _asking(self, session_id: str, to: str | Sequence[str] | None) -> AsyncIterator[Ask]:
        await self._ensure()
        addressed = [to] if isinstance(to, str) else list(to) if to else None
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        # Watched from before the send: the session may end between the ack and our next step.
        with self._engine.watchers.watch(session_id) as nudged:
            ask = Ask(session_id, addressed, future, nudged)
            self._engine.asks.open(ask)
            try:
                yield ask
            finally:
                self._engine.asks.close(ask)

    async def _send_ask(
        self, ask: Ask, content: str | None, to: str | Sequence[str] | None, options: dict[str, Any]
    ) -> None:
        sent = await self.send_message(ask.session_id, content, to=to, wait_for_response=True, timeout=None, **options)
        self._engine.waits.asked(ask, sent.message_id, sent.sequence, sent.kind, sent.trace_id)

    def send_chunk(self, session_id: str, stream_id: str, text: str) -> None:
        """Show a piece of text that is being written; best effort, dropped while there is no connection."""
        self._engine.post({"type": "chunk", "session_id": session_id, "stream_id": stream_id, "text": text})

    # --- the end of a session ---

    async def wait_for_completion(self, session_id: str, timeout: float | None = None) -> Session:
        """Wait until the session has ended (completed or timed out) and its messages were handled; the ended session."""
        await self._ensure()
        async with asyncio.timeout(timeout):
            session = await self._engine.waits.ended(session_id)
            now = handling.get()
            if now is None or now.session_id != session_id:
                await self._engine.waits.handled(session)
            return session

    async def close_session(self, session_id: str, reason: str | None = None) -> Session:
        """End the session, after what we have sent into it has arrived. Ending an ended one changes nothing."""
        if self._starting is not None and self._loop is asyncio.get_running_loop():
            with contextlib.suppress(TimeoutError):
                await self._engine.sender.flush(session_id, timeout=self.send_timeout)
        session = await self.end_session(session_id, reason)
        self._engine.session_ended(session_id)
        return session

    async def attach(self, session_id: str) -> None:
        """Open this session's own socket beside the agent's: each message is still handled once."""
        await self._ensure()
        self._engine.attach(session_id)

    async def detach(self, session_id: str) -> None:
        await self._engine.detach(session_id)
