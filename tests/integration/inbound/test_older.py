"""A2A 0.3 by its method names, and the first version in both its forms."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.inbound.conftest import Peer, Streams, events_of, session_of, work, work_soon


def old_message(text: str, **message: Any) -> dict[str, Any]:
    return {
        "message": {
            "kind": "message",
            "messageId": f"old-{text}",
            "role": "user",
            "parts": [{"kind": "text", "text": text}],
        }
        | message,
        "configuration": {"blocking": False, "acceptedOutputModes": []},
    }


async def test_0_3_sends_gets_and_cancels(alice: Peer, echo: Peer) -> None:
    task = await alice.result("echo", "message/send", old_message("hello"), version=None)
    assert (task["kind"], task["status"]["state"]) == ("task", "submitted")
    await work()
    done = await alice.result("echo", "tasks/get", {"id": task["id"]}, version=None)
    assert done["status"]["state"] == "completed"
    assert done["artifacts"][0]["parts"] == [{"kind": "text", "text": "done: hello"}]
    assert (await alice.error("echo", "tasks/cancel", {"id": task["id"]}, version=None))["code"] == -32002


async def test_0_3_waits_where_the_client_does_not_say(alice: Peer, echo: Peer) -> None:
    """The version leaves it open; its official SDKs, servers and clients, wait."""
    for number, more in enumerate([{"configuration": {"acceptedOutputModes": ["text/plain"]}}, {}]):
        params = {"message": old_message("hello", messageId=f"m-{number}")["message"], **more}
        sending = asyncio.create_task(alice.result("echo", "message/send", params, version=None))
        await work_soon()
        assert (await sending)["status"]["state"] == "completed"


async def test_0_3_streams_and_resubscribes(alice: Peer, bob: Peer, streams: Streams) -> None:
    streaming = asyncio.create_task(alice.rpc("bob", "message/stream", old_message("hello"), version=None))
    session_id = await session_of(bob)
    task_id = (await alice.result("bob", "ListTasks"))["tasks"][0]["id"]
    again = asyncio.create_task(alice.rpc("bob", "tasks/resubscribe", {"id": task_id}, version=None))
    await streams.begun(2)  # a task that has ended is subscribed to no more
    await bob.answer(session_id, "hi")
    for answer in (await streaming, await again):
        results = [event["result"] for event in events_of(answer)]
        assert [result["kind"] for result in results][-2:] == ["artifact-update", "status-update"]
        assert results[-1]["final"] is True


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tasks/get", {}, -32602),
        ("tasks/get", {"id": 7}, -32602),
        ("message/send", {"message": {"parts": []}}, -32602),
        ("tasks/get", {"id": "nothing"}, -32001),
        (
            "message/send",
            {"message": {"messageId": "m", "role": "user", "parts": [{"type": "x", "text": "y"}]}},
            -32602,
        ),
    ],
)
async def test_0_3_gets_the_code_that_it_knows(alice: Peer, bob: Peer, method: str, params: Any, code: int) -> None:
    assert (await alice.error("bob", method, params, version=None))["code"] == code


@pytest.mark.parametrize("length", [1 << 31, -(1 << 40), 1e30, 99999999999])
async def test_0_3_is_told_that_a_length_is_too_large(alice: Peer, bob: Peer, length: float) -> None:
    configuration = {"configuration": {"historyLength": length}}
    asked: list[tuple[str, dict[str, Any]]] = [
        ("tasks/get", {"id": "x", "historyLength": length}),
        ("message/send", old_message("hello") | configuration),
        ("message/stream", old_message("hello") | configuration),
    ]
    for method, params in asked:
        assert (await alice.error("bob", method, params, version=None))["code"] == -32602
    answer = await alice.call("GET", f"/a2a/agents/bob/v1/tasks/x?historyLength={length:.0f}")
    assert answer.status_code == 400
    assert (await alice.result("bob", "ListTasks"))["tasks"] == []


async def test_a_refused_stream_says_so_in_the_stream_in_0_3(alice: Peer, bob: Peer) -> None:
    events = events_of(await alice.rpc("bob", "tasks/resubscribe", {"id": "nothing"}, version=None))
    assert [event["error"]["code"] for event in events] == [-32001]


async def test_a_result_that_is_null_is_there_in_0_3(alice: Peer, bob: Peer) -> None:
    task = await alice.send("bob", "hello")
    params = {"id": task["id"], "pushNotificationConfigId": "none"}
    answer = (await alice.rpc("bob", "tasks/pushNotificationConfig/delete", params, version=None)).json()
    assert "result" in answer
    assert answer["result"] is None


async def test_0_3_over_http_and_json(alice: Peer, echo: Peer) -> None:
    message = {"messageId": "r", "role": "ROLE_USER", "content": [{"text": "hello"}]}
    body = {"message": message, "configuration": {"blocking": False}}
    sent = await alice.call("POST", "/a2a/agents/echo/v1/message:send", json=body)
    task = sent.json()["task"]
    await work()
    shown = await alice.call("GET", f"/a2a/agents/echo/v1/tasks/{task['id']}?historyLength=1")
    assert shown.json()["status"]["state"] == "TASK_STATE_COMPLETED"
    for path, status in (
        (f"tasks/{task['id']}?historyLength=many", 400),
        (f"tasks/{task['id']}?historyLength=٣", 400),
        ("tasks/nothing", 404),
        ("tasks/nothing:subscribe", 404),
    ):
        assert (await alice.call("GET", f"/a2a/agents/echo/v1/{path}")).status_code == status


# --- the first version ------------------------------------------------------------------------------------------------


async def test_tasks_send_keeps_the_names_that_the_client_gave(alice: Peer, echo: Peer) -> None:
    params = {
        "id": "task-001",
        "sessionId": "session-001",
        "message": {
            "role": "user",
            "parts": [
                {"type": "text", "text": "hello"},
                {"type": "file", "file": {"name": "a.txt", "mimeType": "text/plain", "bytes": "aGk="}},
                {"type": "file", "file": {"uri": "https://example.com/a.png", "mimeType": "image/png"}},
            ],
        },
    }
    sending = asyncio.create_task(alice.result("echo", "tasks/send", params, version=None))
    await work_soon()
    task = await sending
    assert (task["id"], task["sessionId"], task["status"]["state"]) == ("task-001", "session-001", "completed")
    assert task["artifacts"][0]["parts"] == [{"type": "text", "text": "done: hello"}]
    assert task["history"][0]["parts"][1:] == params["message"]["parts"][1:]  # type: ignore[index]
    # The same name again is the same task, which has ended.
    assert (await alice.error("echo", "tasks/send", params, version=None))["code"] == -32004
    assert (await alice.task("echo", "task-001"))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_send_subscribe_has_the_events_of_the_seed_in_envelopes(alice: Peer, bob: Peer, streams: Streams) -> None:
    params = {"id": "t", "sessionId": "s", "message": {"role": "user", "parts": [{"type": "text", "text": "weather?"}]}}
    streaming = asyncio.create_task(alice.rpc("bob", "tasks/sendSubscribe", params, version=None))
    await streams.begun()
    await bob.answer(await session_of(bob), "sunny")
    events = events_of(await streaming)
    assert [event["event"] for event in events] == [
        "TaskStatusUpdateEvent",
        "TaskArtifactUpdateEvent",
        "TaskStatusUpdateEvent",
    ]
    first, artifact, last = (event["result"] for event in events)
    assert (first["id"], first["status"]["state"], first["final"]) == ("t", "submitted", False)
    assert artifact["artifact"] == {
        "parts": [{"type": "text", "text": "sunny"}],
        "index": 0,
        "name": "result",
        "append": False,
        "lastChunk": True,
    }
    assert (last["status"]["state"], last["final"]) == ("completed", True)


async def test_the_seeds_own_params_are_answered_bare(alice: Peer, bob: Peer, streams: Streams) -> None:
    params = {
        "session_id": "session-001",
        "current_query": "推荐一个适合今天天气的户外活动",
        "context_injections": [{"source_agent": "agent_a", "round": 1, "content": "北京今天晴"}],
        "round": 2,
    }
    streaming = asyncio.create_task(alice.rpc("bob", "tasks/sendSubscribe", params, version=None))
    await streams.begun()
    session_id = await session_of(bob)
    page = (await bob.get(f"sessions/{session_id}/messages")).json()["messages"]
    injected = page[0]["parts"][1]
    assert page[0]["content"] == params["current_query"]
    assert injected["metadata"]["type"] == "ContextInjections"
    assert injected["data"][0]["content"] == "北京今天晴"
    await bob.answer(session_id, "推荐：奥森跑步")
    events = events_of(await streaming)
    assert [event["status"]["state"] for event in events if "status" in event] == ["submitted", "completed"]
    assert events[1]["artifact"]["parts"] == [{"type": "text", "text": "推荐：奥森跑步"}]
    # And again, in one answer.
    sending = asyncio.create_task(alice.result("bob", "tasks/send", {**params, "round": 3}, version=None))
    while len((await bob.get(f"sessions/{session_id}/messages")).json()["messages"]) < 3:
        pass
    await bob.answer(session_id, "再见")
    answer = await sending
    assert answer["session_id"] == "session-001_bob"
    assert answer["message"] == {"role": "assistant", "content": "再见"}


@pytest.mark.parametrize(
    "params", [None, [], {"message": 7}, {"message": {"parts": [{"type": "x"}]}}, {"current_query": 7}]
)
async def test_broken_params_of_the_first_version_are_refused(alice: Peer, bob: Peer, params: Any) -> None:
    code = (await alice.error("bob", "tasks/send", params, version=None))["code"]
    assert code in (-32600, -32602)
