"""The stock A2A client against agents of the hub, over two web processes; the agents have only an outgoing WebSocket."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from a2a.client import A2AClientError, Client, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError

from hub.client import A2ASessionClient
from hub.client.frames import Message as HubMessage
from tests.conftest import HUBS
from tests.hubs import Backends, Hub
from tests.processes import LOOPBACK
from tests.services import HubProcess

NAMES = ("terminal", "asker", "other", "worker")
BINDINGS = ("JSONRPC", "HTTP+JSON")
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def house(request: pytest.FixtureRequest, backends: Backends) -> Iterator[tuple[Hub, dict[str, str]]]:
    """A hub with two web processes for all tests of this module, and the keys of its agents. Nobody runs traces here."""
    backend = backends.chosen(request)
    hub = Hub(backend, backend.env)
    hub.add_webs(2)
    keys = hub.create_agents(NAMES)
    hub.create_agent("slow", executor="python:tests.executors:sleeper")
    yield hub, keys
    hub.stop()


@pytest.fixture
def hub(house: tuple[Hub, dict[str, str]], request: pytest.FixtureRequest) -> Hub:
    """Both web processes run, also when the test before has killed one."""
    request.node.stash[HUBS] = [house[0]]
    house[0].start()
    return house[0]


@pytest.fixture
def keys(house: tuple[Hub, dict[str, str]]) -> dict[str, str]:
    return house[1]


def beside(hub: Hub) -> HubProcess:
    """Where a writer of live text connects: it goes from process to process by Redis alone."""
    return hub.webs[1] if carries_text(hub) else hub.webs[0]


def carries_text(hub: Hub) -> bool:
    return "REDIS_URL" in hub.env


@asynccontextmanager
async def stock(web: HubProcess, key: str, agent_id: str, binding: str = "JSONRPC") -> AsyncIterator[Client]:
    """The SDK's client as it comes, with its own time-outs, from the card's URL on."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http:
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], use_client_preference=True)
        yield await ClientFactory(config).create_from_url(f"{web.url}/a2a/agents/{agent_id}")


@asynccontextmanager
async def terminal(web: HubProcess, key: str, answer: Any) -> AsyncIterator[A2ASessionClient]:
    """An agent behind NAT: all it has is the SDK's outgoing socket."""
    async with A2ASessionClient(web.url, "terminal", key, reconnect_cap=0.5) as agent:
        agent.on_message(lambda message: answer(agent, message))
        yield agent


async def echo(agent: A2ASessionClient, message: HubMessage) -> None:
    await agent.reply(message, f"You said: {message.content}")


async def in_pieces(agent: A2ASessionClient, message: HubMessage) -> None:
    async with agent.reply_stream(message) as stream:
        for word in ("Beijing ", "is ", "sunny."):
            await stream.write(word)
            await asyncio.sleep(0.1)


class Speaker:
    """An agent that talks from when its listener is there until he has heard a piece: what nobody listens to is not kept."""

    def __init__(self) -> None:
        self.listening = asyncio.Event()
        self.heard = asyncio.Event()
        self.said = ""

    async def __call__(self, agent: A2ASessionClient, message: HubMessage) -> None:
        await self.listening.wait()
        async with agent.reply_stream(message) as stream:
            await stream.write("Beijing is ")
            while not self.heard.is_set():
                await stream.write("very ")
                await asyncio.sleep(0.05)
            await stream.write("sunny.")
            self.said = stream.text


def ask(text: str, *, task_id: str = "", wait: bool = True) -> SendMessageRequest:
    message = Message(message_id=f"m-{next(_numbers)}", role=Role.ROLE_USER, parts=[Part(text=text)], task_id=task_id)
    return SendMessageRequest(message=message, configuration=SendMessageConfiguration(return_immediately=not wait))


def folded(events: list[StreamResponse]) -> tuple[str, int]:
    """The text of the artifacts and the state that a client ends up with."""
    texts: dict[str, str] = {}
    state = 0
    for event in events:
        match event.WhichOneof("payload"):
            case "task":
                state = event.task.status.state
                texts = {a.artifact_id: "".join(part.text for part in a.parts) for a in event.task.artifacts}
            case "status_update":
                state = event.status_update.status.state
            case "artifact_update":
                update = event.artifact_update
                text = "".join(part.text for part in update.artifact.parts)
                known = texts.get(update.artifact.artifact_id, "") if update.append else ""
                texts[update.artifact.artifact_id] = known + text
    return "".join(texts.values()), state


async def first_task(events: AsyncIterator[StreamResponse]) -> Task:
    event = await anext(events)
    assert event.WhichOneof("payload") == "task"
    return event.task


@pytest.mark.parametrize("binding", BINDINGS)
async def test_an_agent_behind_nat_answers_a_stock_client(hub: Hub, keys: dict[str, str], binding: str) -> None:
    async with (
        terminal(hub.webs[1], keys["terminal"], echo),
        stock(hub.webs[0], keys["asker"], "terminal", binding) as client,
    ):
        client._config.streaming = False  # type: ignore[attr-defined]
        events = [event async for event in client.send_message(ask("hello"))]
        assert folded(events) == ("You said: hello", TaskState.TASK_STATE_COMPLETED)


@pytest.mark.parametrize("binding", BINDINGS)
async def test_an_agent_behind_nat_streams_to_a_stock_client(hub: Hub, keys: dict[str, str], binding: str) -> None:
    speaker = Speaker()
    async with (
        terminal(beside(hub), keys["terminal"], speaker),
        stock(hub.webs[0], keys["asker"], "terminal", binding) as client,
    ):
        events: list[StreamResponse] = []
        async for event in client.send_message(ask("the weather?")):
            events.append(event)
            speaker.listening.set()  # the stream has told where the task stands: from now on it tells what comes
            if event.WhichOneof("payload") == "artifact_update":
                speaker.heard.set()
        assert folded(events) == (speaker.said, TaskState.TASK_STATE_COMPLETED)
        pieces = [event for event in events if event.WhichOneof("payload") == "artifact_update"]
        assert len(pieces) > 1


async def test_a_task_waits_for_an_agent_that_is_away_and_is_answered_when_it_is_back(
    hub: Hub, keys: dict[str, str]
) -> None:
    async with stock(hub.webs[0], keys["asker"], "terminal") as client:
        events = client.send_message(ask("are you there?"))
        task = await first_task(events)
        assert task.status.state == TaskState.TASK_STATE_SUBMITTED
        # Longer than the stock client reads a silent stream: the hub's pings keep it.
        following = asyncio.create_task(_rest(events))
        await asyncio.sleep(6)
        assert not following.done()
        async with terminal(hub.webs[1], keys["terminal"], echo):
            assert folded(await following) == ("You said: are you there?", TaskState.TASK_STATE_COMPLETED)


async def _rest(events: AsyncIterator[StreamResponse]) -> list[StreamResponse]:
    return [event async for event in events]


async def test_a_web_process_dies_in_the_middle_and_nothing_is_lost(hub: Hub, keys: dict[str, str]) -> None:
    listening, heard, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    if not carries_text(hub):
        heard.set()
    said = ""

    async def slowly(agent: A2ASessionClient, message: HubMessage) -> None:
        nonlocal said
        await listening.wait()
        async with agent.reply_stream(message) as stream:
            await stream.write("first half, ")
            while not heard.is_set():
                await stream.write("still the first half, ")
                await asyncio.sleep(0.05)
            await go_on.wait()
            await stream.write("second half")
            said = stream.text

    async with (
        terminal(hub.webs[1], keys["terminal"], slowly),
        stock(hub.webs[0], keys["asker"], "terminal") as client,
        stock(hub.webs[1], keys["asker"], "terminal") as other,
    ):
        events = client.send_message(ask("a long story"))
        task = await first_task(events)
        listening.set()
        if carries_text(hub):
            piece = await anext(events)
            assert "first half, " in piece.artifact_update.artifact.parts[0].text
            heard.set()
        hub.webs[0].kill9()
        with pytest.raises((httpx.HTTPError, A2AClientError)):
            await _rest(events)
        again = other.subscribe(SubscribeToTaskRequest(id=task.id))
        assert (await first_task(again)).id == task.id
        go_on.set()
        assert folded(await _rest(again)) == (said, TaskState.TASK_STATE_COMPLETED)
        seen = await other.get_task(GetTaskRequest(id=task.id))
        assert folded([StreamResponse(task=seen)])[0] == said
        assert said.startswith("first half, ")
        assert said.endswith("second half")


@pytest.mark.parametrize("agent_id", ["terminal", "slow"])
async def test_a_cancel_through_another_process_ends_all_streams_at_once(
    hub: Hub, keys: dict[str, str], agent_id: str
) -> None:
    async with stock(hub.webs[0], keys["asker"], agent_id) as one, stock(hub.webs[1], keys["asker"], agent_id) as two:
        events = one.send_message(ask("work"))
        task = await first_task(events)
        further = two.subscribe(SubscribeToTaskRequest(id=task.id))
        await first_task(further)
        ending = asyncio.gather(_rest(events), _rest(further))
        begun = time.monotonic()
        cancelled = await two.cancel_task(CancelTaskRequest(id=task.id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        for ended in await asyncio.wait_for(ending, 30):
            assert folded(ended)[1] == TaskState.TASK_STATE_CANCELED
        print(f"both streams ended after {time.monotonic() - begun:.3f} s")


async def test_a_reader_that_takes_nothing_or_leaves_holds_no_task(hub: Hub, keys: dict[str, str]) -> None:
    async with (
        terminal(hub.webs[1], keys["terminal"], in_pieces),
        stock(hub.webs[0], keys["asker"], "terminal") as client,
    ):
        leaving = client.send_message(ask("never mind"))
        left = await first_task(leaving)
        await leaving.aclose()  # type: ignore[attr-defined]
        reader, writer = await asyncio.open_connection(LOOPBACK, hub.webs[0].port)
        body = b'{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"%s"}}' % left.id.encode()
        head = (
            f"POST /a2a/agents/terminal HTTP/1.1\r\nHost: {LOOPBACK}\r\nAuthorization: Bearer {keys['asker']}\r\n"
            f"A2A-Version: 1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()  # and never reads
        async with asyncio.timeout(60):
            task = await client.get_task(GetTaskRequest(id=left.id))
            while task.status.state == TaskState.TASK_STATE_SUBMITTED:
                await asyncio.sleep(0.05)
                task = await client.get_task(GetTaskRequest(id=left.id))
        assert folded([StreamResponse(task=task)])[0] == "Beijing is sunny."
        writer.close()
        del reader


async def test_a_task_of_somebody_else_is_nowhere_to_be_found(hub: Hub, keys: dict[str, str]) -> None:
    async with (
        stock(hub.webs[0], keys["asker"], "terminal") as mine,
        stock(hub.webs[1], keys["other"], "terminal") as hers,
    ):
        task = await first_task(mine.send_message(ask("mine", wait=False)))
        for call in (
            hers.get_task(GetTaskRequest(id=task.id)),
            hers.cancel_task(CancelTaskRequest(id=task.id)),
            _rest(hers.subscribe(SubscribeToTaskRequest(id=task.id))),
            _rest(hers.send_message(ask("me too", task_id=task.id))),
        ):
            with pytest.raises(A2AError, match="not found"):
                await call
        assert (await mine.cancel_task(CancelTaskRequest(id=task.id))).status.state == TaskState.TASK_STATE_CANCELED
