from __future__ import annotations

import json

import httpx
import pytest

from hub.bench.lanes import FRAME_BYTES
from hub.bench.targets import Baseline, Hub


class FakeHub(httpx.MockTransport):
    """Answers as the wire contract says for agents, keys and sessions. `known` agents are registered already."""

    def __init__(self, known: set[str] | None = None, *, keys_at_creation: bool = False) -> None:
        self.known = set(known or ())
        self.keys_at_creation = keys_at_creation
        self.sessions: list[dict[str, object]] = []
        super().__init__(self.answer)

    def answer(self, request: httpx.Request) -> httpx.Response:
        parts = request.url.path.removeprefix("/api/a2a/").split("/")
        bearer = request.headers["authorization"].removeprefix("Bearer ")
        body = json.loads(request.content or b"{}")
        match request.method, *parts:
            case "GET", "agents", agent_id:
                return httpx.Response(200 if agent_id in self.known else 404, json={})
            case "POST", "agents":
                assert bearer == "operator"
                self.known.add(body["agent_id"])
                key = {"api_key": f"key-of-{body['agent_id']}"} if self.keys_at_creation else {}
                return httpx.Response(201, json={"agent_id": body["agent_id"], **key})
            case "POST", "agents", agent_id, "keys":
                assert bearer == "operator"
                assert agent_id in self.known
                return httpx.Response(201, json={"api_key": f"key-of-{agent_id}"})
            case "POST", "sessions":
                assert bearer == "key-of-bench-sender"
                self.sessions.append(body)
                return httpx.Response(201, json={"session_id": f"sess-{len(self.sessions)}"})
        return httpx.Response(404, json={"code": "not_found", "message": "", "details": {}})


@pytest.mark.parametrize("keys_at_creation", [True, False])
@pytest.mark.parametrize("known", [set(), {"bench-sender", "bench-receiver-0"}])
async def test_each_room_of_the_hub_is_a_session_with_its_own_addresses(
    known: set[str], keys_at_creation: bool
) -> None:
    fake = FakeHub(known, keys_at_creation=keys_at_creation)
    hub = Hub(8000, "operator", batched=False, transport=fake)
    rooms = await hub.rooms(2, receivers=2)
    await hub.aclose()
    assert (
        fake.sessions
        == [{"participants": ["bench-sender", "bench-receiver-0", "bench-receiver-1"], "timeout_seconds": None}] * 2
    )
    assert {room.sender.url for room in rooms} == {
        f"ws://127.0.0.1:8000/api/a2a/sessions/sess-{number}/stream" for number in (1, 2)
    }
    assert [address.headers["Authorization"] for address in rooms[0].receivers] == [
        "Bearer key-of-bench-receiver-0",
        "Bearer key-of-bench-receiver-1",
    ]
    assert rooms[0].sender.ready == "replay_complete"


async def test_a_batched_row_asks_for_batches() -> None:
    hub = Hub(8000, "operator", batched=True, transport=FakeHub())
    [room] = await hub.rooms(1, receivers=1)
    await hub.aclose()
    assert room.receivers[0].url.endswith("/stream?batch=1")


async def test_a_refusal_is_told_with_its_text() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(503, json={"code": "unavailable"}))
    hub = Hub(8000, "operator", batched=False, transport=transport)
    with pytest.raises(RuntimeError, match=r"503.*unavailable"):
        await hub.rooms(1, receivers=1)
    await hub.aclose()


async def test_the_rooms_of_a_baseline_never_meet() -> None:
    baseline = Baseline(8000)
    rooms = [*await baseline.rooms(2, receivers=3), *await baseline.rooms(1, receivers=3)]
    urls = [address.url for room in rooms for address in (room.sender, *room.receivers)]
    assert len(set(urls)) == 12


async def test_every_system_is_sent_frames_of_the_same_size() -> None:
    hub = Hub(8000, "operator", batched=False, transport=FakeHub())
    for target in (Baseline(8000), hub):
        for number in (1, 123_456):
            frame = target.encode(number)
            assert len(frame) == FRAME_BYTES
            assert json.loads(frame)["type"] == "message"
    await hub.aclose()
