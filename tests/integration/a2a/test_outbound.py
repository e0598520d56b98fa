"""Traces on a remote agent: the SDK's own server over a real port."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from msgspec import Raw

from hub.a2a.outbound import ends
from hub.a2a.outbound.models import RemoteCard, RemoteContext, RemoteTask
from sessions_app.append import Stored, append
from sessions_app.changes import Changes, unit_of_work
from sessions_app.db import utc_now
from sessions_app.drafts import draft_message
from sessions_app.models import Agent, Delivery
from sessions_app.protocol.bodies import MessageBody
from tests.integration.a2a.conftest import RemoteProcess, RemoteTalk
from tests.remote_agent import SECRET
from traces_app import chunks, leases, lifecycle
from traces_app.models import Trace
from traces_app.runner import run_trace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("kind", ["v1", "rest", "v03", "rest03", "plain"])
def test_an_answer_of_a_remote_agent_becomes_the_result(remote: RemoteProcess, kind: str) -> None:
    talk = RemoteTalk(f"{remote.url}/{kind}")
    trace = talk.run("hello there")
    assert (trace.status, trace.error) == ("completed", None)
    (result,) = talk.messages("result")
    assert (result.content, result.sender.agent_id) == ("echo: hello there", "bob")
    row = RemoteTask.objects.get()
    assert (row.state, row.message_id) == ("over", f"{trace.public_id}.0")
    assert RemoteContext.objects.get().context_id == row.context_id != ""


@pytest.mark.parametrize("kind", ["v1", "rest", "v03", "rest03"])
def test_a_stream_arrives_in_pieces_and_is_stored_as_their_sum(
    remote: RemoteProcess, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[str] = []
    monkeypatch.setattr(chunks.Stream, "send", _collect(pieces))
    talk = RemoteTalk(f"{remote.url}/{kind}")
    trace = talk.run("stream 20")
    (result,) = talk.messages("result")
    assert result.content == "".join(f"word{index} " for index in range(20)) == "".join(pieces)
    assert len(pieces) > 1
    assert trace.result is not None
    assert any(event.data.get("text") == "I am thinking." for event in trace.events.filter(type="log"))


def _collect(pieces: list[str]) -> Any:
    def send(self: chunks.Stream, text: str) -> None:
        pieces.append(text)
        self._index += 1

    return send


@pytest.mark.parametrize("kind", ["cut", "cut03", "silent"])
def test_a_stream_that_is_cut_or_falls_silent_is_taken_up_again(
    remote: RemoteProcess, kind: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.HUB_A2A_SILENCE_SECONDS = 1
    pieces: list[str] = []
    monkeypatch.setattr(chunks.Stream, "send", _collect(pieces))
    runs = remote.seen()["runs"]
    talk = RemoteTalk(f"{remote.url}/{kind}")
    trace = talk.run("stream 30")
    (result,) = talk.messages("result")
    assert result.content == "".join(f"word{index} " for index in range(30)) == "".join(pieces)
    done = trace.events.get(type="tool_result").data["result"]
    assert done["connections"] >= 2
    assert remote.seen()["runs"] == runs + 1  # taken up, not asked again


@pytest.mark.parametrize("kind", ["v1", "rest03"])
def test_a_cancelled_trace_closes_its_stream_and_cancels_the_remote_task(remote: RemoteProcess, kind: str) -> None:
    talk = RemoteTalk(f"{remote.url}/{kind}")
    trace = talk.ask("sleep 30")
    worker = threading.Thread(target=run_trace, args=(trace.pk,))
    worker.start()
    _until(lambda: RemoteTask.objects.filter(state="open").exists())
    with unit_of_work() as changes:
        assert lifecycle.cancel_trace(trace_pk=trace.pk, session_pk=talk.pk, by="alice", changes=changes)
    worker.join(30)
    assert not worker.is_alive()
    row = RemoteTask.objects.get()
    _until(lambda: row.task_id in remote.seen()["cancelled"])
    _until(lambda: RemoteTask.objects.get().state == "abandoned")
    assert [message.kind for message in talk.messages()] == ["task", "result"]


def _until(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["v1", "rest03"])
def test_a_question_of_the_remote_waits_for_an_answer_and_goes_on_with_the_same_task(
    remote: RemoteProcess, kind: str
) -> None:
    talk = RemoteTalk(f"{remote.url}/{kind}")
    trace = talk.run("ask me")
    assert trace.status == "waiting"
    assert trace.pending_input["question"] == "Which colour?"
    first = RemoteTask.objects.get()
    with unit_of_work() as changes:
        lifecycle.answer_trace(
            trace_pk=trace.pk,
            session_pk=talk.pk,
            by=talk.agents["alice"],
            answer="red",
            approve=None,
            changes=changes,
        )
    run_trace(trace.pk)
    trace.refresh_from_db()
    assert trace.result["summary"] == "painted red"
    row = RemoteTask.objects.get()
    assert (row.task_id, row.turn, row.message_id) == (first.task_id, 1, f"{trace.public_id}.1")


def test_each_turn_is_a_new_task_in_the_context_that_the_remote_gave(remote: RemoteProcess) -> None:
    talk = RemoteTalk(f"{remote.url}/v1")
    talk.run("first")
    talk.run("second")
    one, two = RemoteTask.objects.order_by("pk")
    assert one.task_id != two.task_id
    assert one.context_id == two.context_id
    sent = remote.seen()["messages"][-2:]
    assert "contextId" in sent[1]
    assert sent[1]["contextId"] == one.context_id


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("fail", "remote_failed", "It broke."),
        ("reject", "remote_rejected", "Not with me."),
        ("auth", "remote_auth_required", "Log in at the bank."),
        ("gone", "remote_canceled", "The remote agent's task was cancelled there."),
    ],
)
@pytest.mark.parametrize("kind", ["v1", "v03", "rest03"])
def test_each_way_in_which_a_remote_task_ends_has_a_code(
    remote: RemoteProcess, kind: str, text: str, code: str, words: str
) -> None:
    trace = RemoteTalk(f"{remote.url}/{kind}").run(text)
    assert (trace.status, trace.error) == ("failed", {"code": code, "message": words})


def test_a_task_that_wants_a_login_is_cancelled_there_by_the_sweep(remote: RemoteProcess) -> None:
    RemoteTalk(f"{remote.url}/v1").run("auth")
    row = RemoteTask.objects.get()
    assert row.state == "open"
    assert ends.take_due(utc_now()) == [("a2a.end", [row.pk])]
    assert ends.take_due(utc_now()) == []  # another sweep finds it taken
    assert ends.end_remote(row.pk)
    assert RemoteTask.objects.get().state == "abandoned"
    assert not ends.end_remote(row.pk)


def test_a_remote_that_takes_too_long_is_a_timeout_of_ours(remote: RemoteProcess) -> None:
    trace = RemoteTalk(f"{remote.url}/v1", timeout_seconds=1).run("sleep 20")
    assert trace.error == {"code": "remote_timeout", "message": "The remote agent took longer than it may."}


def test_parts_of_every_kind_come_through(remote: RemoteProcess) -> None:
    talk = RemoteTalk(f"{remote.url}/v1")
    talk.run("files")
    (result,) = talk.messages("result")
    assert result.parts == [
        {"text": "# Found", "mediaType": "text/markdown"},
        {"data": {"n": 1, "half": 0.5}},
        {"url": "https://files.example.org/a.pdf", "filename": "a.pdf", "mediaType": "application/pdf"},
    ]


def test_an_answer_may_be_the_last_status_alone(remote: RemoteProcess) -> None:
    talk = RemoteTalk(f"{remote.url}/v1")
    talk.run("say hi")
    assert talk.messages("result")[0].content == "said: hi"


@pytest.mark.parametrize("kind", ["bearer", "header", "query"])
def test_the_credential_goes_where_the_card_wants_it_and_nowhere_else(
    remote: RemoteProcess, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (None, "httpx", "httpcore", "a2a", "hub"):  # however much somebody may have turned up
        caplog.set_level("DEBUG", logger=name)
    monkeypatch.setenv("HUB_A2A_SECRET_REMOTE", SECRET)
    talk = RemoteTalk(f"{remote.url}/{kind}", credential="REMOTE")
    trace = talk.run("hello")
    assert trace.status == "completed"
    rows = [str(list(model.objects.values())) for model in (RemoteCard, RemoteTask, Delivery, Agent, Trace)]
    rows += [str(event.data) for event in trace.events.all()]
    assert SECRET not in "".join(rows)
    assert SECRET not in caplog.text


def test_without_the_right_credential_nobody_is_let_in(remote: RemoteProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = RemoteTalk(f"{remote.url}/bearer").run("hello")
    assert trace.error["code"] == "remote_credential"
    monkeypatch.setenv("HUB_A2A_SECRET_WRONG", "wrong")
    trace = _again(remote, credential="WRONG")
    assert trace.error["code"] == "remote_unauthorized"
    trace = _again(remote, credential="UNSET")
    assert trace.error == {"code": "remote_credential", "message": "HUB_A2A_SECRET_UNSET is not set."}


def _again(remote: RemoteProcess, **config: Any) -> Trace:
    Agent.objects.filter(agent_id="bob").update(executor_config={"card_url": f"{remote.url}/bearer", **config})
    session = Trace.objects.latest("pk").session
    talk = RemoteTalk.__new__(RemoteTalk)
    talk.pk, talk.agents = session.pk, {"alice": Agent.objects.get(agent_id="alice")}
    return talk.run("hello again")


def test_calls_that_are_redirected_are_not_followed(remote: RemoteProcess) -> None:
    trace = RemoteTalk(f"{remote.url}/moved").run("hello")
    assert trace.error["code"] == "remote_protocol"


def test_the_delivery_is_byte_for_byte_what_the_remote_got(remote: RemoteProcess) -> None:
    talk = RemoteTalk(f"{remote.url}/v1")
    talk.send("The weather is fine.", to=["bob"], requires_execution=False)
    talk.run("hello", metadata=Raw(b'{"userId": "7"}'))
    delivery = Delivery.objects.latest("pk")
    assert delivery.status == "delivered"
    (message,) = (m for m in remote.seen()["messages"] if m["messageId"] == RemoteTask.objects.get().message_id)
    assert message["parts"] == json.loads(delivery.parts)
    assert message["parts"][1]["metadata"]["type"] == "ConversationHistory"
    assert message["metadata"] == {"userId": "7"}
    assert delivery.sent in [request["body"] for request in remote.seen()["requests"]]


def test_another_attempt_takes_the_task_up_and_does_not_ask_again(remote: RemoteProcess) -> None:
    talk = RemoteTalk(f"{remote.url}/v1")
    runs = remote.seen()["runs"]
    trace = talk.ask("sleep 2")
    worker = threading.Thread(target=run_trace, args=(trace.pk,))
    worker.start()
    _until(lambda: RemoteTask.objects.filter(state="open").exists())
    Trace.objects.filter(pk=trace.pk).update(lease_until=utc_now() - timedelta(seconds=1))
    assert leases.lose(trace.pk)  # the worker that runs it does not know yet
    assert run_trace(trace.pk)
    worker.join(30)
    trace.refresh_from_db()
    assert (trace.status, trace.attempt, trace.result["summary"]) == ("completed", 2, "slept")
    assert remote.seen()["runs"] == runs + 1
    assert RemoteTask.objects.get().task_id not in remote.seen()["cancelled"]


@pytest.mark.parametrize(
    ("strategy", "types"),
    [
        ("embedded", [None, "ConversationHistory", "UserContext"]),
        ("per_agent", [None, "ContextInjections"]),
        ("shared", [None, "SharedContext"]),
        (None, [None, "ConversationHistory", "UserContext"]),
    ],
)
def test_the_context_goes_along_by_the_agents_strategy(
    remote: RemoteProcess, strategy: str | None, types: list[str | None]
) -> None:
    talk = RemoteTalk(f"{remote.url}/v1", context={"userProfile": {"location": "Beijing"}})
    Agent.objects.filter(agent_id="bob").update(context_strategy=strategy)
    told = talk.send("The weather in Beijing is sunny tomorrow.", to=["bob"], requires_execution=False)
    trace = talk.run("Is it good for rowing?", context_refs=[told.message.public_id])
    (message,) = (m for m in remote.seen()["messages"] if m["messageId"] == f"{trace.public_id}.0")
    assert [part.get("metadata", {}).get("type") for part in message["parts"]] == types
    if strategy == "per_agent":
        (injected,) = message["parts"][1]["data"]
        assert (injected["source_agent"], injected["message_id"]) == ("alice", told.message.public_id)
    if strategy == "shared":
        assert message["parts"][1]["data"]["session_id"] == talk.session_id
        assert message.get("contextId") != talk.session_id
    assert json.loads(Delivery.objects.get().parts) == message["parts"]


def test_files_and_data_of_a_question_go_along(remote: RemoteProcess) -> None:
    talk = RemoteTalk(f"{remote.url}/v03")
    parts = [
        {"text": "look at this"},
        {"data": {"a": 1}},
        {"url": "https://x.example.org/a.png", "mediaType": "image/png"},
    ]
    draft = draft_message(
        MessageBody(parts=Raw(json.dumps(parts).encode()), requires_execution=True),
        talk.pk,
        talk.agents["alice"].pk,
        "alice",
    )
    stored = append([draft], Changes())[0]
    assert isinstance(stored, Stored)
    trace = Trace.objects.get(public_id=stored.message.trace_id)
    run_trace(trace.pk)
    (message,) = (m for m in remote.seen()["messages"] if m["messageId"] == f"{trace.public_id}.0")
    assert message["parts"][:3] == parts
