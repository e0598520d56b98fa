"""Whatever is asked under /api, however malformed: one envelope, the right status, nothing internal, nothing cached."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from django.db import OperationalError

from sessions_app.rest.errors import HTTP_STATUS
from tests.integration.rest.conftest import Door, MakeDoor

NOWHERE = "sess-" + "a" * 26


def assert_refused(answer: httpx.Response, code: str, **details: Any) -> None:
    """The envelope of `code`, with what must stand in every answer that somebody's key brought."""
    assert answer.status_code == HTTP_STATUS[code], answer.text
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Cache-Control"] == "private, no-store"
    body = answer.json()
    assert set(body) == {"code", "message", "details"}
    assert body["code"] == code
    for name, value in details.items():
        assert body["details"].get(name) == value
    for internal in ("Traceback", 'File "', "SELECT", "sessions_app", "django"):
        assert internal not in answer.text


# Each call that there is, with a body that would be taken where one is needed.
SESSION_CALLS: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("PATCH", "", {"title": "x"}),
    ("POST", "/messages", {"content": "x"}),
    ("GET", "/messages", None),
    ("GET", "/messages/msg-0000000000000/response", None),
    ("POST", "/read", {"up_to": 0}),
    ("POST", "/participants", {"agent_id": "b"}),
    ("DELETE", "/participants/b", None),
    ("POST", "/branches", {}),
    ("POST", "/merge", {}),
    ("POST", "/close", {}),
]
OTHER_CALLS: list[tuple[str, str, Any]] = [
    ("POST", "sessions", {"participants": ["b"]}),
    ("GET", "sessions", None),
    ("GET", "agents", None),
    ("POST", "agents", {"agent_id": "x"}),
    ("GET", "agents/me", None),
    ("PATCH", "agents/me", {}),
    ("GET", "agents/b", None),
    ("PATCH", "agents/b", {}),
    ("POST", "agents/b/keys", {}),
    ("DELETE", "agents/b/keys/x", None),
]
ALL_CALLS = [(method, f"sessions/{NOWHERE}{path}", body) for method, path, body in SESSION_CALLS] + OTHER_CALLS


async def test_a_foreign_session_and_an_unknown_one_answer_alike(a: Door, b: Door, stranger: Door) -> None:
    session = await a.open("b", initial_message="x")
    for method, path, good in SESSION_CALLS:
        for body in (good, {"title": 5, "content": 5, "up_to": "x"}, None):
            options = {"json": body} if body is not None else {}
            foreign = await stranger.call(method, f"sessions/{session}{path}", **options)
            unknown = await stranger.call(method, f"sessions/{NOWHERE}{path}", **options)
            malformed = await stranger.call(method, f"sessions/sess-x{path}", **options)
            assert_refused(foreign, "not_found")
            assert foreign.content == unknown.content == malformed.content
            assert foreign.headers == unknown.headers == malformed.headers


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[1", b"x" * 2_000_000])
async def test_a_body_says_nothing_about_a_foreign_session(a: Door, b: Door, stranger: Door, content: bytes) -> None:
    session = await a.open("b")
    for method, path, good in SESSION_CALLS:
        if good is not None:
            for name in (session, NOWHERE):
                assert_refused(await stranger.call(method, f"sessions/{name}{path}", content=content), "not_found")


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Bearer x", "Basic YTpi", "ak_x", "Bearer ak_aaaaaaaaaaaa_" + "A" * 43, "Bearer \xe4",
     "Bearer ak_" + "a" * 100_000, "Token x"],
)  # fmt: skip
async def test_without_a_good_key_every_call_answers_the_same(a: Door, header: str) -> None:
    answers = []
    for method, path, body in ALL_CALLS:
        options = {"json": body} if body is not None else {}
        answers.append(
            await a.client.request(
                method, f"/api/a2a/{path}", headers={b"Authorization": header.encode("latin-1")}, **options
            )
        )
    for answer in answers:
        assert_refused(answer, "unauthenticated")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert len({answer.content for answer in answers}) == 1


async def test_a_key_in_the_query_string_opens_nothing(a: Door) -> None:
    for name in ("token", "api_key", "access_token", "key", "authorization"):
        for path in ("sessions", f"sessions/{NOWHERE}/messages"):
            answer = await a.client.get(f"/api/a2a/{path}", params={name: a.key})
            assert_refused(answer, "unauthenticated")
            assert a.key not in answer.text


async def test_a_cookie_opens_nothing(a: Door, transactional_db: None) -> None:
    answer = await a.client.get("/api/a2a/sessions", headers={"Cookie": "sessionid=x; csrftoken=y"})
    assert_refused(answer, "unauthenticated")
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "path",
    ["/api", "/api/", "/api/a2a/sessions/%2e%2e/agents",
     "/api/a2a", "/api/a2a/", "/api/nothing", "/api/a2a/sessions/", "/api/a2a/sessions//messages",
     "/api/a2a/agents/me/", "/api/a2a/agents/a/keys/x/y", "/api/docs/", "/api/schema.json",
     "/api/a2a/sessions/%2e%2e/%2e%2e/admin", "/api/%0d%0aX: y", "/api/a2a/contextless"],
)  # fmt: skip
async def test_an_unknown_route_is_not_found_and_never_a_redirect(a: Door, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert_refused(await a.call(method, path), "not_found")


async def test_a_wrong_method_names_the_right_ones(a: Door, b: Door) -> None:
    session = await a.open("b")
    for method, path, allowed in (
        ("PUT", f"sessions/{session}", {"GET", "HEAD", "PATCH"}),
        ("DELETE", f"sessions/{session}/messages", {"GET", "HEAD", "POST"}),
        ("OPTIONS", f"sessions/{session}/messages", {"GET", "HEAD", "POST"}),
        ("OPTIONS", "sessions", {"GET", "HEAD", "POST"}),
        ("GET", f"sessions/{session}/read", {"POST"}),
        ("GET", f"sessions/{session}/close", {"POST"}),
        ("PURGE", "agents/me", {"GET", "HEAD", "PATCH"}),
        ("TRACE", f"sessions/{session}/read", {"POST"}),
        ("POST", "/api/schema", {"GET", "HEAD"}),
        ("POST", "/api/docs", {"GET", "HEAD"}),
    ):
        answer = await a.call(method, path)
        assert_refused(answer, "method_not_allowed")
        assert set(answer.headers["Allow"].replace(" ", "").split(",")) == allowed


async def test_head_answers_as_get_does(a: Door, b: Door) -> None:
    session = await a.open("b", initial_message="x")
    for path in ("sessions", f"sessions/{session}", f"sessions/{session}/messages", "agents/me", "/api/schema"):
        head, get = await a.call("HEAD", path), await a.get(path)
        assert (head.status_code, head.headers["Content-Length"]) == (200, get.headers["Content-Length"])
    assert (await a.call("HEAD", f"sessions/{NOWHERE}/messages")).status_code == 404


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "*/*;q=0", "", "x" * 5000, "image/png, \xe4"])
async def test_whatever_one_accepts_the_answer_is_json(a: Door, b: Door, accept: str) -> None:
    session = await a.open("b")
    for path in ("sessions", f"sessions/{session}", f"sessions/{session}/messages", "sessions?format=xml"):
        answer = await a.get(path, headers={"Accept": accept.encode("latin-1")})
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    assert_refused(await a.get("agents/nobody", headers={"Accept": accept.encode("latin-1")}), "not_found")


async def test_a_host_that_is_not_served_is_invalid(a: Door, b: Door) -> None:
    session = await a.open("b")
    for host in ("evil.example", "", "a b", "testserver:x", "testserver.evil.example", "x" * 5000):
        for path in ("sessions", f"sessions/{session}/messages", "/api/nothing"):
            assert_refused(await a.get(path, headers={"Host": host}), "invalid")


WRITES = [(method, path) for method, path, body in SESSION_CALLS if body is not None] + [
    ("POST", "sessions"),
    ("PATCH", "agents/me"),
]


@pytest.mark.parametrize(("method", "path"), WRITES)
async def test_every_hostile_body_gets_its_documented_error_and_the_door_stays_open(
    a: Door, b: Door, method: str, path: str
) -> None:
    session = await a.open("b")
    path = path if path in ("sessions", "agents/me") else f"sessions/{session}{path}"
    deep = b'{"x":' * 65 + b"1" + b"}" * 65
    for content, code in (
        (b"{", "invalid"),
        (b"[]", "invalid"),
        (b'"x"', "invalid"),
        (b"123", "invalid"),
        (b"null", "invalid"),
        (b"true", "invalid"),
        (b"{} {}", "invalid"),
        (b" " * 200_000, "invalid"),
        (b"\x00\x01\x02", "invalid"),
        (b"\xff\xfe{\x00}\x00", "invalid"),
        (b"\xef\xbb\xbf{}", "invalid"),
        (b'{"x":NaN}', "invalid"),
        (b'{"x":Infinity}', "invalid"),
        (b'{"content":"\\ud800","title":"\\ud800"}', "invalid"),
        (b'{"x":"\\u0000"}', "invalid"),
        (b'{"x\\u0000":1}', "invalid"),
        (b'{"x":"\x00"}', "invalid"),
        (b'{"x":' + b"1" * 5000 + b"}", "invalid"),
        (b'{"x":1e999}', "invalid"),
        (deep, "invalid"),
        (b"[" * 20_000, "invalid"),
        (b'{"a":' * 10_000, "invalid"),
        (b'{"x":"' + b"y" * (1024 * 1024) + b'"}', "too_large"),
    ):
        assert_refused(await a.call(method, path, content=content), code)
    for headers in (
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/octet-stream"},
        {"Content-Encoding": "gzip"},
    ):
        assert_refused(await a.call(method, path, content=b'{"x":1}', headers=headers), "unsupported")
    shown = (await a.get(f"sessions/{session}")).json()
    assert (shown["status"], shown["last_sequence"]) == ("created", 0)


async def test_json_by_any_of_its_names_is_taken(a: Door, b: Door) -> None:
    session = await a.open("b")
    for kind in ("application/json", "Application/JSON; charset=UTF-8", "application/merge-patch+json", ""):
        for path in (f"sessions/{session}/messages", f"sessions/{session}/participants"):
            body = {"content": "x", "agent_id": "b"}
            answer = await a.post(path, content=json.dumps(body).encode(), headers={"Content-Type": kind})
            assert answer.status_code in (200, 201), (kind, answer.text)


async def test_a_body_as_deep_as_allowed_comes_back_whole(a: Door, b: Door) -> None:
    session = await a.open("b")
    value: Any = 1
    for _ in range(62):
        value = {"x": value}
    sent = await a.say(session, "deep", metadata=value)
    page = (await b.get(f"sessions/{session}/messages")).json()
    assert page["messages"][0]["metadata"]["x"] == sent["message"]["metadata"]["x"] == value["x"]


async def test_too_much_at_once_is_told_when_to_come_back(a: Door, b: Door, settings: Any) -> None:
    from sessions_app.rates import Rates
    from sessions_app.realtime.runtime import get_runtime
    from sessions_app.rest import quotas

    session = await a.open("b")
    get_runtime().rates_messages = Rates(0.01, 1)
    await a.say(session, "x")
    spoofed = {"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.2", "X-Real-IP": "10.0.0.3"}
    refused = await a.post(f"sessions/{session}/messages", {"content": "x"}, headers=spoofed)
    assert_refused(refused, "rate_limited")
    assert int(refused.headers["Retry-After"]) >= refused.json()["details"]["retry_after"] > 0
    assert (await b.say(session, "others go on"))["sequence"] == 2

    settings.HUB_RATE_SESSIONS, settings.HUB_BURST_SESSIONS = 0.01, 1
    quotas.forget_everything()
    assert await a.open("b")
    assert_refused(await a.post("sessions", {"participants": ["b"]}), "rate_limited")
    assert_refused(await a.post(f"sessions/{session}/branches"), "rate_limited")

    settings.HUB_RATE_REQUESTS, settings.HUB_BURST_REQUESTS = 0.01, 2
    quotas.forget_everything()
    assert (await b.get("agents/me")).status_code == 200
    assert (await b.get(f"sessions/{session}/messages")).status_code == 200
    for path in ("agents/me", f"sessions/{session}/messages"):
        assert_refused(await b.get(path), "rate_limited")


async def test_a_defect_is_internal_and_says_nothing(
    a: Door, b: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = await a.open("b")

    def broken(*arguments: Any) -> None:
        raise ValueError("SELECT secret FROM django")

    monkeypatch.setattr("sessions_app.selectors._access", broken)
    for path in (f"sessions/{session}", f"sessions/{session}/messages"):
        assert_refused(await a.get(path), "internal")
    assert "secret" in caplog.text  # told to those who run it


async def test_without_a_database_the_answer_is_unavailable(a: Door, b: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await a.open("b")

    def away(*arguments: Any) -> None:
        raise OperationalError("the server closed the connection; SELECT 1")

    monkeypatch.setattr("sessions_app.selectors._access", away)
    for path in (f"sessions/{session}", f"sessions/{session}/messages"):
        answer = await a.get(path)
        assert_refused(answer, "unavailable", stored=False)
        assert answer.headers["Retry-After"] == "1"


async def test_every_answer_to_a_key_is_private(a: Door, b: Door, operator: Door) -> None:
    session = await a.open("b", initial_message="x")
    for path in ("sessions", f"sessions/{session}", f"sessions/{session}/messages", "agents", "agents/me", "agents/b"):
        for door in (a, operator):
            answer = await door.get(path)
            assert answer.status_code == 200
            assert answer.headers["Cache-Control"] == "private, no-store"
            assert "Authorization" in answer.headers["Vary"]
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert "ETag" not in answer.headers


async def test_both_doors_answer_alike_to_the_byte(door: MakeDoor, application: Any) -> None:
    """The hot calls as Django's views and in front of Django are one code; what stands around them is not."""
    from sessions_app.rest.express import Express
    from tests.integration.rest.conftest import BASE, django_application

    a, _ = await door("a"), await door("b")
    session = await a.open("b", initial_message="x")
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", f"sessions/{session}/messages?limit=1", {}),
        ("GET", f"sessions/{NOWHERE}/messages", {}),
        ("GET", f"sessions/{session}/messages?after=x", {}),
        ("POST", f"sessions/{session}/messages", {"content": b"{"}),
        ("POST", f"sessions/{session}/messages", {"content": b"x" * 2_000_000}),
        ("POST", f"sessions/{session}/read", {"content": b'{"up_to": 1}'}),
        ("PUT", f"sessions/{session}/messages", {}),
        ("GET", f"sessions/{session}/messages", {"headers": {"Host": "evil.example"}}),
        ("GET", f"sessions/{session}/messages", {"headers": {"Authorization": "x"}}),
    ]
    answers = []
    for app in (django_application, Express(django_application)):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=BASE) as client:
            there = Door(client, "a", a.key)
            answers.append([await there.call(method, path, **options) for method, path, options in calls])
    for one, other in zip(*answers, strict=True):
        assert (one.status_code, one.content) == (other.status_code, other.content)
        assert sorted(one.headers.items()) == sorted(other.headers.items())
