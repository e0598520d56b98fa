"""Cuts, restarts, lost frames and full queues: what was promised holds, and nothing hammers."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from hub.client import (
    A2ASessionClient,
    HubError,
    Message,
    NotFound,
    ProtocolFault,
    StateInUse,
    Unauthenticated,
)
from tests.integration.client.fakehub import FakeHub

Make = Callable[..., A2ASessionClient]


async def test_a_lost_ack_is_asked_for_again_under_the_same_id(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    await client.connect()
    hub.swallow = lambda peer, frame: frame.get("type") == "ack"
    sending = asyncio.create_task(client.send_message(session.session_id, "x"))
    await hub.until(lambda: len(session.messages) == 1)
    hub.swallow = lambda peer, frame: False
    hub.peers[0].cut()
    sent = await sending
    assert sent.duplicate
    assert [m["content"] for m in session.messages] == ["x"]
    assert len({frame["client_message_id"] for _, frame in hub.received if frame["type"] == "message"}) == 1


async def test_without_a_socket_a_send_goes_over_http_with_its_id(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    hub.refuse = lambda: (503, {"Retry-After": "30"})
    sent = await client.send_message(session.session_id, "x", client_message_id="mine-1")
    assert sent.sequence == 1
    assert session.messages[0]["client_message_id"] == "mine-1"
    assert ("POST", f"sessions/{session.session_id}/messages") in hub.requests


async def test_sends_keep_their_order_over_http_and_socket(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    hub.refuse = lambda: (503, {"Retry-After": "0"}) if hub.handshakes < 2 else None
    sends = [asyncio.create_task(client.send_message(session.session_id, str(number))) for number in range(40)]
    await hub.until(lambda: len(session.messages) >= 2)
    if hub.peers:
        hub.peers[0].cut()
    await asyncio.gather(*sends)
    assert [m["content"] for m in session.messages] == [str(number) for number in range(40)]


async def test_cuts_at_any_point_lose_and_double_nothing(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("b", "a")
    seen: list[int] = []

    @client.on_message
    async def handle(message: Message) -> None:
        seen.append(message.sequence)
        if message.sequence % 3 == 0:
            await client.reply(message, f"re {message.sequence}")

    await client.connect()
    for number in range(1, 61):
        hub.say(session, "b", str(number))
        if number % 12 == 0 and hub.peers:
            await asyncio.sleep(0)
            hub.peers[0].cut()
        await asyncio.sleep(0.03)
    theirs = [m["sequence"] for m in session.messages if m["from"] == "b"]
    await hub.until(lambda: session.cursors.get("a", 0) >= theirs[-1], timeout=60)
    assert len(seen) == len(set(seen))
    assert seen == [m["sequence"] for m in session.messages if m["from"] == "b"]
    replies = [m["content"] for m in session.messages if m["from"] == "a"]
    assert sorted(set(replies)) == sorted(replies)


async def test_one_swallowed_frame_costs_one_look_into_the_log_and_no_reconnect(
    hub: FakeHub, make_client: Make
) -> None:
    client = make_client("a")
    session = hub.session("b", "a")
    seen: list[int] = []
    client.on_message(lambda message: seen.append(message.sequence))
    await client.connect()
    hub.say(session, "b", "1")
    await hub.until(lambda: session.cursors.get("a") == 1)
    hub.swallow = lambda peer, frame: frame.get("sequence") == 2 and frame["type"] == "message"
    for number in (2, 3, 4):
        hub.say(session, "b", str(number))
    await hub.until(lambda: session.cursors.get("a") == 4)
    assert seen == [1, 2, 3, 4]
    assert hub.requests.count(("GET", f"sessions/{session.session_id}/messages")) == 1
    assert hub.handshakes == 1


async def test_own_messages_are_no_gap(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("b", "a")
    seen: list[str] = []

    @client.on_message
    async def handle(message: Message) -> None:
        seen.append(message.content)
        await client.send_message(session.session_id, "re")

    await client.connect()
    for number in range(10):
        hub.say(session, "b", str(number))
        await hub.until(lambda number=number: session.cursors.get("a", 0) == 2 * number + 1)  # type: ignore[misc]
        await hub.until(lambda number=number: len(session.messages) == 2 * number + 2)  # type: ignore[misc]
    hub.peers[0].cut()
    await hub.until(lambda: hub.handshakes == 2)
    hub.say(session, "b", "last")
    await hub.until(lambda: seen[-1] == "last")
    assert ("GET", f"sessions/{session.session_id}/messages") not in hub.requests


async def test_the_same_backlog_is_not_handled_again_after_reconnects(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("b", "a")
    for number in range(5):
        hub.say(session, "b", str(number))
    hub.session("b", "a")
    seen: list[int] = []
    client.on_message(lambda message: seen.append(message.sequence))
    # The acks are lost on their way, so the hub replays all of it each time.
    real, hub._client_frame = hub._client_frame, lambda peer, frame: None  # type: ignore[method-assign]
    await hub.until(lambda: len(seen) == 5)
    for count in (2, 3):
        hub.peers[0].cut()
        await hub.until(lambda count=count: hub.handshakes == count and client.connected)  # type: ignore[misc]
    hub._client_frame = real  # type: ignore[method-assign]
    hub.peers[0].cut()
    await hub.until(lambda: session.cursors.get("a") == 5)
    assert seen == [1, 2, 3, 4, 5]


async def test_a_full_queue_is_read_from_the_log_later(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a", queue=10)
    session = hub.session("b", "a")
    gate = asyncio.Event()
    seen: list[int] = []

    @client.on_message
    async def handle(message: Message) -> None:
        await gate.wait()
        seen.append(message.sequence)

    await client.connect()
    for number in range(200):
        hub.say(session, "b", str(number))
    await hub.until(lambda: len(client._engine.dispatcher.inbox(session.session_id).queue) == 10)
    gate.set()
    await hub.until(lambda: session.cursors.get("a") == 200)
    assert seen == list(range(1, 201))


async def test_an_impossible_cursor_is_reset_once(hub: FakeHub, make_client: Make, tmp_path: Path) -> None:
    state = tmp_path / "agent.db"
    session = hub.session("b", "a")
    for number in range(5):
        hub.say(session, "b", str(number))
    first = make_client("a", state=state)
    first.on_message(lambda message: None)
    await hub.until(lambda: session.cursors.get("a") == 5)
    await first.close()
    del session.messages[2:]  # the hub was restored from an older copy
    session.cursors["a"] = 1
    second = make_client("a", state=state)
    seen: list[str] = []
    second.on_message(lambda message: seen.append(message.content))
    await hub.until(lambda: session.cursors.get("a") == 2)
    hub.say(session, "b", "new")
    await hub.until(lambda: session.cursors.get("a") == 3)
    assert seen == ["1", "new"]
    assert hub.handshakes == 2


async def test_a_disk_cursor_survives_a_lost_ack(hub: FakeHub, make_client: Make, tmp_path: Path) -> None:
    state = tmp_path / "agent.db"
    session = hub.session("b", "a")
    seen: list[int] = []
    real, hub._client_frame = hub._client_frame, lambda peer, frame: None  # type: ignore[method-assign]
    first = make_client("a", state=state)
    first.on_message(lambda message: seen.append(message.sequence))
    hub.say(session, "b", "1")
    hub.say(session, "b", "2")
    await hub.until(lambda: len(seen) == 2)
    await first.close()
    assert session.cursors == {}
    hub._client_frame = real  # type: ignore[method-assign]
    second = make_client("a", state=state)
    second.on_message(lambda message: seen.append(message.sequence))
    await hub.until(lambda: session.cursors.get("a") == 2)
    assert seen == [1, 2]


async def test_effects_and_cursor_are_one_transaction(hub: FakeHub, make_client: Make, tmp_path: Path) -> None:
    state = tmp_path / "agent.db"
    session = hub.session("b", "a")
    client = make_client("a", state=state)
    attempts = 0

    @client.on_message
    async def handle(message: Message) -> None:
        nonlocal attempts
        attempts += 1
        async with client.once(message) as db:
            db.execute("CREATE TABLE IF NOT EXISTS effect (sequence INTEGER)")
            db.execute("INSERT INTO effect VALUES (?)", (message.sequence,))
            if attempts == 1:
                raise RuntimeError("before the commit")

    hub.say(session, "b", "x")
    await hub.until(lambda: session.cursors.get("a") == 1)
    await client.close()
    db = sqlite3.connect(state)
    assert db.execute("SELECT sequence FROM effect").fetchall() == [(1,)]
    assert db.execute("SELECT done FROM hub_cursor").fetchall() == [(1,)]
    db.close()


async def test_a_durable_outbox_is_sent_by_the_next_process(hub: FakeHub, make_client: Make, tmp_path: Path) -> None:
    state = tmp_path / "agent.db"
    session = hub.session("a", "b")
    hub.refuse = lambda: (503, {})
    hub.refuse_http = lambda method, path: (503, {"code": "unavailable", "message": "", "details": {}})
    first = make_client("a", state=state, send_timeout=0.3)
    with pytest.raises(TimeoutError):
        await first.send_message(session.session_id, "kept")
    await first.close()
    assert session.messages == []
    hub.refuse = lambda: None
    hub.refuse_http = lambda method, path: None
    second = make_client("a", state=state)
    await second.connect()
    await hub.until(lambda: len(session.messages) == 1)
    assert session.messages[0]["content"] == "kept"
    await hub.until(lambda: len(second._engine.sender.outbox) == 0)
    await second.close()
    db = sqlite3.connect(state)
    assert db.execute("SELECT count(*) FROM hub_outbox").fetchone() == (0,)
    db.close()


async def test_a_state_file_belongs_to_one_process_and_one_agent(
    hub: FakeHub, make_client: Make, tmp_path: Path
) -> None:
    state = tmp_path / "agent.db"
    first = make_client("a", state=state)
    await first.connect()
    second = make_client("a", state=state)
    with pytest.raises(StateInUse):
        await second.connect()
    await first.close()
    third = make_client("b", state=state)
    with pytest.raises(StateInUse):
        await third.connect()
    assert state.stat().st_mode & 0o077 == 0


async def test_a_completed_session_is_noticed_when_its_frame_was_lost(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    await client.connect()
    hub.swallow = lambda peer, frame: frame.get("type") == "session"
    waiting = asyncio.create_task(client.wait_for_completion(session.session_id, timeout=30))
    await hub.until(lambda: ("GET", f"sessions/{session.session_id}") in hub.requests)
    hub.end(session, "timeout")
    hub.peers[0].cut()
    assert (await waiting).status == "timeout"


@pytest.mark.parametrize(
    ("code", "error"), [(4401, Unauthenticated), (4404, NotFound), (4400, ProtocolFault), (4499, ProtocolFault)]
)
async def test_final_codes_stop_the_client(hub: FakeHub, make_client: Make, code: int, error: type[Exception]) -> None:
    client = make_client("a")
    await client.connect()
    hub.peers[0].close(code)
    with pytest.raises(error):
        await asyncio.wait_for(client.run_forever(), 30)
    assert hub.handshakes == 1


@pytest.mark.parametrize("code", [1000, 1001, 1011, 1012, 4408, 4503])
async def test_other_codes_reconnect(hub: FakeHub, make_client: Make, code: int) -> None:
    client = make_client("a")
    await client.connect()
    hub.peers[0].close(code)
    await hub.until(lambda: hub.handshakes == 2)


@pytest.mark.parametrize(
    ("status", "again"), [(401, False), (403, False), (404, False), (429, True), (500, True), (503, True)]
)
async def test_refused_handshakes(hub: FakeHub, make_client: Make, status: int, again: bool) -> None:
    client = make_client("a")
    hub.refuse = lambda: (status, {}) if hub.handshakes == 1 else None
    if again:
        await client.connect(timeout=30)
    else:
        with pytest.raises((HubError, ProtocolFault)):
            await client.connect(timeout=30)
        assert hub.handshakes == 1


async def test_a_silent_hub_is_left(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    hub.welcome_extra = {"heartbeat_seconds": 0.2}
    await client.connect()
    assert client._engine._socket is not None
    client._engine._socket.link._grace = 0.2
    hub.silent = True
    await hub.until(lambda: not hub.peers)
    hub.silent = False
    await hub.until(lambda: client.connected and hub.handshakes >= 2)


async def test_a_hub_that_never_says_welcome_is_left(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    hub.greet = False
    await client.start()
    assert client._engine._socket is not None
    client._engine._socket.link._welcome_timeout = 0.2
    await hub.until(lambda: hub.handshakes == 2)
    hub.greet = True
    await client.connect(timeout=30)


async def test_unknown_frames_and_fields_are_ignored(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("b", "a")
    seen: list[str] = []
    client.on_message(lambda message: seen.append(message.content))
    await client.connect()
    for frame in ({"type": "hologram", "x": 1}, {"no": "type"}, {"type": "message", "sequence": "x"}):
        hub.give(hub.peers[0], frame)
    hub.say(session, "b", "still here", surprise=1)
    await hub.until(lambda: seen == ["still here"])
    assert hub.handshakes == 1


async def test_a_cancelled_program_closes_its_socket_and_leaves_no_task(hub: FakeHub) -> None:
    client = A2ASessionClient(hub.url, "a", hub.agent("a"))
    session = hub.session("b", "a")
    seen = asyncio.Event()

    @client.on_message
    async def handle(message: Message) -> None:
        seen.set()
        await asyncio.sleep(60)

    running = asyncio.create_task(client.run_forever())
    await hub.until(lambda: bool(hub.peers))
    hub.say(session, "b", "x")
    await seen.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    client.close_grace = 0.1
    await client.close()
    await hub.until(lambda: not hub.peers)
    assert session.cursors == {}
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("hub ")]


async def test_closing_from_a_handler_acknowledges_its_message(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("b", "a")

    @client.on_message
    async def handle(message: Message) -> None:
        await client.close()

    running = asyncio.create_task(client.run_forever())
    await hub.until(lambda: bool(hub.peers))
    hub.say(session, "b", "bye")
    await asyncio.wait_for(running, 30)
    await hub.until(lambda: session.cursors == {"a": 1})


def test_a_module_that_only_registers_handlers_is_a_program(tmp_path: Path) -> None:
    """In a process of its own: the main thread ends at once, and the agent lives."""
    import subprocess
    import sys
    import textwrap

    program = textwrap.dedent(
        """
        import asyncio, os, sys
        from hub.client import A2ASessionClient
        client = A2ASessionClient(os.environ["HUB"], "terminal", "ak_terminal")
        @client.on_new_session
        async def begin(session_id, initial_message):
            await client.send_message(session_id, "hello " + initial_message)
        @client.on_message
        async def more(message):
            await client.close()
        """
    )

    async def main() -> None:
        async with FakeHub() as hub:
            key = hub.agent("terminal")
            assert key == "ak_terminal"
            session = hub.session("cloud", "terminal")
            hub.say(session, "cloud", "world")
            url = hub.url.replace("127.0.0.1", "localhost")  # a name, so that the resolver's threads are needed too
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, env={"HUB": url, "PYTHONPATH": "."}, stderr=subprocess.PIPE
            )
            try:
                await hub.until(lambda: len(session.messages) == 2, timeout=30)
                assert session.messages[1]["content"] == "hello world"
                hub.peers[0].cut()
                hub.say(session, "cloud", "bye")
                _, errors = await asyncio.wait_for(process.communicate(), 30)
                assert process.returncode == 0
                assert errors == b""
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    asyncio.run(main())


async def test_a_program_with_its_own_loop_takes_the_client_over(hub: FakeHub) -> None:
    """Handlers registered where no loop runs, the client then used in one: one connection, from that loop."""
    key = hub.agent("a")

    def register() -> tuple[A2ASessionClient, list[str]]:
        client = A2ASessionClient(hub.url, "a", key)
        seen: list[str] = []
        client.on_message(lambda message: seen.append(message.content))
        return client, seen

    client, seen = await asyncio.get_running_loop().run_in_executor(None, register)
    session = hub.session("b", "a")
    hub.say(session, "b", "x")
    async with client:
        await hub.until(lambda: seen == ["x"])
        assert not client._background.running
    await hub.until(lambda: session.cursors == {"a": 1})
