from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hub.client import (
    A2ASessionClient,
    Chunk,
    Message,
    Presence,
    SendTimeout,
    SessionClosed,
    Unauthenticated,
)
from tests.integration.client.fakehub import FakeHub, Refusal

Make = Callable[..., A2ASessionClient]


async def test_two_agents_hold_a_conversation(hub: FakeHub, make_client: Make) -> None:
    cloud, terminal = make_client("cloud"), make_client("terminal")
    heard: list[tuple[str, str]] = []

    @terminal.on_new_session
    async def begin(session_id: str, initial_message: str) -> None:
        heard.append(("new", initial_message))
        await terminal.send_message(session_id, "which module?")

    @terminal.on_message
    async def answer(message: Message) -> None:
        heard.append(("terminal", message["content"]))
        await terminal.send_message(message["session_id"], "done")

    session_id = await cloud.create_session(other_agent="terminal", initial_message="analyse")

    @cloud.on_message
    async def handle(message: Message) -> None:
        heard.append(("cloud", message["content"]))
        if message["content"] == "which module?":
            await cloud.send_message(session_id, "core")
        else:
            await cloud.close_session(session_id)

    session = await cloud.wait_for_completion(session_id, timeout=30)
    assert session.status == "completed"
    assert heard == [("new", "analyse"), ("cloud", "which module?"), ("terminal", "core"), ("cloud", "done")]
    assert [m["content"] for m in await cloud.history(session_id)] == ["analyse", "which module?", "core", "done"]
    await hub.until(lambda: hub.sessions[session_id].cursors == {"cloud": 4, "terminal": 3})


async def test_decorators_return_the_handler(make_client: Make) -> None:
    client = make_client("a")

    async def handler(*_: Any) -> None: ...

    for decorator in (
        client.on_message,
        client.on_new_session,
        client.on_error,
        client.on_connection,
        client.run_traces,
    ):
        assert decorator(handler) is handler


async def test_what_arrives_before_the_first_handler_is_held_unacknowledged(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("b", "a")
    hub.say(session, "b", "early")
    await client.connect()
    later = hub.session("b", "a")
    hub.say(later, "b", "later")
    await asyncio.sleep(0.1)  # nothing may happen: there is no condition to wait for
    assert session.cursors == {}
    seen: list[str] = []
    client.on_message(lambda message: seen.append(message["content"]))
    await hub.until(lambda: session.cursors == {"a": 1} and later.cursors == {"a": 1})
    assert sorted(seen) == ["early", "later"]


async def test_both_sockets_carry_a_message_and_it_is_handled_once(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    await client.connect()
    await client.attach(session.session_id)
    await hub.until(lambda: len(hub.peers) == 2)
    seen: list[int] = []
    client.on_message(lambda message: seen.append(message.sequence))
    for number in range(20):
        hub.say(session, "b", str(number))
    await hub.until(lambda: session.cursors == {"a": 20})
    assert seen == list(range(1, 21))


async def test_own_messages_from_another_socket_are_not_given_to_handlers(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    await client.connect()
    seen: list[str] = []
    client.on_message(lambda message: seen.append(message["content"]))
    hub.say(session, "a", "mine, sent elsewhere")
    hub.say(session, "b", "theirs")
    await hub.until(lambda: session.cursors.get("a") == 2)
    assert seen == ["theirs"]


async def test_a_handler_that_raises_is_reported_and_gets_the_message_again(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    tries: list[str] = []
    reports: list[tuple[str, int]] = []

    @client.on_message
    async def handle(message: Message) -> None:
        tries.append(message["content"])
        if len(tries) < 3:
            raise RuntimeError("not yet")

    @client.on_error
    def report(error: BaseException, message: Message, attempt: int) -> None:
        reports.append((str(error), attempt))
        assert session.cursors == {}

    await client.connect()
    hub.say(session, "b", "one")
    hub.say(session, "b", "two")
    await hub.until(lambda: session.cursors == {"a": 2})
    assert tries == ["one", "one", "one", "two"]
    assert reports == [("not yet", 1), ("not yet", 2)]


async def test_only_the_handler_that_failed_runs_again(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    first: list[int] = []
    second: list[int] = []
    client.on_message(lambda message: first.append(message.sequence))

    @client.on_message
    def fragile(message: Message) -> None:
        second.append(message.sequence)
        if len(second) == 1:
            raise RuntimeError

    await client.connect()
    hub.say(session, "b", "x")
    await hub.until(lambda: session.cursors == {"a": 1})
    assert (first, second) == ([1], [1, 1])


async def test_a_redelivered_message_does_not_send_its_answer_twice(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    attempts = 0

    @client.on_message
    async def handle(message: Message) -> None:
        nonlocal attempts
        attempts += 1
        await client.reply(message, "the answer")
        await client.reply(message, "the answer")  # the same words twice in one run are meant
        if attempts == 1:
            raise RuntimeError("after the answer")

    await client.connect()
    hub.say(session, "b", "question")
    await hub.until(lambda: session.cursors == {"a": 1})
    assert attempts == 2
    assert [m["content"] for m in session.messages] == ["question", "the answer", "the answer"]


async def test_a_handler_that_writes_into_an_ended_session_is_not_tried_for_ever(
    hub: FakeHub, make_client: Make
) -> None:
    client = make_client("a")
    session = hub.session("b", "a")
    hub.say(session, "b", "too late")
    session.status = "timeout"
    errors: list[BaseException] = []
    client.on_error(lambda error, message, attempt: errors.append(error))

    @client.on_new_session
    async def begin(session_id: str, initial_message: str) -> None:
        await client.send_message(session_id, "hello?")

    await hub.until(lambda: session.cursors == {"a": 1})
    assert [type(error) for error in errors] == [SessionClosed]


async def test_ask_returns_the_answer_and_keeps_it_from_handlers(hub: FakeHub, make_client: Make) -> None:
    client, other = make_client("a"), make_client("b")
    session = hub.session("a", "b")
    seen: list[str] = []
    client.on_message(lambda message: seen.append(message["content"]))

    @other.on_message
    async def answer(message: Message) -> None:
        await other.send_message(session.session_id, "unrelated", reply_to="msg-else")
        await other.reply(message, "42")
        await other.send_message(session.session_id, "and more")

    await other.connect()
    reply = await client.ask(session.session_id, "what?", timeout=30)
    assert reply.content == "42"
    await hub.until(lambda: session.cursors.get("a") == 4)
    assert seen == ["unrelated", "and more"]


async def test_a_handler_may_ask_in_its_own_session(hub: FakeHub, make_client: Make) -> None:
    client, other = make_client("a"), make_client("b")
    session = hub.session("b", "a")
    result: list[str] = []

    @client.on_message
    async def handle(message: Message) -> None:
        result.append((await client.ask(message.session_id, "which one?", timeout=30)).content)

    @other.on_message
    async def answer(message: Message) -> None:
        await other.reply(message, "core")

    await client.connect()
    await other.connect()
    await other.send_message(session.session_id, "analyse")
    await hub.until(lambda: session.cursors.get("a") == 3)
    assert result == ["core"]


async def test_ask_finds_an_answer_whose_push_was_lost(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    hub.swallow = lambda peer, frame: frame.get("type") == "message"
    await client.connect()
    question = asyncio.create_task(client.ask(session.session_id, "what?", timeout=20))
    await hub.until(lambda: len(session.messages) == 1)
    hub.say(session, "b", "42")
    hub.peers[0].cut()
    assert (await question).content == "42"


async def test_ask_ends_with_the_session(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    question = asyncio.create_task(client.ask(session.session_id, "what?", timeout=20))
    await hub.until(lambda: len(session.messages) == 1)
    hub.end(session)
    with pytest.raises(SessionClosed):
        await question


async def test_a_stream_yields_chunks_and_then_the_whole_answer(hub: FakeHub, make_client: Make) -> None:
    client, other = make_client("a"), make_client("b")
    session = hub.session("a", "b")

    @other.on_message
    async def answer(message: Message) -> None:
        async with other.reply_stream(message) as out:
            for piece in ("one ", "two ", "three"):
                await out.write(piece)
                await asyncio.sleep(0.06)

    await other.connect()
    pieces = [piece async for piece in client.stream(session.session_id, "count", timeout=30)]
    assert isinstance(pieces[-1], Message)
    assert pieces[-1].content == "one two three"
    assert "".join(piece.text for piece in pieces[:-1] if isinstance(piece, Chunk)) == "one two three"


async def test_events_are_acknowledged_when_the_next_is_asked_for(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    await client.connect()
    got: list[str] = []
    async with client.events(session.session_id) as events:
        hub.say(session, "b", "one")
        hub.push(session, {"type": "presence", "session_id": session.session_id, "agent_id": "b", "status": "offline"})
        hub.say(session, "b", "two")
        async for event in events:
            if isinstance(event, Message):
                got.append(event.content)
                assert session.cursors.get("a", 0) == len(got) - 1
            elif isinstance(event, Presence):
                got.append(event.status)
                await hub.until(lambda: session.cursors.get("a") == 1)
                got.pop()
            if got == ["one", "two"]:
                break
    await hub.until(lambda: session.cursors.get("a") == 2)


async def test_a_broken_off_event_loop_leaves_its_message_unhandled(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    await client.connect()
    hub.say(session, "b", "one")

    async def read_and_fail() -> None:
        async with client.events() as events:
            async for _ in events:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        await read_and_fail()
    seen: list[str] = []
    client.on_message(lambda message: seen.append(message["content"]))
    await hub.until(lambda: session.cursors.get("a") == 1)
    assert seen == ["one"]


async def test_sessions_are_handled_side_by_side_and_each_in_order(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    slow, quick = hub.session("a", "b"), hub.session("a", "b")
    gate = asyncio.Event()
    seen: list[tuple[str, int]] = []

    @client.on_message
    async def handle(message: Message) -> None:
        if message.session_id == slow.session_id:
            await gate.wait()
        seen.append((message.session_id, message.sequence))

    await client.connect()
    for number in range(3):
        hub.say(slow, "b", str(number))
        hub.say(quick, "b", str(number))
    await hub.until(lambda: quick.cursors.get("a") == 3)
    assert slow.cursors == {}
    gate.set()
    await hub.until(lambda: slow.cursors.get("a") == 3)
    assert [number for name, number in seen if name == slow.session_id] == [1, 2, 3]


async def test_a_send_into_an_ended_session_raises(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    await client.connect()
    hub.end(session)
    with pytest.raises(SessionClosed):
        await client.send_message(session.session_id, "x")


async def test_a_send_that_gets_no_ack_in_time_says_so(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    await client.connect()
    hub.swallow = lambda peer, frame: frame.get("type") == "ack"
    with pytest.raises(SendTimeout) as caught:
        await client.send_message(session.session_id, "x", timeout=0.2)
    hub.swallow = lambda peer, frame: False
    again = await client.send_message(session.session_id, "x", client_message_id=caught.value.client_message_id)
    assert again.duplicate
    assert len(session.messages) == 1


async def test_a_wrong_key_stops_the_client_and_tells_everybody(hub: FakeHub, make_client: Make) -> None:
    client = A2ASessionClient(hub.url, "a", "ak_wrong")
    states: list[tuple[str, str | None]] = []
    client.on_connection(lambda state, error: states.append((state, getattr(error, "code", None))))
    with pytest.raises(Unauthenticated):
        await client.connect()
    with pytest.raises(Unauthenticated):
        await client.run_forever()
    with pytest.raises(Unauthenticated):
        await client.send_message("sess-1", "x")
    assert hub.handshakes == 1
    assert states == [("disconnected", None), ("stopped", "unauthenticated")]
    await client.close()


async def test_delegated_traces_are_accepted_run_and_completed(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("b", "a")

    @client.run_traces
    async def work(run: Any) -> str:
        await run.event("log", text="working")
        return f"did {run.task}"

    await client.connect()
    assert hub.peers[0].run
    trace = {"trace_id": "trace-1", "session_id": session.session_id, "task": "the thing"}
    hub.give(hub.peers[0], {"type": "trace.run", "trace": trace, "attempt": 2, "lease_seconds": 30})
    await hub.until(lambda: any(frame["type"] == "trace.complete" for _, frame in hub.received))
    frames = [frame for _, frame in hub.received if frame["type"].startswith("trace.")]
    assert [frame["type"] for frame in frames] == ["trace.accept", "trace.event", "trace.complete"]
    assert frames[-1]["summary"] == "did the thing"
    assert {frame["attempt"] for frame in frames} == {2}


async def test_a_refusal_for_now_is_sent_again(hub: FakeHub, make_client: Make) -> None:
    client = make_client("a")
    session = hub.session("a", "b")
    await client.connect()
    answers = iter(
        [Refusal(503, "unavailable", {"stored": False}), Refusal(429, "rate_limited", {"retry_after": 0.1}), None]
    )

    def refuse(peer: Any, frame: Any) -> None:
        error = next(answers)
        if error is not None:
            raise error

    hub.on_message = refuse
    sent = await client.send_message(session.session_id, "x")
    assert sent.sequence == 1
    assert not sent.duplicate


async def test_a_session_begins_with_one_agent_or_with_several(hub: FakeHub, make_client: Make) -> None:
    cloud = make_client("cloud")
    make_client("b"), make_client("c")
    for given in (
        {"other_agent": ["b", "c"]},
        {"participants": ["b", "c"]},
        {"other_agent": "b", "participants": ["c"]},
    ):
        session_id = await cloud.create_session(**given)
        session = await cloud.session(session_id)
        assert {participant.agent_id for participant in session.participants} == {"cloud", "b", "c"}
