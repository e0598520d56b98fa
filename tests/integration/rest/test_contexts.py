"""Contexts, deliveries and summaries over REST: through the eyes of who asks."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from sessions_app.context import deliveries
from sessions_app.context.deliveries import Ask, Reply
from sessions_app.db import utc_now
from sessions_app.models import Agent, Delivery, Session, Summary
from sessions_app.protocol.ids import message_key
from tests.integration.rest.conftest import Door

pytestmark = pytest.mark.parametrize("application", ["express"], indirect=True)


def _ask(session_id: str, agent_id: str, query: str, refs: list[str], answer: str | None) -> str:
    session = Session.objects.get(public_id=session_id)
    agent = Agent.objects.get(agent_id=agent_id)
    keys = [key for ref in refs if (key := message_key(ref)) is not None]
    delivery = deliveries.prepare(Ask(session.pk, agent.pk, query, refs=keys))
    deliveries.record_sent(delivery, '{"any": "body"}')
    if answer is not None:
        deliveries.delivered(delivery, Reply(answer))
    connection.close()
    return delivery.parts


ask = sync_to_async(_ask)


@sync_to_async
def summed_up(session_id: str, visibility_hash: str) -> None:
    session = Session.objects.get(public_id=session_id)
    Summary.objects.create(
        session=session, visibility_hash=visibility_hash, covers_from=1, covers_to=2, method="extractive",
        source_hash="x", text=visibility_hash, created_at=utc_now(),
    )  # fmt: skip
    connection.close()


async def test_deliveries_show_each_agent_its_own_byte_for_byte(
    a: Door, b: Door, operator: Door, stranger: Door
) -> None:
    session = await a.open("b")
    said = await a.say(session, "天气 <晴>")
    parts = await ask(session, "b", "and?", [said["message_id"]], "fine")
    await ask(session, "a", "you?", [], None)
    answer = await b.get(f"sessions/{session}/deliveries")
    assert f'"parts":{parts},' in answer.text, "the very bytes"
    listed = answer.json()["deliveries"]
    assert [(d["agent_id"], d["status"], d["strategy"], d["sent"]) for d in listed] == [
        ("b", "delivered", "per_agent", '{"any": "body"}')
    ]
    assert listed[0]["reasons"][0] == {
        "message_id": said["message_id"], "sequence": 1, "source_agent": "a", "round": 1, "how": "caller", "tokens": 3,
    }  # fmt: skip
    everything = (await operator.get(f"sessions/{session}/deliveries?limit=1")).json()
    assert everything["deliveries"][0]["agent_id"] == "a"
    following = (await operator.get(f"sessions/{session}/deliveries?cursor={everything['next_cursor']}")).json()
    assert [d["agent_id"] for d in following["deliveries"]] == ["b"]
    assert following["next_cursor"] is None
    assert (await operator.get(f"sessions/{session}/deliveries?agent=b")).json()["deliveries"] == listed
    for door, path in ((b, "?agent=a"), (b, "?agent=nobody"), (stranger, ""), (operator, "?agent=nobody")):
        assert (await door.get(f"sessions/{session}/deliveries{path}")).status_code == 404, path
    assert (await b.get(f"sessions/{session}/deliveries?cursor=x")).json()["code"] == "invalid"
    assert await sync_to_async(Delivery.objects.count)() == 2


async def test_an_own_history_is_for_its_agent_and_operators(a: Door, b: Door, operator: Door, stranger: Door) -> None:
    session = await a.open("b")
    await ask(session, "b", "question", [], "answer")
    expected = {
        "session_id": f"{session}_b",
        "agent_name": "b",
        "messages": [{"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}],
    }
    for door in (b, operator):
        assert (await door.get(f"contexts/{session}_b")).json() == expected
    for door, name in ((a, "b"), (stranger, "b"), (operator, "nobody"), (b, "a")):
        assert (await door.get(f"contexts/{session}_{name}")).status_code == 404


async def test_a_context_is_a_snapshot_through_the_readers_eyes(
    a: Door, b: Door, operator: Door, stranger: Door
) -> None:
    session = await a.open("b")
    await operator.patch(f"sessions/{session}/participants/b", {"visibility": {"withheld_labels": ["secret"]}})
    first = await a.say(session, "question")
    await a.say(session, "hidden", metadata={"sensitivity": "secret"})
    await b.say(session, "answer", reply_to=first["message_id"])

    async def entries(door: Door, query: str = "") -> list[tuple[Any, ...]]:
        answer = await door.get(f"contexts/{session}{query}")
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert (body["session_id"], body["current_round"]) == (session, 2)
        return [(e["sequence"], e["round"], e["is_user_input"], e["agent_name"], e["message"]) for e in body["entries"]]

    asked = (1, 1, True, "a", {"role": "user", "content": "question"})
    hidden = (2, 2, True, "a", {"role": "user", "content": "hidden"})
    answered = (3, 1, False, "b", {"role": "assistant", "content": "answer"})
    assert await entries(a) == [asked, hidden, answered]
    assert await entries(b) == [asked, answered]
    assert await entries(b, "?through=2") == [asked]
    assert await entries(operator) == [asked, hidden, answered]
    assert await entries(operator, "?agent=b") == [asked, answered]
    assert await entries(a, "?limit=1") == [answered]
    assert (await a.get(f"contexts/{session}?limit=1")).json()["has_more"] is True
    refused = await b.get(f"contexts/{session}?through=9")
    assert (refused.status_code, refused.json()["details"]["last_sequence"]) == (400, 3)
    for door, path in ((stranger, ""), (b, "?agent=a"), (operator, "?agent=nobody")):
        assert (await door.get(f"contexts/{session}{path}")).status_code == 404


async def test_summaries_are_those_of_what_one_sees(a: Door, b: Door, operator: Door) -> None:
    session = await a.open("b")
    await operator.patch(f"sessions/{session}/participants/b", {"visibility": {"withheld_labels": ["secret"]}})
    await summed_up(session, "everything")
    await summed_up(session, "somebody else's")

    async def texts(door: Door, query: str = "") -> list[str]:
        answer = await door.get(f"sessions/{session}/summaries{query}")
        return [row["text"] for row in answer.json()["summaries"]]

    assert await texts(a) == ["everything"]
    assert await texts(b) == []
    assert await texts(operator) == ["somebody else's", "everything"]
    assert await texts(operator, "?agent=a") == ["everything"]
