"""The OpenAPI document: complete, and true of real answers."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema

from sessions_app.protocol.ids import message_id
from tests.integration.rest.conftest import Door

pytestmark = pytest.mark.parametrize("application", ["express"], indirect=True)


async def document(door: Door) -> dict[str, Any]:
    answer = await door.client.get("/api/schema")
    assert answer.headers["Content-Type"] == "application/json"
    return dict(answer.json())


async def test_the_document_is_valid_and_generates_without_a_warning(a: Door) -> None:
    GENERATOR_STATS.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema: Any = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    assert not GENERATOR_STATS
    validate_schema(schema)  # type: ignore[no-untyped-call]
    served = await document(a)
    assert served == json.loads(json.dumps(schema))
    assert served["openapi"].startswith("3.1")
    assert served["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


async def test_every_call_is_in_a_group_that_the_document_explains(a: Door) -> None:
    served = await document(a)
    found = {path: {tag for call in calls.values() for tag in call["tags"]} for path, calls in served["paths"].items()}
    assert set().union(*found.values()) == {tag["name"] for tag in served["tags"]}
    assert all(tag["description"] for tag in served["tags"])
    expected = {
        "agents/me": "agents",
        "agents/{agent_id}/keys": "agents",
        "sessions": "sessions",
        "sessions/{session_id}/events": "messages",
        "sessions/{session_id}/merge": "branches",
        "sessions/{session_id}/traces": "traces",
        "traces/{trace_id}/events": "traces",
        "contexts/{session_id}": "contexts",
    }
    assert {path: found[f"/api/a2a/{path}"] for path in expected} == {path: {tag} for path, tag in expected.items()}


async def test_every_reference_in_the_document_leads_somewhere(a: Door) -> None:
    served = await document(a)
    text = json.dumps(served)
    for name in set(re.findall(r'"\$ref": "([^"]+)"', text)):
        assert name.startswith("#/components/schemas/"), name
        assert name.rpartition("/")[2] in served["components"]["schemas"], name


async def test_every_call_of_the_document_is_there(a: Door, b: Door, operator: Door) -> None:
    session = await a.open("b", initial_message="x")
    values = {
        "session_id": session,
        "agent_id": "b",
        "prefix": "aaaaaaaaaaaa",
        "message_id": message_id(1),
        "trace_id": "trace-x",
    }
    seen = set()
    for path, operations in (await document(a))["paths"].items():
        assert {"/api/schema", "/api/docs"}.isdisjoint({path})
        for method, operation in operations.items():
            if "text/event-stream" in operation["responses"].get("200", {}).get("content", {}):
                continue  # without an end; see below
            answer = await operator.call(method.upper(), path.format(**values), content=b"{")
            # With a broken body nothing happens; 405 or an unknown route would mean that the document is wrong.
            assert answer.status_code in (200, 201, 204, 400, 403, 404, 409), (method, path, answer.text)
            assert answer.status_code != 404 or "{prefix}" in path or "{message_id}" in path or "trace" in path, path
            assert operation["operationId"] not in seen
            seen.add(operation["operationId"])
            assert "default" in operation["responses"]
    await a.post(f"sessions/{session}/close")
    last = (await a.get(f"sessions/{session}")).json()["last_sequence"]
    assert (await a.get(f"sessions/{session}/events?after={last}")).status_code == 204
    assert (await a.call("HEAD", f"sessions/{session}/events?after=0")).headers["Content-Type"] == "text/event-stream"
    assert {"create_session", "send_message", "list_messages", "await_response", "move_cursor", "issue_key"} <= seen


async def test_real_answers_are_as_the_document_says(a: Door, b: Door, operator: Door) -> None:
    served = await document(a)

    def check(name: str, value: Any) -> None:
        schema = {"$ref": f"#/components/schemas/{name}", "components": served["components"]}
        jsonschema.Draft202012Validator(schema).validate(value)

    opened = (await a.post("sessions", {"participants": ["b"], "initial_message": "x"})).json()
    session = opened["session_id"]
    check("OpenedSession", opened)
    check("Session", (await a.get(f"sessions/{session}")).json())
    check("SessionList", (await a.get("sessions")).json())
    asked = await a.say(session, "why", wait_for_response=True, timeout=0)
    check("SentMessage", asked)
    check("SentMessage", await b.say(session, "so", reply_to=asked["message_id"], to=["a"]))
    check("ResponseState", (await a.get(f"sessions/{session}/messages/{asked['message_id']}/response")).json())
    check("MessagePage", (await a.get(f"sessions/{session}/messages")).json())
    check("CursorState", (await b.post(f"sessions/{session}/read", {"up_to": 1})).json())
    check("Participant", (await a.post(f"sessions/{session}/participants", {"agent_id": "b"})).json())
    check("Agent", (await a.get("agents/b")).json())
    check("Agent", (await a.get("agents/me")).json())
    check("AgentList", (await operator.get("agents")).json())
    check("Key", (await operator.post("agents/b/keys")).json())
    check("Error", (await a.get("agents/nobody")).json())
    with pytest.raises(jsonschema.ValidationError):
        check("Session", {"session_id": session})


async def test_the_page_that_shows_it_needs_nothing_from_elsewhere(a: Door) -> None:
    answer = await a.client.get("/api/docs")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assets = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
    assert len(assets) == 4
    for path in assets:
        assert (await a.client.get(path)).status_code == 200, path
