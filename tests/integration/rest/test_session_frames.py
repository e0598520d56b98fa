"""What a client hears of a change that it made itself: each state once, as the answer to its frame."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator  # type: ignore[import-untyped]
from django.conf import settings
from django.db import OperationalError

from sessions_app import threads
from sessions_app.append import append
from sessions_app.context.viewing import find_views
from sessions_app.cursors import CursorMove
from sessions_app.models import Agent
from sessions_app.protocol.errors import Unavailable
from sessions_app.protocol.frames import encode
from sessions_app.realtime import subscriber
from sessions_app.realtime.places import find_place
from sessions_app.realtime.runtime import Runtime, get_runtime, stop_runtime
from sessions_app.sockets import agent_socket
from sessions_app.sockets.agent_socket import AgentSocket
from sessions_app.sockets.session_socket import SessionSocket
from tests.integration.rest.conftest import Door, socket_of

pytestmark = pytest.mark.parametrize("application", ["express"], indirect=True)
BOTH = pytest.mark.parametrize("where", ["session", "agent"])


async def told(socket: WebsocketCommunicator, **frame: Any) -> list[dict[str, Any]]:
    """The `session` frames that come of a client's frame, the answer included, up to the `pong` of a ping sent at the answer.

    What is told besides is on its way before the answer, or within a moment; a delayed frame would come of the look, which
    every process takes each second.
    """
    await socket.send_to(json.dumps(frame))
    found: list[dict[str, Any]] = []
    while not any(seen["type"] == "session" and seen.get("id") == frame["id"] for seen in found):
        found.append(json.loads(await socket.receive_from(timeout=30)))
    runtime = get_runtime()
    await runtime._look()
    while not await socket.receive_nothing(timeout=0.2):
        output = await socket.receive_output()
        if output["type"] == "websocket.close":
            break
        found.append(json.loads(output["text"]))
    return [seen for seen in found if seen["type"] == "session"]


async def nothing(self: Runtime) -> None:
    """Instead of a look."""


def path_of(where: str, session: str) -> str:
    return f"sessions/{session}/stream" if where == "session" else "stream"


@BOTH
async def test_nothing_precedes_the_welcome_not_even_what_was_said_while_the_place_was_looked_up(
    a: Door, b: Door, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await a.open("b")
    kind: Any = SessionSocket if where == "session" else AgentSocket
    welcome = kind.welcome

    def late(self: Any, *arguments: Any) -> None:
        self.say(encode("presence", session_id=session, agent_id="b", status="online"))
        welcome(self, *arguments)

    monkeypatch.setattr(kind, "welcome", late)
    async with socket_of(a, path_of(where, session)) as socket:
        seen = [json.loads(await socket.receive_from(timeout=30))["type"] for _ in range(2)]
    assert seen == ["welcome", "presence"]


async def follows(socket: WebsocketCommunicator) -> None:
    while json.loads(await socket.receive_from(timeout=30))["type"] != "replay_complete":
        pass


@BOTH
@pytest.mark.parametrize("asked", [False, True])
async def test_who_closes_a_session_hears_its_end_once_and_as_the_answer(
    a: Door, b: Door, where: str, asked: bool
) -> None:
    session = await a.open("b")
    async with socket_of(a, path_of(where, session)) as socket:
        await follows(socket)
        if asked:
            await a.say(session, "are you there?", wait_for_response=True, timeout=0)
        frames = await told(socket, type="close", session_id=session, reason="done", id="c1")
    ends = [frame for frame in frames if frame["status"] == "completed"]
    assert [(frame["reason"], frame["waiting_for"], frame.get("id")) for frame in ends] == [("done", [], "c1")]


async def test_closing_again_is_answered_again(a: Door, b: Door) -> None:
    session = await a.open("b")
    async with socket_of(a, "stream") as socket:
        await follows(socket)
        for id_ in ("c1", 2):
            frames = await told(socket, type="close", session_id=session, id=id_)
            assert [(frame["status"], frame["id"]) for frame in frames] == [("completed", id_)]


@BOTH
async def test_who_changes_the_context_hears_it_once_and_as_the_answer(a: Door, b: Door, where: str) -> None:
    session = await a.open("b", context={"kept": 1})
    async with socket_of(a, path_of(where, session)) as socket, socket_of(b, path_of(where, session)) as other:
        await follows(socket)
        await follows(other)
        frames = await told(socket, type="context", session_id=session, patch={"focus_module": "core"}, id="p1")
        assert [(frame["context"], frame["id"]) for frame in frames] == [({"kept": 1, "focus_module": "core"}, "p1")]
        while (heard := json.loads(await other.receive_from(timeout=30)))["type"] != "session":
            pass
        assert heard["context"] == {"kept": 1, "focus_module": "core"}
        assert "id" not in heard
        refused = {"type": "context", "session_id": session, "patch": {"bad": "x" * 300_000}, "id": "p2"}
        await socket.send_to(json.dumps(refused))
        while (answer := json.loads(await socket.receive_from(timeout=30)))["type"] != "error":
            pass
        assert answer["id"] == "p2"
        await b.patch(f"sessions/{session}", {"context": {"kept": None}})
        while (heard := json.loads(await socket.receive_from(timeout=30)))["type"] != "session":
            pass
        assert heard["context"] == {"focus_module": "core"}, "a refused change holds nothing back"


async def test_a_shut_window_holds_back_no_answer(a: Door, b: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "HUB_WINDOW", 1)
    session = await a.open("b")
    async with socket_of(b, f"sessions/{session}/stream?ack=manual") as socket:
        await follows(socket)
        for n in range(3):
            await a.say(session, f"unread {n}")
        frames = await told(socket, type="context", session_id=session, patch={"x": 1}, id="p1")
        assert [frame.get("context") for frame in frames if "id" in frame] == [{"x": 1}]


@BOTH
async def test_what_is_told_while_a_reader_is_looked_up_again_is_told_when_that_is_done(
    a: Door, b: Door, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_pk = (await Agent.objects.aget(agent_id="b")).pk
    await Agent.objects.filter(pk=agent_pk).aupdate(executor="python:tests.executors:echo")
    session = await a.open("b")
    asked, may_go_on = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        asked.set()
        assert may_go_on.wait(30)
        return find_views(*arguments)

    async with socket_of(b, path_of(where, session)) as socket:
        await follows(socket)
        await a.say(session, "hello", requires_execution=False)
        while json.loads(await socket.receive_from(timeout=30))["type"] != "message":
            pass
        monkeypatch.setattr(subscriber, "find_views", slowly)
        get_runtime().registry.review([agent_pk])
        try:
            assert await asyncio.to_thread(asked.wait, 30)
            changed = await a.patch(f"sessions/{session}", {"context": {"focus_module": "core"}})
            assert changed.status_code == 200
            sent = await a.say(session, "work", requires_execution=True)
            await get_runtime()._look()
        finally:
            may_go_on.set()
        seen: list[dict[str, Any]] = []
        while not {"trace", "context"} <= {kind for frame in seen for kind in (frame["type"], *frame)}:
            seen.append(json.loads(await socket.receive_from(timeout=30)))
    assert [frame["context"] for frame in seen if "context" in frame] == [{"focus_module": "core"}]
    assert [frame["trace_id"] for frame in seen if frame["type"] == "trace"][:1] == [sent["trace_id"]]


async def test_a_new_context_is_heard_also_by_who_has_heard_nothing_of_that_session_before(
    a: Door, b: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runtime, "_look_at_sessions", nothing)  # which would have made it hear of the session
    session = await a.open("b")
    async with socket_of(a, f"sessions/{session}/stream") as watcher, socket_of(b, "stream") as socket:
        await follows(watcher)
        await follows(socket)
        assert (await a.patch(f"sessions/{session}", {"context": {"focus_module": "core"}})).status_code == 200
        await a.say(session, "look at it")
        seen: list[dict[str, Any]] = []
        while not {"message", "context"} <= {kind for frame in seen for kind in (frame["type"], *frame)}:
            seen.append(json.loads(await socket.receive_from(timeout=30)))
    assert [frame["context"] for frame in seen if "context" in frame] == [{"focus_module": "core"}]


@BOTH
async def test_who_sends_does_not_get_its_own_message_also_when_only_a_second_try_stored_it(
    a: Door, b: Door, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await a.open("b")
    refusals = [OperationalError("the server is restarting")] * 2  # of the group, and of it alone

    def sometimes(*arguments: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return append(*arguments)

    async with socket_of(a, path_of(where, session)) as socket:
        await follows(socket)
        monkeypatch.setattr(threads, "append", sometimes)
        await socket.send_to(json.dumps({"type": "message", "session_id": session, "content": "mine"}))
        seen: list[dict[str, Any]] = []
        while not any(frame["type"] == "ack" for frame in seen):
            seen.append(json.loads(await socket.receive_from(timeout=30)))
        await b.say(session, "yours")
        while not any(frame.get("content") == "yours" for frame in seen):
            seen.append(json.loads(await socket.receive_from(timeout=30)))
    assert not refusals
    assert [frame["content"] for frame in seen if frame["type"] == "message"] == ["yours"]


async def test_an_end_that_comes_while_a_session_is_taken_up_is_heard_also_where_others_have_heard_it(
    a: Door, b: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, may_go_on = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        place = find_place(*arguments)
        found.set()
        assert may_go_on.wait(30)
        return place

    monkeypatch.setattr(Runtime, "_look_at_sessions", nothing)  # which might take the session up before
    session = await a.open("b")
    async with socket_of(a, f"sessions/{session}/stream") as watcher, socket_of(b, "stream") as socket:
        await follows(watcher)
        await follows(socket)
        monkeypatch.setattr(agent_socket, "find_place", slowly)
        await a.say(session, "hello")
        try:
            assert await asyncio.to_thread(found.wait, 30)
            assert (await a.post(f"sessions/{session}/close", {})).status_code == 200
        finally:
            may_go_on.set()
        while (heard := json.loads(await socket.receive_from(timeout=30)))["type"] != "session":
            pass
        assert heard["status"] == "completed"


async def test_a_process_that_stops_keeps_nobody_waiting(a: Door, b: Door) -> None:
    await get_runtime().ready.wait()
    await stop_runtime()
    runtime = get_runtime()
    waiting = asyncio.create_task(runtime.ready.wait())
    await stop_runtime()
    async with asyncio.timeout(30):
        await waiting
        with pytest.raises(Unavailable):
            await runtime.move_cursor(CursorMove(1, 1, "a", 1))
