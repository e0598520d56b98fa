"""A small hub in memory that speaks the wire contract, with faults on demand: for tests of the client alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from websockets.exceptions import InvalidHandshake
from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

ENDED = ("completed", "timeout")
Frame = dict[str, Any]


@dataclass
class FakeSession:
    session_id: str
    initiator: str
    members: list[str]
    status: str = "created"
    messages: list[Frame] = field(default_factory=list)
    cursors: dict[str, int] = field(default_factory=dict)
    by_client_id: dict[tuple[str, str], Frame] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)

    def row(self) -> Frame:
        return {
            "session_id": self.session_id,
            "status": self.status,
            "initiator": self.initiator,
            "participants": [
                {"agent_id": agent, "role": "member", "online": True, "cursor": self.cursors.get(agent, 0)}
                for agent in self.members
            ],
            "context": self.context,
            "last_sequence": len(self.messages),
            "first_sequence": 1,
            "round": 0,
            "timeout_seconds": 300,
        }

    def unread(self, agent: str) -> list[Frame]:
        cursor = self.cursors.get(agent, 0)
        return [message for message in self.messages[cursor:] if message["from"] != agent]


class Peer:
    """One socket of one agent."""

    def __init__(
        self, writer: asyncio.StreamWriter, protocol: ServerProtocol, agent: str, session_id: str | None
    ) -> None:
        self.writer = writer
        self.protocol = protocol
        self.agent = agent
        self.session_id = session_id
        self.run = False

    def send(self, frame: Frame) -> None:
        if self.protocol.state is State.OPEN:
            self.protocol.send_text(json.dumps(frame).encode())
            self.flush()

    def close(self, code: int, reason: str = "") -> None:
        if self.protocol.state is State.OPEN:
            self.protocol.send_close(code, reason)
            self.flush()

    def cut(self) -> None:
        """As a cable that is pulled, when the kernel notices."""
        self.writer.transport.abort()

    def flush(self) -> None:
        for data in self.protocol.data_to_send():
            if data:
                self.writer.write(data)


class FakeHub:
    """`keys` maps an API key to its agent. The hooks make faults:

    refuse: an HTTP answer `(status, headers)` instead of a handshake. swallow: frames that never reach the client.
    on_message: called before a message is stored; it may raise `Refusal`, or cut.
    """

    def __init__(self) -> None:
        self.keys: dict[str, str] = {}
        self.sessions: dict[str, FakeSession] = {}
        self.peers: list[Peer] = []
        self.handshakes = 0
        self.requests: list[tuple[str, str]] = []
        self.received: list[tuple[str, Frame]] = []
        self.refuse: Callable[[], tuple[int, dict[str, str]] | None] = lambda: None
        self.refuse_http: Callable[[str, str], tuple[int, Frame] | None] = lambda method, path: None
        self.swallow: Callable[[Peer, Frame], bool] = lambda peer, frame: False
        self.on_message: Callable[[Peer | None, Frame], None] = lambda peer, frame: None
        self.welcome_extra: Frame = {}
        self.greet = True
        self.silent = False
        self.changed = asyncio.Event()
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    # --- running ---

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for peer in list(self.peers):
            peer.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def agent(self, agent_id: str) -> str:
        key = f"ak_{agent_id}"
        self.keys[key] = agent_id
        return key

    def session(self, initiator: str, *others: str) -> FakeSession:
        session = FakeSession(f"sess-{next(self._numbers)}", initiator, [initiator, *others])
        self.sessions[session.session_id] = session
        return session

    async def until(self, condition: Callable[[], bool], timeout: float = 30.0) -> None:
        """Wait for something that only traffic can bring about."""
        async with asyncio.timeout(timeout):
            while not condition():
                self.changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self.changed.wait()

    # --- the rows ---

    def append(self, session: FakeSession, sender: str, body: Frame, *, via: Peer | None = None) -> tuple[Frame, bool]:
        """Store and push; `(message, duplicate)`."""
        client_id = body.get("client_message_id")
        if client_id and (known := session.by_client_id.get((sender, client_id))):
            return known, True
        if session.status in ENDED:
            raise Refusal(409, "session_closed")
        self.on_message(via, body)
        message = {
            "message_id": f"msg-{next(self._numbers)}",
            "session_id": session.session_id,
            "sequence": len(session.messages) + 1,
            "round": 1,
            "from": sender,
            "to": body.get("to"),
            "kind": body.get("kind", "chat"),
            "content": body.get("content", ""),
            "parts": [{"text": body.get("content", "")}],
            "reply_to": body.get("reply_to"),
            "trace_id": body.get("trace_id"),
            "client_message_id": client_id,
            "metadata": body.get("metadata") or {},
            "timestamp": "2026-11-30T01:02:03.456789Z",
        }
        session.messages.append(message)
        session.status = "active"
        if client_id:
            session.by_client_id[sender, client_id] = message
        self.push(session, {"type": "message", **message}, skip=via)
        return message, False

    def say(self, session: FakeSession, sender: str, content: str, **body: Any) -> Frame:
        return self.append(session, sender, {"content": content, **body})[0]

    def end(self, session: FakeSession, status: str = "completed") -> None:
        if session.status not in ENDED:
            session.status = status
            self.push(
                session, {"type": "session", "session_id": session.session_id, "status": status, "reason": status}
            )

    def push(self, session: FakeSession, frame: Frame, *, skip: Peer | None = None) -> None:
        for peer in list(self.peers):
            if peer is not skip and peer.agent in session.members and peer.session_id in (None, session.session_id):
                self.give(peer, frame)
        self.changed.set()

    def give(self, peer: Peer, frame: Frame) -> None:
        if not self.silent and not self.swallow(peer, frame):
            peer.send(frame)

    # --- connections ---

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().split("\r\n")
                method, target, _ = lines[0].split(" ", 2)
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines[1:] if line)
                }
                if headers.get("upgrade", "").lower() == "websocket":
                    await self._socket(head, target, headers, reader, writer)
                    return
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                status, answer = self._rest(method, target, headers, body)
                if status is None:
                    return
                data = b"" if answer is None else json.dumps(answer).encode()
                kind = "text/event-stream" if isinstance(answer, str) else "application/json"
                data = answer.encode() if isinstance(answer, str) else data
                head_line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
                writer.write(f"{head_line}Content-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            self.changed.set()

    def _who(self, headers: dict[str, str]) -> str | None:
        return self.keys.get(headers.get("authorization", "").removeprefix("Bearer "))

    # --- REST ---

    def _rest(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int | None, Any]:
        parts = urlsplit(target)
        path = unquote(parts.path).removeprefix("/api/a2a/")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.requests.append((method, path))
        self.changed.set()
        if (refusal := self.refuse_http(method, path)) is not None:
            return refusal
        if path in ("/healthz", "/readyz"):
            return 200, {"status": "ok"}
        agent = self._who(headers)
        if agent is None:
            return 401, {"code": "unauthenticated", "message": "A valid key is needed.", "details": {}}
        try:
            return self._route(method, path.split("/"), query, json.loads(body or b"{}"), agent)
        except Refusal as error:
            return error.status, {"code": error.code, "message": error.code, "details": error.details}

    def _route(self, method: str, steps: list[str], query: dict[str, str], body: Frame, agent: str) -> tuple[int, Any]:
        match (method, steps):
            case ("POST", ["sessions"]):
                session = self.session(agent, *(name for name in body["participants"] if name != agent))
                initial = body.get("initial_message")
                first = None
                if initial is not None:
                    first, _ = self.append(
                        session, agent, {"content": initial} if isinstance(initial, str) else initial
                    )
                for peer in self.peers:
                    if peer.agent in session.members and peer.session_id is None:
                        self.give(peer, {"type": "new_session", "session": session.row(), "initial_message": first})
                return 201, {**session.row(), "trace_id": "trace-1", "ws_url": "ws://x"}
            case ("GET", ["sessions"]):
                mine = [session.row() for session in self.sessions.values() if agent in session.members]
                return 200, {"sessions": mine, "next_cursor": None}
            case ("GET", ["agents"]):
                rows = [
                    {"agent_id": name, "online": any(p.agent == name for p in self.peers)}
                    for name in self.keys.values()
                ]
                return 200, {"agents": rows, "next_cursor": None}
            case ("GET", ["agents", "me"]):
                return 200, {"agent_id": agent, "online": True}
            case (_, ["sessions", session_id, *rest]) if agent in self._session(session_id, agent).members:
                return self._session_route(method, self._session(session_id, agent), rest, query, body, agent)
        raise Refusal(404, "not_found")

    def _session(self, session_id: str, agent: str) -> FakeSession:
        session = self.sessions.get(session_id)
        if session is None or agent not in session.members:
            raise Refusal(404, "not_found")
        return session

    def _session_route(
        self, method: str, session: FakeSession, rest: list[str], query: dict[str, str], body: Frame, agent: str
    ) -> tuple[int, Any]:
        match (method, rest):
            case ("GET", []):
                return 200, session.row()
            case ("PATCH", []):
                session.context |= body.get("context", {})
                return 200, session.row()
            case ("GET", ["messages"]):
                limit = int(query.get("limit", "50"))
                if "before" in query:
                    found = session.messages[: int(query["before"]) - 1][-limit:]
                else:
                    found = session.messages[int(query.get("after", "0")) :]
                last = len(session.messages)
                return 200, {
                    "messages": found[:limit],
                    "last_sequence": last,
                    "first_sequence": 1,
                    "has_more": len(found) > limit,
                }
            case ("POST", ["messages"]):
                message, duplicate = self.append(session, agent, body)
                answer = {"message_id": message["message_id"], "sequence": message["sequence"], "status": "sent"}
                return 200 if duplicate else 201, {
                    **answer,
                    "message": message,
                    "duplicate": duplicate,
                    "trace_id": None,
                }
            case ("GET", ["messages", message_id, "response"]):
                return 200, self._response(session, message_id)
            case ("GET", ["events"]):
                return 200, self._events(session, int(query.get("after", "0")))
            case ("POST", ["close"]):
                self.end(session)
                return 200, session.row()
            case ("POST", ["read"]):
                session.cursors[agent] = max(session.cursors.get(agent, 0), body["up_to"])
                return 200, {"cursor": session.cursors[agent], "unread": len(session.unread(agent))}
        raise Refusal(404, "not_found")

    def _events(self, session: FakeSession, after: int) -> str:
        """What there is, and then the end of the session: a stream that does not stay open."""
        text = ""
        for message in session.messages[after:]:
            text += f"event: message\nid: {message['sequence']}\ndata: {json.dumps(message)}\n\n"
        return text + f'event: session\ndata: {{"session_id": "{session.session_id}", "status": "completed"}}\n\n'

    def _response(self, session: FakeSession, message_id: str) -> Frame:
        asked = next(message for message in session.messages if message["message_id"] == message_id)
        for message in session.messages[asked["sequence"] :]:
            if message["from"] != asked["from"] and message["reply_to"] in (None, message_id):
                return {"status": "answered", "response": message, "message_id": message_id}
        return {"status": "ended" if session.status in ENDED else "pending", "response": None, "message_id": message_id}

    # --- sockets ---

    async def _socket(
        self,
        head: bytes,
        target: str,
        headers: dict[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.handshakes += 1
        self.changed.set()
        if (refusal := self.refuse()) is not None:
            status, extra = refusal
            lines = "".join(f"{name}: {value}\r\n" for name, value in extra.items())
            writer.write(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}Content-Length: 0\r\n\r\n".encode())
            await writer.drain()
            return
        protocol = ServerProtocol(max_size=2**20)
        protocol.receive_data(head)
        request = next(event for event in protocol.events_received() if isinstance(event, Request))
        with contextlib.suppress(InvalidHandshake):
            protocol.send_response(protocol.accept(request))
        steps = urlsplit(target)
        query = parse_qs(steps.query)
        path = steps.path.removeprefix("/api/a2a/").split("/")
        peer = Peer(writer, protocol, self._who(headers) or "", path[1] if path[0] == "sessions" else None)
        peer.flush()
        peer.run = "run" in query
        if not peer.agent:
            peer.send({"type": "error", "code": "unauthenticated", "message": "A valid key is needed.", "retry": False})
            peer.close(4401)
        elif self.greet:
            self._greet(peer)
            self.peers.append(peer)
        try:
            while data := await reader.read(65536):
                protocol.receive_data(data)
                for event in protocol.events_received():
                    if getattr(event, "opcode", None) is Opcode.TEXT:
                        self._text(peer, event.data.decode())  # type: ignore[union-attr]
                peer.flush()
                if protocol.close_expected() and protocol.state is not State.OPEN:
                    break
        except ConnectionError:
            pass
        finally:
            if peer in self.peers:
                self.peers.remove(peer)
            self.changed.set()

    def _greet(self, peer: Peer) -> None:
        mine = [
            session
            for session in self.sessions.values()
            if peer.agent in session.members and peer.session_id in (None, session.session_id)
        ]
        unread = [
            {
                "session_id": session.session_id,
                "status": session.status,
                "cursor": session.cursors.get(peer.agent, 0),
                "last_sequence": len(session.messages),
                "unread": len(session.unread(peer.agent)),
            }
            for session in mine
            if session.unread(peer.agent)
        ]
        welcome: Frame = {
            "type": "welcome",
            "protocol": 1,
            "agent_id": peer.agent,
            "connection_id": f"conn-{next(self._numbers)}",
            "session_id": peer.session_id,
            "heartbeat_seconds": 25,
            "limits": {
                "frame_bytes": 1048576,
                "content_bytes": 262144,
                "window": 1000,
                "burst": 5000.0,
                "a_new_one": 7,
            },
            "sessions": unread,
            "a_new_field": {"nested": True},
        }
        if peer.session_id and mine:
            welcome |= {
                "session": mine[0].row(),
                "cursor": mine[0].cursors.get(peer.agent, 0),
                "last_sequence": len(mine[0].messages),
                "sessions": None,
            }
        self.give(peer, welcome | self.welcome_extra)
        for session in mine:
            fresh = session.initiator != peer.agent and not session.cursors.get(peer.agent, 0)
            if peer.session_id is None and fresh:
                first = session.messages[0] if session.messages else None
                self.give(peer, {"type": "new_session", "session": session.row(), "initial_message": first})
            self.replay(peer, session, session.cursors.get(peer.agent, 0), own=False)
        self.give(peer, {"type": "replay_complete", "session_id": None, "sequence": None, "recovered": True})

    def replay(self, peer: Peer, session: FakeSession, after: int, *, own: bool) -> None:
        for message in session.messages[after:]:
            if own or message["from"] != peer.agent:
                self.give(peer, {"type": "message", **message, "replayed": True})
        done = {"session_id": session.session_id, "sequence": len(session.messages), "recovered": True}
        self.give(peer, {"type": "replay_complete", **done})

    def _text(self, peer: Peer, text: str) -> None:
        value = json.loads(text)
        for frame in value if isinstance(value, list) else [value]:
            self.received.append((peer.agent, frame))
            self.changed.set()
            try:
                self._client_frame(peer, frame)
            except Refusal as error:
                answer = {"type": "error", "code": error.code, "message": error.code, "details": error.details}
                self.give(peer, answer | {name: frame[name] for name in ("id", "client_message_id") if name in frame})

    def _client_frame(self, peer: Peer, frame: Frame) -> None:
        echo = {"id": frame["id"]} if "id" in frame else {}
        kind = frame["type"]
        if kind == "ping":
            self.give(peer, {"type": "pong", **echo})
            return
        if kind.startswith("trace."):
            status = {"trace.complete": "completed", "trace.fail": "failed"}.get(kind, "running")
            self.give(peer, {"type": "trace", "trace_id": frame["trace_id"], "status": status, **echo})
            return
        session = self._session(frame["session_id"], peer.agent)
        if kind == "message":
            message, duplicate = self.append(session, peer.agent, frame, via=peer)
            ack = {name: message[name] for name in ("message_id", "session_id", "sequence", "timestamp", "kind")}
            client_id = frame["client_message_id"]
            self.give(peer, {"type": "ack", "client_message_id": client_id, **ack, "duplicate": duplicate, **echo})
        elif kind == "ack":
            if frame["sequence"] > len(session.messages):
                raise Refusal(400, "invalid", {"last_sequence": len(session.messages)})
            session.cursors[peer.agent] = max(session.cursors.get(peer.agent, 0), frame["sequence"])
            read = {"session_id": session.session_id, "agent_id": peer.agent, "cursor": session.cursors[peer.agent]}
            self.push(session, {"type": "read", **read})
        elif kind == "chunk":
            piece = {"session_id": session.session_id, "from": peer.agent, "stream_id": frame["stream_id"]}
            self.push(session, {"type": "chunk", **piece, "index": 0, "text": frame["text"]}, skip=peer)


class Refusal(Exception):
    def __init__(self, status: int, code: str, details: Frame | None = None) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.details = details or {}


@contextlib.asynccontextmanager
async def fake_hub() -> AsyncIterator[FakeHub]:
    async with FakeHub() as hub:
        yield hub
