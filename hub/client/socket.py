"""One WebSocket that is kept alive: the thin shell around `core.link.Link`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException

from hub.client.address import bearer
from hub.client.core.link import Link, Phase, Pulse
from hub.client.core.verdicts import Verdict, after_status
from hub.client.errors import ProtocolFault
from hub.client.frames import ServerFrame, decode_frames
from hub.client.rest import USER_AGENT, retry_after, ssl_context
from hub.client.wire import pack

log = logging.getLogger("hub.client")

MAX_INCOMING = 64 * 1024 * 1024  # a batch of pages may be large; a bound all the same
CLOSE_SECONDS = 2.0
PING = '{"type":"ping","id":"watchdog"}'


class Owner(Protocol):
    """Who uses a socket. All calls come from the loop's thread; none may block."""

    def frame(self, socket: Socket, frame: ServerFrame) -> None: ...

    def outgoing(self, socket: Socket, now: float) -> Iterable[str]:
        """Frames to write now; they count as sent."""

    def next_wakeup(self, socket: Socket, now: float) -> float | None:
        """When to ask again although nobody called `wake`."""

    def lost(self, socket: Socket, now: float) -> None: ...


class Socket:
    """Connects, reads, writes, watches and reconnects until its link is over or the task is cancelled."""

    def __init__(
        self,
        link: Link,
        owner: Owner,
        url: Callable[[], str],
        api_key: str,
        *,
        loopback: bool = False,
        open_timeout: float = 10.0,
    ) -> None:
        self.link = link
        self.attempts = 0
        self.last_failure = ""
        self._owner = owner
        self._url = url
        self._headers = {"Authorization": bearer(api_key)}
        self._loopback = loopback
        self._open_timeout = open_timeout
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._connection: ClientConnection | None = None

    @property
    def open(self) -> bool:
        return self.link.open

    def wake(self) -> None:
        """There may be something to write."""
        self._wake.set()

    async def renew(self) -> None:
        """Close this connection and open another (the address has changed)."""
        if self._connection is not None:
            self._hurry.set()
            await self._connection.close()

    async def run(self) -> None:
        while self.link.phase is not Phase.OVER:
            await self._pause(self.link.next_attempt - time.monotonic())
            self.link.connecting(time.monotonic())
            connection = await self._connect()
            if connection is not None:
                await self._live(connection)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._hurry.wait()
        self._hurry.clear()

    async def _connect(self) -> ClientConnection | None:
        self.attempts += 1
        url = self._url()
        secure = url.startswith("wss:")
        try:
            return await connect(
                url,
                additional_headers=self._headers,
                user_agent_header=USER_AGENT,
                compression=None,  # costs the hub more than the bytes are worth
                max_size=MAX_INCOMING,
                open_timeout=self._open_timeout,
                close_timeout=CLOSE_SECONDS,
                ping_interval=None,  # the link's own watchdog asks the hub's process, not only its network
                proxy=None if self._loopback else True,
                ssl=ssl_context() if secure else None,
            )
        except InvalidStatus as error:
            answer = error.response
            verdict = after_status(
                answer.status_code,
                (answer.body or b"").decode(errors="replace"),
                retry_after=retry_after(answer.headers.get("Retry-After")),
            )
            failure = f"the handshake was answered with HTTP {answer.status_code}"
        except InvalidURI as error:
            verdict, failure = Verdict(ProtocolFault(str(error))), str(error)
        except ssl.SSLCertVerificationError as error:
            failure = f"the certificate is not trusted: {error.verify_message}"
            # A certificate that was good before may be in the middle of its renewal.
            verdict = Verdict() if self.link.connects else Verdict(ProtocolFault(failure))
        except (OSError, TimeoutError, WebSocketException, EOFError) as error:
            verdict, failure = Verdict(), f"{type(error).__name__}: {error}"
        self.last_failure = failure
        log.debug("connect: %s", failure)
        self.link.not_connected(time.monotonic(), verdict)
        return None

    async def _live(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.link.connected(time.monotonic())
        helpers = [asyncio.create_task(self._write(connection)), asyncio.create_task(self._watch(connection))]
        try:
            await self._read(connection)
        except asyncio.CancelledError:
            await self._farewell(connection)
            raise
        finally:
            self._connection = None
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            connection.transport.abort()
            now = time.monotonic()
            code = connection.close_code or 1006
            self.last_failure = f"closed with {code} {connection.close_reason or ''}".strip()
            self.link.closed(code, connection.close_reason or "", now)
            self._owner.lost(self, now)

    async def _read(self, connection: ClientConnection) -> None:
        count = 0
        try:
            async for data in connection:
                try:
                    frames = decode_frames(data)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    self.link.verdict = Verdict(ProtocolFault("the hub sent something that is not JSON"))
                    return
                for frame in frames:
                    self.link.received(frame, time.monotonic())
                    if self.link.verdict is not None:
                        return
                    self._owner.frame(self, frame)
                count += len(frames)
                if count >= 64:  # a full receive queue never suspends: let the handlers have their turn
                    count = 0
                    await asyncio.sleep(0)
        except ConnectionClosed:
            return

    async def _write(self, connection: ClientConnection) -> None:
        """Write what the owner has. A `send` that does not return is the watchdog's business."""
        with contextlib.suppress(ConnectionClosed):
            while True:
                now = time.monotonic()
                self._wake.clear()
                for text in pack(self._owner.outgoing(self, now)) if self.link.open else ():
                    await connection.send(text)
                if self._wake.is_set():
                    continue
                at = self._owner.next_wakeup(self, time.monotonic()) if self.link.open else None
                await self._wait_for_work(at)

    async def _wait_for_work(self, at: float | None) -> None:
        if at is None:
            await self._wake.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, at - time.monotonic())):
                await self._wake.wait()

    async def _watch(self, connection: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(max(0.01, self.link.next_pulse() - time.monotonic()))
                pulse = self.link.pulse(time.monotonic())
                if pulse is Pulse.DEAD:
                    log.info("the connection is silent: reconnecting")
                    connection.transport.abort()
                    return
                if pulse is Pulse.PING:
                    # Not awaited without an end: with a full buffer it would keep us from seeing the silence.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(1.0):
                            await connection.send(PING)

    async def _farewell(self, connection: ClientConnection) -> None:
        """A clean end: what is still to be said (acks), then the close frame; in bounded time, whatever the peer does."""
        with contextlib.suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                if self.link.open:
                    for text in pack(self._owner.outgoing(self, time.monotonic())):
                        await connection.send(text)
                await connection.close()
