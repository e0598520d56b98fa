"""Channels consumers: accept, authenticate, hand over to the socket, close. A close always follows its reason."""

from __future__ import annotations

import logging
from typing import Any

from channels.consumer import AsyncConsumer  # type: ignore[import-untyped]
from django.conf import settings

from sessions_app.keys import Principal
from sessions_app.protocol.errors import HubError, Internal, NotFound, RateLimited, Unauthenticated, Unavailable
from sessions_app.protocol.frames import encode
from sessions_app.protocol.ids import SESSION_ID
from sessions_app.realtime.places import Place, enter, enter_and_show, whereabouts
from sessions_app.realtime.runtime import Runtime, get_runtime
from sessions_app.realtime.subscriber import DIED, GONE, STOPPING, TOO_FAST, UNAUTHENTICATED
from sessions_app.sockets.agent_socket import AgentSocket
from sessions_app.sockets.connection import Receive, Send
from sessions_app.sockets.handshake import Handshake, read_handshake
from sessions_app.sockets.session_socket import SessionSocket

log = logging.getLogger("hub.socket")

CLOSE_CODES: dict[str, int] = {
    "unauthenticated": UNAUTHENTICATED,
    "not_found": GONE,
    "forbidden": GONE,
    "rate_limited": TOO_FAST,
    "unavailable": STOPPING,
}
"""What ends a socket before it is open; any other code is a defect of ours and closes with 1011."""


class SocketConsumer(AsyncConsumer):  # type: ignore[misc]
    """Channels routes here; the receive loop is our own (see `connection.py`)."""

    channel_layer_alias = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        event = await receive()
        if event["type"] != "websocket.connect":
            return
        handshake = read_handshake(scope)
        accept: dict[str, Any] = {"type": "websocket.accept"}
        if handshake.subprotocol is not None:
            accept["subprotocol"] = handshake.subprotocol
        # Accept first: a refusal before that would reach the client as a bare HTTP 403.
        await send(accept)
        code = await self._run(scope, handshake, receive, send)
        if code:
            await send({"type": "websocket.close", "code": code})
            while (await receive())["type"] != "websocket.disconnect":
                pass

    async def _run(self, scope: dict[str, Any], handshake: Handshake, receive: Receive, send: Send) -> int:
        try:
            runtime = get_runtime()
            await runtime.ready.wait()
            if runtime.stopping:
                raise Unavailable(stored=False)
            principal = await runtime.authenticate(handshake.authorization)
            limit = settings.HUB_SOCKETS_PER_AGENT
            if limit and runtime.registry.sockets_of(principal.agent_pk) >= limit:
                raise RateLimited("Too many sockets of this agent.", retry_after=10)
            await runtime.acks.closes_stored(principal.agent_pk)
            return await self.open(runtime, principal, handshake, scope, receive, send)
        except HubError as error:
            code = CLOSE_CODES.get(error.code, DIED)
            retry = not isinstance(error, NotFound | Unauthenticated) and error.code != "forbidden"
            await send({"type": "websocket.send", "text": encode("error", **error.body(), retry=retry)})
            return code
        except Exception:
            log.exception("a socket failed")
            await send({"type": "websocket.send", "text": encode("error", **Internal().body(), retry=True)})
            return DIED

    async def open(
        self,
        runtime: Runtime,
        principal: Principal,
        handshake: Handshake,
        scope: dict[str, Any],
        receive: Receive,
        send: Send,
    ) -> int:
        raise NotImplementedError


class SessionConsumer(SocketConsumer):
    async def open(
        self,
        runtime: Runtime,
        principal: Principal,
        handshake: Handshake,
        scope: dict[str, Any],
        receive: Receive,
        send: Send,
    ) -> int:
        session_id = scope["url_route"]["kwargs"]["session_id"]
        if SESSION_ID.fullmatch(session_id) is None:
            raise NotFound()
        place = await runtime.read(enter, session_id, principal.agent_pk, principal.is_operator)
        socket = SessionSocket(runtime, principal, handshake, send)
        try:
            socket.follow(session_id, place, handshake)
            await self._welcome(socket, session_id, place)
            del place  # held for as long as the socket otherwise
            return await socket.serve(receive)
        finally:
            runtime.registry.leave(socket)

    @staticmethod
    async def _welcome(socket: SessionSocket, session_id: str, place: Place) -> None:
        """Registered: what was committed since the place was read is now heard of, or found by this one more look."""
        principal = socket.principal
        now, view = await socket.runtime.read(enter_and_show, session_id, principal.agent_pk, principal.is_operator)
        socket.feed.see_state(now.state)
        socket.welcome(view, place)


class AgentConsumer(SocketConsumer):
    async def open(
        self,
        runtime: Runtime,
        principal: Principal,
        handshake: Handshake,
        scope: dict[str, Any],
        receive: Receive,
        send: Send,
    ) -> int:
        socket = AgentSocket(runtime, principal, handshake, send)
        runtime.registry.follow_everywhere(socket)
        try:
            found = await runtime.read(whereabouts, principal.agent_pk)
            socket.welcome(found)
            await socket.replay_everything(found)
            del found  # held for as long as the socket otherwise
            return await socket.serve(receive)
        finally:
            socket.stop_tasks()
            runtime.registry.leave(socket)
