"""Daphne as we run it: sends wait for a slow reader, and a stop says goodbye to the sockets first."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from daphne.server import Server
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
from django.conf import settings
from twisted.internet import defer

from hub.websocket import QuickWebSocket, write_now
from sessions_app.logs import one_line
from sessions_app.realtime.runtime import stop_runtime
from sessions_app.sockets.handshake import TEXTS

log = logging.getLogger("hub.server")


class WriteGate:
    """A Twisted push producer that turns the transport's "stop" and "go on" into something a coroutine can await."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    def pauseProducing(self) -> None:
        self.open.clear()

    def resumeProducing(self) -> None:
        self.open.set()

    def stopProducing(self) -> None:
        self.open.set()


def text_frame(text: str) -> bytes:
    """One unfragmented, unmasked text frame (RFC 6455, section 5.2)."""
    payload = text.encode()
    size = len(payload)
    if size < 126:
        return b"\x81" + size.to_bytes(1, "big") + payload
    if size < 65536:
        return b"\x81\x7e" + size.to_bytes(2, "big") + payload
    return b"\x81\x7f" + size.to_bytes(8, "big") + payload


class HubServer(Server):  # type: ignore[misc]
    """Stock Daphne hands every send to the transport at once, so that one stalled reader grows without bound.

    Here a send returns when the transport has drained below its mark (64 KiB), which holds back exactly that reader's pump.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if settings.HUB_HEARTBEAT_SECONDS:
            options["ping_interval"] = settings.HUB_HEARTBEAT_SECONDS
            options["ping_timeout"] = settings.HUB_PING_TIMEOUT_SECONDS
        super().__init__(*arguments, **options)

    def run(self) -> None:
        WebSocketFactory.protocol = QuickWebSocket
        super().run()

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        if scope["type"] == "websocket":
            scope.setdefault("extensions", {})[TEXTS] = {}
        return super().create_application(protocol, scope)

    def kill_all_applications(self) -> defer.Deferred[None]:
        """Before Daphne cancels its applications at shutdown, have them end by themselves."""
        loop = asyncio.get_event_loop()
        goodbye = defer.Deferred.fromFuture(asyncio.ensure_future(stop_runtime(), loop=loop))
        goodbye.addErrback(lambda failure: log.error("the runtime did not stop cleanly: %s", failure))
        goodbye.addCallback(lambda _: self._cancel_the_rest())
        return goodbye

    def _cancel_the_rest(self) -> Any:
        for protocol, details in list(self.connections.items()):
            if "application_instance" not in details:  # stock Daphne looks it up unasked
                del self.connections[protocol]
        return super().kill_all_applications()

    def log_action(self, protocol: str, action: str, details: dict[str, Any]) -> None:
        """The access log shows no key, although somebody may have put one into a URL, where it opens nothing."""
        if "path" in details:
            details = {**details, "path": one_line(str(details["path"]))}
        super().log_action(protocol, action, details)

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "websocket.send" and message.get("text") is not None and protocol.state == protocol.STATE_OPEN:
            # Text frames go to the transport as they are: Autobahn's general path costs more than the rest of a delivery,
            # and refuses what is longer than the limit for incoming frames.
            write_now(protocol.transport, text_frame(message["text"]))
        elif kind == TEXTS:
            if protocol.state == protocol.STATE_OPEN:
                write_now(protocol.transport, b"".join(map(text_frame, message["texts"])))
        elif kind == "websocket.close" and message.get("code") == 1011 and protocol.state == protocol.STATE_OPEN:
            # A defect of ours; Autobahn lets applications close with 1000 and 3000 to 4999 only.
            protocol.sendCloseFrame(code=1011, isReply=False)
            return
        else:
            more = kind == "http.response.body" and message.get("more_body", False)
            if kind == "http.response.body" and not more and getattr(protocol, "hub_gate", None) is not None:
                protocol.unregisterProducer()
            await super().handle_reply(protocol, message)
            if not more:
                return
        gate = getattr(protocol, "hub_gate", None)
        if gate is None:
            gate = protocol.hub_gate = self._attach(protocol)
        if not gate.open.is_set():
            await gate.open.wait()

    def _attach(self, protocol: Any) -> WriteGate:
        gate = WriteGate()
        transport = getattr(protocol, "transport", None)
        if transport is None or protocol not in self.connections:
            return gate
        if isinstance(protocol, WebSocketProtocol):
            # The HTTP channel that took the upgrade is still registered there, and nobody feeds it any more.
            transport.unregisterProducer()
            transport.registerProducer(gate, True)
        else:
            protocol.registerProducer(gate, True)
        return gate

    def protocol_connected(self, protocol: Any) -> None:
        super().protocol_connected(protocol)
        # Head and body of an answer are two writes: with Nagle's algorithm the second waits 40 ms for the peer's ack.
        transport = getattr(protocol, "transport", None)
        if transport is not None and hasattr(transport, "setTcpNoDelay"):
            transport.setTcpNoDelay(True)

    def protocol_disconnected(self, protocol: Any) -> None:
        super().protocol_disconnected(protocol)
        gate = getattr(protocol, "hub_gate", None)
        if gate is not None:
            gate.open.set()


def adopt_daphne() -> None:
    """Where the `daphne` command is running us, have it use our server (it reads this class after importing us)."""
    cli = sys.modules.get("daphne.cli")
    if cli is not None:
        cli.CommandLineInterface.server_class = HubServer
