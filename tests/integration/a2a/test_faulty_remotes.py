"""Remotes that break the rules, or break: what is made of each, through the whole executor."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hub.a2a.outbound import ends, talk
from hub.a2a.outbound.models import RemoteContext, RemoteTask
from sessions_app.models import Agent, Delivery
from tests.integration.a2a.conftest import RemoteTalk

pytestmark = pytest.mark.django_db(transaction=True)

Reply = tuple[int, str, bytes]
Answer = Callable[[dict[str, Any]], Reply]


class Scripted:
    """A JSON-RPC remote: `answers[method]` are called one after another, the last again and again."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.calls: list[dict[str, Any]] = []
        self.streaming = True
        remote = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, "application/json", json.dumps(remote.card()).encode())

            def do_POST(self) -> None:
                call = json.loads(self.rfile.read(int(self.headers["content-length"])))
                remote.calls.append(call)
                waiting = remote.answers[call["method"]]
                self._send(*(waiting.pop(0) if len(waiting) > 1 else waiting[0])(call))

            def _send(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", content_type)
                self.end_headers()  # without a length: the body ends with the connection
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def card(self) -> dict[str, Any]:
        interface = {"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return {"name": "Scripted", "supportedInterfaces": [interface], "capabilities": {"streaming": self.streaming}}

    @property
    def methods(self) -> list[str]:
        return [call["method"] for call in self.calls]


@pytest.fixture
def scripted(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    settings.HUB_A2A_RETRY_SECONDS = 1
    monkeypatch.setattr(talk, "PAUSE_SECONDS", (0.01, 0.02))
    monkeypatch.setattr(talk, "LOOK_SECONDS", (0.01, 0.02))
    remote = Scripted()
    yield remote
    remote.server.shutdown()
    remote.server.server_close()


def task(state: str, *texts: str, said: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if said:
        status["message"] = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": said}]}
    artifacts = [{"artifactId": "a", "parts": [{"text": text} for text in texts]}] if texts else []
    return {"id": "t1", "contextId": "c1", "status": status, "artifacts": artifacts}


def piece(text: str, append: bool = True) -> dict[str, Any]:
    artifact = {"artifactId": "a", "parts": [{"text": text}]}
    return {"artifactUpdate": {"taskId": "t1", "contextId": "c1", "artifact": artifact, "append": append}}


def stream(*events: dict[str, Any], tail: bytes = b"") -> Answer:
    def answer(call: dict[str, Any]) -> Reply:
        lines = [
            b"data: " + json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": event}, ensure_ascii=False).encode()
            for event in events
        ]
        return 200, "text/event-stream", b"".join(line + b"\n\n" for line in lines) + tail

    return answer


def result(value: dict[str, Any]) -> Answer:
    return lambda call: (
        200,
        "application/json",
        json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": value}).encode(),
    )


def error(code: int, message: str) -> Answer:
    return lambda call: (
        200,
        "application/json",
        json.dumps({"jsonrpc": "2.0", "id": call["id"], "error": {"code": code, "message": message}}).encode(),
    )


def plain(status: int, body: bytes = b"", content_type: str = "text/plain") -> Answer:
    return lambda call: (status, content_type, body)


def test_separators_of_lines_in_the_text_do_not_break_it(scripted: Scripted) -> None:
    text = "one\u2028two\u2029three\u0085four\u000bfive"
    scripted.answers["SendStreamingMessage"] = [stream({"task": task("COMPLETED", text)})]
    conversation = RemoteTalk(scripted.url)
    conversation.run("go")
    assert conversation.messages("result")[0].content == text


def test_a_message_may_be_the_whole_answer(scripted: Scripted) -> None:
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "at once"}]}
    scripted.answers["SendStreamingMessage"] = [stream({"message": message})]
    conversation = RemoteTalk(scripted.url)
    trace = conversation.run("go")
    assert conversation.messages("result")[0].content == "at once"
    assert RemoteTask.objects.get(trace=trace).state == "over"


def test_an_unfinished_event_at_the_end_counts_for_nothing_and_the_task_is_taken_up(scripted: Scripted) -> None:
    scripted.answers["SendStreamingMessage"] = [
        stream({"task": task("WORKING")}, piece("one ", False), tail=b'data: {"jsonrpc": "2.0", "resu')
    ]
    scripted.answers["SubscribeToTask"] = [
        stream({"task": task("WORKING", "one ", "two ")}, piece("three")),  # and cut again
        stream({"task": task("COMPLETED", "one ", "two ", "three")}),
    ]
    conversation = RemoteTalk(scripted.url)
    conversation.run("go")
    assert conversation.messages("result")[0].content == "one two three"
    assert scripted.methods == ["SendStreamingMessage", "SubscribeToTask", "SubscribeToTask"]


def test_a_task_that_ended_during_the_cut_is_looked_up(scripted: Scripted) -> None:
    scripted.answers["SendStreamingMessage"] = [stream({"task": task("WORKING")})]
    scripted.answers["SubscribeToTask"] = [error(-32004, "it has ended")]
    scripted.answers["GetTask"] = [result(task("COMPLETED", "the end"))]
    conversation = RemoteTalk(scripted.url)
    conversation.run("go")
    assert conversation.messages("result")[0].content == "the end"


def test_a_remote_that_can_not_be_resubscribed_to_is_looked_at_until_it_has_ended(scripted: Scripted) -> None:
    scripted.answers["SendStreamingMessage"] = [stream({"task": task("WORKING")})]
    scripted.answers["SubscribeToTask"] = [error(-32601, "no such method")]
    scripted.answers["GetTask"] = [
        result(task("WORKING")),
        plain(503),
        result(task("WORKING", "a")),
        result(task("COMPLETED", "ab")),
    ]
    conversation = RemoteTalk(scripted.url)
    conversation.run("go")
    assert conversation.messages("result")[0].content == "ab"


def test_what_was_said_before_it_broke_for_good_is_kept_as_interrupted(scripted: Scripted) -> None:
    scripted.answers["SendStreamingMessage"] = [stream({"task": task("WORKING")}, piece("half of ", False))]
    scripted.answers["SubscribeToTask"] = [plain(503)]
    conversation = RemoteTalk(scripted.url)
    trace = conversation.run("go")
    assert trace.error["code"] == "remote_unreachable"
    (message,) = conversation.messages("result")
    assert message.content == "half of "
    assert message.metadata["interrupted"] is True


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (plain(200, b"<html>hello</html>", "text/html"), "remote_error"),
        (plain(200, b"[]", "application/json"), "remote_error"),
        (stream({"nonsense": 1}), "remote_protocol"),
        (stream(), "remote_unreachable"),
        (plain(200, b"data: {]\n\n", "text/event-stream"), "remote_error"),
        (plain(200, b"data: " + b"x" * (1 << 20) + b"\n\n", "text/event-stream"), "remote_protocol"),
        (plain(404), "remote_error"),
        (plain(302), "remote_protocol"),
        (plain(403), "remote_unauthorized"),
        (plain(500), "remote_unreachable"),
        (error(-32602, "bad parameters"), "remote_invalid"),
        (error(-32603, "oops"), "remote_error"),
        (error(-32005, "no text please"), "remote_unsupported"),
        (error(-32009, "version"), "remote_unsupported"),
        (error(-12345, "own error, token=abcdefghijklmnop"), "remote_error"),
        (
            stream({"task": {**task("COMPLETED"), "artifacts": [{"artifactId": str(n)} for n in range(300)]}}),
            "remote_protocol",
        ),
    ],
)
def test_each_fault_has_a_code_and_secrets_do_not_come_through(scripted: Scripted, answer: Answer, code: str) -> None:
    scripted.answers["SendStreamingMessage"] = [answer]
    trace = RemoteTalk(scripted.url).run("go")
    assert trace.error["code"] == code
    assert "abcdefghijklmnop" not in trace.error["message"]
    assert Delivery.objects.get().status in ("failed", "delivered")


def test_a_message_that_may_have_arrived_is_sent_a_few_times_with_the_same_id_and_no_more(scripted: Scripted) -> None:
    scripted.answers["SendStreamingMessage"] = [plain(502)]
    trace = RemoteTalk(scripted.url).run("go")
    assert trace.error["code"] == "remote_unreachable"
    assert len(scripted.calls) == talk.SENDS
    assert {call["params"]["message"]["messageId"] for call in scripted.calls} == {f"{trace.public_id}.0"}


def test_an_agent_that_is_not_there_is_unreachable(scripted: Scripted) -> None:
    conversation = RemoteTalk(scripted.url)
    scripted.answers["SendStreamingMessage"] = [stream({"task": task("COMPLETED", "first")})]
    conversation.run("go")  # the card is known from here on
    scripted.server.shutdown()
    scripted.server.server_close()
    trace = conversation.run("go")
    assert trace.error == {"code": "remote_unreachable", "message": "The remote agent can't be reached (ConnectError)."}
    scripted.server.server_close = lambda: None  # type: ignore[method-assign]
    scripted.server.shutdown = lambda: None  # type: ignore[method-assign]


def test_a_task_that_the_remote_has_lost_is_lost(scripted: Scripted) -> None:
    scripted.answers["SendStreamingMessage"] = [stream({"task": task("WORKING")})]
    scripted.answers["SubscribeToTask"] = [error(-32001, "unknown")]
    scripted.answers["GetTask"] = [error(-32001, "unknown")]
    trace = RemoteTalk(scripted.url).run("go")
    assert trace.error["code"] == "remote_task_lost"


def test_a_remote_that_has_forgotten_the_context_is_told_everything_once_more(scripted: Scripted) -> None:
    scripted.answers["SendStreamingMessage"] = [
        stream({"task": task("COMPLETED", "one")}),
        error(-32001, "no such context"),
        stream({"task": {**task("COMPLETED", "two"), "contextId": "c2"}}),
    ]
    conversation = RemoteTalk(scripted.url)
    Agent.objects.filter(agent_id="bob").update(context_strategy="per_agent")
    conversation.run("first")
    trace = conversation.run("second")
    assert (trace.status, trace.error) == ("completed", None)
    sent = [call["params"]["message"] for call in scripted.calls]
    assert [message.get("contextId") for message in sent] == [None, "c1", None]
    types = [part.get("metadata", {}).get("type") for part in sent[2]["parts"]]
    assert types == [None, "ConversationHistory"]
    assert RemoteContext.objects.get().context_id == "c2"
    assert [d.status for d in Delivery.objects.order_by("pk")] == ["delivered", "failed", "delivered"]


def test_a_remote_without_streams_is_asked_for_an_answer_at_once_and_looked_at(scripted: Scripted) -> None:
    scripted.streaming = False
    scripted.answers["SendMessage"] = [result({"task": task("SUBMITTED")})]
    scripted.answers["GetTask"] = [result(task("WORKING")), result(task("COMPLETED", "x", "y"))]
    conversation = RemoteTalk(scripted.url)
    conversation.run("go")
    assert scripted.calls[0]["params"]["configuration"]["returnImmediately"] is True
    assert conversation.messages("result")[0].content == "x\ny"


def test_a_remote_without_streams_may_be_silent_until_it_is_done_and_is_asked_once(
    scripted: Scripted, settings: Any
) -> None:
    settings.HUB_A2A_SILENCE_SECONDS = 0.2

    def slow(call: dict[str, Any]) -> Reply:
        threading.Event().wait(0.7)
        return result({"task": task("COMPLETED", "at last")})(call)

    scripted.streaming = False
    scripted.answers["SendMessage"] = [slow]
    conversation = RemoteTalk(scripted.url)
    conversation.run("go")
    assert conversation.messages("result")[0].content == "at last"
    assert len(scripted.calls) == 1


@pytest.mark.parametrize(
    ("answers", "state"),
    [([result(task("CANCELED"))], "abandoned"), ([error(-32002, "too late")], "abandoned"), ([plain(503)], "open")],
)
def test_a_remote_is_told_that_nobody_waits_and_asked_again_only_when_that_may_help(
    scripted: Scripted, answers: list[Answer], state: str
) -> None:
    scripted.answers["SendStreamingMessage"] = [stream({"task": task("AUTH_REQUIRED")})]
    scripted.answers["CancelTask"] = answers
    RemoteTalk(scripted.url).run("go")
    row = RemoteTask.objects.get()
    assert ends.end_remote(row.pk) is (state == "abandoned")
    row.refresh_from_db()
    assert (row.state, row.end_attempts) == (state, 1)


def test_a_remote_that_can_not_be_told_is_given_up_in_the_end(scripted: Scripted) -> None:
    scripted.answers["SendStreamingMessage"] = [stream({"task": task("AUTH_REQUIRED")})]
    scripted.answers["CancelTask"] = [plain(503)]
    RemoteTalk(scripted.url).run("go")
    RemoteTask.objects.update(end_attempts=ends.ATTEMPTS - 1)
    assert ends.end_remote(RemoteTask.objects.get().pk)
    assert RemoteTask.objects.get().state == "abandoned"
