"""Live text never comes before the word that its task is at work, whatever a reader finds when it looks."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest
from a2a.types import TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from asgiref.sync import sync_to_async

from hub.a2a import following
from hub.a2a.following import Watch, follow
from hub.a2a.tasks import find_task
from hub.a2a.updates import Page, Update, page_after
from sessions_app.context.profiles import open_view
from sessions_app.keys import Principal
from sessions_app.models import Agent
from sessions_app.protocol.frames import encode
from sessions_app.realtime.runtime import Runtime, get_runtime
from tests.integration.inbound.conftest import Peer
from traces_app import leases, lifecycle
from traces_app.board import board_of
from traces_app.models import Trace
from traces_app.outcomes import Completed
from traces_app.rest import stream
from traces_app.selectors import find_trace


@sync_to_async
def work(task: dict[str, Any], *, ends: bool) -> None:
    """A worker takes the trace, and maybe ends it."""
    claimed = leases.claim(Trace.objects.get(public_id=task["id"]).pk, "w")
    assert claimed is not None
    if ends:
        assert lifecycle.complete(claimed, Completed("one two"))


def write(runtime: Runtime, task: dict[str, Any]) -> None:
    """Its text comes, in two pieces."""
    names = {"session_id": task["contextId"], "from": "echo", "stream_id": task["id"], "trace_id": task["id"]}
    for index, text in enumerate(("one ", "two")):
        board_of(runtime).frame({"stream_id": task["id"], "frame": encode("chunk", **names, index=index, text=text)})


def told(update: Update) -> str:
    if isinstance(update, TaskArtifactUpdateEvent):
        return str(update.artifact.parts[0].text)
    assert isinstance(update, TaskStatusUpdateEvent)
    return str(TaskState.Name(update.status.state)).removeprefix("TASK_STATE_").lower()


def kind_of(event: str) -> str:
    return event.split("\n")[0].removeprefix("event: ")


async def watching(peer: Peer, task: dict[str, Any]) -> tuple[Watch, Principal]:
    runtime = get_runtime()
    principal = await runtime.authenticate(f"Bearer {peer.key}")
    agent = await Agent.objects.aget(agent_id="echo")
    return Watch(runtime, await runtime.read(find_task, task["id"], principal.agent_pk, agent.pk)), principal


async def followed(peer: Peer, task: dict[str, Any], *, ends: bool) -> list[str]:
    """What a stream tells that begins before the claim and first looks after the text."""
    runtime = get_runtime()
    watch, principal = await watching(peer, task)
    said = []
    with watch:
        await work(task, ends=ends)
        write(runtime, task)
        async with aclosing(follow(watch, principal, 3)) as updates:
            async for _, update in updates:
                said.append(told(update))
                if len(said) == 3 and not ends:
                    break
    return said


async def test_a_task_is_at_work_before_its_text_comes(alice: Peer, echo: Peer) -> None:
    assert await followed(alice, await alice.send("echo"), ends=False) == ["working", "one ", "two"]


async def test_text_comes_before_the_end_that_is_found_with_it(alice: Peer, echo: Peer) -> None:
    # The pieces were all of it, so the whole result adds nothing to them.
    assert await followed(alice, await alice.send("echo"), ends=True) == ["working", "one ", "two", "", "completed"]


async def test_text_that_overtakes_its_claim_waits_for_it(
    alice: Peer, echo: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()

    def page(*given: Any) -> Page:
        found = page_after(*given)
        looked.set()
        return found

    monkeypatch.setattr(following, "page_after", page)
    task = await alice.send("echo")
    runtime = get_runtime()
    watch, principal = await watching(alice, task)
    with watch:
        write(runtime, task)
        async with aclosing(follow(watch, principal, 3)) as updates:
            first = asyncio.ensure_future(anext(updates))
            assert await asyncio.to_thread(looked.wait, 30)
            await work(task, ends=False)
            board_of(runtime).wake()
            assert [told((await first)[1]), *[told((await anext(updates))[1]) for _ in range(2)]] == [
                "working",
                "one ",
                "two",
            ]


async def test_text_in_the_name_of_a_trace_is_taken_from_its_own_agent_alone(alice: Peer, echo: Peer) -> None:
    """A stream's name is of the sender's choosing, and whoever is in the session knows the trace's."""
    task = await alice.send("echo")
    runtime = get_runtime()
    watch, _ = await watching(alice, task)

    def say(agent_pk: int, session_pk: int, text: str) -> None:
        sender: Any = SimpleNamespace(
            connection_id=f"{agent_pk} {session_pk}", principal=SimpleNamespace(agent_pk=agent_pk)
        )
        feed: Any = SimpleNamespace(session_pk=session_pk, session_id=task["contextId"], agent_id="echo")
        runtime.live.chunk(sender=sender, feed=feed, stream_id=task["id"], text=text)

    with watch:
        say(watch.ref.owner_pk, watch.ref.session_pk, "of somebody in the session")
        say(watch.ref.agent_pk, watch.ref.session_pk + 1, "of the agent, in another session")
        say(watch.ref.agent_pk, watch.ref.session_pk, "its own")
        assert [frame["text"] for frame in watch.frames(open_view())] == ["its own"]


@pytest.mark.parametrize("overtakes", [False, True])
async def test_a_traces_own_stream_keeps_the_same_order(
    alice: Peer, echo: Peer, monkeypatch: pytest.MonkeyPatch, overtakes: bool
) -> None:
    looked = threading.Semaphore(0)
    page = stream._page

    def noted(*given: Any) -> Any:
        found = page(*given)
        looked.release()
        return found

    monkeypatch.setattr(stream, "_page", noted)
    task = await alice.send("echo")
    runtime = get_runtime()
    principal = await runtime.authenticate(f"Bearer {alice.key}")
    access = await runtime.read(find_trace, task["id"], principal)
    async with aclosing(stream.follow_trace(runtime, principal, access, 0)) as events:
        assert "connected" in await anext(events)
        kinds = [kind_of(await anext(events))]  # created: from here on what is written is heard
        if overtakes:
            write(runtime, task)
            second = asyncio.ensure_future(anext(events))
            for _ in range(2):
                assert await asyncio.to_thread(looked.acquire, timeout=30)
            await work(task, ends=True)
            board_of(runtime).wake()
            kinds.append(kind_of(await second))
        else:
            await work(task, ends=True)
            write(runtime, task)
        kinds += [kind_of(event) async for event in events]
    assert kinds[:4] == ["status", "status", "chunk", "chunk"], "created, running, and then what is written"
    assert kinds[-2:] == ["status", "end"]
