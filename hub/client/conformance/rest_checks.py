"""REST: errors, sessions, sending once, paging, waiting, participants, branches, event streams."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

from hub.client.conformance.kit import Agent, Answer, Bench, Failed, check, check_that, same

UNKNOWN = "sess-" + "a" * 26


def looks(answer: Answer) -> Any:
    """What must not differ between an unknown thing and a foreign one."""
    volatile = {"date", "content-length", "x-request-id", "server-timing"}
    headers = {name.lower(): value for name, value in answer.headers.items() if name.lower() not in volatile}
    body = answer.body
    if isinstance(body, dict):
        body = {name: value for name, value in body.items() if name != "request_id"}
    return answer.status, body, headers


@check("authentication")
async def no_key_a_bad_one_and_an_unknown_one_answer_alike(bench: Bench) -> None:
    answers = [
        await bench.call(None, "GET", "sessions"),
        await bench.call(Agent("x", "ak_wrong"), "GET", "sessions"),
        await bench.call(None, "GET", "sessions", headers={"Authorization": "Basic eDp5"}),
    ]
    for answer in answers:
        answer.expect(401, code="unauthenticated")
    same(answers[1].body, answers[0].body, "the body for a bad key")


@check("authentication")
async def a_key_in_the_query_is_no_key(bench: Bench) -> None:
    answer = await bench.call(None, "GET", "sessions", api_key=bench.a.key, token=bench.a.key)
    answer.expect(401, code="unauthenticated")


@check("isolation")
async def a_foreign_session_and_an_unknown_one_answer_alike(bench: Bench) -> None:
    foreign = await bench.session(bench.a, bench.b)
    for method, tail, body in (
        ("GET", "", None),
        ("GET", "/messages", None),
        ("POST", "/messages", {"content": "x"}),
        ("POST", "/close", {}),
        ("POST", "/read", {"up_to": 1}),
        ("PATCH", "", {"title": "x"}),
        ("POST", "/branches", {}),
        ("GET", "/traces", None),
    ):
        one = await bench.call(bench.c, method, f"sessions/{foreign}{tail}", body)
        other = await bench.call(bench.c, method, f"sessions/{UNKNOWN}{tail}", body)
        one.expect(404, code="not_found")
        same(looks(one), looks(other), f"{method} {tail or '/'} of a foreign session")


@check("errors")
async def what_is_malformed_gets_its_code(bench: Bench) -> None:
    session = await bench.session()
    path = f"sessions/{session}/messages"
    for raw in (
        b"{",
        b"[]",
        b'"x"',
        b'{"content": NaN}',
        b'{"content": "\\ud800"}',
        b'{"content": "a\\u0000b"}',
        b'{"content": 7}',
    ):
        (await bench.call(bench.a, "POST", path, raw=raw)).expect(400, code="invalid")
    (await bench.call(bench.a, "POST", path, {"content": "x", "parts": "no"})).expect(400, code="invalid")
    (await bench.call(bench.a, "POST", path, {})).expect(400, code="invalid")
    (await bench.call(bench.a, "POST", path, raw=b"x", headers={"Content-Type": "text/plain"})).expect(
        415, code="unsupported"
    )
    (await bench.call(bench.a, "POST", path, {"content": "é" * 131_073})).expect(413, code="too_large")
    (await bench.call(bench.a, "POST", path, {"content": "é" * 131_072})).expect(201)


@check("errors")
async def deep_nesting_is_refused_and_harms_nothing(bench: Bench) -> None:
    session = await bench.session()
    path = f"sessions/{session}/messages"
    for raw in (
        b"[" * 20_000,
        b'{"a":' * 10_000,
        b'{"content":"x","metadata":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}",
    ):
        (await bench.call(bench.a, "POST", path, raw=raw)).expect(400, code="invalid")
    await bench.say(bench.a, session, "still here")


@check("errors")
async def an_unknown_route_and_a_wrong_method_are_json(bench: Bench) -> None:
    (await bench.call(bench.a, "GET", "no/such/thing")).expect(404, code="not_found")
    (await bench.call(bench.a, "DELETE", "sessions")).expect(405, code="method_not_allowed")


@check("errors")
async def from_must_be_you(bench: Bench) -> None:
    session = await bench.session()
    path = f"sessions/{session}/messages"
    for name in ("from", "from_agent"):
        (await bench.call(bench.a, "POST", path, {"content": "x", name: bench.b.agent_id})).expect(
            403, code="forbidden"
        )
        (await bench.call(bench.a, "POST", path, {"content": "x", name: bench.a.agent_id})).expect(201)


@check("sessions")
async def a_session_is_created_with_its_first_message(bench: Bench) -> None:
    body = {"participants": [bench.b.agent_id], "initial_message": "请分析本地项目", "context": {"current_topic": "t"}}
    made = (await bench.call(bench.a, "POST", "sessions", body)).expect(201)
    same(made.get("initiator"), bench.a.agent_id, "the initiator")
    same(
        sorted(entry["agent_id"] for entry in made["participants"]),
        sorted([bench.a.agent_id, bench.b.agent_id]),
        "members",
    )
    check_that(str(made["ws_url"]).startswith(("ws://", "wss://")), "ws_url is absolute")
    check_that(made["ws_url"].endswith(f"/api/a2a/sessions/{made['session_id']}/stream"), f"ws_url: {made['ws_url']}")
    log = (await bench.call(bench.b, "GET", f"sessions/{made['session_id']}/messages")).expect(200)
    same([m["content"] for m in log["messages"]], ["请分析本地项目"], "the log")
    first = log["messages"][0]
    same((first["sequence"], first["round"], first["from"]), (1, 1, bench.a.agent_id), "sequence, round, from")
    same(first["parts"], [{"text": "请分析本地项目"}], "the parts of a text")
    check_that(first["timestamp"].endswith("Z"), "times end with Z")
    same(made["context"], {"current_topic": "t"}, "the context")


@check("sessions")
async def an_idempotency_key_makes_one_session(bench: Bench) -> None:
    headers = {"Idempotency-Key": secrets.token_hex(8)}
    body = {"participants": [bench.b.agent_id]}
    one = (await bench.call(bench.a, "POST", "sessions", body, headers=headers)).expect(201)
    two = (await bench.call(bench.a, "POST", "sessions", body, headers=headers)).expect(200, 201)
    same(two["session_id"], one["session_id"], "the session of the second call")
    other = {"participants": [bench.b.agent_id], "title": "another"}
    (await bench.call(bench.a, "POST", "sessions", other, headers=headers)).expect(409, code="conflict")


@check("sessions")
async def context_is_a_merge_patch(bench: Bench) -> None:
    session = await bench.session(context={"a": {"x": 1, "y": 2}, "b": 1})
    answer = await bench.call(
        bench.b, "PATCH", f"sessions/{session}", {"context": {"a": {"x": None, "z": 3}, "b": None}}
    )
    same(answer.expect(200)["context"], {"a": {"y": 2, "z": 3}}, "the merged context")


@check("sessions")
async def an_ended_session_can_be_read_not_written(bench: Bench) -> None:
    session = await bench.session(initial_message="x")
    sent = await bench.say(bench.a, session, "y", client_message_id="k-1")
    closed = (await bench.call(bench.b, "POST", f"sessions/{session}/close", {})).expect(200)
    same((closed["status"], closed["close_reason"]), ("completed", "completed"), "the closed session")
    again = (await bench.call(bench.a, "POST", f"sessions/{session}/close", {"reason": "other"})).expect(200)
    same(again["close_reason"], "completed", "the reason after a second close")
    path = f"sessions/{session}/messages"
    (await bench.call(bench.a, "POST", path, {"content": "z"})).expect(409, code="session_closed")
    resend = (await bench.call(bench.a, "POST", path, {"content": "y", "client_message_id": "k-1"})).expect(200)
    same((resend["message_id"], resend["duplicate"]), (sent["message_id"], True), "a resend after the end")
    same(len((await bench.call(bench.b, "GET", path)).expect(200)["messages"]), 2, "messages in the log")
    (await bench.call(bench.b, "POST", f"sessions/{session}/read", {"up_to": 2})).expect(200)


@check("sending")
async def a_resend_is_stored_once_and_another_body_is_a_conflict(bench: Bench) -> None:
    session = await bench.session()
    path = f"sessions/{session}/messages"
    body = {"content": "x", "client_message_id": "key 1"}
    answers = await asyncio.gather(*(bench.call(bench.a, "POST", path, body) for _ in range(10)))
    same(sorted(answer.status for answer in answers), [200] * 9 + [201], "ten equal sends at once")
    same(len({answer.body["message_id"] for answer in answers}), 1, "different message ids")
    other = {"content": "y", "client_message_id": "key 1"}
    (await bench.call(bench.a, "POST", path, other)).expect(409, code="conflict")
    (await bench.call(bench.b, "POST", path, other)).expect(201)  # another sender's keys are its own
    (await bench.call(bench.a, "POST", path, {"content": "x", "client_message_id": "é"})).expect(400, code="invalid")


@check("sending")
async def text_comes_back_as_it_came(bench: Bench) -> None:
    session = await bench.session()
    texts = ["", " ", "\r\n\t", "é e\u0301 🎉 \u202e", "\x1b[2J", "0" * 10_000, "<script>&amp;"]
    for text in texts:
        if text:
            await bench.say(bench.a, session, text, metadata={"t": text, "n": 2**53 + 1})
    log = (await bench.call(bench.b, "GET", f"sessions/{session}/messages")).expect(200)
    same([m["content"] for m in log["messages"]], texts[1:], "the texts")
    same([m["metadata"] for m in log["messages"]], [{"t": text, "n": 2**53 + 1} for text in texts[1:]], "the metadata")


@check("sending")
async def parts_are_kept_and_content_is_their_text(bench: Bench) -> None:
    session = await bench.session()
    parts = [{"text": "a"}, {"data": {"x": [1, None]}, "mediaType": "application/json"}, {"text": "b"}, {"raw": "aGk="}]
    sent = (await bench.call(bench.a, "POST", f"sessions/{session}/messages", {"parts": parts})).expect(201)
    same((sent["message"]["content"], sent["message"]["parts"]), ("a\nb", parts), "content and parts")
    wrong: tuple[list[dict[str, str]], ...] = ([], [{}], [{"text": "a", "url": "b"}], [{"raw": "%"}])
    for bad in wrong:
        (await bench.call(bench.a, "POST", f"sessions/{session}/messages", {"parts": bad})).expect(400, code="invalid")


@check("sending")
async def references_to_what_is_not_there_are_invalid(bench: Bench) -> None:
    session, other = await bench.session(), await bench.session()
    foreign = await bench.say(bench.a, other, "x")
    path = f"sessions/{session}/messages"
    for body in ({"reply_to": "msg-0000000000000"}, {"reply_to": foreign["message_id"]}, {"to": ["nobody-here"]}):
        (await bench.call(bench.a, "POST", path, {"content": "x", **body})).expect(400, code="invalid")


@check("paging")
async def pages_go_up_and_down_without_gaps(bench: Bench) -> None:
    session = await bench.session()
    for number in range(1, 24):
        await bench.say(bench.a if number % 2 else bench.b, session, str(number))
    path, seen, after = f"sessions/{session}/messages", [], 0
    while True:
        page = (await bench.call(bench.a, "GET", path, after=after, limit=5)).expect(200)
        seen += [m["sequence"] for m in page["messages"]]
        if not page["has_more"]:
            break
        after = page["messages"][-1]["sequence"]
    same(seen, list(range(1, 24)), "upwards")
    page = (await bench.call(bench.a, "GET", path, before=24, limit=5)).expect(200)
    same([m["sequence"] for m in page["messages"]], list(range(19, 24)), "the page before 24")
    same((page["last_sequence"], page["first_sequence"]), (23, 1), "last_sequence, first_sequence")
    for wrong in ({"after": -1}, {"after": "x"}, {"limit": 0}, {"limit": 10**30}, {"after": 1, "before": 2}):
        answer = await bench.call(bench.a, "GET", path, **wrong)
        if answer.status >= 500 or (answer.status != 200 and answer.status != 400):
            raise Failed(f"{wrong}: HTTP {answer.status}")


@check("paging")
async def reading_moves_no_cursor_and_read_moves_it_forward_only(bench: Bench) -> None:
    session = await bench.session()
    for number in range(3):
        await bench.say(bench.a, session, str(number))
    await bench.call(bench.b, "GET", f"sessions/{session}/messages")

    async def unread() -> int:
        row = (await bench.call(bench.b, "GET", f"sessions/{session}")).expect(200)
        return int(next(p["unread"] for p in row["participants"] if p["agent_id"] == bench.b.agent_id))

    same(await unread(), 3, "unread after reading the log")
    same(
        (await bench.call(bench.b, "POST", f"sessions/{session}/read", {"up_to": 2})).expect(200)["cursor"], 2, "cursor"
    )
    same(
        (await bench.call(bench.b, "POST", f"sessions/{session}/read", {"up_to": 1})).expect(200)["cursor"], 2, "cursor"
    )
    same(await unread(), 1, "unread")
    answer = await bench.call(bench.b, "POST", f"sessions/{session}/read", {"up_to": 99})
    same(answer.expect(400, code="invalid")["details"].get("last_sequence"), 3, "details.last_sequence")


@check("waiting")
async def a_waiting_send_gets_the_answer(bench: Bench) -> None:
    session = await bench.session()
    path = f"sessions/{session}/messages"
    body = {"content": "which one?", "wait_for_response": True, "timeout": 20, "requires_execution": False}
    waiting = asyncio.create_task(bench.call(bench.a, "POST", path, body))
    for _ in range(200):
        if (await bench.call(bench.b, "GET", path)).expect(200)["messages"]:
            break
        await asyncio.sleep(0.05)  # the contract has no other way to see that a waiting call was stored
    row = (await bench.call(bench.b, "GET", f"sessions/{session}")).expect(200)
    same((row["status"], row["waiting_for"]), ("waiting", [bench.b.agent_id]), "status and waiting_for")
    reply = await bench.say(bench.b, session, "this one")
    answer = (await waiting).expect(201)
    same((answer["status"], answer["response"]["message_id"]), ("answered", reply["message_id"]), "the answer")
    again = (await bench.call(bench.a, "GET", f"{path}/{answer['message_id']}/response", timeout=0)).expect(200)
    same(again["response"]["message_id"], reply["message_id"], "the answer, asked for again")


@check("waiting")
async def a_wait_that_ends_is_pending_or_ended(bench: Bench) -> None:
    session = await bench.session()
    path = f"sessions/{session}/messages"
    body = {"content": "?", "wait_for_response": True, "timeout": 0, "requires_execution": False}
    answer = (await bench.call(bench.a, "POST", path, body)).expect(201)
    same(answer["status"], "pending", "the status without an answer")
    await bench.call(bench.a, "POST", f"sessions/{session}/close", {})
    late = (await bench.call(bench.a, "GET", f"{path}/{answer['message_id']}/response", timeout=5)).expect(200)
    same(late["status"], "ended", "the status after the end")


@check("kinds")
async def a_status_query_is_answered_by_the_hub(bench: Bench) -> None:
    session = await bench.session()
    asked = await bench.say(bench.a, session, "当前进度如何？", wait_for_response=True, timeout=10)
    same(asked["status"], "answered", "the status")
    response = asked["response"]
    same(
        (response["from"], response["kind"], response["reply_to"]), ("hub", "system", asked["message_id"]), "the answer"
    )


@check("participants")
async def who_joins_now_reads_from_now(bench: Bench) -> None:
    session = await bench.session()
    await bench.say(bench.a, session, "before")
    path = f"sessions/{session}/participants"
    added = await bench.call(bench.b, "POST", path, {"agent_id": bench.c.agent_id, "history": "from_now"})
    added.expect(201)
    (await bench.call(bench.a, "POST", path, {"agent_id": bench.c.agent_id, "history": "from_now"})).expect(200)
    await bench.say(bench.a, session, "after")
    log = (await bench.call(bench.c, "GET", f"sessions/{session}/messages")).expect(200)
    texts = [m["content"] for m in log["messages"] if m["kind"] == "chat"]
    same(texts, ["after"], "what the newcomer reads")
    (await bench.call(bench.c, "DELETE", f"{path}/{bench.c.agent_id}")).expect(204)
    (await bench.call(bench.c, "GET", f"sessions/{session}")).expect(404, code="not_found")


@check("branches")
async def a_branch_is_a_session_of_its_own_and_merges_once(bench: Bench) -> None:
    session = await bench.session(initial_message="one")
    child = (await bench.call(bench.b, "POST", f"sessions/{session}/branches", {"initial_message": "aside"})).expect(
        201
    )
    same(
        (child["parent_session_id"], child["branched_at"], child["initiator"]), (session, 1, bench.b.agent_id), "branch"
    )
    listed = (await bench.call(bench.a, "GET", "sessions", parent=session)).expect(200)["sessions"]
    same([row["session_id"] for row in listed], [child["session_id"]], "the branches of the parent")
    path = f"sessions/{child['session_id']}/messages"
    inherited = (await bench.call(bench.a, "GET", path, inherited=1)).expect(200)
    same([m["content"] for m in inherited["messages"]], ["one"], "what the branch inherits")
    one = (await bench.call(bench.b, "POST", f"sessions/{child['session_id']}/merge", {"summary": "so it is"})).expect(
        200
    )
    two = (await bench.call(bench.b, "POST", f"sessions/{child['session_id']}/merge", {"summary": "so it is"})).expect(
        200
    )
    log = (await bench.call(bench.a, "GET", f"sessions/{session}/messages")).expect(200)["messages"]
    same([m["content"] for m in log if m["kind"] == "result"], ["so it is"], "results in the parent")
    same(json.dumps(two, sort_keys=True), json.dumps(one, sort_keys=True), "a second merge")


@check("events")
async def an_event_stream_replays_and_ends_with_the_session(bench: Bench) -> None:
    session = await bench.session(initial_message="one")
    await bench.say(bench.b, session, "two")
    await bench.call(bench.a, "POST", f"sessions/{session}/close", {})
    path = bench.address.rest(f"sessions/{session}/events")
    headers = {"Authorization": f"Bearer {bench.b.key}"}
    async with bench.http.stream("GET", path, params={"after": 0}, headers=headers, timeout=20) as response:
        same(response.status_code, 200, "the status")
        check_that(response.headers["content-type"].startswith("text/event-stream"), "the content type")
        text = "".join([piece async for piece in response.aiter_text()])
    names = [line[7:] for line in text.splitlines() if line.startswith("event: ")]
    same([name for name in names if name == "message"], ["message", "message"], "message events")
    same(names[-1], "session", "the last event")
    same([line[4:] for line in text.splitlines() if line.startswith("id: ")], ["1", "2"], "event ids")
    resumed = await bench.http.get(path, headers=headers | {"Last-Event-ID": "2"}, timeout=20)
    check_that(resumed.status_code in (200, 204), f"resuming at the end: HTTP {resumed.status_code}")


@check("directory")
async def the_directory_names_agents_and_me_is_me(bench: Bench) -> None:
    me = (await bench.call(bench.a, "GET", "agents/me")).expect(200)
    same(me["agent_id"], bench.a.agent_id, "agents/me")
    (await bench.call(bench.a, "GET", f"agents/{bench.b.agent_id}")).expect(200)
    (await bench.call(bench.a, "GET", "agents/nobody-here")).expect(404, code="not_found")
    (await bench.call(bench.a, "PATCH", "agents/me", {"executor": "planner"})).expect(403, code="forbidden")


@check("health")
async def it_says_that_it_lives_and_is_ready(bench: Bench) -> None:
    for path in ("/healthz", "/readyz"):
        (await bench.call(None, "GET", path)).expect(200)
