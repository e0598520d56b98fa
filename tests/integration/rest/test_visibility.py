"""What one participant may see and another may not appears in nothing that reaches the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.testing import WebsocketCommunicator  # type: ignore[import-untyped]
from django.db import connection

from hub.asgi import application as whole_application
from sessions_app.keys import verify_key
from sessions_app.models import Agent, Injection, Session
from sessions_app.realtime.event_stream import EventStream
from sessions_app.realtime.places import enter
from sessions_app.realtime.runtime import Runtime, get_runtime
from tests.integration.rest.conftest import Door, MakeDoor, socket_of

pytestmark = pytest.mark.parametrize("application", ["express"], indirect=True)

SECRET = "the-secret-number-is-4711"
PROFILE = {
    "withheld_senders": ["c"],
    "withheld_labels": ["secret"],
    "withheld_part_types": ["UserContext"],
    "redactions": [{"pattern": "4711-[0-9]{2,8}", "replacement": "[number]"}],
}


@pytest.fixture
async def c(door: MakeDoor) -> Door:
    return await door("c")  # type: ignore[no-any-return]


async def restricted(a: Door, operator: Door, profile: dict[str, Any] | None = None, **body: Any) -> str:
    """A session of a, b and c in which b has a profile."""
    session = await a.open("b", "c", **body)
    answer = await operator.patch(f"sessions/{session}/participants/b", {"visibility": profile or PROFILE})
    assert answer.status_code == 200, answer.text
    return session


async def say_secrets(a: Door, c: Door, session: str) -> None:
    """Sequences 1 to 6: only 1 and the half of 5 are for b, and 6 without its number."""
    await a.say(session, "for everybody")
    await c.say(session, f"from c {SECRET}")
    await a.say(session, f"labelled {SECRET}", metadata={"sensitivity": "secret"})
    await a.say(session, f"labels {SECRET}", metadata={"sensitivity": ["internal", "Secret"]})
    parts = [
        {"text": "half of it"},
        {"data": {"x": SECRET}, "metadata": {"type": "UserContext", "schemaVersion": "1.0"}},
        {"text": SECRET, "metadata": {"sensitivity": "secret"}},
    ]
    answer = await a.post(f"sessions/{session}/messages", {"parts": parts})
    assert answer.status_code == 201
    await a.say(session, "call 4711-123456 please", metadata={"note": "4711-99"})


def shown(messages: list[dict[str, Any]]) -> list[tuple[int, str, bool]]:
    return [(m["sequence"], m["content"], m.get("withheld", False)) for m in messages]


FOR_B = [
    (1, "for everybody", False),
    (2, "", True),
    (3, "", True),
    (4, "", True),
    (5, "half of it", False),
    (6, "call [number] please", False),
]


async def test_the_log_keeps_every_place_and_shows_what_may_be_seen(a: Door, b: Door, c: Door, operator: Door) -> None:
    session = await restricted(a, operator)
    await say_secrets(a, c, session)
    page = (await b.get(f"sessions/{session}/messages")).json()
    assert shown(page["messages"]) == FOR_B
    assert SECRET not in json.dumps(page)
    assert "4711-" not in json.dumps(page)
    withheld = page["messages"][1]
    assert (withheld["content"], withheld["parts"], withheld["metadata"]) == ("", [], {})
    assert (withheld["from"], withheld["kind"], withheld["round"]) == ("c", "chat", 1)
    downwards = (await b.get(f"sessions/{session}/messages?before=7")).json()
    assert downwards["messages"] == page["messages"]
    for everything in (a, c, operator):
        assert SECRET in (await everything.get(f"sessions/{session}/messages")).text
    # It is still counted: reading is by sequence.
    assert (await b.post(f"sessions/{session}/read", {"up_to": 6})).json() == {"cursor": 6, "unread": 0}


async def test_what_it_said_itself_is_shown_to_it_whole(a: Door, b: Door, operator: Door, c: Door) -> None:
    session = await restricted(a, operator)
    await b.say(session, f"mine {SECRET}", metadata={"sensitivity": "secret"})
    assert SECRET in (await b.get(f"sessions/{session}/messages")).text


async def test_live_sockets_and_streams_say_what_the_log_says(a: Door, b: Door, c: Door, operator: Door) -> None:
    session = await restricted(a, operator)
    socket = WebsocketCommunicator(
        whole_application,
        f"/api/a2a/sessions/{session}/stream?ack=manual",
        headers=[(b"authorization", f"Bearer {b.key}".encode())],
    )
    assert (await socket.connect(timeout=30))[0]
    stream = asyncio.create_task(_stream(session, b, 6))
    await say_secrets(a, c, session)
    live = await _messages_of(socket, 6)
    assert shown(live) == FOR_B
    assert shown(await asyncio.wait_for(stream, 30)) == FOR_B
    await socket.disconnect()
    again = WebsocketCommunicator(
        whole_application,
        "/api/a2a/stream?ack=manual",
        headers=[(b"authorization", f"Bearer {b.key}".encode())],
    )
    assert (await again.connect(timeout=30))[0]
    replayed = await _messages_of(again, 6)
    assert shown(replayed) == FOR_B
    assert all(message["replayed"] for message in replayed)
    await again.disconnect()


async def test_a_profile_works_from_the_moment_it_is_set_also_on_an_open_socket(
    a: Door, b: Door, operator: Door, c: Door
) -> None:
    session = await a.open("b", "c")
    socket = WebsocketCommunicator(
        whole_application,
        f"/api/a2a/sessions/{session}/stream?ack=manual",
        headers=[(b"authorization", f"Bearer {b.key}".encode())],
    )
    assert (await socket.connect(timeout=30))[0]
    await c.say(session, "open")
    assert shown(await _messages_of(socket, 1)) == [(1, "open", False)]
    await operator.patch(f"sessions/{session}/participants/b", {"visibility": {"withheld_senders": ["c"]}})
    await c.say(session, SECRET)
    assert shown(await _messages_of(socket, 1)) == [(2, "", True)]
    await operator.patch(f"sessions/{session}/participants/b", {"visibility": None})
    await operator.patch("agents/b", {"visibility": {"kinds": ["task"]}})
    await c.say(session, SECRET)
    assert shown(await _messages_of(socket, 1)) == [(3, "", True)]
    await socket.disconnect()


async def test_a_profile_whose_hint_was_lost_holds_from_the_next_look_although_messages_were_heard_before_it(
    a: Door, b: Door, operator: Door, c: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await a.open("b", "c")
    async with socket_of(b, f"sessions/{session}/stream?ack=manual") as socket:
        await _frame_of(socket, "replay_complete")
        look = Runtime._look_at_sessions

        async def nothing(self: Runtime) -> None:
            pass

        monkeypatch.setattr(Runtime, "_look_at_sessions", nothing)
        with monkeypatch.context() as lost:
            lost.setattr(Runtime, "_deliver", lambda self, changes: None)
            answer = await operator.patch(f"sessions/{session}/participants/b", {"visibility": PROFILE})
            assert answer.status_code == 200
            await asyncio.sleep(0)  # what was lost has been on its way through the loop
        await a.say(session, "for everybody")
        await _frame_of(socket, "message")
        await look(get_runtime())
        await c.say(session, f"from c {SECRET}")
        assert (await _frame_of(socket, "message"))["withheld"]


async def test_neither_live_text_nor_a_trace_that_is_run_lets_out_what_the_log_withholds(
    a: Door, b: Door, c: Door, operator: Door
) -> None:
    assert (await operator.patch("agents/c", {"executor": "delegate"})).status_code == 200
    session = await restricted(a, operator)
    sockets = []
    for reader, path in ((a, f"sessions/{session}/stream"), (b, f"sessions/{session}/stream"), (c, "stream?run=1")):
        headers = [(b"authorization", f"Bearer {reader.key}".encode())]
        socket = WebsocketCommunicator(whole_application, f"/api/a2a/{path}", headers=headers)
        assert (await socket.connect(timeout=30))[0]
        sockets.append(socket)
    asker, watcher, worker = sockets
    body = {"content": f"find {SECRET}", "to": ["c"], "requires_execution": True, "metadata": {"sensitivity": "secret"}}

    async def work() -> None:
        offer = await _frame_of(worker, "trace.run")
        this = {"trace_id": offer["trace"]["trace_id"], "attempt": offer["attempt"]}
        await worker.send_to(json.dumps({"type": "trace.accept", **this}))
        event = {"type": "log", "data": {"text": SECRET}}
        await worker.send_to(json.dumps({"type": "trace.event", **this, "event": event}))
        chunk = {"type": "chunk", "session_id": session, "stream_id": "s", "text": SECRET}
        await worker.send_to(json.dumps(chunk))
        await _until(asker, lambda frame: frame["type"] == "trace" and SECRET in str(frame))
        await worker.send_to(json.dumps({"type": "trace.complete", **this, "summary": SECRET}))

    await _frame_of(worker, "welcome")
    working = asyncio.create_task(work())
    assert (await a.post(f"sessions/{session}/messages", body)).status_code == 201
    await asyncio.wait_for(working, 20)
    told = await _until(watcher, lambda frame: frame["type"] == "message" and frame["kind"] == "result")
    assert SECRET not in str(told)
    assert {"trace", "message"} <= {frame["type"] for frame in told}
    for socket in sockets:
        await socket.disconnect()


async def test_the_shared_context_loses_what_is_withheld_on_every_door(
    a: Door, b: Door, c: Door, operator: Door
) -> None:
    context = {
        "private": SECRET,
        "note": "4711-22",
        "previous_results": {"trace-1": {"summary": SECRET, "agent_id": "c"}},
    }
    profile = PROFILE | {"withheld_context": ["private"], "withheld_labels": []}
    session = await restricted(a, operator, profile, context=context)
    expected = {"note": "[number]", "previous_results": {}}
    assert (await b.get(f"sessions/{session}")).json()["context"] == expected
    listed = (await b.get("sessions")).json()["sessions"]
    assert listed[0]["context"] == expected
    assert (await a.get(f"sessions/{session}")).json()["context"] == context
    stream = asyncio.create_task(_frames(session, b, "session"))
    await _until_followed()
    changed = await a.patch(f"sessions/{session}", {"context": {"private": SECRET + "!", "open": "yes"}})
    assert changed.status_code == 200
    frame = await asyncio.wait_for(stream, 30)
    assert SECRET not in json.dumps(frame)


@pytest.mark.parametrize("path", ["sessions/{}/stream", "stream"])
async def test_a_key_that_somebody_withheld_wrote_is_told_by_no_socket(
    a: Door, b: Door, c: Door, operator: Door, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(runtime: Runtime) -> None: ...

    monkeypatch.setattr(Runtime, "_look_at_sessions", nothing)  # the agent's socket hears of the session by the change
    session = await restricted(a, operator, context={"open": 1})
    assert (await c.patch(f"sessions/{session}", {"context": {"early": SECRET}})).status_code == 200
    for reader, secret in ((b, None), (a, SECRET)):
        async with socket_of(reader, path.format(session)) as socket, socket_of(c, path.format(session)) as writer:
            told = await _until(socket, lambda frame: frame["type"] == "replay_complete")
            await _patched(writer, session, live=SECRET)
            told += await _patched(socket, session, mine=1)
            answer = told[-1]["context"]
            await _patched(writer, session, live=SECRET * 2)
            assert (await a.patch(f"sessions/{session}", {"context": {"seen_by": reader.agent_id}})).status_code == 200
            told += await _until(socket, _tells_of(reader.agent_id))
        assert (answer["open"], answer["mine"], answer.get("early"), answer.get("live")) == (1, 1, secret, secret)
        assert (SECRET in json.dumps(told)) == (secret is not None)


async def test_a_key_that_somebody_withheld_wrote_is_told_by_neither_rest_nor_stream(
    a: Door, b: Door, c: Door, operator: Door
) -> None:
    session = await restricted(a, operator, context={"open": 1})
    streams = [asyncio.create_task(_frames(session, reader, "session")) for reader in (b, a)]
    await _until_followed(2)
    assert (await c.patch(f"sessions/{session}", {"context": {"plan": {"x": SECRET}}})).status_code == 200
    from_b, from_a = await asyncio.wait_for(asyncio.gather(*streams), 30)
    assert (from_b["context"], from_a["context"]) == ({"open": 1}, {"open": 1, "plan": {"x": SECRET}})
    blindly = await b.patch(f"sessions/{session}", {"context": {"plan": {"y": 1}, "mine": 2}})
    assert blindly.json()["context"] == {"open": 1, "mine": 2}
    for path in (f"sessions/{session}", "sessions", f"contexts/{session}"):
        assert SECRET not in (await b.get(path)).text
    branch = await b.post(f"sessions/{session}/branches", {})
    assert branch.json()["context"] == {"open": 1, "mine": 2}
    for reader in (a, c, operator):
        shown = (await reader.get(f"sessions/{session}")).json()["context"]
        assert shown == {"open": 1, "plan": {"x": SECRET, "y": 1}, "mine": 2}


async def test_a_waited_response_is_given_as_the_asker_may_see_it(a: Door, b: Door, c: Door, operator: Door) -> None:
    session = await restricted(a, operator)
    asked = await b.say(session, "what is it?", to=["c"])
    await c.say(session, SECRET, reply_to=asked["message_id"])
    answer = (await b.get(f"sessions/{session}/messages/{asked['message_id']}/response?timeout=1")).json()
    assert answer["status"] == "answered"
    assert (answer["response"]["content"], answer["response"]["withheld"]) == ("", True)


async def test_a_branch_hides_no_less_than_its_parent(a: Door, b: Door, c: Door, operator: Door) -> None:
    session = await restricted(a, operator)
    await say_secrets(a, c, session)
    branch = (await a.post(f"sessions/{session}/branches", {})).json()["session_id"]
    await c.say(branch, SECRET)
    assert shown((await b.get(f"sessions/{branch}/messages")).json()["messages"]) == [(1, "", True)]
    inherited = (await b.get(f"sessions/{branch}/messages?inherited=1")).json()["messages"]
    assert shown(inherited) == FOR_B
    merged = await b.post(f"sessions/{branch}/merge", {})
    assert SECRET not in merged.text


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("c", {"content": SECRET}),
        ("a", {"content": SECRET, "metadata": {"sensitivity": "secret"}}),
        ("a", {"parts": [{"text": SECRET, "metadata": {"type": "UserContext"}}]}),
    ],
)
async def test_what_a_branch_brings_back_is_still_whose_it_was(
    a: Door, b: Door, c: Door, operator: Door, who: str, said: dict[str, Any]
) -> None:
    session = await restricted(a, operator)
    branch = (await a.post(f"sessions/{session}/branches", {"participants": ["c"]})).json()["session_id"]
    assert (await {"a": a, "c": c}[who].post(f"sessions/{branch}/messages", said)).status_code == 201
    assert (await a.post(f"sessions/{branch}/merge", {})).status_code == 200
    assert SECRET in (await c.get(f"sessions/{session}/messages")).text
    for path in (f"sessions/{session}/messages", f"contexts/{session}", f"sessions/{session}"):
        answer = await b.get(path)
        assert answer.status_code == 200
        assert SECRET not in answer.text


async def test_an_agent_of_others_sees_what_it_sent_what_addresses_it_and_what_was_injected(
    a: Door, c: Door, door: MakeDoor
) -> None:
    outside = await door("outside", kind="external")
    session = await a.open("outside", "c")
    await a.say(session, "between us")
    await a.say(session, "for you", to=["outside"])
    await outside.say(session, "my answer")
    injected = await c.say(session, "you were told this")
    own = (await outside.get(f"sessions/{session}/messages?after=2&limit=1")).json()["messages"][0]
    reply = await a.say(session, "in answer to you", reply_to=own["message_id"])
    assert shown((await outside.get(f"sessions/{session}/messages")).json()["messages"]) == [
        (1, "", True),
        (2, "for you", False),
        (3, "my answer", False),
        (4, "", True),
        (5, "in answer to you", False),
    ]
    assert reply["sequence"] == 5
    await sync_to_async(_inject)(session, injected["message_id"])
    assert shown((await outside.get(f"sessions/{session}/messages?after=3&limit=1")).json()["messages"]) == [
        (4, "you were told this", False)
    ]


async def test_who_may_set_a_profile(a: Door, b: Door, c: Door, operator: Door) -> None:
    session = await a.open("b", "c")
    path = f"sessions/{session}/participants/b"
    narrow = {"visibility": {"withheld_senders": ["c"]}}
    assert (await c.patch(path, narrow)).status_code == 403
    assert (await b.patch(path, {"context_strategy": "shared"})).status_code == 403
    answer = await a.patch(path, narrow | {"context_strategy": "embedded"})
    assert answer.json() == {"agent_id": "b", "context_strategy": "embedded"} | narrow
    for lifted in (None, {"withheld_senders": ["x"]}):
        assert (await a.patch(path, {"visibility": lifted})).status_code == 403, "only an operator may loosen it"
    assert (await operator.patch(path, {"visibility": None})).json()["visibility"] is None
    for bad in ({"scope": "some"}, {"nonsense": 1}, {"redactions": [{"pattern": "(a+)+b"}]}, {"kinds": "chat"}):
        refused = await operator.patch(path, {"visibility": bad})
        assert (refused.status_code, refused.json()["details"]["field"]) == (400, "visibility"), bad
    assert (await b.patch("agents/me", {"visibility": None})).status_code == 403


def _inject(session_id: str, message: str) -> None:
    from sessions_app.context.deliveries import Ask, delivered, prepare
    from sessions_app.protocol.ids import message_key

    session = Session.objects.get(public_id=session_id)
    agent = Agent.objects.get(agent_id="outside")
    key = message_key(message)
    assert key is not None
    delivered(prepare(Ask(session.pk, agent.pk, "and?", refs=[key], strategy="per_agent")))
    assert Injection.objects.filter(agent=agent, state=Injection.SEEN).count() == 1
    connection.close()


async def _until(socket: WebsocketCommunicator, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """All frames up to the wanted one."""
    found: list[dict[str, Any]] = []
    while not found or not wanted(found[-1]):
        found.append(json.loads(await socket.receive_from(timeout=30)))
    return found


async def _patched(socket: WebsocketCommunicator, session: str, **patch: Any) -> list[dict[str, Any]]:
    """Patch the context by a frame; all frames up to the answer."""
    await socket.send_to(json.dumps({"type": "context", "session_id": session, "patch": patch, "id": "p"}))
    return await _until(socket, lambda frame: frame.get("id") == "p")


def _tells_of(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda frame: frame.get("context", {}).get("seen_by") == name


async def _frame_of(socket: WebsocketCommunicator, kind: str) -> dict[str, Any]:
    return (await _until(socket, lambda frame: bool(frame["type"] == kind)))[-1]


async def _messages_of(socket: WebsocketCommunicator, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < number:
        frame = json.loads(await socket.receive_from(timeout=30))
        if frame["type"] == "message":
            found.append(frame)
    return found


async def _stream(session: str, reader: Door, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for frame in _events(session, reader):
        if frame["type"] == "message":
            found.append(frame)
        if len(found) == number:
            return found
    raise AssertionError("the stream ended")


async def _frames(session: str, reader: Door, kind: str) -> dict[str, Any]:
    async for frame in _events(session, reader):
        if frame["type"] == kind and "context" in frame:
            return dict(frame)
    raise AssertionError("the stream ended")


async def _until_followed(followers: int = 1) -> None:
    topics = get_runtime().registry.topics
    async with asyncio.timeout(30):
        while sum(len(topic.followers) for topic in topics.values()) < followers:  # noqa: ASYNC110  # what is waited for has no event of its own
            await asyncio.sleep(0.01)


async def _events(session: str, reader: Door) -> Any:
    runtime = get_runtime()
    await runtime.ready.wait()
    principal = await runtime.read(verify_key, reader.key)
    place = await runtime.read(enter, session, principal.agent_pk, False)
    async for text in EventStream(runtime, principal).events(place, None):
        for line in text.splitlines():
            if line.startswith("data: "):
                yield json.loads(line[6:])
