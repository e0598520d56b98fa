"""Sockets: order, replay, acknowledgement, errors that leave the connection open, closes that say why."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from websockets.exceptions import InvalidStatus

from hub.client.conformance.kit import Agent, Bench, Failed, RawSocket, check, check_that, same

UNKNOWN = "sess-" + "a" * 26


def messages(socket: RawSocket) -> list[int]:
    return [frame["sequence"] for frame in socket.frames if frame.get("type") == "message"]


@check("socket")
async def it_says_welcome_then_replays_then_goes_live(bench: Bench) -> None:
    session = await bench.session()
    for number in range(3):
        await bench.say(bench.a, session, str(number))
    async with bench.socket(bench.b, session, ack="manual") as socket:
        await socket.until("replay_complete")
        welcome = socket.frames[0]
        same((welcome["type"], welcome["protocol"], welcome["agent_id"]), ("welcome", 1, bench.b.agent_id), "welcome")
        same((welcome["cursor"], welcome["last_sequence"]), (0, 3), "cursor, last_sequence")
        check_that({"frame_bytes", "content_bytes", "window"} <= set(welcome["limits"]), "limits")
        same(
            [(f["sequence"], f.get("replayed")) for f in socket.frames if f["type"] == "message"],
            [(1, True), (2, True), (3, True)],
            "replay",
        )
        await bench.say(bench.a, session, "live")
        live = await socket.until("message")
        same((live["sequence"], bool(live.get("replayed"))), (4, False), "the live message")


@check("socket")
async def a_send_is_acked_and_not_echoed_to_its_own_socket(bench: Bench) -> None:
    session = await bench.session()
    async with (
        bench.socket(bench.a, session) as one,
        bench.socket(bench.a, session) as two,
        bench.socket(bench.b, session) as other,
    ):
        for socket in (one, two, other):
            await socket.ready()
        await one.send({"type": "message", "content": "x", "client_message_id": "k1", "id": 7})
        ack = await one.until("ack")
        same(
            (ack["client_message_id"], ack["sequence"], ack["session_id"], ack["id"]), ("k1", 1, session, 7), "the ack"
        )
        check_that(not ack.get("duplicate"), "the first ack is no duplicate")
        same((await two.until("message"))["client_message_id"], "k1", "the own other socket's message")
        same((await other.until("message"))["from"], bench.a.agent_id, "from")
        await one.send({"type": "message", "content": "x", "client_message_id": "k1"})
        same((await one.until("ack"))["duplicate"], True, "a resend's ack")
        await one.barrier()
        same(messages(one), [], "messages at the sending socket")


@check("socket")
async def manual_acks_alone_move_the_cursor(bench: Bench) -> None:
    session = await bench.session()
    for number in range(3):
        await bench.say(bench.a, session, str(number))
    async with bench.socket(bench.b, session, ack="manual") as socket:
        await socket.ready()
        await socket.send({"type": "ack", "sequence": 2, "id": "a"})
        same((await socket.until("read"))["cursor"], 2, "the cursor")
        await socket.send({"type": "ack", "sequence": 1})
        await socket.send({"type": "ack", "sequence": 99, "id": "b"})
        error = await socket.until("error")
        same(
            (error["code"], error["details"].get("last_sequence"), error["id"]),
            ("invalid", 3, "b"),
            "an impossible ack",
        )
    async with bench.socket(bench.b, session, ack="manual") as socket:
        await socket.ready()
        same(messages(socket), [3], "the replay after an ack of 2")


@check("socket")
async def after_replays_from_there_with_own_messages_and_an_impossible_one_is_said(bench: Bench) -> None:
    session = await bench.session()
    for agent in (bench.a, bench.b, bench.a):
        await bench.say(agent, session, "x")
    async with bench.socket(bench.a, session, after=1, ack="manual") as socket:
        await socket.ready()
        same(messages(socket), [2, 3], "the replay after 1")
    for wrong in (10**6, -1, "abc"):
        async with bench.socket(bench.a, session, after=wrong, ack="manual") as socket:
            await socket.until("replay_complete")
            same(socket.frames[0]["type"], "welcome", "the first frame")
            same([f["code"] for f in socket.frames if f["type"] == "error"], ["invalid"], f"errors for after={wrong}")
            same(messages(socket), [2], "the replay, as if after were absent")


@check("socket")
async def closing_in_automatic_mode_acknowledges_what_was_written(bench: Bench) -> None:
    session = await bench.session(initial_message="x")
    async with bench.socket(bench.b, session) as socket:
        await socket.ready()
    cursor = 0
    for _ in range(40):  # the close frame has arrived; what it moves may still be on its way to the disk
        row = (await bench.call(bench.b, "GET", f"sessions/{session}")).expect(200)
        cursor = next(p["cursor"] for p in row["participants"] if p["agent_id"] == bench.b.agent_id)
        if cursor == 1:
            break
        await asyncio.sleep(0.05)
    same(cursor, 1, "the cursor after a clean close")
    async with bench.socket(bench.b, session, ack="manual") as socket:
        await socket.ready()
        same(messages(socket), [], "the replay after a clean close")


@check("socket")
async def a_cut_in_automatic_mode_acknowledges_nothing(bench: Bench) -> None:
    session = await bench.session(initial_message="x")
    async with bench.socket(bench.b, session) as socket:
        await socket.ready()
        socket.connection.transport.abort()
    async with bench.socket(bench.b, session, ack="manual") as socket:
        await socket.ready()
        same(messages(socket), [1], "the replay after a cut")


@check("agent socket")
async def it_carries_all_sessions_and_those_to_come(bench: Bench) -> None:
    old = await bench.session(initial_message="old")
    async with bench.socket(bench.b, ack="manual") as socket:
        await socket.until("replay_complete", session_id=None)
        check_that(
            any(f["type"] == "message" and f["session_id"] == old for f in socket.frames), "the old session's message"
        )
        check_that(
            any(f["type"] == "new_session" and f["session"]["session_id"] == old for f in socket.frames),
            "its new_session",
        )
        new = await bench.session(initial_message="new")
        frame = await socket.until("new_session")
        same((frame["session"]["session_id"], frame["initial_message"]["content"]), (new, "new"), "new_session")
        same((await socket.until("message", session_id=new))["content"], "new", "its message")
        await socket.send({"type": "message", "session_id": new, "content": "hi", "client_message_id": "k"})
        same((await socket.until("ack"))["session_id"], new, "the ack's session")
        await socket.send({"type": "replay", "session_id": new, "after": 0})
        await socket.until("replay_complete", session_id=new)
        await socket.send({"type": "ack", "session_id": new, "sequence": 1})
        await socket.until("read", session_id=new, agent_id=bench.b.agent_id)


@check("agent socket")
async def a_batch_is_an_array_of_frames(bench: Bench) -> None:
    session = await bench.session()
    async with bench.socket(bench.a, batch=1, ack="manual") as socket:
        received: list[dict[str, Any]] = []

        async def collect(wanted: int) -> None:
            while sum(frame["type"] == "ack" for frame in received) < wanted:
                value = json.loads(await socket.connection.recv())
                received.extend(value if isinstance(value, list) else [value])

        frames = [
            {"type": "message", "session_id": session, "content": str(n), "client_message_id": f"k{n}"}
            for n in range(5)
        ]
        await socket.send(frames)
        async with asyncio.timeout(10):
            await collect(5)
        acks = [frame for frame in received if frame["type"] == "ack"]
        same([ack["client_message_id"] for ack in acks], [f"k{n}" for n in range(5)], "acks in the order of the sends")
        same([ack["sequence"] for ack in acks], [1, 2, 3, 4, 5], "sequences")


@check("frames")
async def bad_frames_get_their_error_and_the_socket_goes_on(bench: Bench) -> None:
    session = await bench.session()
    async with bench.socket(bench.a, session) as socket:
        await socket.ready()
        bad = [
            "{",
            '"x"',
            "7",
            "null",
            "{}",
            '{"type":"hologram"}',
            '{"type":"message"}',
            '{"type":"message","content":7}',
        ]
        bad += ['{"type":"message","content":"a\\u0000b"}', '{"type":"message","content":"\\ud800"}', '{"type":"ack"}']
        bad += ["[" * 5000, "", "   "]
        for text in bad:
            await socket.send(text)
            error = await socket.until("error")
            same(error["code"], "invalid", f"the code for {text[:40]!r}")
            await socket.barrier()  # a good frame between: ten bad ones in a row would end it
        await socket.send(b'{"type":"ping"}')
        same((await socket.until("error"))["code"], "unsupported", "the code for a binary frame")
        await socket.send({"type": "message", "content": "x", "client_message_id": "k", "surprise": 1})
        await socket.until("ack")


@check("frames")
async def ten_malformed_frames_in_a_row_close_with_4400(bench: Bench) -> None:
    session = await bench.session()
    async with bench.socket(bench.a, session) as socket:
        await socket.ready()
        with contextlib.suppress(Exception):
            for _ in range(12):
                await socket.send("{")
        same(await socket.close_code(), 4400, "the close code")


@check("closing")
async def a_bad_key_a_foreign_and_an_unknown_session_say_why(bench: Bench) -> None:
    foreign = await bench.session(bench.a, bench.b)
    for agent, session, code, error in (
        (Agent("x", "ak_wrong"), None, 4401, "unauthenticated"),
        (None, None, 4401, "unauthenticated"),
        (Agent("x", "ak_wrong"), foreign, 4401, "unauthenticated"),
        (bench.a, UNKNOWN, 4404, "not_found"),
    ):
        try:
            async with bench.socket(agent, session) as socket:
                same(await socket.close_code(), code, "the close code")
        except InvalidStatus as answer:
            raise Failed(
                f"refused with HTTP {answer.response.status_code}; accept, say why, close with {code}"
            ) from None
        said = [frame for frame in socket.frames if frame.get("type") == "error"]
        same([frame["code"] for frame in said], [error], "the error frame before the close")
        same(said[0].get("retry"), False, "retry")


@check("closing")
async def a_foreign_session_closes_like_an_unknown_one(bench: Bench) -> None:
    foreign = await bench.session(bench.a, bench.b)
    async with bench.socket(bench.c, foreign) as one, bench.socket(bench.c, UNKNOWN) as other:
        same(await one.close_code(), 4404, "the close code of a foreign session")
        same(await other.close_code(), 4404, "the close code of an unknown session")
        same(one.frames, other.frames, "the frames of a foreign session")


@check("closing")
async def the_end_of_a_session_ends_its_socket_with_1000(bench: Bench) -> None:
    session = await bench.session(initial_message="x")
    async with bench.socket(bench.b, session) as socket:
        await socket.ready()
        await bench.call(bench.a, "POST", f"sessions/{session}/close", {})
        same((await socket.until("session", status="completed"))["reason"], "completed", "the reason")
        same(await socket.close_code(), 1000, "the close code")


@check("closing")
async def who_is_removed_is_told_and_closed_with_4404(bench: Bench) -> None:
    session = await bench.session(bench.a, bench.b, bench.c)
    async with bench.socket(bench.c, session) as socket:
        await socket.ready()
        answer = await bench.call(bench.a, "DELETE", f"sessions/{session}/participants/{bench.c.agent_id}")
        answer.expect(204)
        await socket.until("session", reason="removed")
        same(await socket.close_code(), 4404, "the close code")


@check("live")
async def presence_chunks_and_context_are_pushed(bench: Bench) -> None:
    await bench.offline(bench.b)
    session = await bench.session()
    async with bench.socket(bench.a, session, ack="manual") as one:
        await one.ready()
        async with bench.socket(bench.b, session, ack="manual") as two:
            await two.ready()
            await one.until("presence", agent_id=bench.b.agent_id, status="online")
            await two.send({"type": "chunk", "stream_id": "s1", "text": "he"})
            await two.send({"type": "chunk", "stream_id": "s1", "text": "llo"})
            chunks = [await one.until("chunk"), await one.until("chunk")]
            same("".join(chunk["text"] for chunk in chunks), "hello", "the chunks")
            same([chunk["index"] for chunk in chunks], [chunks[0]["index"], chunks[0]["index"] + 1], "their indices")
            same(chunks[0]["from"], bench.b.agent_id, "from")
            await two.send({"type": "context", "patch": {"focus_module": "core"}})
            frame = await one.until("session")
            while frame.get("context") is None:
                frame = await one.until("session")
            same(frame["context"], {"focus_module": "core"}, "the context")
        await one.until("presence", agent_id=bench.b.agent_id, status="offline")
        same(messages(one), [], "stored messages")


@check("live")
async def turns_are_told(bench: Bench) -> None:
    session = await bench.session()
    async with bench.socket(bench.a, session, ack="manual") as socket:
        await socket.ready()
        await socket.send({"type": "message", "content": "hi", "client_message_id": "k", "wait_for_response": True})
        frame = await socket.until("session", status="waiting")
        same((frame["waiting_for"], frame["current_speaker"]), ([bench.b.agent_id], bench.a.agent_id), "the turn")
        await bench.say(bench.b, session, "hello")
        same((await socket.until("session", status="active"))["waiting_for"], [], "waiting_for after the answer")


@check("order")
async def many_senders_at_once_get_one_order_without_gaps(bench: Bench) -> None:
    session = await bench.session()
    each = 40
    async with (
        bench.socket(bench.b, session, ack="manual") as watcher,
        bench.socket(bench.a, session, ack="manual") as sender,
    ):
        await watcher.ready()
        await sender.ready()

        async def by_rest() -> None:
            for number in range(each):
                await bench.say(bench.a, session, f"rest {number}")

        async def by_socket() -> None:
            for number in range(each):
                await sender.send({"type": "message", "content": f"ws {number}", "client_message_id": f"w{number}"})

        await asyncio.gather(by_rest(), by_socket())
        while len(messages(watcher)) < 2 * each:
            await watcher.until("message")
        same(messages(watcher), list(range(1, 2 * each + 1)), "what the watcher saw")
        for kind in ("rest", "ws"):
            texts = [f["content"] for f in watcher.frames if f["type"] == "message" and f["content"].startswith(kind)]
            same(texts, [f"{kind} {number}" for number in range(each)], f"the order of {kind}")
