"""Sending, the log, waiting for responses and reading, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessions_app.realtime.runtime import get_runtime, stop_runtime
from tests.integration.rest.conftest import Door


async def test_a_message_comes_back_as_it_was_sent(a: Door, b: Door) -> None:
    session = await a.open("b")
    sent = await a.post(
        f"sessions/{session}/messages",
        {"content": "grüß dich 你好 \U0001f600", "to": ["b"], "client_message_id": "one", "metadata": {"n": 2**53}},
    )
    assert sent.status_code == 201
    answer = sent.json()
    assert answer["status"] == "sent"
    assert answer["sequence"] == 1
    assert "duplicate" not in answer
    assert answer["recipients"] == [{"agent_id": "b", "online": False, "last_seen": None, "unread": 1}]
    page = (await b.get(f"sessions/{session}/messages")).json()
    assert page["messages"] == [answer["message"]]
    message = page["messages"][0]
    assert message["content"] == "grüß dich 你好 \U0001f600"
    assert message["parts"] == [{"text": message["content"]}]
    assert (message["from"], message["to"], message["client_message_id"]) == ("a", ["b"], "one")
    assert message["metadata"]["n"] == 2**53


async def test_a_resend_answers_the_original_also_after_the_end(a: Door, b: Door) -> None:
    session = await a.open("b")
    first = await a.say(session, "x", client_message_id="once")
    await a.post(f"sessions/{session}/close")
    again = await a.post(f"sessions/{session}/messages", {"content": "x", "client_message_id": "once"})
    assert again.status_code == 200
    assert again.json()["duplicate"] is True
    assert again.json()["message"] == first["message"]
    other = await a.post(f"sessions/{session}/messages", {"content": "y", "client_message_id": "once"})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    late = await a.post(f"sessions/{session}/messages", {"content": "new"})
    assert (late.status_code, late.json()["code"]) == (409, "session_closed")


@pytest.mark.parametrize("key", ["k", "k" * 128, "k" * 255])
async def test_an_idempotency_key_stands_in_for_the_client_message_id(a: Door, b: Door, key: str) -> None:
    session = await a.open("b")
    path, headers = f"sessions/{session}/messages", {"Idempotency-Key": key}
    first = await a.post(path, {"content": "x"}, headers=headers)
    again = await a.post(path, {"content": "x"}, headers=headers)
    other = await a.post(path, {"content": "y"}, headers=headers)
    assert [first.status_code, again.status_code, other.status_code] == [201, 200, 409]
    assert again.json()["message"] == first.json()["message"]
    assert len(first.json()["message"]["client_message_id"]) <= 128
    assert (await a.get(path)).json()["last_sequence"] == 1


@pytest.mark.parametrize("key", ["", "ä", "k" * 256])
async def test_an_impossible_idempotency_key_is_invalid(a: Door, b: Door, key: str) -> None:
    session = await a.open("b")
    headers = {"Idempotency-Key": key.encode("latin-1")}
    answer = await a.post(f"sessions/{session}/messages", {"content": "x"}, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["details"] == {"field": "Idempotency-Key"}


async def test_paging_is_exact_in_both_directions_while_messages_arrive(a: Door, b: Door) -> None:
    session = await a.open("b")
    for number in range(23):
        await a.say(session, str(number))

    async def keep_sending() -> None:
        for number in range(23, 46):
            await b.say(session, str(number))

    sending = asyncio.create_task(keep_sending())
    up: list[int] = []
    more = True
    while more:
        all_sent = sending.done()
        after = up[-1] if up else 0
        page = (await a.get(f"sessions/{session}/messages?after={after}&limit=4")).json()
        up += [message["sequence"] for message in page["messages"]]
        assert page["messages"] == [] or page["messages"][-1]["sequence"] <= page["last_sequence"]
        more = page["has_more"] or bool(page["messages"]) or not all_sent
    assert up == list(range(1, 47))

    down: list[int] = []
    before, more = 10**15, True
    while more:
        page = (await a.get(f"sessions/{session}/messages?before={before}&limit=7")).json()
        found = [message["sequence"] for message in page["messages"]]
        assert found == sorted(found)
        down = found + down
        before, more = found[0], page["has_more"]
    assert down == list(range(1, 47))


async def test_a_page_ends_early_before_it_grows_beyond_four_mebibytes(a: Door, b: Door) -> None:
    session = await a.open("b")
    text = "x" * 250_000
    for _ in range(10):
        await a.say(session, text)
    up = await a.get(f"sessions/{session}/messages?limit=500")
    assert len(up.content) <= 4 * 1024 * 1024 + 200
    assert 0 < len(up.json()["messages"]) < 10
    assert up.json()["has_more"] is True
    down = (await a.get(f"sessions/{session}/messages?before=11&limit=500")).json()
    assert down["messages"][-1]["sequence"] == 10
    assert 0 < len(down["messages"]) < 10
    assert down["has_more"] is True


async def test_the_end_of_the_log_is_an_empty_page_and_beyond_it_is_invalid(a: Door, b: Door) -> None:
    session = await a.open("b", initial_message="hello")
    end = (await a.get(f"sessions/{session}/messages?after=1")).json()
    assert end == {"messages": [], "last_sequence": 1, "first_sequence": 1, "has_more": False}
    beyond = await a.get(f"sessions/{session}/messages?after=2")
    assert beyond.status_code == 400
    assert beyond.json()["details"] == {"field": "after", "last_sequence": 1}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        *((f"{name}={value}", name) for name in ("after", "before", "limit")
          for value in ("-1", "abc", "", "1.5", "1" * 31, str(2**63), "0x1", "+1", "%00", "%D9%A1")),
        ("before=0", "before"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("after=0&before=5", "before"),
        ("inherited=2", "inherited"),
    ],
)  # fmt: skip
async def test_a_query_number_out_of_range_is_invalid_with_its_field(a: Door, b: Door, query: str, field: str) -> None:
    session = await a.open("b")
    answer = await a.get(f"sessions/{session}/messages?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert answer.json()["details"]["field"] == field


async def test_who_joined_later_sees_nothing_below_its_first_sequence(a: Door, b: Door, stranger: Door) -> None:
    session = await a.open("b", initial_message="secret")
    early = (await a.get(f"sessions/{session}/messages")).json()["messages"][0]["message_id"]
    await a.post(f"sessions/{session}/participants", {"agent_id": "stranger"})
    await a.say(session, "hello all")
    for query in ("", "?after=0", "?before=100"):
        page = (await stranger.get(f"sessions/{session}/messages{query}")).json()
        assert [message["sequence"] for message in page["messages"]] == [2, 3]
        assert (page["first_sequence"], page["has_more"]) == (2, False)
    hidden = await stranger.get(f"sessions/{session}/messages/{early}/response?timeout=0")
    assert hidden.status_code == 404


async def test_a_branch_inherits_its_parents_log_by_the_readers_rights_there(a: Door, b: Door, stranger: Door) -> None:
    parent = await a.open("b")
    for number in range(5):
        await a.say(parent, str(number))
    child = (await a.post(f"sessions/{parent}/branches", {"from_sequence": 3})).json()["session_id"]
    await a.post(f"sessions/{child}/participants", {"agent_id": "stranger"})
    page = (await b.get(f"sessions/{child}/messages?inherited=1")).json()
    assert [message["sequence"] for message in page["messages"]] == [1, 2, 3]
    assert all(message["session_id"] == parent for message in page["messages"])
    assert (page["last_sequence"], page["has_more"]) == (3, False)
    assert (await b.get(f"sessions/{child}/messages?inherited=1&before=3&limit=1")).json()["has_more"] is True
    outsider = await stranger.get(f"sessions/{child}/messages?inherited=1")
    assert outsider.json()["messages"] == []
    assert (await a.get(f"sessions/{parent}/messages?inherited=1")).json()["messages"] == []


async def test_wait_for_response_answers_with_the_response(a: Door, b: Door) -> None:
    session = await a.open("b")

    async def reply() -> dict[str, Any]:
        while (await b.get(f"sessions/{session}/messages")).json()["last_sequence"] == 0:
            pass
        assert (await b.get(f"sessions/{session}")).json()["waiting_for"] == ["b"]
        return await b.say(session, "the answer")

    asked = a.post(
        f"sessions/{session}/messages", {"content": "why", "to": "b", "wait_for_response": True, "timeout": 20}
    )
    question, replied = await asyncio.gather(asked, reply())
    assert question.status_code == 201
    answer = question.json()
    assert answer["status"] == "answered"
    assert answer["response"] == replied["message"]
    for _ in range(2):
        again = await a.get(f"sessions/{session}/messages/{answer['message_id']}/response?timeout=0")
        assert again.status_code == 200
        assert again.json() == {
            "status": "answered",
            "response": replied["message"],
            "message_id": answer["message_id"],
        }


async def test_a_wait_that_runs_out_is_pending_and_one_in_an_ended_session_is_ended(a: Door, b: Door) -> None:
    session = await a.open("b")
    pending = await a.say(session, "why", wait_for_response=True, timeout=0)
    assert (pending["status"], pending["response"]) == ("pending", None)
    await a.post(f"sessions/{session}/close")
    ended = await a.get(f"sessions/{session}/messages/{pending['message_id']}/response")
    assert (ended.status_code, ended.json()["status"], ended.json()["response"]) == (200, "ended", None)


@pytest.mark.parametrize("timeout", ["-1", "51", "50.1", "abc", "", "1e3", "nan", "inf", "1" * 31])
async def test_an_impossible_timeout_of_a_wait_is_invalid(a: Door, b: Door, timeout: str) -> None:
    session = await a.open("b")
    message = (await a.say(session, "why"))["message_id"]
    answer = await a.get(f"sessions/{session}/messages/{message}/response?timeout={timeout}")
    assert (answer.status_code, answer.json()["details"]) == (400, {"field": "timeout"})


@pytest.mark.parametrize("message", ["msg-0000000000000", "msg-x", "me", "%00", "..", "msg-" + "z" * 13])
async def test_the_response_to_no_message_is_not_found(a: Door, b: Door, message: str) -> None:
    session = await a.open("b")
    answer = await a.get(f"sessions/{session}/messages/{message}/response?timeout=0")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_message_of_another_session_has_no_response_here(a: Door, b: Door) -> None:
    here, there = await a.open("b"), await a.open("b")
    message = (await a.say(there, "why"))["message_id"]
    assert (await a.get(f"sessions/{here}/messages/{message}/response?timeout=0")).status_code == 404


async def test_reading_moves_the_cursor_forward_and_never_back_also_after_the_end(a: Door, b: Door) -> None:
    session = await a.open("b")
    for number in range(4):
        await a.say(session, str(number))
    await b.say(session, "mine")
    assert (await b.post(f"sessions/{session}/read", {"up_to": 2})).json() == {"cursor": 2, "unread": 2}
    assert (await b.post(f"sessions/{session}/read", {"up_to": 1})).json() == {"cursor": 2, "unread": 2}
    await a.post(f"sessions/{session}/close")
    assert (await b.post(f"sessions/{session}/read", {"up_to": 5})).json() == {"cursor": 5, "unread": 0}
    for impossible in (6, -1, 2**62):
        answer = await b.post(f"sessions/{session}/read", {"up_to": impossible})
        assert answer.status_code == 400
        assert answer.json()["details"] == {"field": "up_to", "last_sequence": 5}


async def test_an_operator_reads_everything_and_takes_part_in_nothing(a: Door, b: Door, operator: Door) -> None:
    session = await a.open("b", initial_message="hello")
    assert (await operator.get(f"sessions/{session}/messages")).json()["last_sequence"] == 1
    for path, body in (("messages", {"content": "x"}), ("read", {"up_to": 1}), ("branches", {}), ("merge", {})):
        answer = await operator.post(f"sessions/{session}/{path}", body)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), path
    nowhere = "sess-" + "a" * 26
    for path in ("messages", "read", "branches", "merge"):
        assert (await operator.post(f"sessions/{nowhere}/{path}", {})).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "content"),
        ({"content": 5}, 400, "content"),
        ({"content": "x", "from": "b"}, 403, "from"),
        ({"content": "x", "from_agent": "b"}, 403, "from_agent"),
        ({"content": "x", "from": "a", "from_agent": "b"}, 403, "from_agent"),
        ({"content": "x", "to": ["a"]}, 400, "to"),
        ({"content": "x", "to": ["nobody"]}, 400, "to"),
        ({"content": "x", "reply_to": "msg-0000000000000"}, 400, "reply_to"),
        ({"content": "x", "reply_to": "../x"}, 400, "reply_to"),
        ({"content": "x", "context_refs": ["msg-0000000000000"]}, 400, "context_refs[0]"),
        ({"content": "x", "client_message_id": "ä"}, 400, "client_message_id"),
        ({"content": "x", "client_message_id": ""}, 400, "client_message_id"),
        ({"content": "x", "client_message_id": "y" * 129}, 400, "client_message_id"),
        ({"content": "x", "timeout": -1}, 400, "timeout"),
        ({"content": "x", "wait_for_response": True, "timeout": 51}, 400, "timeout"),
        ({"content": "x", "metadata": []}, 400, "metadata"),
        ({"content": "x", "metadata": {"n": 10**30}}, 400, "metadata.n"),
        ({"content": "x", "parts": [{"text": "y"}]}, 400, "content"),
        ({"parts": [{}]}, 400, "parts[0]"),
        ({"parts": []}, 400, "parts"),
        ({"parts": [{"raw": "?"}]}, 400, "parts[0].raw"),
        ({"content": "x" * (256 * 1024 + 1)}, 413, "content"),
        ({"parts": [{"raw": "AAAA" * 200_000}]}, 413, "parts"),
        ({"content": "x", "metadata": {"x": "y" * 65_536}}, 413, "metadata"),
    ],
)
async def test_a_body_that_is_wrong_in_one_field_is_refused_by_its_name(
    a: Door, b: Door, body: dict[str, Any], status: int, field: str | None
) -> None:
    session = await a.open("b")
    answer = await a.post(f"sessions/{session}/messages", body)
    assert answer.status_code == status, answer.text
    named = answer.json()["details"].get("field")
    assert named == field or (field is not None and named == field.split("[")[0])
    assert (await a.get(f"sessions/{session}/messages")).json()["last_sequence"] == 0


async def test_half_the_senders_over_one_door_and_half_over_another_number_without_gaps(a: Door, b: Door) -> None:
    session = await a.open("b")
    sends = [door.say(session, f"{door.agent_id}{n}", client_message_id=f"{n}") for n in range(25) for door in (a, b)]
    answers = await asyncio.gather(*sends)
    assert sorted(answer["sequence"] for answer in answers) == list(range(1, 51))
    page = (await a.get(f"sessions/{session}/messages")).json()
    assert [message["sequence"] for message in page["messages"]] == list(range(1, 51))


async def test_nobody_says_for_the_hub_who_decided_the_kind(a: Door, b: Door) -> None:
    forged = {"classified_by": "operator", "trace_status": "failed", "a2a": {"messageId": "m"}, "mine": 1}
    session = await a.open("b", initial_message={"content": "one", "metadata": forged})
    sent = await a.say(session, "two", metadata=forged, client_message_id="k")
    again = await a.say(session, "two", metadata=forged, client_message_id="k")
    assert again["duplicate"] is True
    assert again["message_id"] == sent["message_id"]
    await a.say(session, "Analyse it", metadata=forged, requires_execution=True)
    page = (await b.get(f"sessions/{session}/messages")).json()["messages"]
    assert [message["metadata"] for message in page if message["kind"] == "chat"] == [{"mine": 1}, {"mine": 1}]
    (task,) = [message for message in page if message["kind"] == "task"]
    assert task["metadata"] == {"mine": 1, "classified_by": "sender"}


async def test_a_hub_that_stops_says_that_the_response_is_still_to_come(a: Door, b: Door) -> None:
    session = await a.open("b")
    waiting = asyncio.create_task(a.say(session, "are you there?", wait_for_response=True, timeout=50))
    async with asyncio.timeout(10):
        while not get_runtime().registry.topics:  # noqa: ASYNC110 - it has no event of its own
            await asyncio.sleep(0.01)
    await stop_runtime()
    assert (await asyncio.wait_for(waiting, 10))["status"] == "pending"
