"""Everything that can go wrong between a send and its readers, at once: reconnects, lost hints, killed processes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.acceptance.wire import Frame, Wire, send
from tests.conftest import HubFactory
from tests.hubs import Hub

SESSIONS, SENDERS, RECEIVERS = 6, 2, 4
SECONDS = 8.0
GONE = (ConnectionClosed, InvalidHandshake, OSError, TimeoutError)


@dataclass
class Storm:
    hub: Hub
    keys: dict[str, str]
    sessions: list[str] = field(default_factory=list)
    acked: dict[str, dict[str, int]] = field(default_factory=dict)
    seen: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    sending: bool = True
    unanswered: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    connects: int = 0
    resent: int = 0

    def wire(self, agent_id: str) -> Wire:
        return Wire(random.choice(self.hub.webs).url, self.keys[agent_id])

    def last(self, session_id: str) -> int:
        return max(self.acked[session_id].values(), default=0)

    @property
    def settled(self) -> bool:
        """Nothing can come any more: a send that still waits for its ack may be stored as one more message."""
        if self.sending or any(self.unanswered.values()):
            return False
        return all(
            self.seen[(session_id, f"r{number}")][-1:] == [self.last(session_id)]
            for session_id in self.sessions
            for number in range(RECEIVERS)
        )

    async def sender(self, session_id: str, agent_id: str) -> None:
        """Sends without a break, cuts its own line now and then, and resends what was not acked, under the same id."""
        pending = self.unanswered.setdefault((session_id, agent_id), {})
        acked = self.acked[session_id]
        number = 0
        while self.sending or pending:
            try:
                async with self.wire(agent_id).session_socket(session_id, "?ack=manual", ping_interval=None) as socket:
                    self.resent += len(pending)
                    for frame in list(pending.values()):
                        await socket.send(frame)
                    reader = asyncio.create_task(self._read_acks(socket, session_id, agent_id, pending))
                    try:
                        end = asyncio.get_running_loop().time() + random.uniform(0.3, 1.5)
                        while not reader.done() and (self.sending or pending):
                            if self.sending and asyncio.get_running_loop().time() > end:
                                break
                            if self.sending and len(pending) < 30:
                                number += 1
                                name = f"{agent_id}-{number}"
                                text = json.dumps({"type": "message", "client_message_id": name, "content": name})
                                pending[name] = text
                                await socket.send(text)
                            await asyncio.sleep(0.004)
                    finally:
                        reader.cancel()
                        await asyncio.gather(reader, return_exceptions=True)
                    socket.transport.abort()
            except GONE:
                await asyncio.sleep(0.05)
        assert acked

    async def _read_acks(
        self, socket: ClientConnection, session_id: str, agent_id: str, pending: dict[str, str]
    ) -> None:
        async for text in socket:
            frame = json.loads(text)
            if frame["type"] == "error" and frame["code"] != "unavailable":
                self.wrong.append(f"{agent_id} was told {frame}")
            if frame["type"] == "ack":
                name, sequence = frame["client_message_id"], frame["sequence"]
                if self.acked[session_id].setdefault(name, sequence) != sequence:
                    self.wrong.append(f"{name} was acked as {sequence} and {self.acked[session_id][name]}")
                pending.pop(name, None)

    def take(self, session_id: str, agent_id: str, sequence: int, *, repeats: bool) -> None:
        """A message came: it must be the next one, or (where the hub remembers for us) one that we had not acked."""
        seen = self.seen[(session_id, agent_id)]
        expected = seen[-1] + 1 if seen else 1
        if sequence == expected:
            seen.append(sequence)
        elif not (repeats and sequence < expected):
            self.wrong.append(f"{agent_id} in {session_id} got {sequence}, expected {expected}")

    async def remembering_receiver(self, session_id: str, agent_id: str) -> None:
        """Keeps its own position and asks for what follows: exactly once."""
        while not self.settled:
            seen = self.seen[(session_id, agent_id)]
            after = seen[-1] if seen else 0
            try:
                async with self.wire(agent_id).session_socket(
                    session_id, f"?after={after}", ping_interval=None
                ) as socket:
                    await self._follow(
                        socket, lambda frame: self.take(session_id, agent_id, frame["sequence"], repeats=False)
                    )
            except GONE:
                await asyncio.sleep(0.05)

    async def acknowledging_receiver(self, sessions: list[str], agent_id: str, *, everywhere: bool) -> None:
        """Lets the hub remember: acknowledges by hand, over one socket a session or one for all."""
        while not self.settled:
            try:
                wire = self.wire(agent_id)
                opened = (
                    wire.agent_socket("?ack=manual&batch=1", ping_interval=None)
                    if everywhere
                    else wire.session_socket(sessions[0], "?ack=manual", ping_interval=None)
                )
                async with opened as socket:
                    latest: dict[str, int] = {}

                    def take(frame: Frame, latest: dict[str, int] = latest) -> None:
                        session_id, sequence = frame["session_id"], frame["sequence"]
                        if session_id in latest and sequence != latest[session_id] + 1:
                            self.wrong.append(f"{agent_id}: {sequence} after {latest[session_id]} on one socket")
                        latest[session_id] = sequence
                        self.take(session_id, agent_id, sequence, repeats=True)

                    async def acknowledge(socket: ClientConnection = socket, latest: dict[str, int] = latest) -> None:
                        while True:
                            await asyncio.sleep(0.05)
                            for session_id, sequence in latest.items():
                                await send(socket, type="ack", session_id=session_id, sequence=sequence)

                    acks = asyncio.create_task(acknowledge())
                    try:
                        await self._follow(socket, take)
                    finally:
                        acks.cancel()
                        await asyncio.gather(acks, return_exceptions=True)
            except GONE:
                await asyncio.sleep(0.05)

    async def _follow(self, socket: ClientConnection, take: Callable[[Frame], None]) -> None:
        self.connects += 1
        loop = asyncio.get_running_loop()
        end = loop.time() + random.choice([0.02, 0.1, 0.5, 1.5])
        while not self.settled and (not self.sending or loop.time() < end):
            try:
                async with asyncio.timeout(0.2):
                    text = await socket.recv()
            except TimeoutError:
                continue
            value = json.loads(text)
            for frame in value if isinstance(value, list) else [value]:
                if frame["type"] == "message":
                    take(frame)
        socket.transport.abort()


async def stored_sequences(wire: Wire, session_id: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    while True:
        after = found[-1][0] if found else 0
        page = (await wire.call("GET", f"sessions/{session_id}/messages?after={after}&limit=500")).json()
        found += [(message["sequence"], message["client_message_id"]) for message in page["messages"]]
        if not page["has_more"]:
            return found


@pytest.mark.timeout(180)
async def test_a_storm_of_reconnects_lost_hints_and_killed_processes_loses_doubles_and_reorders_nothing(
    hub_factory: HubFactory,
) -> None:
    random.seed(7)
    hub: Hub = hub_factory(2, env={"HUB_DROP_HINTS": "0.33", "HUB_LOOK_SECONDS": "0.5", "HUB_RATE_MESSAGES": "0"})
    names = [f"s{i}" for i in range(SENDERS)] + [f"r{i}" for i in range(RECEIVERS)]
    storm = Storm(hub, await asyncio.to_thread(hub.create_agents, names))
    for _ in range(SESSIONS):
        session = await storm.wire("s0").open_session(names)
        storm.sessions.append(session["session_id"])
        storm.acked[session["session_id"]] = {}
        storm.seen |= {(session["session_id"], f"r{i}"): [] for i in range(RECEIVERS)}
    senders = [
        asyncio.create_task(storm.sender(session_id, f"s{i}")) for session_id in storm.sessions for i in range(SENDERS)
    ]
    receivers = [asyncio.create_task(storm.acknowledging_receiver(storm.sessions, "r3", everywhere=True))]
    for session_id in storm.sessions:
        receivers += [asyncio.create_task(storm.remembering_receiver(session_id, f"r{i}")) for i in (0, 1)]
        receivers.append(asyncio.create_task(storm.acknowledging_receiver([session_id], "r2", everywhere=False)))

    for victim in (0, 1):
        await asyncio.sleep(SECONDS / 3)
        await asyncio.to_thread(hub.webs[victim].kill9)
        await asyncio.to_thread(hub.webs[victim].start)
    await asyncio.sleep(SECONDS / 3)
    storm.sending = False
    _, late = await asyncio.wait([*senders, *receivers], timeout=60)
    behind = {
        name: (len(seen), storm.last(name[0])) for name, seen in storm.seen.items() if len(seen) != storm.last(name[0])
    }
    for task in late:
        task.cancel()
    assert (len(late), behind, storm.wrong) == (0, {}, [])
    await asyncio.gather(*senders, *receivers)

    for session_id in storm.sessions:
        stored = await stored_sequences(storm.wire("s0"), session_id)
        assert [sequence for sequence, _ in stored] == list(range(1, len(stored) + 1))
        assert {name: sequence for sequence, name in stored} == storm.acked[session_id], "acked and stored are the same"
        for i in range(RECEIVERS):
            assert storm.seen[(session_id, f"r{i}")] == list(range(1, len(stored) + 1))
    assert sum(len(acked) for acked in storm.acked.values()) > 500, "a storm, not a breeze"
    assert storm.connects > 50
