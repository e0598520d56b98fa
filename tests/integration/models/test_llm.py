"""The executor `llm` over the real wire: text, tools, leaves, limits, faults, cancel, and what is remembered."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import connection

from hub.demo.model_server import Answer, ModelServer
from sessions_app.changes import unit_of_work
from sessions_app.context import selectors
from sessions_app.models import Agent, AgentHistory, Delivery, HistoryEntry
from tests.integration.models.conftest import Serve, Talk, configure, last_role, run, run_beside, says, text_of
from traces_app import leases, lifecycle
from traces_app.models import Approval, ToolCall, Trace
from traces_app.services import continue_trace

Told = list[dict[str, Any]]


def started(server: ModelServer, **config: Any) -> tuple[Talk, Trace]:
    talk = Talk("bob", executor="llm")
    configure("bob", server, **config)
    return talk, talk.ask("What is it?")


def test_the_stored_text_is_the_joined_chunks(serve: Serve, told: Told) -> None:
    talk, trace = started(serve(says("Good ", "day", ", 北京", "。")))
    run(trace)
    (result,) = talk.messages("result")
    assert result.content == "Good day, 北京。" == text_of(told, trace.public_id)
    assert result.metadata["stream_id"] == trace.public_id
    assert result.sender.agent_id == "bob"
    assert trace.usage["requests"] == 1
    assert trace.usage["input_tokens"] == 11
    assert trace.usage["output_tokens"] == len(result.content)


def test_tools_are_called_and_each_call_and_result_is_an_event(
    serve: Serve, told: Told, tools: list[dict[str, Any]]
) -> None:
    def script(body: dict[str, Any]) -> Answer:
        if last_role(body) == "user":
            return Answer(["Let me see."], [("add", {"a": 2, "b": 3}), ("breaks", {}), ("nope", {}), ("add", "{oh")])
        return Answer([f"Done after {sum(m['role'] == 'tool' for m in body['messages'])} results."])

    server = serve(script)
    talk, trace = started(server, tools=["add", "breaks"])
    run(trace)
    (result,) = talk.messages("result")
    assert result.content == "Let me see.\n\nDone after 4 results." == text_of(told, trace.public_id)
    assert tools == [{"a": 2, "b": 3}]
    assert [tool["function"]["name"] for tool in server.requests[0]["tools"]] == ["add", "breaks"]
    given = [m["content"] for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert given[0] == '{"sum":5}'
    assert ["internal" in given[1], "unknown_tool" in given[2], "invalid" in given[3]] == [True] * 3
    assert "a secret inside" not in str(server.requests)
    calls = ToolCall.objects.filter(trace=trace).order_by("id")
    assert [(c.name, c.status) for c in calls] == [
        ("add", "done"), ("breaks", "failed"), ("nope", "failed"), ("add", "failed")
    ]  # fmt: skip
    kinds = [event.type for event in trace.events.order_by("sequence")]
    assert kinds[kinds.index("message") :] == [
        "message", "usage", *["tool_call"] * 4, "log", *["tool_result"] * 4, "usage", "status"
    ]  # fmt: skip


def test_a_delivery_holds_byte_for_byte_what_the_models_endpoint_got_first(
    serve: Serve, tools: list[dict[str, Any]]
) -> None:
    def script(body: dict[str, Any]) -> Answer:
        return Answer([], [("add", {"a": 2, "b": 3})]) if last_role(body) == "user" else Answer(["五。"])

    server = serve(script)
    _, trace = started(server, tools=["add"], instructions="简短地回答。")
    run(trace)
    assert len(server.bodies) == 2
    delivery = Delivery.objects.get()
    assert delivery.sent == server.bodies[0]
    assert "简短地回答" in delivery.sent


def test_what_a_model_is_given_is_its_own_history_then_the_question(serve: Serve) -> None:
    server = serve(says("I said this."))
    talk, trace = started(server, instructions="Be brief.")
    run(trace)
    run(talk.ask("And now?"))
    system, *rest = server.requests[1]["messages"]
    assert system["role"] == "system"
    assert "Be brief." in system["content"]
    assert "BEGIN CONTEXT" in system["content"], "the rule about fences"
    assert [(m["role"], m["content"]) for m in rest] == [
        ("user", "What is it?"), ("assistant", "I said this."), ("user", "And now?")
    ]  # fmt: skip
    bob = Agent.objects.get(agent_id="bob")
    own = selectors.own_history(talk.pk, bob.pk)
    assert [m["role"] for m in own["messages"]] == ["user", "assistant"] * 2
    assert set(Delivery.objects.values_list("status", flat=True)) == {"delivered"}
    learnt = AgentHistory.objects.get(agent=bob)
    assert (learnt.tokens_told, learnt.bytes_told) == (11, len(server.bodies[1].encode())), "estimates learn from usage"


def approve(talk: Talk, trace: Trace, yes: bool) -> None:
    with unit_of_work() as changes:
        lifecycle.answer_trace(
            trace_pk=trace.pk,
            session_pk=talk.pk,
            by=talk.agents["alice"],
            answer=None,
            approve=yes,
            changes=changes,
        )


@pytest.mark.parametrize("yes", [True, False])
def test_a_call_that_wants_a_leave_waits_for_it_and_is_made_once_without_asking_the_model_again(
    serve: Serve, told: Told, tools: list[dict[str, Any]], yes: bool
) -> None:
    def script(body: dict[str, Any]) -> Answer:
        if last_role(body) == "user":
            return Answer(["May I?"], [("add", {"a": 1, "b": 1})])
        return Answer(["Two." if "sum" in body["messages"][-1]["content"] else "Then not."])

    server = serve(script)
    talk, trace = started(server, tools=["add"], approve=["add"])
    run(trace)
    assert trace.status == "waiting"
    assert trace.pending_input["call"] == {"tool": "add", "arguments": {"a": 1, "b": 1}}
    assert tools == []
    approve(talk, trace, yes)
    run(trace)
    assert trace.status == "completed"
    assert len(server.requests) == 2
    assert tools == ([{"a": 1, "b": 1}] if yes else [])
    (result,) = talk.messages("result")
    assert result.content == f"May I?\n\n{'Two.' if yes else 'Then not.'}" == text_of(told, trace.public_id)
    (approval,) = Approval.objects.filter(trace=trace)
    assert approval.status == ("used" if yes else "refused")
    roles = [m["role"] for m in server.requests[1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize("fault", [{"cut": True}, {"error": True}])
def test_a_stream_that_breaks_off_stores_what_came_and_says_so(serve: Serve, told: Told, fault: dict[str, Any]) -> None:
    talk, trace = started(serve(says("Half of ", "the ans", **fault)))
    run(trace)
    assert (trace.status, trace.error["code"]) == ("failed", "interrupted")
    (result,) = talk.messages("result")
    assert result.content == "Half of the ans" == text_of(told, trace.public_id)
    assert result.metadata["interrupted"] is True
    assert result.metadata["stream_id"] == trace.public_id
    assert trace.result["summary"] == "Half of the ans"
    assert Delivery.objects.get().status == "failed"
    assert not HistoryEntry.objects.exists(), "a failed question leaves nothing behind"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(status=401), "model_refused"),
        (Answer(status=404), "model_refused"),
        (Answer([], finish="stop"), "model_error"),
        (Answer([], finish="content_filter"), "refused"),
        (Answer([], cut=True), "interrupted"),
    ],
)
def test_a_model_that_can_not_answer_has_a_stable_code(
    serve: Serve, answer: Answer, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    talk, trace = started(serve(lambda body: answer))
    run(trace)
    assert (trace.status, trace.error["code"]) == ("failed", code)
    assert "as the script says" not in talk.messages("result")[0].content + caplog.text, "it may quote what was sent"


def test_an_overloaded_endpoint_is_asked_again(serve: Serve) -> None:
    answers = [Answer(status=503), Answer(["There."])]
    _, trace = started(serve(lambda body: answers.pop(0)))
    assert run(trace).status == "completed"


def test_nobody_there_and_no_model(serve: Serve, settings: Any) -> None:
    server = serve(says("never"))
    talk, trace = started(server)
    server.__exit__()
    assert run(trace).error["code"] == "model_unavailable"
    Agent.objects.filter(agent_id="bob").update(executor_config={})
    assert run(talk.ask()).error["code"] == "no_model"
    Agent.objects.filter(agent_id="bob").update(executor_config={"model": "x", "api_key": "sk-something"})
    assert run(talk.ask()).error["code"] == "no_model"


def test_a_key_is_named_and_goes_where_it_belongs(
    serve: Serve, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(says("ok"))
    settings.HUB_LLM_API_KEY = "the-hubs-own-key"
    settings.HUB_LLM_BASE_URL = "http://127.0.0.1:9/v1"
    monkeypatch.setenv("HUB_LLM_KEY_LOCAL", "the-local-key")
    talk, trace = started(server)
    run(trace)
    configure("bob", server, key="LOCAL")
    run(talk.ask("again"))
    assert server.keys == ["Bearer none", "Bearer the-local-key"]
    stored = str([list(model.objects.values()) for model in (Trace, Agent, Delivery)])
    stored += str([event.data for event in trace.events.all()]) + caplog.text
    assert "the-local-key" not in stored
    assert "the-hubs-own-key" not in stored


def test_limits_end_a_run_that_goes_in_circles(serve: Serve, tools: list[dict[str, Any]]) -> None:
    server = serve(lambda body: Answer([], [("add", {"a": 1, "b": 1})]))
    _, trace = started(server, tools=["add"], limits={"requests": 3})
    assert run(trace).error["code"] == "limit"
    assert (len(server.requests), len(tools)) == (3, 3)
    _, trace = started_again(server, tools=["add"], limits={"tool_calls": 2})
    assert run(trace).error["code"] == "limit"
    assert len(tools) == 3 + 2
    _, trace = started_again(server, tools=["add"], limits={"tokens": 20})
    assert run(trace).error["code"] == "limit"


def started_again(server: ModelServer, **config: Any) -> tuple[Talk, Trace]:
    for name in ("alice", "bob"):
        Agent.objects.filter(agent_id=name).update(agent_id=f"{name}.{time.monotonic_ns()}")
    return started(server, **config)


def test_a_cancel_ends_the_request_within_a_second(serve: Serve) -> None:
    server = serve(says(*["word "] * 400, seconds=0.05))
    talk, trace = started(server)
    running = run_beside(trace)
    while not server.requests:
        time.sleep(0.01)
    with unit_of_work() as changes:
        lifecycle.cancel_trace(trace_pk=trace.pk, session_pk=talk.pk, by="alice", changes=changes)
    assert server.left.wait(30), "the endpoint sees its client go"
    running.join(30)
    assert not running.is_alive()
    trace.refresh_from_db()
    assert trace.status == "cancelled"
    assert Delivery.objects.get().status == "failed"


def test_a_lost_attempt_is_taken_up_where_it_ended(serve: Serve, tools: list[dict[str, Any]]) -> None:
    dies = True

    def script(body: dict[str, Any]) -> Answer:
        nonlocal dies
        if last_role(body) == "user":
            return Answer([], [("add", {"a": 2, "b": 2})])
        if dies:
            dies = False
            row = Trace.objects.get(pk=trace.pk)
            claimed = lifecycle.Claimed(row.pk, row.session_id, row.public_id, row.attempt, row.executor)
            leases.release(claimed)
            connection.close()  # this thread is the server's
        return Answer(["Four."])

    talk, trace = started(serve(script), tools=["add"])
    run(trace)
    assert trace.status == "created"
    run(trace)
    assert (trace.status, trace.attempt) == ("completed", 2)
    assert tools == [{"a": 2, "b": 2}], "a call with a result is not made again"
    assert [m.content for m in talk.messages("result")] == ["Four."]


def test_a_continued_trace_begins_with_the_history_of_the_other_one_repaired(
    serve: Serve, tools: list[dict[str, Any]]
) -> None:
    def script(body: dict[str, Any]) -> Answer:
        if last_role(body) == "user" and len(body["messages"]) == 2:
            return Answer(["Let me see."], [("add", {"a": 2, "b": 2})])
        return Answer([f"{len(body['messages'])} messages."])

    server = serve(script)
    talk, trace = started(server, tools=["add"])
    run(trace)
    in_the_middle = trace.events.get(type="tool_call").sequence
    for after, told in ((None, "assistant"), (in_the_middle, "tool")):
        with unit_of_work() as changes:
            pk, _ = continue_trace(
                trace_pk=trace.pk,
                content="And then?",
                after_sequence=after,
                caller=talk.agents["alice"],
                changes=changes,
            )
        run(Trace.objects.get(pk=pk))
        messages = server.requests[-1]["messages"]
        assert [m["role"] for m in messages[:4]] == ["system", "user", "assistant", "tool"]
        assert messages[-2]["role"] == told
        assert messages[-1] == {"role": "user", "content": "And then?"}
        assert ("interrupted" in str(messages)) == (after is not None), "a call without a result is answered"
    assert tools == [{"a": 2, "b": 2}], "nothing is called again"


def test_eight_models_at_once_share_one_loop(serve: Serve) -> None:
    server = serve(says("a ", "b ", "c", seconds=0.05))
    talk, _ = started(server)
    talk.session.__class__.objects.filter(pk=talk.pk).update(busy_policy="parallel")
    threads = [run_beside(talk.ask(f"question {number}")) for number in range(8)]
    for thread in threads:
        thread.join(60)
    assert [m.content for m in talk.messages("result")] == ["a b c"] * 8
    assert len([thread for thread in threading.enumerate() if thread.name == "hub-models"]) == 1
