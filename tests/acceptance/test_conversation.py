"""What a developer who tries the hub for an hour does to it, and what it must answer. Real processes, real sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket as sockets
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from tests.acceptance.conftest import FREE
from tests.acceptance.wire import Frame, Wire, collect_messages, receive, send, until
from tests.conftest import HUBS, HubFactory
from tests.hubs import Backends, Hub
from tests.services import HubProcess

_numbers = itertools.count(1)
BOTH = pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def both(request: pytest.FixtureRequest, backends: Backends) -> Iterator[Hub]:
    """A hub of each kind with two web processes, shared by the tests that need nothing special of it."""
    backend = backends.chosen(request)
    hub = Hub(backend, backend.env | FREE)
    hub.add_webs(2)
    yield hub
    hub.stop()


@pytest.fixture
def shared(both: Hub, request: pytest.FixtureRequest) -> Hub:
    request.node.stash[HUBS] = [both]
    return both


async def agents(hub: Hub, *names: str) -> list[Wire]:
    """New agents; their ids begin with these names."""
    ids = [f"{name}-{next(_numbers)}" for name in names]
    keys = await asyncio.to_thread(hub.create_agents, ids)
    return [Wire(hub.url, keys[agent_id], agent_id) for agent_id in ids]


async def all_messages(wire: Wire, session_id: str, limit: int = 500) -> list[Frame]:
    found: list[Frame] = []
    while True:
        after = found[-1]["sequence"] if found else 0
        page = (await wire.call("GET", f"sessions/{session_id}/messages?after={after}&limit={limit}")).json()
        found += page["messages"]
        if not page["has_more"]:
            return found


async def test_a_thousand_sends_by_socket_and_rest_at_once_are_numbered_without_a_gap(shared: Hub) -> None:
    alice, bob, carol = await agents(shared, "alice", "bob", "carol")
    session_id = (await alice.open_session([bob.agent_id, carol.agent_id]))["session_id"]

    async def over_a_socket(number: int) -> None:
        wire = alice.at(shared.webs[number % 2].url)
        async with wire.session_socket(session_id) as socket:
            for n in range(50):
                await send(socket, type="message", content=f"{number}-{n}", client_message_id=f"{number}-{n}")
            for _ in range(50):
                await until(socket, "ack")

    async def over_rest(number: int) -> None:
        wire = bob.at(shared.webs[number % 2].url)
        for n in range(50):
            answer = await wire.call("POST", f"sessions/{session_id}/messages", {"content": f"{number}-{n}"})
            assert answer.status_code == 201, answer.text

    async def watch() -> list[int]:
        async with carol.session_socket(session_id) as socket:
            return await collect_messages(socket, 1000, timeout=90)

    async def poll() -> list[int]:
        seen: list[int] = []
        while len(seen) < 1000:
            page = (
                await carol.at(shared.webs[1].url).call("GET", f"sessions/{session_id}/messages?after={len(seen)}")
            ).json()
            seen += [message["sequence"] for message in page["messages"]]
        return seen

    watching, polling = asyncio.create_task(watch()), asyncio.create_task(poll())
    await asyncio.gather(*(over_a_socket(i) if i % 2 else over_rest(i) for i in range(20)))
    async with asyncio.timeout(90):
        assert await watching == list(range(1, 1001))
        assert await polling == list(range(1, 1001))


@BOTH
async def test_a_reader_that_stops_reading_costs_the_hub_nothing_and_gets_it_all_later(hub_factory: HubFactory) -> None:
    hub = hub_factory(1, env={**FREE, "HUB_STALL_SECONDS": "300"})
    alice, bob = await agents(hub, "alice", "bob")
    session_id = (await alice.open_session([bob.agent_id]))["session_id"]
    process = psutil.Process(hub.webs[0].pid)
    text = "x" * 20_000
    async with bob.session_socket(session_id, max_queue=1) as lazy:
        await until(lazy, "replay_complete")
        lazy.transport.pause_reading()
        before = process.memory_info().rss
        async with alice.session_socket(session_id) as socket:
            for n in range(1000):
                await send(socket, type="message", content=text, client_message_id=str(n))
                if n % 20 == 19:
                    for _ in range(20):
                        await until(socket, "ack")
        assert process.memory_info().rss - before < 60_000_000, (
            "20 MB were sent; the hub keeps no copy for the lazy one"
        )
        lazy.transport.resume_reading()
        assert await collect_messages(lazy, 1000, timeout=60) == list(range(1, 1001))


async def test_an_embedded_hub_that_is_killed_under_load_still_has_all_that_was_acked(tmp_path: Any) -> None:
    web = HubProcess.embedded(tmp_path, env=FREE)
    with web:
        # Its first start: it has made two agents and says their keys, once.
        made = dict(re.findall(r"agent +(\S+) +(ak_\S+)", web.log_text()))
        alice_id, bob_id = made
        alice, bob = Wire(web.url, made[alice_id]), Wire(web.url, made[bob_id])
        session_id = (await alice.open_session([bob_id]))["session_id"]
        acked: dict[str, int] = {}

        async def load() -> None:
            async with alice.session_socket(session_id) as socket:
                for n in range(100_000):
                    await send(socket, type="message", content=str(n), client_message_id=str(n))
                    if n % 10 == 9:
                        for _ in range(10):
                            frame = await until(socket, "ack")
                            acked[frame["client_message_id"]] = frame["sequence"]

        loading = asyncio.create_task(load())
        async with bob.session_socket(session_id, "?ack=manual") as reader:
            await collect_messages(reader, 200)
            await send(reader, type="ack", sequence=150, id=1)
            await until(reader, "read", id=1)
        await asyncio.to_thread(web.kill9)
        with pytest.raises(ConnectionClosed):
            await loading
        await asyncio.to_thread(web.start)

        stored = {m["client_message_id"]: m["sequence"] for m in await all_messages(alice, session_id)}
        assert acked.items() <= stored.items()
        assert sorted(stored.values()) == list(range(1, len(stored) + 1))
        session = (await bob.call("GET", f"sessions/{session_id}")).json()
        mine = next(p for p in session["participants"] if p["agent_id"] == bob_id)
        assert (mine["cursor"], mine["unread"]) == (150, len(stored) - 150)
        async with bob.session_socket(session_id) as reader:
            assert await collect_messages(reader, len(stored)) == list(range(151, len(stored) + 1))


async def test_two_sockets_of_one_agent_each_get_everything_but_what_they_sent_themselves(shared: Hub) -> None:
    alice, bob = await agents(shared, "alice", "bob")
    session_id = (await alice.open_session([bob.agent_id]))["session_id"]
    async with (
        bob.session_socket(session_id) as one,
        bob.at(shared.webs[1].url).session_socket(session_id) as two,
        bob.agent_socket() as everywhere,
    ):
        for socket in (one, two, everywhere):
            await until(socket, "replay_complete", session_id=None if socket is everywhere else session_id)
        await send(one, type="message", content="from one", client_message_id="same")
        await until(one, "ack")
        for socket in (two, everywhere):
            frame = await until(socket, "message")
            assert (frame["content"], frame["client_message_id"]) == ("from one", "same")
        await alice.call("POST", f"sessions/{session_id}/messages", {"content": "to all"})
        for socket in (one, two, everywhere):
            assert (await until(socket, "message"))["content"] == "to all", "its own message did not come back"


async def test_a_resend_is_the_same_message_on_every_door_and_after_a_restart(shared: Hub) -> None:
    alice, bob = await agents(shared, "alice", "bob")
    session_id = (await alice.open_session([bob.agent_id]))["session_id"]
    frame = {"content": "once", "client_message_id": "m1"}
    async with alice.session_socket(session_id) as socket:
        await send(socket, type="message", **frame)
        first = await until(socket, "ack")
        await send(socket, type="message", **frame)
        assert (await until(socket, "ack"))["duplicate"] is True
        await send(socket, type="message", content="another", client_message_id="m1")
        assert (await until(socket, "error"))["code"] == "conflict"
    await asyncio.to_thread(shared.webs[0].restart)
    answers = await asyncio.gather(*(alice.call("POST", f"sessions/{session_id}/messages", frame) for _ in range(10)))
    assert {(a.status_code, a.json()["message_id"], a.json()["sequence"]) for a in answers} == {
        (200, first["message_id"], first["sequence"])
    }
    other = await bob.call("POST", f"sessions/{session_id}/messages", frame)
    assert (other.status_code, other.json()["sequence"]) == (201, 2), "another agent may use the same id"
    await alice.call("POST", f"sessions/{session_id}/close")
    late = await alice.call("POST", f"sessions/{session_id}/messages", frame)
    assert (late.status_code, late.json()["duplicate"]) == (200, True)
    refused = await alice.call("POST", f"sessions/{session_id}/messages", {"content": "new"})
    assert (refused.status_code, refused.json()["code"]) == (409, "session_closed")


async def test_a_revoked_key_ends_its_sockets_on_every_process_and_no_others(shared: Hub) -> None:
    [alice, bob] = await agents(shared, "alice", "bob")
    operator = Wire(shared.url, await asyncio.to_thread(shared.create_agent, "op", "operator"))
    second = Wire(shared.url, (await operator.call("POST", f"agents/{bob.agent_id}/keys", {})).json()["api_key"])
    session_id = (await alice.open_session([bob.agent_id]))["session_id"]
    async with (
        bob.at(shared.webs[1].url).session_socket(session_id) as doomed,
        second.at(shared.webs[1].url).session_socket(session_id) as spared,
    ):
        await until(doomed, "replay_complete")
        await until(spared, "replay_complete")
        prefix = bob.key.split("_")[1]
        assert (await operator.call("DELETE", f"agents/{bob.agent_id}/keys/{prefix}")).status_code == 204
        async with asyncio.timeout(30):
            assert (await until(doomed, "error"))["code"] == "unauthenticated"
            await doomed.wait_closed()
        assert doomed.close_code == 4401
        await send(spared, type="ping", id=1)
        await until(spared, "pong")
    assert (await bob.call("GET", "sessions")).status_code == 401


async def test_a_foreign_session_and_an_unknown_one_answer_alike(shared: Hub) -> None:
    alice, bob, mallory = await agents(shared, "alice", "bob", "mallory")
    foreign = (await alice.open_session([bob.agent_id], initial_message="secret"))["session_id"]
    unknown = "sess-" + "a" * 26

    def stable(answer: Any) -> tuple[int, str, dict[str, str]]:
        return answer.status_code, answer.text, {k: v for k, v in answer.headers.items() if k.lower() != "date"}

    for method, path, body in [
        ("GET", "sessions/{}", None),
        ("PATCH", "sessions/{}", {"title": 5}),
        ("GET", "sessions/{}/messages?after=99", None),
        ("POST", "sessions/{}/messages", {"content": 5}),
        ("GET", "sessions/{}/messages/msg-0000000000000/response", None),
        ("POST", "sessions/{}/read", {"up_to": 1}),
        ("POST", "sessions/{}/close", None),
        ("POST", "sessions/{}/participants", {"agent_id": mallory.agent_id}),
        ("DELETE", "sessions/{}/participants/mallory", None),
        ("POST", "sessions/{}/branches", None),
        ("POST", "sessions/{}/merge", None),
        ("GET", "sessions/{}/events", None),
    ]:
        one = stable(await mallory.call(method, path.format(foreign), body))
        two = stable(await mallory.call(method, path.format(unknown), body))
        assert one == two
        assert one[0] == 404, (method, path, one)
        assert "secret" not in one[1]
    seen = []
    for session_id in (foreign, unknown):
        async with mallory.session_socket(session_id) as socket:
            frame = await receive(socket)
            await socket.wait_closed()
            seen.append((frame, socket.close_code))
    assert seen[0] == seen[1]
    assert seen[0][1] == 4404


HOSTILE: list[tuple[str | bytes, str]] = [
    ("{", "invalid"),
    ("[]", "invalid"),
    ('"x"', "invalid"),
    ("123", "invalid"),
    ("null", "invalid"),
    ("true", "invalid"),
    ("{}", "invalid"),
    ("", "invalid"),
    ("   ", "invalid"),
    ('{"type":"message","content":"x"} trailing', "invalid"),
    ('{"type":"nonsense"}', "invalid"),
    ('{"type":"message"}', "invalid"),
    ('{"type":"message","content":5}', "invalid"),
    ('{"type":"message","content":"x","metadata":{"n":NaN}}', "invalid"),
    ('{"type":"message","content":"x","metadata":[]}', "invalid"),
    ('{"type":"message","content":"\\ud800"}', "invalid"),
    ('{"type":"message","content":"a\\u0000b"}', "invalid"),
    ('{"type":"message","content":"x","metadata":{"\\u0000":1}}', "invalid"),
    ('{"type":"message","content":"x","metadata":{"n":' + "9" * 5000 + "}}", "invalid"),
    ('{"type":"message","content":"x","client_message_id":""}', "invalid"),
    ('{"type":"message","content":"x","client_message_id":"é"}', "invalid"),
    ('{"type":"message","content":"x","to":["nobody"]}', "invalid"),
    ('{"type":"message","content":"x","reply_to":"msg-0000000000000"}', "invalid"),
    ('{"type":"message","content":"x","from":"alice"}', "forbidden"),
    ('{"type":"message","content":"' + "x" * 262_145 + '"}', "too_large"),
    ('{"type":"message","content":"' + "文" * 87_382 + '"}', "too_large"),
    ("[" * 20_000, "invalid"),
    ('{"a":' * 10_000, "invalid"),
    ('{"type":"message","content":"x","metadata":' + '{"a":' * 65 + "1" + "}" * 66, "invalid"),
    ('{"type":"ack","sequence":99}', "invalid"),
    ('{"type":"ack","sequence":-1}', "invalid"),
    ('{"type":"ack","sequence":1e30}', "invalid"),
    ('{"type":"chunk","stream_id":"","text":"x"}', "invalid"),
    (b'{"type":"ping"}', "unsupported"),
]


async def test_each_hostile_frame_gets_its_error_and_the_socket_goes_on_working(shared: Hub) -> None:
    alice, bob = await agents(shared, "alice", "bob")
    session_id = (await alice.open_session([bob.agent_id]))["session_id"]
    async with bob.session_socket(session_id) as socket:
        await until(socket, "replay_complete")
        for number, (hostile, code) in enumerate(HOSTILE):
            await socket.send(hostile)
            frame = await until(socket, "error")
            assert frame["code"] == code, (hostile[:80], frame)
            assert set(frame) >= {"code", "message", "details"}
            await send(socket, type="message", content=f"fine {number}", id=number)
            assert (await until(socket, "ack"))["id"] == number
        await socket.send('{"type":"nonsense","id":"mine"}')
        assert (await until(socket, "error"))["id"] == "mine"
        await socket.send('{"type":"message","content":5,"client_message_id":"c-5"}')
        assert (await until(socket, "error"))["client_message_id"] == "c-5"
        emoji = json.dumps({"type": "message", "content": "x"}).replace("x", "\\ud83d\\ude00")
        await socket.send(emoji)
        await until(socket, "ack")
    stored = [message["content"] for message in await all_messages(alice, session_id)]
    assert stored == [f"fine {n}" for n in range(len(HOSTILE))] + ["\U0001f600"]


async def test_ten_malformed_frames_in_a_row_close_the_socket(shared: Hub) -> None:
    alice, bob = await agents(shared, "alice", "bob")
    session_id = (await alice.open_session([bob.agent_id]))["session_id"]
    async with alice.session_socket(session_id) as socket:
        for _ in range(10):
            await socket.send("{")
        errors = [await until(socket, "error") for _ in range(10)]
        await socket.wait_closed()
        assert socket.close_code == 4400
        assert errors[-1]["retry"] is False


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
async def test_a_half_open_socket_is_given_up_and_its_agent_goes_offline(hub_factory: HubFactory) -> None:
    hub = hub_factory(1, env={"HUB_HEARTBEAT_SECONDS": "1", "HUB_PING_TIMEOUT_SECONDS": "4"})
    alice, bob = await agents(hub, "alice", "bob")
    session_id = (await alice.open_session([bob.agent_id]))["session_id"]
    async with alice.session_socket(session_id) as watcher:
        await until(watcher, "replay_complete")
        async with bob.session_socket(session_id, ping_interval=None) as silent:
            await until(silent, "replay_complete")
            await until(watcher, "presence", agent_id=bob.agent_id, status="online")
            # Nothing is read any more, so no ping is answered, and no FIN is sent: half open.
            silent.transport.pause_reading()
            await until(watcher, "presence", timeout=60, agent_id=bob.agent_id, status="offline")
            raw: sockets.socket = silent.transport.get_extra_info("socket")
            assert raw.fileno() != -1, "this side never closed"
            silent.transport.abort()


async def test_paging_in_both_directions_is_exact_while_messages_arrive(shared: Hub) -> None:
    alice, bob = await agents(shared, "alice", "bob")
    session_id = (await alice.open_session([bob.agent_id]))["session_id"]
    done = asyncio.Event()

    async def writer() -> None:
        async with alice.session_socket(session_id) as socket:
            for n in range(400):
                await send(socket, type="message", content=str(n))
                await until(socket, "ack")
        done.set()

    writing = asyncio.create_task(writer())
    forwards: list[int] = []
    while not done.is_set() or len(forwards) < 400:
        page = (await bob.call("GET", f"sessions/{session_id}/messages?after={len(forwards)}&limit=7")).json()
        forwards += [message["sequence"] for message in page["messages"]]
        top = page["last_sequence"]
        backwards: list[int] = []
        before = top + 1
        while before > 1 and len(backwards) < 60:
            page = (await bob.call("GET", f"sessions/{session_id}/messages?before={before}&limit=20")).json()
            sequences = [message["sequence"] for message in page["messages"]]
            backwards = sequences + backwards
            before = sequences[0]
        assert backwards == list(range(before, top + 1)) if backwards else top == 0
    await writing
    assert forwards == list(range(1, 401))
