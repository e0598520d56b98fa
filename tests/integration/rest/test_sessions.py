"""Opening, listing, changing, branching and ending sessions, and who takes part, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pytest_django import Settings

from tests.integration.rest.conftest import Door, MakeDoor

NOWHERE = "sess-" + "a" * 26

# None of this is called all the time: one way in is enough.
pytestmark = pytest.mark.parametrize("application", ["express"], indirect=True)


async def test_the_initiator_is_the_caller_wherever_it_stands_in_the_list(a: Door, b: Door, stranger: Door) -> None:
    answer = await a.post(
        "sessions",
        {
            "participants": ["b", "a", "stranger", "b"],
            "initial_message": {"content": "hi", "to": "b", "metadata": {"k": 1}},
            "context": {"topic": "x"},
            "title": "Über uns",
            "timeout_seconds": 60,
            "busy_policy": "reject",
            "context_strategy": "shared",
        },
    )
    assert answer.status_code == 201
    opened = answer.json()
    session = opened["session_id"]
    assert opened["ws_url"] == f"ws://testserver/api/a2a/sessions/{session}/stream"
    assert opened["trace_id"] is None
    assert (opened["initiator"], opened["status"], opened["round"], opened["last_sequence"]) == ("a", "active", 1, 1)
    assert [place["agent_id"] for place in opened["participants"]] == ["a", "b", "stranger"]
    assert (opened["context"], opened["title"]) == ({"topic": "x"}, "Über uns")
    assert (opened["timeout_seconds"], opened["busy_policy"], opened["context_strategy"]) == (60, "reject", "shared")
    shown = (await b.get(f"sessions/{session}")).json()
    assert shown == {key: value for key, value in opened.items() if key not in ("ws_url", "trace_id")}
    assert [(p["unread"], p["cursor"]) for p in shown["participants"]] == [(0, 0), (1, 0), (1, 0)]


async def test_the_public_url_of_the_settings_wins_over_the_request(a: Door, b: Door, settings: Settings) -> None:
    settings.HUB_PUBLIC_URL = "https://hub.example.org/base"
    headers = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "http", "Daphne-Root-Path": "/x"}
    opened = (await a.post("sessions", {"participants": ["b"]}, headers=headers)).json()
    assert opened["ws_url"] == f"wss://hub.example.org/base/api/a2a/sessions/{opened['session_id']}/stream"
    settings.HUB_PUBLIC_URL = ""
    opened = (await a.post("sessions", {"participants": ["b"]}, headers=headers)).json()
    assert opened["ws_url"].startswith("ws://testserver/api/a2a/sessions/sess-")


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "participants"),
        ({"participants": []}, 400, "participants"),
        ({"participants": ["a"]}, 400, "participants"),
        ({"participants": ["nobody"]}, 400, "participants"),
        ({"participants": ["hub"]}, 400, "participants"),
        ({"participants": ["b\u0000"]}, 400, "participants[0]"),
        ({"participants": "b"}, 400, "participants"),
        ({"participants": [f"x{n}" for n in range(40_000)]}, 400, "participants"),
        ({"participants": ["b"], "from": "b"}, 403, "from"),
        ({"participants": ["b"], "timeout_seconds": 0}, 400, "timeout_seconds"),
        ({"participants": ["b"], "timeout_seconds": 10**12}, 400, "timeout_seconds"),
        ({"participants": ["b"], "timeout_seconds": True}, 400, "timeout_seconds"),
        ({"participants": ["b"], "busy_policy": "sometimes"}, 400, "busy_policy"),
        ({"participants": ["b"], "context_strategy": "none"}, 400, "context_strategy"),
        ({"participants": ["b"], "context": []}, 400, "context"),
        ({"participants": ["b"], "context": {"x": "y" * 300_000}}, 413, "context"),
        ({"participants": ["b"], "title": "x" * 201}, 413, "title"),
        ({"participants": ["b"], "title": "a\nb"}, 400, "title"),
        ({"participants": ["b"], "initial_message": {}}, 400, "content"),
        ({"participants": ["b"], "initial_message": {"content": "x", "to": ["c"]}}, 400, "to"),
        ({"participants": ["b"], "initial_message": 5}, 400, "initial_message"),
    ],
)
async def test_a_session_that_can_not_be_opened_leaves_nothing_behind(
    a: Door, b: Door, body: dict[str, Any], status: int, field: str | None
) -> None:
    answer = await a.post("sessions", body)
    assert answer.status_code == status, answer.text
    assert answer.json()["details"].get("field") == field
    assert (await a.get("sessions")).json() == {"sessions": [], "next_cursor": None}


async def test_who_does_not_accept_you_can_not_be_drawn_into_a_session(a: Door, b: Door, stranger: Door) -> None:
    assert (await b.patch("agents/me", {"accepts": ["stranger"]})).json()["accepts"] == ["stranger"]
    refused = await a.post("sessions", {"participants": ["b"]})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    session = await a.open("stranger")
    assert (await a.post(f"sessions/{session}/participants", {"agent_id": "b"})).status_code == 403
    assert (await stranger.post(f"sessions/{session}/participants", {"agent_id": "b"})).status_code == 201
    assert await stranger.open("b")


async def test_an_operator_opens_sessions_for_others_and_ends_them(a: Door, b: Door, operator: Door) -> None:
    first = (await operator.post("sessions", {"participants": ["b", "a"], "initial_message": "hi"})).json()
    assert (first["initiator"], first["current_speaker"]) == ("b", "b")
    assert {place["agent_id"] for place in first["participants"]} == {"a", "b"}
    named = (await operator.post("sessions", {"participants": ["b"], "from": "a"})).json()
    assert named["initiator"] == "a"
    assert (await operator.get(f"sessions/{first['session_id']}")).status_code == 200
    closed = await operator.post(f"sessions/{first['session_id']}/close", {"reason": "enough"})
    assert (closed.json()["status"], closed.json()["close_reason"]) == ("completed", "enough")
    patched = await operator.patch(f"sessions/{named['session_id']}", {"title": "x"})
    assert patched.status_code == 403


async def test_sessions_are_listed_latest_activity_first_each_once_while_order_changes(
    a: Door, b: Door, stranger: Door
) -> None:
    made = [await a.open("b") for _ in range(7)]
    await stranger.open("b")
    await a.say(made[2], "newest")
    order = [made[2], made[6], made[5], made[4], made[3], made[1], made[0]]
    first = (await a.get("sessions?limit=3")).json()
    assert [session["session_id"] for session in first["sessions"]] == order[:3]
    await a.say(made[6], "moves to the front, which has been seen")
    second = (await a.get("sessions", params={"limit": 3, "cursor": first["next_cursor"]})).json()
    third = (await a.get("sessions", params={"limit": 3, "cursor": second["next_cursor"]})).json()
    assert [session["session_id"] for session in second["sessions"] + third["sessions"]] == order[3:]
    assert third["next_cursor"] is None


async def test_the_list_filters_by_status_participant_and_parent(a: Door, b: Door, stranger: Door) -> None:
    plain, group = await a.open("b"), await a.open("b", "stranger")
    branch = (await a.post(f"sessions/{group}/branches", {"participants": ["b"]})).json()["session_id"]
    await a.post(f"sessions/{plain}/close")

    async def listed(door: Door, **query: str) -> set[str]:
        answer = await door.get("sessions", params=query)
        assert answer.status_code == 200
        return {session["session_id"] for session in answer.json()["sessions"]}

    assert await listed(a, status="completed") == {plain}
    assert await listed(a, status="created") == {group, branch}
    assert await listed(b, participant="stranger") == {group}
    assert await listed(b, participant="stranger", status="completed") == set()
    assert await listed(b, parent=group) == {branch}
    assert await listed(stranger, parent=group) == set()
    for query in ({"parent": NOWHERE}, {"parent": "../x"}, {"participant": "nobody"}, {"participant": "a\0"}):
        assert await listed(a, **query) == set()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=unknown", "status"),
        ("limit=0", "limit"),
        ("limit=1e3", "limit"),
        ("cursor=", "cursor"),
        ("cursor=x", "cursor"),
        ("cursor=%00", "cursor"),
        ("cursor=WyJ4IiwxXQ", "cursor"),
        ("cursor=WyIyMDI2LTk5LTk5IDAwOjAwOjAwIiwxXQ", "cursor"),
        ("cursor=bnVsbA", "cursor"),
    ],
)
async def test_a_made_up_cursor_or_filter_of_the_list_is_invalid(a: Door, query: str, field: str) -> None:
    answer = await a.get(f"sessions?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert answer.json()["details"]["field"] == field


async def test_a_page_of_the_list_costs_the_same_number_of_queries_whatever_its_length(
    a: Door, b: Door, django_assert_max_num_queries: Any
) -> None:
    # The client's own thread runs the view, so its queries are counted here.
    from asgiref.sync import sync_to_async

    from sessions_app.keys import verify_key
    from sessions_app.selectors import SessionFilter, latest_sessions
    from sessions_app.session_views import session_views

    for _ in range(12):
        await a.open("b", initial_message="x")

    def count(limit: int) -> int:
        with django_assert_max_num_queries(20) as queries:
            keys, _ = latest_sessions(verify_key(a.key), SessionFilter(), None, limit)
            session_views(keys, None)
        return len(queries)

    assert await sync_to_async(count)(2) == await sync_to_async(count)(12)


@pytest.mark.parametrize("sorted_at_most", [5_000, 4, 1])
async def test_the_two_ways_of_listing_agree(
    a: Door, b: Door, stranger: Door, operator: Door, monkeypatch: pytest.MonkeyPatch, sorted_at_most: int
) -> None:
    monkeypatch.setattr("sessions_app.selectors.SORTED_AT_MOST", sorted_at_most)
    mine = [await a.open("b") for _ in range(3)]
    other = await stranger.open("b")
    left = await a.open("b")
    await b.delete(f"sessions/{left}/participants/b")

    async def listed(door: Door, query: str = "") -> list[str]:
        return [session["session_id"] for session in (await door.get(f"sessions{query}")).json()["sessions"]]

    assert await listed(a) == [left, *mine[::-1]]
    assert await listed(b) == [other, *mine[::-1]]
    assert await listed(b, "?participant=a") == mine[::-1]
    assert await listed(operator) == [left, other, *mine[::-1]]
    assert await listed(operator, "?participant=b") == [other, *mine[::-1]]


async def test_the_context_is_changed_by_merge_patch(a: Door, b: Door) -> None:
    session = await a.open("b", context={"a": {"b": 1, "c": 2}, "d": 1})
    patched = await b.patch(f"sessions/{session}", {"context": {"a": {"b": None, "e": 3}, "d": None}, "title": "t"})
    assert patched.status_code == 200
    assert (patched.json()["context"], patched.json()["title"]) == ({"a": {"c": 2, "e": 3}}, "t")
    assert (await a.patch(f"sessions/{session}", {"timeout_seconds": None})).json()["timeout_seconds"] is None
    assert (await a.patch(f"sessions/{session}", {"busy_policy": "x"})).status_code == 400
    assert (await a.call("PATCH", f"sessions/{session}")).status_code == 200
    await a.post(f"sessions/{session}/close")
    late = await a.patch(f"sessions/{session}", {"title": "late"})
    assert (late.status_code, late.json()["code"]) == (409, "session_closed")


async def test_closing_again_changes_nothing(a: Door, b: Door) -> None:
    session = await a.open("b", initial_message="hi")
    first = await b.post(f"sessions/{session}/close")
    again = await a.post(f"sessions/{session}/close", {"reason": "other"})
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert (first.json()["status"], first.json()["close_reason"]) == ("completed", "completed")
    assert (await a.post(f"sessions/{session}/close", {"reason": "x" * 201})).status_code == 413


async def test_participants_come_and_go(a: Door, b: Door, stranger: Door, door: MakeDoor) -> None:
    late = await door("late")
    session = await a.open("b", initial_message="before")
    added = await b.post(f"sessions/{session}/participants", {"agent_id": "stranger"})
    assert added.status_code == 201
    assert (added.json()["first_sequence"], added.json()["cursor"], added.json()["left_at"]) == (2, 1, None)
    assert (await b.post(f"sessions/{session}/participants", {"agent_id": "stranger"})).status_code == 200
    whole = {"agent_id": "late", "history": "all"}
    assert (await b.post(f"sessions/{session}/participants", whole)).status_code == 403
    assert (await a.post(f"sessions/{session}/participants", whole)).status_code == 201
    assert (await late.get(f"sessions/{session}/messages")).json()["first_sequence"] == 1
    for body, field in (
        ({}, "agent_id"),
        ({"agent_id": "nobody"}, "agent_id"),
        ({"agent_id": "b", "history": "x"}, "history"),
        ({"agent_id": "b", "role": "king"}, "role"),
    ):
        answer = await a.post(f"sessions/{session}/participants", body)
        assert (answer.status_code, answer.json()["details"]["field"]) == (400, field)

    assert (await b.delete(f"sessions/{session}/participants/stranger")).status_code == 403
    for _ in range(2):
        removed = await a.delete(f"sessions/{session}/participants/stranger")
        assert (removed.status_code, removed.content) == (204, b"")
        left = await late.delete(f"sessions/{session}/participants/late")
        assert (left.status_code, left.content) == (204, b"")
    assert (await stranger.get(f"sessions/{session}")).status_code == 404
    assert (await late.post(f"sessions/{session}/messages", {"content": "x"})).status_code == 404
    assert (await a.delete(f"sessions/{session}/participants/nobody")).status_code == 404
    assert (await a.delete(f"sessions/{session}/participants/%00")).status_code == 404
    shown = (await a.get(f"sessions/{session}")).json()
    assert [place["agent_id"] for place in shown["participants"] if place["left_at"] is None] == ["a", "b"]


async def test_leaving_a_session_that_one_never_was_in_is_not_found(a: Door, b: Door, stranger: Door) -> None:
    session = await a.open("b")
    foreign = await stranger.delete(f"sessions/{session}/participants/stranger")
    unknown = await stranger.delete(f"sessions/{NOWHERE}/participants/stranger")
    assert (foreign.status_code, foreign.content) == (unknown.status_code, unknown.content)
    assert foreign.status_code == 404


async def test_a_branch_is_merged_once(a: Door, b: Door, stranger: Door) -> None:
    parent = await a.open("b", "stranger", initial_message="start")
    opened = await b.post(
        f"sessions/{parent}/branches", {"participants": ["a"], "title": "aside", "initial_message": "psst"}
    )
    assert opened.status_code == 201
    child = opened.json()
    assert (child["initiator"], child["parent_session_id"], child["branched_at"]) == ("b", parent, 1)
    assert child["last_sequence"] == 1
    assert child["ws_url"].endswith(f"/{child['session_id']}/stream")
    merged = await a.post(f"sessions/{child['session_id']}/merge", {"summary": "we agree"})
    assert merged.status_code == 200
    assert (merged.json()["kind"], merged.json()["content"]) == ("result", "we agree")
    assert merged.json()["session_id"] == parent
    again = await b.post(f"sessions/{child['session_id']}/merge", {"summary": "other"})
    assert again.json() == merged.json()
    assert (await a.get(f"sessions/{child['session_id']}")).json()["status"] == "completed"
    assert (await a.post(f"sessions/{parent}/merge")).status_code == 400
    for body, field in (
        ({"from_sequence": 99}, "from_sequence"),
        ({"from_sequence": -1}, "from_sequence"),
        ({"participants": ["b"]}, "participants"),
        ({"participants": [f"x{n}" for n in range(40_000)]}, "participants"),
    ):
        answer = await b.post(f"sessions/{parent}/branches", body)
        assert (answer.status_code, answer.json()["details"]["field"]) == (400, field)


async def test_a_merge_needs_a_member_of_both(a: Door, b: Door, stranger: Door) -> None:
    parent = await a.open("b")
    child = (await a.post(f"sessions/{parent}/branches")).json()["session_id"]
    await a.post(f"sessions/{child}/participants", {"agent_id": "stranger"})
    assert (await stranger.post(f"sessions/{child}/merge")).status_code == 404


@pytest.mark.parametrize("path", ["sessions", "branches"])
async def test_an_idempotency_key_creates_once(a: Door, b: Door, path: str) -> None:
    body: dict[str, Any] = {"participants": ["b"], "title": "t", "initial_message": {"content": "x", "parts": None}}
    if path == "branches":
        path = f"sessions/{await a.open('b')}/branches"
    headers = {"Idempotency-Key": "k1"}
    answers = await asyncio.gather(*[a.post(path, body, headers=headers) for _ in range(5)])
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sum("Idempotency-Replayed" in answer.headers for answer in answers) == 4
    same = await a.post(path, dict(reversed(body.items())), headers=headers)
    assert same.json() == answers[0].json()
    other = await a.post(path, {**body, "title": "u"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    own = await b.post("sessions", {"participants": ["a"]}, headers=headers)
    assert own.status_code == 201
    assert (await a.post("sessions", {"participants": ["b"]}, headers={"Idempotency-Key": "k2"})).status_code == 201


async def test_a_refused_creation_leaves_its_idempotency_key_unused(a: Door, b: Door) -> None:
    headers = {"Idempotency-Key": "k"}
    assert (await a.post("sessions", {"participants": ["nobody"]}, headers=headers)).status_code == 400
    assert (await a.post("sessions", {"participants": ["b"]}, headers=headers)).status_code == 201
