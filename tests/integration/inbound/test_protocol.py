"""The protocol's own rules: cards, versions, errors, lists, cancels, replay; each repair of the SDK has its test here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from a2a.utils.errors import A2AError

from hub.a2a.cards import REPLAY
from hub.a2a.errors import A2A_ERROR, as_a2a_error
from sessions_app.protocol import errors
from sessions_app.protocol.errors import HubError
from sessions_app.protocol.limits import FRAME_BYTES
from tests.integration.inbound.conftest import (
    MakePeer,
    Peer,
    Streams,
    events_of,
    send_params,
    session_of,
    set_agent,
    state_of,
    texts_of,
    work,
)

CARD = "/a2a/agents/bob/.well-known/agent-card.json"


# --- the card -----------------------------------------------------------------------------------------------------------


async def test_a_card_needs_no_key_and_says_where_and_how_its_agent_is_spoken_to(bob: Peer) -> None:
    answer = await bob.client.get(CARD)
    card = answer.json()
    assert answer.status_code == 200
    assert [(i["protocolBinding"], i["protocolVersion"]) for i in card["supportedInterfaces"]] == [
        ("JSONRPC", "1.0"),
        ("HTTP+JSON", "1.0"),
        ("JSONRPC", "0.3"),
        ("HTTP+JSON", "0.3"),
    ]
    assert card["description"] == "Answers questions."
    assert (card["url"], card["protocolVersion"]) == (card["supportedInterfaces"][0]["url"], "0.3")
    assert REPLAY in [extension["uri"] for extension in card["capabilities"]["extensions"]]
    assert "max-age" in answer.headers["cache-control"]


async def test_a_card_shows_the_public_url_of_the_settings_and_never_the_host_of_a_request(
    bob: Peer, settings: Any
) -> None:
    card = (await bob.client.get(CARD, headers={"Host": "localhost"})).json()
    assert "localhost" not in card["supportedInterfaces"][0]["url"]
    settings.HUB_PUBLIC_URL = "https://hub.example.org"
    card = (await bob.client.get(CARD)).json()
    assert card["supportedInterfaces"][0]["url"] == "https://hub.example.org/a2a/agents/bob/"


async def test_a_card_that_is_known_is_not_sent_again_and_one_that_has_changed_is(bob: Peer) -> None:
    tag = (await bob.client.get(CARD)).headers["etag"]
    assert (await bob.client.get(CARD, headers={"If-None-Match": f"W/{tag}"})).status_code == 304
    await set_agent("bob", description="Answers more.")
    assert (await bob.client.get(CARD, headers={"If-None-Match": tag})).status_code == 200


async def test_without_the_old_fields_a_card_is_that_of_1_0_alone(bob: Peer, settings: Any) -> None:
    settings.HUB_A2A_LEGACY_CARD = False
    card = (await bob.client.get(CARD)).json()
    assert "url" not in card
    assert {interface["protocolVersion"] for interface in card["supportedInterfaces"]} == {"1.0"}


async def test_the_root_agents_card_is_at_the_root(bob: Peer, settings: Any) -> None:
    assert (await bob.client.get("/.well-known/agent-card.json")).status_code == 404
    settings.HUB_A2A_ROOT_AGENT = "bob"
    assert (await bob.client.get("/.well-known/agent-card.json")).json()["name"] == "bob"


@pytest.mark.parametrize("name", ["nobody", "hub", "..", "a%00b"])
async def test_there_is_no_card_of_what_is_no_agent(bob: Peer, name: str) -> None:
    answer = await bob.client.get(f"/a2a/agents/{name}/.well-known/agent-card.json")
    assert answer.status_code == 404


async def test_the_extended_card_says_whether_the_agent_is_connected(alice: Peer, bob: Peer) -> None:
    card = await alice.result("bob", "GetExtendedAgentCard")
    assert card["name"] == "bob"
    assert card["capabilities"]["extensions"][-1]["params"]["online"] is False


# --- who may ----------------------------------------------------------------------------------------------------------


async def test_a_key_opens_the_door_as_bearer_or_in_a_header_of_its_own(alice: Peer, bob: Peer) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    for headers, status in (
        ({"Authorization": f"Bearer {alice.key}"}, 200),
        ({"X-API-Key": alice.key}, 200),
        ({"Authorization": "Bearer wrong"}, 401),
        ({}, 401),
    ):
        answer = await bob.client.post("/a2a/agents/bob", json=body, headers={"A2A-Version": "1.0", **headers})
        assert answer.status_code == status
        if status == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_an_operator_takes_no_part(bob: Peer, peer: MakePeer) -> None:
    operator = await peer("op", scope="operator")
    assert (await operator.rpc("bob", "ListTasks")).status_code == 403


async def test_rates_hold_here_too(alice: Peer, bob: Peer, settings: Any) -> None:
    from sessions_app.rest import quotas

    settings.HUB_RATE_REQUESTS, settings.HUB_BURST_REQUESTS = 0.001, 1
    quotas.forget_everything()
    assert (await alice.rpc("bob", "ListTasks")).status_code == 200
    answer = await alice.rpc("bob", "ListTasks")
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) > 0


async def test_a_task_of_somebody_else_is_not_found_by_any_operation(alice: Peer, bob: Peer, peer: MakePeer) -> None:
    eve, carl = await peer("eve"), await peer("carl")
    task = await alice.send("bob", "secret")
    config = {"taskId": task["id"], "id": "x"}
    operations: list[tuple[str, dict[str, Any]]] = [
        ("GetTask", {"id": task["id"]}),
        ("CancelTask", {"id": task["id"]}),
        ("SubscribeToTask", {"id": task["id"]}),
        ("SendMessage", send_params("x", taskId=task["id"])),
        ("SendStreamingMessage", send_params("x", taskId=task["id"])),
        ("CreateTaskPushNotificationConfig", {**config, "url": "https://example.com"}),
        ("GetTaskPushNotificationConfig", config),
        ("ListTaskPushNotificationConfigs", {"taskId": task["id"]}),
        ("DeleteTaskPushNotificationConfig", config),
    ]
    for method, params in operations:
        foreign = await eve.error("bob", method, params)
        assert foreign["code"] == -32001, method
        assert foreign["data"][0]["reason"] == "TASK_NOT_FOUND"
        assert foreign == await eve.error("bob", method, _of_nobody(params)), method
    assert (await eve.result("bob", "ListTasks"))["tasks"] == []
    # Nor is it found at another agent's address, even by its owner.
    assert (await alice.error("carl", "GetTask", {"id": task["id"]}))["code"] == -32001
    assert carl.agent_id == "carl"
    for path in (f"/tasks/{task['id']}", f"/tasks/{task['id']}/pushNotificationConfigs"):
        assert (await eve.rest("bob", "GET", path)).status_code == 404


def _of_nobody(params: dict[str, Any]) -> dict[str, Any]:
    """The same request for a task that never was."""
    unknown = "task-" + "a" * 26
    made = {**params, **{name: unknown for name in ("id", "taskId") if str(params.get(name, "")).startswith("task-")}}
    if "message" in made:
        made["message"] = {**made["message"], "taskId": unknown}
    return made


# --- lists and cancels ------------------------------------------------------------------------------------------------


async def test_a_list_is_ones_own_latest_first_and_pages_without_loss(alice: Peer, bob: Peer, echo: Peer) -> None:
    sent = [(await alice.send("bob", str(number)))["id"] for number in range(5)]
    await alice.send("echo", "elsewhere")
    found: list[str] = []
    token = ""
    while True:
        page = await alice.result("bob", "ListTasks", {"pageSize": 2, "pageToken": token})
        assert page["totalSize"] == 5
        assert all("artifacts" not in task for task in page["tasks"])
        found += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        if not token:
            break
    assert found == sent[::-1]


async def test_a_list_is_filtered_by_context_state_and_time(alice: Peer, bob: Peer, echo: Peer) -> None:
    task = await alice.send("echo", "one")
    await alice.send("echo", "two", contextId=task["contextId"])
    other = await alice.send("echo", "three")
    assert await work() == 3
    in_context = await alice.result("echo", "ListTasks", {"contextId": task["contextId"], "includeArtifacts": True})
    assert sorted(texts_of(t)[0] for t in in_context["tasks"]) == ["done: one", "done: two"]
    done = await alice.result("echo", "ListTasks", {"status": "TASK_STATE_COMPLETED"})
    assert done["totalSize"] == 3
    assert (await alice.result("echo", "ListTasks", {"status": "TASK_STATE_WORKING"}))["totalSize"] == 0
    late = (await alice.task("echo", other["id"]))["status"]["timestamp"]
    since = await alice.result("echo", "ListTasks", {"statusTimestampAfter": late})
    assert other["id"] in [t["id"] for t in since["tasks"]]


@pytest.mark.parametrize(
    "params",
    [
        {"status": "nonsense"},
        {"status": "completed"},
        {"pageSize": 0},
        {"pageSize": 101},
        {"pageToken": "nonsense"},
        {"historyLength": -1},
        {"statusTimestampAfter": "yesterday"},
    ],
)
async def test_a_bad_filter_is_refused(alice: Peer, bob: Peer, params: dict[str, Any]) -> None:
    assert (await alice.error("bob", "ListTasks", params))["code"] == -32602
    answer = await alice.rest("bob", "GET", "/tasks", params=params)
    assert answer.status_code == 400


async def test_a_cancelled_question_is_owed_no_more_and_cannot_be_cancelled_again(alice: Peer, bob: Peer) -> None:
    task = await alice.send("bob", "never mind")
    assert state_of(await alice.result("bob", "CancelTask", {"id": task["id"]})) == "canceled"
    assert (await bob.get(f"sessions/{task['contextId']}")).json()["waiting_for"] == []
    assert (await alice.error("bob", "CancelTask", {"id": task["id"]}))["code"] == -32002
    await bob.answer(task["contextId"], "too late")
    assert "artifacts" not in await alice.task("bob", task["id"])


async def test_a_cancelled_trace_is_cancelled(alice: Peer, echo: Peer) -> None:
    task = await alice.send("echo", "never mind")
    assert state_of(await alice.result("echo", "CancelTask", {"id": task["id"]})) == "canceled"
    assert (await alice.get(f"traces/{task['id']}")).json()["status"] == "cancelled"


# --- streams of tasks that have ended ---------------------------------------------------------------------------------


async def test_an_ended_task_is_replayed_to_those_who_ask_by_our_extension_alone(alice: Peer, echo: Peer) -> None:
    task = await alice.send("echo", "one")
    await work()
    assert (await alice.error("echo", "SubscribeToTask", {"id": task["id"]}))["code"] == -32004
    answer = await alice.rpc("echo", "SubscribeToTask", {"id": task["id"]}, **{"A2A-Extensions": REPLAY})
    assert answer.headers["a2a-extensions"] == REPLAY
    results = [event["result"] for event in events_of(answer)]
    kinds = [state_of(r["statusUpdate"]) if "statusUpdate" in r else next(iter(r)) for r in results]
    assert kinds == ["task", "working", "artifactUpdate", "completed"]
    numbers = [r[next(iter(r))]["metadata"][REPLAY]["sequence"] for r in results[1:]]
    assert numbers == sorted(set(numbers))
    # And from where one was.
    headers = {"A2A-Extensions": REPLAY, "Last-Event-ID": str(int(numbers[0]))}
    rest = events_of(await alice.rpc("echo", "SubscribeToTask", {"id": task["id"]}, **headers))
    assert len(rest) == 3


# --- envelopes, versions, errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", [True, 1.5, [], {}])
async def test_an_id_that_json_rpc_does_not_know_is_refused(alice: Peer, bob: Peer, identity: Any) -> None:
    body = {"jsonrpc": "2.0", "id": identity, "method": "ListTasks", "params": {}}
    answer = (await alice.rest("bob", "POST", "/", json=body)).json()
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ListTasks"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"Nonsense"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":7}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{}}}', -32602),
    ],
)
async def test_a_broken_request_gets_its_code_and_nobodys_exception(
    alice: Peer, bob: Peer, body: bytes, code: int
) -> None:
    answer = (await alice.rest("bob", "POST", "/", content=body)).json()
    assert answer["error"]["code"] == code
    for word in ("parseError", "Failed to parse", "Expecting", "Traceback", "line 1"):
        assert word not in str(answer)


@pytest.mark.parametrize(
    ("version", "known"), [("1.0", True), ("1.0.3", True), ("1.7", False), ("2.0", False), ("x", False)]
)
async def test_a_version_that_is_not_spoken_is_refused_wherever_it_stands(
    alice: Peer, bob: Peer, version: str, known: bool
) -> None:
    by_header = (await alice.rpc("bob", "ListTasks", version=version)).json()
    in_query = await alice.call("GET", f"/a2a/agents/bob/tasks?A2A-Version={version}")
    assert ("result" in by_header, in_query.status_code) == ((True, 200) if known else (False, 400))
    if not known:
        assert by_header["error"]["code"] == -32009
        assert in_query.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"


async def test_a_defect_is_an_internal_error_without_its_text(alice: Peer, bob: Peer) -> None:
    with patch("hub.a2a.handler.find_task", side_effect=RuntimeError("SELECT secret FROM users")):
        rpc = await alice.rpc("bob", "GetTask", {"id": "x"})
        old = await alice.rpc("bob", "tasks/get", {"id": "x"}, version=None)
        rest = await alice.rest("bob", "GET", "/tasks/x")
    assert (rpc.json()["error"]["code"], old.json()["error"]["code"], rest.status_code) == (-32603, -32603, 500)
    for answer in (rpc, old, rest):
        assert "secret" not in answer.text


def _errors() -> list[type[HubError]]:
    return list(errors.ALL)


@pytest.mark.parametrize("kind", _errors())
def test_every_refusal_of_the_hub_has_its_error(kind: Callable[..., HubError]) -> None:
    assert {error.code for error in errors.ALL} == set(A2A_ERROR)
    assert isinstance(as_a2a_error(kind(), where="here"), A2AError)


async def test_a_body_that_is_too_large_is_called_that(alice: Peer, bob: Peer) -> None:
    params = send_params("x" * (FRAME_BYTES + 1))
    rpc = await alice.error("bob", "SendMessage", params)
    assert (rpc["code"], rpc["message"]) == (-32600, "The request is too large.")
    rest = await alice.rest("bob", "POST", "/message:send", json=params)
    assert (rest.status_code, rest.json()["error"]["message"]) == (413, "The body is too large.")
    assert (await bob.get("sessions")).json()["sessions"] == []


async def test_http_and_json_has_the_statuses_and_error_info(alice: Peer, bob: Peer) -> None:
    unknown = await alice.rest("bob", "GET", "/tasks/task-unknown")
    assert unknown.status_code == 404
    info = unknown.json()["error"]["details"][0]
    assert (info["reason"], info["domain"]) == ("TASK_NOT_FOUND", "a2a-protocol.org")
    text = await alice.rest("bob", "POST", "/message:send", content=b"hello", headers={"Content-Type": "text/plain"})
    assert text.status_code == 415
    broken = await alice.rest(
        "bob", "POST", "/message:send", content=b'{"message":7}', headers={"Content-Type": "application/json"}
    )
    assert broken.status_code == 400
    assert "parse" not in broken.text.lower()
    strange = send_params(parts=[{"raw": "aGk=", "mediaType": "application/x-strange"}])
    assert (await alice.error("bob", "SendMessage", strange))["code"] == -32005


@pytest.mark.parametrize(
    "body",
    [
        b'{"message":{"messageId":"n","role":"ROLE_USER","parts":[{"text":"x\\u0000y"}]}}',
        b'{"message":{"messageId":"n\\u0000","role":"ROLE_USER","parts":[{"text":"x"}]}}',
        b'{"message":{"messageId":"n","role":"ROLE_USER","parts":[{"text":"\\ud800"}]}}',
        b'{"message":{"messageId":"n","role":"ROLE_USER","parts":[{"data":NaN}]}}',
        b'{"message":{"messageId":"n","role":"ROLE_USER","parts":[{"data":' + b"[" * 80 + b"]" * 80 + b"}]}}",
        b"[" * 50_000,
        b"{",
    ],
)
async def test_http_and_json_stores_nothing_that_no_other_door_would(alice: Peer, bob: Peer, body: bytes) -> None:
    refused = await alice.rest(
        "bob", "POST", "/message:send", content=body, headers={"Content-Type": "application/json"}
    )
    assert refused.status_code == 400
    assert (await alice.rest("bob", "POST", "/", content=body)).json()["error"]["code"] in (-32700, -32600)
    assert (await alice.rest("bob", "GET", "/tasks")).json()["tasks"] == []


async def test_a_client_does_not_speak_as_the_agent(alice: Peer, bob: Peer) -> None:
    assert (await alice.error("bob", "SendMessage", send_params("x", role="ROLE_AGENT")))["code"] == -32602


async def test_http_and_json_sends_streams_and_answers_in_the_clients_json(
    alice: Peer, bob: Peer, streams: Streams
) -> None:
    sending = asyncio.create_task(alice.rest("bob", "POST", "/message:stream", json=send_params("over REST")))
    await streams.begun()
    await bob.answer(await session_of(bob), "heard")
    events = events_of(await sending)
    assert [next(iter(event)) for event in events] == ["task", "artifactUpdate", "statusUpdate"]
    task_id = events[0]["task"]["id"]
    shown = await alice.rest("bob", "GET", f"/tasks/{task_id}")
    assert shown.headers["content-type"].startswith("application/a2a+json")
    assert shown.headers["cache-control"] == "private, no-store"
    sent = await alice.rest("bob", "POST", "/message:send", json=send_params("x"))
    assert sent.headers["content-type"].startswith("application/json")
    cancelled = await alice.rest("bob", "POST", f"/tasks/{sent.json()['task']['id']}:cancel")
    assert state_of(cancelled.json()) == "canceled"


async def test_nothing_of_the_base_url_depends_on_a_slash(alice: Peer, bob: Peer) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    for path in ("", "/"):
        assert "result" in (await alice.rest("bob", "POST", path, json=body)).json()
    assert (await alice.call("GET", "/a2a/agents/bob/nonsense")).status_code == 404


# --- push notification configurations ---------------------------------------------------------------------------------


async def test_push_configurations_are_made_shown_listed_and_deleted(alice: Peer, bob: Peer, settings: Any) -> None:
    settings.HUB_A2A_ALLOW = ["127.0.0.1"]
    task = await alice.send("bob", "tell me later")
    wanted = {
        "url": "http://127.0.0.1:9/hook",
        "token": "t",
        "authentication": {"scheme": "Bearer", "credentials": "c"},
    }
    made = await alice.result("bob", "CreateTaskPushNotificationConfig", {"taskId": task["id"], **wanted})
    assert made.items() >= {**wanted, "taskId": task["id"]}.items()
    named = {"taskId": task["id"], "id": made["id"]}
    assert await alice.result("bob", "GetTaskPushNotificationConfig", named) == made
    assert (await alice.result("bob", "ListTaskPushNotificationConfigs", {"taskId": task["id"]}))["configs"] == [made]
    for _ in range(2):
        answer = (await alice.rpc("bob", "DeleteTaskPushNotificationConfig", named)).json()
        assert answer["result"] is None
    assert (await alice.error("bob", "GetTaskPushNotificationConfig", named))["code"] == -32001
    private = {"taskId": task["id"], "url": "https://10.0.0.1/"}
    assert (await alice.error("bob", "CreateTaskPushNotificationConfig", private))["code"] == -32602
