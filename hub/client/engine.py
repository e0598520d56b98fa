"""The running client: sockets, inboxes, outbox, questions and traces wired together. One instance, one loop at a time."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from hub.client.address import Address
from hub.client.asks import Asks
from hub.client.core.backoff import Backoff
from hub.client.core.link import Link
from hub.client.dispatch import Dispatcher
from hub.client.errors import ClientClosed, ClientError, HubError
from hub.client.frames import (
    Ack,
    Chunk,
    ErrorFrame,
    Message,
    NewSession,
    Presence,
    Read,
    ReplayComplete,
    ServerFrame,
    SessionUnread,
    SessionUpdate,
    TraceOffer,
    TraceUpdate,
    Welcome,
    read,
)
from hub.client.handlers import handling
from hub.client.journal import Journal
from hub.client.requests import Requests
from hub.client.rest import Rest, segment
from hub.client.sending import Sender
from hub.client.socket import Socket
from hub.client.tracework import TraceHandler, TraceRuns
from hub.client.waits import Waits
from hub.client.watchers import Watchers
from hub.client.wire import encode

log = logging.getLogger("hub.client")

ConnectionHandler = Callable[[str, BaseException | None], Awaitable[Any] | Any]
ACK_ID = "ack:"


class Engine:
    """What `A2ASessionClient` runs on; see there for the meaning of the parameters."""

    def __init__(
        self,
        address: Address,
        agent_id: str,
        api_key: str,
        rest: Rest,
        *,
        journal: Journal | None,
        queue: int,
        parallel: int,
        parallel_traces: int,
        max_attempts: int | None,
        reconnect_cap: float,
    ) -> None:
        self.address = address
        self.agent_id = agent_id
        self.error: HubError | ClientError | None = None
        self.connection_handlers: list[ConnectionHandler] = []
        self.asks = Asks()
        self.sender = Sender(rest, wake=self._wake, stored=self._stored, settled=self._settled, size=queue)
        self.dispatcher = Dispatcher(
            agent_id,
            read_log=self._read_log,
            wake=self._wake,
            own_in_flight=self.sender.outbox.in_flight,
            asks=self.asks,
            limit=queue,
            limit_total=queue * 10,
            parallel=parallel,
            max_attempts=max_attempts,
        )
        self.requests = Requests()
        self.runs = TraceRuns(self.requests, self._wake, parallel=parallel_traces)
        self._api_key = api_key
        self._reconnect_cap = reconnect_cap
        self._rest = rest
        self._journal = journal
        self._socket: Socket | None = None
        self._socket_task: asyncio.Task[None] | None = None
        self._attached: dict[str, tuple[Socket, asyncio.Task[None]]] = {}
        self._kept: set[asyncio.Task[Any]] = set()
        self.watchers = Watchers()
        self.waits = Waits(rest, self.dispatcher, self.asks, self.watchers, error=lambda: self.error)
        self._connected = asyncio.Event()
        self._over: asyncio.Future[None] | None = None

    # --- life ---

    async def start(self) -> None:
        """Open what needs a loop. Frames may come as soon as this has returned."""
        self.error = None
        self._over = asyncio.get_running_loop().create_future()
        self._connected = asyncio.Event()
        if self._journal is not None:
            await self._journal.open(self.address.http, self.agent_id)
        await self.sender.start(self._journal)
        await self.dispatcher.start(self._journal)
        link = Link(backoff=Backoff(cap=self._reconnect_cap))
        self._socket = Socket(link, self, self._url, self._api_key, loopback=self.address.loopback)
        self._socket_task = asyncio.create_task(self._run_socket(self._socket), name="hub agent socket")

    async def stop(self, grace: float) -> None:
        """Handlers end, acks are said, everything is closed; no task is left."""
        await self.runs.stop()
        await self.dispatcher.drain(grace if self.error is None else 0.0)
        await self.dispatcher.stop()
        closed = ClientClosed("this client was closed")
        self._fail_waiters(closed)
        for stream in list(self.dispatcher.streams):
            stream.end()
        sockets = [task for task in (self._socket_task, *(task for _, task in self._attached.values())) if task]
        for task in sockets:
            task.cancel()
        await asyncio.gather(*sockets, return_exceptions=True)
        self._socket = self._socket_task = None
        self._attached.clear()
        await self.sender.stop()
        if self._journal is not None:
            await self._journal.close()
        me = asyncio.current_task()
        kept = [task for task in self._kept if task is not me]
        for task in kept:
            task.cancel()
        await asyncio.gather(*kept, return_exceptions=True)
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def over(self) -> None:
        """Until the client is closed; raises what ended it for good."""
        assert self._over is not None
        await asyncio.shield(self._over)

    async def connected(self) -> None:
        """Until the hub has welcomed us; raises what makes that impossible."""
        assert self._over is not None
        waiter = asyncio.ensure_future(self._connected.wait())
        either: set[asyncio.Future[Any]] = {waiter, self._over}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiter.cancel()
        if self._over.done():
            self._over.result()

    @property
    def socket_open(self) -> bool:
        return self._socket is not None and self._socket.open

    @property
    def last_attempt(self) -> float | None:
        """For when the latest connection attempt was planned, on the monotonic clock."""
        return self._socket.link.next_attempt if self._socket is not None else None

    @property
    def last_failure(self) -> str:
        return self._socket.last_failure if self._socket is not None else ""

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold a task until it is done, so that none is lost or left behind."""
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    def poke(self) -> None:
        self.dispatcher.poke()

    async def _run_socket(self, socket: Socket) -> None:
        try:
            await socket.run()
            error = socket.link.error
        except Exception as failure:
            log.exception("the client failed")
            error = ClientError(f"the client failed: {failure!r}")
        self._fail(error or ClientError("the hub ended the agent's socket"))

    def _fail(self, error: HubError | ClientError) -> None:
        """There is no way on: tell everybody who waits."""
        if self.error is not None:
            return
        self.error = error
        log.error("stopped: %s: %s", getattr(error, "code", type(error).__name__), error)
        self._tell("stopped", error)
        self.keep(asyncio.ensure_future(self.dispatcher.drain(0.0)))
        self._fail_waiters(error)
        for stream in list(self.dispatcher.streams):
            stream.end(error)
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)
            self._over.exception()

    def _fail_waiters(self, error: HubError | ClientError) -> None:
        self.sender.fail(error)
        self.requests.fail(error)
        self.asks.fail(error)
        self.error = self.error or error
        self.watchers.nudge_all()

    def _tell(self, state: str, error: BaseException | None = None) -> None:
        for handler in self.connection_handlers:
            try:
                result = handler(state, error)
            except Exception:
                log.exception("a connection handler failed")
                continue
            if inspect.isawaitable(result):
                self.keep(asyncio.ensure_future(result))

    # --- sockets: the Owner of hub.client.socket ---

    def _url(self) -> str:
        return self.address.socket(ack="manual", batch=1, run=1 if self.runs.handler is not None else None)

    def take_traces(self, handler: TraceHandler) -> None:
        self.runs.handler = handler
        if self._socket is not None and self._socket.open:
            self.keep(asyncio.ensure_future(self._socket.renew()))

    def attach(self, session_id: str) -> None:
        segment(session_id)
        if session_id in self._attached:
            return

        def url() -> str:
            return self.address.socket(session_id, ack="manual", batch=1)

        link = Link(only_session=session_id, backoff=Backoff(cap=self._reconnect_cap))
        socket = Socket(link, self, url, self._api_key, loopback=self.address.loopback)

        async def run() -> None:
            await socket.run()
            if socket.link.error is not None:
                log.warning("the socket of session %s ended: %s", session_id, socket.link.error)
            self._attached.pop(session_id, None)

        self._attached[session_id] = socket, asyncio.create_task(run(), name=f"hub session socket {session_id}")

    async def detach(self, session_id: str) -> None:
        _, task = self._attached.pop(session_id, (None, None))
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def outgoing(self, socket: Socket, now: float) -> Iterable[str]:
        if socket is self._socket:
            for session_id, sequence in self.dispatcher.acks():
                yield _ack(session_id, sequence)
            yield from self.requests.outgoing()
            yield from self.sender.outgoing(now)
        elif not self.socket_open and (only := socket.link.only_session) is not None:
            for session_id, sequence in self.dispatcher.acks(only):
                yield _ack(session_id, sequence)

    def next_wakeup(self, socket: Socket, now: float) -> float | None:
        return self.sender.outbox.next_wakeup(now) if socket is self._socket else None

    def lost(self, socket: Socket, now: float) -> None:
        if socket is not self._socket:
            return
        self._connected.clear()
        self.sender.socket_lost(now)
        self.requests.lost()
        self.dispatcher.disconnected()
        self._tell("disconnected")

    def post(self, frame: dict[str, Any]) -> None:
        if self.socket_open:
            self.requests.post(frame)
            self._wake()

    def _wake(self) -> None:
        if self._socket is not None:
            self._socket.wake()
        for socket, _ in self._attached.values():
            socket.wake()

    # --- frames ---

    def frame(self, socket: Socket, frame: ServerFrame) -> None:
        """One frame, in the order of its socket."""
        if self.requests.answered(frame) and not isinstance(frame, TraceUpdate):
            return
        if isinstance(frame, Message):
            if frame.sender != self.agent_id:
                self.asks.saw(frame)
            self.dispatcher.message(frame)
        elif isinstance(frame, Ack):
            self.sender.acked(frame)
        elif isinstance(frame, Read):
            if frame.agent_id == self.agent_id:
                self.dispatcher.confirmed(frame.session_id, frame.cursor)
            self.dispatcher.event(frame.session_id, frame)
        elif isinstance(frame, Chunk):
            if frame.sender != self.agent_id:
                self.asks.chunk(frame)
                self.dispatcher.event(frame.session_id, frame)
        elif isinstance(frame, SessionUpdate):
            self.dispatcher.event(frame.session_id, frame)
            if frame.reason == "removed":
                self.dispatcher.gone(frame.session_id)
            elif frame.ended:
                self.session_ended(frame.session_id)
        elif isinstance(frame, NewSession):
            self.dispatcher.new_session(frame)
        elif isinstance(frame, ReplayComplete):
            self.dispatcher.replayed(frame)
        elif isinstance(frame, Presence | TraceUpdate):
            if isinstance(frame, TraceUpdate):
                self.runs.updated(frame)
            if frame.session_id is not None:
                self.dispatcher.event(frame.session_id, frame)
        elif isinstance(frame, TraceOffer):
            self.runs.offered(frame)
        elif isinstance(frame, ErrorFrame):
            self._error_frame(frame)
        elif isinstance(frame, Welcome):
            self._welcome(socket, frame)

    def _welcome(self, socket: Socket, frame: Welcome) -> None:
        if socket is self._socket:
            self.sender.socket_opened(
                time.monotonic(), per_second=frame.limits.messages_per_second, burst=frame.limits.burst
            )
            self.dispatcher.welcomed(frame.sessions or [])
            self._connected.set()
            self.watchers.nudge_all()
            self._tell("connected")
        elif frame.session_id is not None and frame.cursor is not None and frame.last_sequence is not None:
            entry = SessionUnread(session_id=frame.session_id, cursor=frame.cursor, last_sequence=frame.last_sequence)
            self.dispatcher.welcomed([entry])
        if frame.session is not None and frame.session.ended:
            self.session_ended(frame.session.session_id)
        socket.wake()

    def _error_frame(self, frame: ErrorFrame) -> None:
        if self.sender.errored(frame):
            return
        number = frame.id if isinstance(frame.id, str) else ""
        if number.startswith(ACK_ID):
            session_id = number.removeprefix(ACK_ID)
            last = (frame.details or {}).get("last_sequence")
            if frame.code == "not_found":
                self.dispatcher.gone(session_id)
            elif isinstance(last, int):
                self.dispatcher.welcomed([SessionUnread(session_id=session_id, cursor=last, last_sequence=last)])
            return
        log.warning("the hub says %s: %s", frame.code, frame.message)

    def _stored(self, session_id: str, sequence: int) -> None:
        self.dispatcher.own_stored(session_id, sequence)

    def _settled(self, session_id: str) -> None:
        self.dispatcher.settle(session_id)

    async def _read_log(self, session_id: str, after: int, limit: int) -> tuple[list[Message], bool, int]:
        page = await self._rest.get(f"sessions/{segment(session_id)}/messages", after=after, limit=limit)
        messages = [read(Message, value) for value in page["messages"]]
        return messages, bool(page.get("has_more")), int(page.get("last_sequence") or 0)

    def session_ended(self, session_id: str) -> None:
        self.dispatcher.ended(session_id)
        self.watchers.nudge(session_id)

    @contextlib.asynccontextmanager
    async def once(self, message: Message) -> AsyncIterator[sqlite3.Connection]:
        if self._journal is None:
            raise RuntimeError("`once` needs a state file: A2ASessionClient(…, state='agent.db')")
        async with self._journal.once(message.session_id, message.sequence) as db:
            yield db
        now = handling.get()
        if now is not None and now.message is not None and now.message.message_id == message.message_id:
            now.recorded = True


def _ack(session_id: str, sequence: int) -> str:
    return encode({"type": "ack", "session_id": session_id, "sequence": sequence, "id": ACK_ID + session_id})
