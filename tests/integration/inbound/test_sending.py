"""Messages by A2A, tasks from them: an agent that just answers, an agent with an executor, contexts, resends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from a2a.types import TaskPushNotificationConfig, TaskState, TaskStatusUpdateEvent
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection

from hub.a2a import pushes, received
from hub.a2a.cards import find_card_agent
from hub.a2a.following import Watch, follow
from hub.a2a.models import Received
from hub.a2a.tasks import find_task
from hub.a2a.updates import Update
from sessions_app.db import utc_now
from sessions_app.models import Session
from sessions_app.realtime.runtime import get_runtime, stop_runtime
from sessions_app.services.sessions import expire_sessions
from tests.integration.inbound.conftest import (
    MakePeer,
    Peer,
    Streams,
    events_of,
    send_params,
    session_of,
    set_agent,
    state_of,
    texts_of,
    work,
    work_soon,
)
from traces_app.board import board_of
from traces_app.executors.contract import Completed, Report, Request
from traces_app.leases import claimable_keys

BEGUN, GATE = threading.Event(), threading.Event()


def gated(request: Request, report: Report) -> str:
    """Says that it has begun, and ends when the gate is opened."""
    BEGUN.set()
    while not GATE.wait(0.05):
        report.check()
    return "opened"


async def _states(updates: AsyncGenerator[tuple[int | None, Update]]) -> AsyncGenerator[str]:
    async with aclosing(updates):
        async for _, update in updates:
            if isinstance(update, TaskStatusUpdateEvent):
                yield TaskState.Name(update.status.state).removeprefix("TASK_STATE_").lower()


async def _all(updates: AsyncGenerator[tuple[int | None, Update]]) -> list[str]:
    return [state async for state in _states(updates)]


async def test_an_agent_that_just_answers_has_a_task_as_long_as_its_question_is_open(alice: Peer, bob: Peer) -> None:
    task = await alice.send("bob", "What is the capital?")
    assert state_of(task) == "submitted"
    assert task["contextId"].startswith("sess-")
    page = (await bob.get(f"sessions/{task['contextId']}/messages")).json()["messages"]
    assert [message["content"] for message in page] == ["What is the capital?"]
    assert page[0]["to"] == ["bob"]
    session = (await bob.get(f"sessions/{task['contextId']}")).json()
    assert session["waiting_for"] == ["bob"]
    await bob.answer(task["contextId"], "Paris", reply_to=page[0]["message_id"])
    done = await alice.task("bob", task["id"])
    assert state_of(done) == "completed"
    assert texts_of(done) == ["Paris"]
    assert [message["parts"][0]["text"] for message in done["history"]] == ["What is the capital?"]


async def test_a_blocking_send_waits_for_the_answer(alice: Peer, bob: Peer) -> None:
    sending = asyncio.create_task(alice.send("bob", "And now?", wait=True))
    session_id = await session_of(bob)
    await bob.answer(session_id, "Now")
    task = await sending
    assert (state_of(task), texts_of(task)) == ("completed", ["Now"])


async def test_a_blocking_send_to_an_agent_that_is_away_is_answered_with_the_task_as_it_is(
    alice: Peer, bob: Peer, echo: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "HUB_A2A_WAIT_SECONDS", 0.2)
    for agent in ("bob", "echo"):  # nobody is there to answer; no worker is there to run it
        task = await alice.send(agent, "Is anybody there?", wait=True)
        assert state_of(task) == "submitted"
        assert task["history"][0]["parts"] == [{"text": "Is anybody there?"}]
    old = {"id": "t-1", "sessionId": "s-1", "message": {"role": "user", "parts": [{"type": "text", "text": "hello?"}]}}
    assert (await alice.result("bob", "tasks/send", old))["status"]["state"] == "submitted"


async def test_a_task_that_somebody_has_begun_is_waited_for(
    alice: Peer, peer: MakePeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "HUB_A2A_WAIT_SECONDS", 0)
    await peer("slow", executor="python:tests.integration.inbound.test_sending:gated")
    BEGUN.clear()
    GATE.clear()
    task = await alice.send("slow", "go", messageId="same")
    assert state_of(await alice.send("slow", "go", messageId="same", wait=True)) == "submitted"
    runtime = get_runtime()
    principal = await runtime.authenticate(f"Bearer {alice.key}")
    slow = await runtime.read(find_card_agent, "slow")
    assert slow is not None
    ref = await runtime.read(find_task, task["id"], principal.agent_pk, slow.pk)
    working = asyncio.create_task(work_soon())
    assert await asyncio.to_thread(BEGUN.wait, 20)
    sending = asyncio.create_task(alice.send("slow", "go", messageId="same", wait=True))
    with Watch(runtime, ref) as watch:  # from its beginning: that it is begun is an update
        rest = asyncio.create_task(_all(follow(watch, principal, 0, begun_within=0)))
        await asyncio.wait({sending, rest}, timeout=0.2)
        assert not sending.done()
        assert not rest.done()
        GATE.set()
        assert texts_of(await sending) == ["opened"]
        assert (await rest)[-1] == "completed"
    await working


async def test_a_stream_is_the_task_then_the_answer_then_the_end(alice: Peer, bob: Peer, streams: Streams) -> None:
    streaming = asyncio.create_task(alice.rpc("bob", "SendStreamingMessage", send_params("Tell me")))
    await streams.begun()
    await bob.answer(await session_of(bob), "Told")
    results = [event["result"] for event in events_of(await streaming)]
    assert list(results[0]) == ["task"]
    assert results[1]["artifactUpdate"]["artifact"]["parts"] == [{"text": "Told"}]
    assert state_of(results[2]["statusUpdate"]) == "completed"
    assert len(results) == 3


async def test_an_executor_makes_the_task_a_trace(alice: Peer, echo: Peer) -> None:
    task = await alice.send("echo", "hello")
    assert task["id"].startswith("trace-")
    assert await work() == 1
    done = await alice.task("echo", task["id"])
    assert (state_of(done), texts_of(done)) == ("completed", ["done: hello"])
    trace = (await alice.get(f"traces/{task['id']}")).json()
    assert (trace["session_id"], trace["status"]) == (task["contextId"], "completed")


async def test_the_stream_of_a_trace_is_its_event_log(alice: Peer, echo: Peer, streams: Streams) -> None:
    streaming = asyncio.create_task(alice.rpc("echo", "SendStreamingMessage", send_params("go")))
    await streams.begun()
    assert await work() == 1
    results = [event["result"] for event in events_of(await streaming)]
    kinds = [state_of(r["statusUpdate"]) if "statusUpdate" in r else next(iter(r)) for r in results]
    assert kinds == ["task", "working", "artifactUpdate", "completed"]


async def test_a_trace_that_asks_is_answered_in_the_same_task(alice: Peer, peer: MakePeer) -> None:
    await peer("painter", executor="python:tests.executors:asks")
    sending = asyncio.create_task(alice.send("painter", "paint", wait=True))
    await work_soon()
    asked = await sending
    assert state_of(asked) == "input_required"
    assert asked["status"]["message"]["parts"] == [{"text": "Which colour?"}]
    # Only the task is named: its context is found.
    again = await alice.send("painter", "green", taskId=asked["id"])
    assert (again["id"], again["contextId"]) == (asked["id"], asked["contextId"])
    assert await work() == 1
    done = await alice.task("painter", asked["id"])
    assert texts_of(done) == ["painted green"]
    assert [message["parts"][0]["text"] for message in done["history"]] == ["paint", "green"]


async def test_the_same_message_id_is_the_same_message(alice: Peer, bob: Peer) -> None:
    first = await alice.send("bob", "once", messageId="one")
    again = await alice.send("bob", "once", messageId="one")
    assert again["id"] == first["id"]
    assert len((await bob.get("sessions")).json()["sessions"]) == 1
    refused = await alice.error("bob", "SendMessage", send_params("twice", messageId="one"))
    assert refused["code"] == -32602


async def test_two_resends_at_once_make_one_task(alice: Peer, echo: Peer) -> None:
    tasks = await asyncio.gather(*(alice.send("echo", "once", messageId="same") for _ in range(6)))
    assert len({task["id"] for task in tasks}) == 1
    assert await work() == 1


async def test_who_wants_to_be_told_of_its_task_is_known_before_anybody_can_begin_it(
    alice: Peer, echo: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "HUB_A2A_ALLOW", ["127.0.0.1"])
    to_run: list[int] = []

    def look() -> None:
        to_run.extend(claimable_keys())
        connection.close()

    def save(*args: Any, **kwargs: Any) -> TaskPushNotificationConfig:
        looking = threading.Thread(target=look)  # with a connection of its own, as a worker
        looking.start()
        looking.join()
        return kept(*args, **kwargs)

    kept = pushes.save
    monkeypatch.setattr(pushes, "save", save)
    params = send_params("be quick", messageId="told")
    params["configuration"]["taskPushNotificationConfig"] = {"url": "http://127.0.0.1:9/hook"}
    task = (await alice.result("echo", "SendMessage", params))["task"]
    assert to_run == []
    assert await work() == 1
    await alice.result("echo", "SendMessage", params)
    configs = (await alice.result("echo", "ListTaskPushNotificationConfigs", {"taskId": task["id"]}))["configs"]
    assert len(configs) == 1, "a resend configures nothing more"


async def test_a_message_whose_configuration_cannot_be_kept_is_not_stored(
    alice: Peer, bob: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "HUB_A2A_ALLOW", ["127.0.0.1"])
    monkeypatch.setattr(pushes, "MAX_CONFIGS", 0)
    params = send_params("hello")
    params["configuration"]["taskPushNotificationConfig"] = {"url": "http://127.0.0.1:9/hook"}
    assert (await alice.error("bob", "SendMessage", params))["code"] == -32602
    assert (await bob.get("sessions")).json()["sessions"] == []


async def test_a_context_goes_on_and_another_clients_name_for_it_is_kept(alice: Peer, bob: Peer) -> None:
    first = await alice.send("bob", "one", contextId="my own name")
    second = await alice.send("bob", "two", contextId="my own name")
    assert (first["contextId"], second["contextId"]) == ("my own name", "my own name")
    assert first["id"] != second["id"]
    third = await alice.send("bob", "three")
    assert third["contextId"] not in ("my own name", "")
    assert len((await bob.get("sessions")).json()["sessions"]) == 2


async def test_a_context_that_is_not_yours_is_refused_and_none_is_made(alice: Peer, bob: Peer, peer: MakePeer) -> None:
    mine = await alice.send("bob", "mine")
    carol = await peer("carol")
    for context_id in (mine["contextId"], "sess-" + "a" * 26):
        refused = await carol.error("bob", "SendMessage", send_params("let me in", contextId=context_id))
        assert refused["code"] == -32602
    assert len((await bob.get("sessions")).json()["sessions"]) == 1


async def test_a_task_takes_no_message_of_another_context(alice: Peer, bob: Peer) -> None:
    task = await alice.send("bob", "one")
    other = await alice.send("bob", "two")
    refused = await alice.error("bob", "SendMessage", send_params("x", taskId=task["id"], contextId=other["contextId"]))
    assert refused["code"] == -32602


async def test_a_task_that_has_ended_takes_no_message(alice: Peer, echo: Peer) -> None:
    task = await alice.send("echo", "one")
    await work()
    refused = await alice.error("echo", "SendMessage", send_params("more", taskId=task["id"]))
    assert refused["code"] == -32004


async def test_a_follow_up_question_is_the_same_task_and_either_answer_ends_it(alice: Peer, bob: Peer) -> None:
    task = await alice.send("bob", "Where is it?")
    await alice.send("bob", "I mean the key.", taskId=task["id"])
    page = (await bob.get(f"sessions/{task['contextId']}/messages")).json()["messages"]
    await bob.answer(task["contextId"], "Under the mat", reply_to=page[1]["message_id"])
    done = await alice.task("bob", task["id"])
    assert texts_of(done) == ["Under the mat"]
    assert [message["parts"][0]["text"] for message in done["history"]] == ["Where is it?", "I mean the key."]


async def test_others_of_a_context_are_heard_in_the_history(alice: Peer, bob: Peer, peer: MakePeer) -> None:
    carol = await peer("carol")
    task = await alice.send("bob", "What do you think?")
    added = await alice.post(f"sessions/{task['contextId']}/participants", {"agent_id": "carol", "history": "all"})
    assert added.status_code == 201
    hers = await carol.send("bob", "I have a question, too.", contextId=task["contextId"])
    assert hers["contextId"] == task["contextId"]
    seen = await alice.task("bob", task["id"])
    assert [message["parts"][0]["text"] for message in seen["history"]] == [
        "What do you think?",
        "I have a question, too.",
    ]
    assert seen["history"][1]["metadata"]["from"] == "carol"
    assert (await alice.error("bob", "GetTask", {"id": hers["id"]}))["code"] == -32001


async def test_an_agent_that_takes_no_sessions_from_you_says_so(alice: Peer, bob: Peer) -> None:
    await set_agent("bob", accepts=["somebody"])
    refused = await alice.error("bob", "SendMessage", send_params("hello"))
    assert refused["code"] == -32004
    assert refused["data"][0]["metadata"]["hub_code"] == "forbidden"


async def test_a_close_of_the_session_ends_its_open_tasks(alice: Peer, bob: Peer) -> None:
    task = await alice.send("bob", "Still there?")
    await bob.post(f"sessions/{task['contextId']}/close", {})
    assert state_of(await alice.task("bob", task["id"])) == "canceled"
    refused = await alice.error("bob", "SendMessage", send_params("again", contextId=task["contextId"]))
    assert refused["code"] == -32004


async def test_an_agent_that_leaves_owes_no_answer_any_more(alice: Peer, bob: Peer) -> None:
    task = await alice.send("bob", "Still there?")
    await bob.delete(f"sessions/{task['contextId']}/participants/bob")
    assert state_of(await alice.task("bob", task["id"])) == "failed"


async def test_a_context_does_not_time_out_under_an_open_task(alice: Peer, bob: Peer) -> None:
    task = await alice.send("bob", "Take your time.")
    past = utc_now() - timedelta(hours=1)
    rows = Session.objects.filter(public_id=task["contextId"])
    await rows.aupdate(timeout_seconds=1, last_activity=past, timeout_check_at=past)
    assert await sync_to_async(expire_sessions)() == 0
    await bob.answer(task["contextId"], "Done")
    await rows.aupdate(last_activity=past, timeout_check_at=past)
    assert await sync_to_async(expire_sessions)() == 1
    assert texts_of(await alice.task("bob", task["id"])) == ["Done"]


async def test_a_direct_answer_is_a_message_to_who_waits_and_a_task_to_who_looks(alice: Peer, peer: MakePeer) -> None:
    await peer("quick", executor="python:tests.integration.inbound.test_sending:direct")
    sending = asyncio.create_task(alice.result("quick", "SendMessage", send_params("hi", wait=True)))
    await work_soon()
    message = (await sending)["message"]
    assert (message["role"], message["parts"]) == ("ROLE_AGENT", [{"text": "hi yourself"}])
    assert state_of((await alice.result("quick", "ListTasks"))["tasks"][0]) == "completed"


def direct(request: Request, report: Report) -> Completed:
    return Completed("", ({"text": "hi yourself", "metadata": {"a2a": "message"}},))


@pytest.mark.parametrize(("said", "state"), [("yes", "completed"), ("no", "failed")])
async def test_a_leave_is_given_or_refused_in_plain_words(
    alice: Peer, peer: MakePeer, tmp_path: Path, said: str, state: str
) -> None:
    config = {"journal": str(tmp_path / "journal")}
    await peer("careful", executor="python:tests.executors:careful", executor_config=config)
    task = await alice.send("careful", "delete it")
    await work()
    asked = await alice.task("careful", task["id"])
    assert (state_of(asked), asked["status"]["message"]["parts"][0]["text"]) == ("input_required", "May I delete it?")
    unclear = await alice.error("careful", "SendMessage", send_params("maybe", taskId=task["id"]))
    assert unclear["code"] == -32602
    await alice.send("careful", said, taskId=task["id"])
    await work()
    assert state_of(await alice.task("careful", task["id"])) == state


async def test_what_the_door_keeps_of_a_message_is_not_for_others_to_write(alice: Peer, bob: Peer) -> None:
    forged = {"a2a": {"messageId": "forged"}, "classified_by": "operator", "mine": 1}
    task = await alice.send("bob", "hello", messageId="m-own", metadata=forged)
    await bob.answer(task["contextId"], "an aside", metadata=forged)
    page = (await bob.get(f"sessions/{task['contextId']}/messages")).json()["messages"]
    assert page[0]["metadata"] == {"mine": 1, "a2a": {"messageId": "m-own"}, "classified_by": "sender"}
    assert page[1]["metadata"] == {"mine": 1}
    seen = await alice.task("bob", task["id"])
    assert seen["history"][0]["messageId"] == "m-own"


async def test_a_message_id_is_remembered_until_its_task_has_long_ended(
    alice: Peer, bob: Peer, echo: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "HUB_A2A_RECEIVED_SECONDS", 3600)
    monkeypatch.setattr(received, "LIMIT", 2)
    kept = await alice.send("bob", "nobody has answered this", messageId="open")
    waits = await alice.send("echo", "nobody has run this", messageId="queued")
    done = await alice.send("bob", "answered", messageId="done")
    await bob.answer(done["contextId"], "yes")
    cancelled = await alice.send("echo", "cancelled", messageId="cancelled")
    await alice.result("echo", "CancelTask", {"id": cancelled["id"]})

    def forget(hours: int) -> list[str]:
        try:
            at = received.forget(utc_now() + timedelta(hours=hours))
            while at:
                at = received.forget(utc_now() + timedelta(hours=hours), after=at)
            return list(Received.objects.order_by("pk").values_list("message_id", flat=True))
        finally:
            connection.close()

    assert await sync_to_async(forget)(0) == ["open", "queued", "done", "cancelled"]
    assert await sync_to_async(forget)(2) == ["open", "queued"]
    assert (await alice.send("bob", "nobody has answered this", messageId="open"))["id"] == kept["id"]
    assert (await alice.send("echo", "nobody has run this", messageId="queued"))["id"] == waits["id"]
    assert texts_of(await alice.task("bob", done["id"])) == ["yes"], "the task itself is not forgotten"
    assert (await alice.send("bob", "answered", messageId="done"))["id"] != done["id"]


async def test_the_sweep_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    def forget(now: datetime, *, after: int = 0) -> int:
        looked.append(after)
        return 7 if after == 0 else 0

    monkeypatch.setattr(received, "forget", forget)
    monkeypatch.setattr(received, "_next_look", [0.0])
    monkeypatch.setattr(received, "_position", [0])
    assert "hub.a2a.received.take_due" in settings.SWEEPS
    assert received.take_due(utc_now()) == []
    assert received.take_due(utc_now()) == []
    assert looked == [0], "not at every sweep"
    received._next_look[0] = 0.0
    received.take_due(utc_now())
    assert looked == [0, 7]


@pytest.mark.parametrize("to", ["bob", "echo"])
@pytest.mark.parametrize("method", ["SendMessage", "tasks/send"])
async def test_a_hub_that_stops_answers_who_waits_with_the_task_and_does_not_wait_for_it(
    alice: Peer, bob: Peer, echo: Peer, to: str, method: str
) -> None:
    params = {
        "SendMessage": send_params("hello?", wait=True),
        "tasks/send": {"message": {"role": "user", "parts": [{"type": "text", "text": "hello?"}]}},
    }
    sending = asyncio.create_task(alice.result(to, method, params[method]))
    await session_of(alice)
    await _is_waited()
    await stop_runtime()
    result = await asyncio.wait_for(sending, 10)
    assert state_of(result.get("task", result)) == "submitted"


async def _is_waited() -> None:
    """Until a request waits for something of a session or of a trace."""
    runtime = get_runtime()
    while not (runtime.registry.topics or board_of(runtime)._followers):  # noqa: ASYNC110 - it has no event of its own
        await asyncio.sleep(0.01)
