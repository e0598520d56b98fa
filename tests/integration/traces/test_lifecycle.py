"""The steps of a trace one by one: claims, fences, losses, ends, questions and approvals."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sessions_app.changes import Changes, unit_of_work
from sessions_app.db import utc_now
from sessions_app.models import Agent, Session
from sessions_app.protocol.errors import Conflict, Invalid
from tests.integration.traces.conftest import Talk, statuses
from traces_app import leases, lifecycle
from traces_app.attempts import Attempt
from traces_app.executors.contract import Cancelled, Completed, Failed, NeedsApproval, NeedsInput
from traces_app.executors.registry import UnknownExecutor, find_executor
from traces_app.lifecycle import Claimed
from traces_app.models import Approval, ToolCall, Trace
from traces_app.moves import Lost, Note, move
from traces_app.records import record
from traces_app.report import TraceReport
from traces_app.requests import load_request
from traces_app.runner import settle
from traces_app.states import MOVES, STATUSES


def begin(trace: Trace) -> Claimed:
    claimed = leases.claim(trace.pk, "worker")
    assert claimed is not None
    return claimed


def run_out(trace: Trace) -> None:
    Trace.objects.filter(pk=trace.pk).update(lease_until=utc_now() - timedelta(seconds=1))


def test_of_two_that_claim_one_gets_it() -> None:
    trace = Talk("bob").ask()
    assert begin(trace).attempt == 1
    assert leases.claim(trace.pk, "other") is None
    assert leases.claim(0, "other") is None


def test_a_result_comes_once_with_state_context_and_message_together() -> None:
    talk = Talk("bob", context={"focus_module": "old"})
    trace = talk.ask()
    claimed = begin(trace)
    assert lifecycle.complete(claimed, Completed("found it", context_patch={"focus_module": "core"}))
    assert not lifecycle.complete(claimed, Completed("again"))
    assert not lifecycle.fail(claimed, "late", "too late")
    trace.refresh_from_db()
    assert (trace.status, trace.result["summary"]) == ("completed", "found it")
    (result,) = talk.messages("result")
    assert (result.content, result.sender.agent_id, result.trace_id) == ("found it", "bob", trace.public_id)
    assert (result.reply_to, result.client_message_id) == (trace.message_key, f"trace:{trace.public_id}")
    session = talk.session
    assert session.context["focus_module"] == "core"
    assert session.context["previous_results"] == {trace.public_id: {"summary": "found it", "agent_id": "bob"}}
    assert (session.open_traces, session.status) == ({}, "active")
    assert statuses(trace) == ["created", "running", "completed"]


def test_the_last_20_results_are_kept_in_the_context() -> None:
    talk = Talk("bob", busy_policy="parallel")
    traces = [talk.ask(f"work {n}") for n in range(23)]
    for trace in traces:
        assert lifecycle.complete(begin(trace), Completed("x" * 2000))
    kept = talk.session.context["previous_results"]
    assert list(kept) == [trace.public_id for trace in traces[3:]]
    assert all(len(result["summary"]) <= 500 for result in kept.values())


def test_a_patch_that_is_too_large_is_left_out_and_the_result_still_comes() -> None:
    talk = Talk("bob")
    trace = talk.ask()
    assert lifecycle.complete(begin(trace), Completed("ok", context_patch={"huge": "x" * 300_000}))
    assert "huge" not in talk.session.context
    assert trace.public_id in talk.session.context["previous_results"]
    assert trace.events.filter(type="log").exists()


def test_an_agent_that_sent_under_the_results_name_gets_its_result_posted_all_the_same() -> None:
    talk = Talk("bob")
    trace = talk.ask()
    talk.send("mine", sender="bob", client_message_id=f"trace:{trace.public_id}")
    assert lifecycle.complete(begin(trace), Completed("the result"))
    assert [m.content for m in talk.messages("result")] == ["the result"]


def test_a_lost_lease_goes_back_and_what_the_zombie_writes_changes_nothing() -> None:
    talk = Talk("bob")
    trace = talk.ask()
    zombie = begin(trace)
    assert leases.renew([zombie]) == []
    assert leases.sweep() == 0
    run_out(trace)
    assert leases.sweep() == 1
    trace.refresh_from_db()
    assert (trace.status, trace.losses) == ("created", 1)
    assert leases.renew([zombie]) == [zombie]
    second = begin(trace)
    assert second.attempt == 2
    with pytest.raises(Lost):
        record(trace, zombie.attempt, [Note("log", {"text": "late"})], Changes())
    assert not lifecycle.complete(zombie, Completed("late"))
    assert not lifecycle.ask(zombie, {"kind": "question", "question": "?"})
    assert not leases.release(zombie)
    assert leases.stopped([zombie, second]) == [zombie]
    assert lifecycle.complete(second, Completed("in time"))
    assert [m.content for m in talk.messages("result")] == ["in time"]
    assert not trace.events.filter(data__contains="late").exists()
    assert statuses(trace) == ["created", "running", "created", "running", "completed"]


def test_the_third_loss_is_the_last() -> None:
    talk = Talk("bob")
    trace = talk.ask()
    for _ in range(3):
        begin(trace)
        run_out(trace)
        assert leases.sweep() == 1
        trace.refresh_from_db()
    assert (trace.status, trace.losses, trace.error["code"]) == ("failed", 3, "worker_lost")
    (result,) = talk.messages("result")
    assert result.metadata["trace_status"] == "failed"


def test_an_attempt_that_is_handed_back_is_no_loss() -> None:
    trace = Talk("bob").ask()
    assert leases.release(begin(trace))
    trace.refresh_from_db()
    assert (trace.status, trace.losses) == ("created", 0)
    assert begin(trace).attempt == 2


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("action", MOVES)
def test_a_move_happens_only_from_where_the_table_says(status: str, action: str) -> None:
    trace = Talk("bob").ask()
    Trace.objects.filter(pk=trace.pk).update(status=status)
    trace.refresh_from_db()
    with unit_of_work() as changes:
        moved = move(trace, action, changes)
    trace.refresh_from_db()
    sources, target = MOVES[action]
    assert moved == (status in sources)
    assert trace.status == (target if moved else status)
    assert trace.last_sequence == (2 if moved else 1)


def test_when_the_session_has_ended_the_result_stays_on_the_trace() -> None:
    talk = Talk("bob")
    trace = talk.ask()
    claimed = begin(trace)
    Session.objects.filter(pk=talk.pk).update(status="completed")  # as no door of ours would leave it
    assert lifecycle.complete(claimed, Completed("too late to tell", context_patch={"x": 1}))
    trace.refresh_from_db()
    assert (trace.status, trace.result["summary"]) == ("completed", "too late to tell")
    assert talk.messages("result") == []
    assert talk.session.context == {}


def test_a_cancel_is_final_and_the_second_one_changes_nothing() -> None:
    talk = Talk("bob")
    trace = talk.ask()
    claimed = begin(trace)

    def cancel() -> bool:
        with unit_of_work() as changes:
            return lifecycle.cancel_trace(trace_pk=trace.pk, session_pk=talk.pk, by="alice", changes=changes)

    assert [cancel(), cancel()] == [True, False]
    assert leases.stopped([claimed]) == [claimed]
    assert not lifecycle.complete(claimed, Completed("late"))
    assert [m.metadata["trace_status"] for m in talk.messages("result")] == ["cancelled"]


def reporting(trace: Trace, claimed: Claimed) -> TraceReport:
    trace.refresh_from_db()
    return TraceReport(Attempt(claimed, time.monotonic() + 60), trace, "bob", trace.session.public_id)


def test_goals_calls_and_usage_add_up_from_events() -> None:
    trace = Talk("bob").ask()
    report = reporting(trace, begin(trace))
    report.goal("a", "first", status="running")
    report.goal("b", "second", parent_id="a")
    report.tool_call("c1", "login", {"password": "opensesame", "n": 1})
    report.tool_result("c1", "login", {"ok": True})
    report.tool_call("c2", "fails", {})
    report.tool_result("c2", "fails", error={"code": "not_found", "message": "no"})
    report.usage(tool_calls=2, input_tokens=5)
    report.usage(input_tokens=7)
    report.goal("a", "first", status="done")
    goals = [(g.goal_id, g.parent_goal, g.title, g.status) for g in trace.goals.all()]
    assert goals == [("a", None, "first", "done"), ("b", "a", "second", "open")]
    calls = {c.call_id: (c.name, c.status) for c in ToolCall.objects.filter(trace=trace)}
    assert calls == {"c1": ("login", "done"), "c2": ("fails", "failed")}
    trace.refresh_from_db()
    assert trace.usage == {"tool_calls": 2, "input_tokens": 12}
    assert not any("opensesame" in str(event.data) for event in trace.events.all())


def test_a_report_of_a_cancelled_run_stops_it() -> None:
    talk = Talk("bob")
    trace = talk.ask()
    report = reporting(trace, begin(trace))
    with unit_of_work() as changes:
        lifecycle.cancel_trace(trace_pk=trace.pk, session_pk=talk.pk, by="alice", changes=changes)
    assert not report.cancelled()
    with pytest.raises(Cancelled):
        report.log("going on")
    assert report.cancelled()


Answer = Callable[..., None]


@pytest.fixture
def asked() -> tuple[Talk, Trace, Answer]:
    talk = Talk("bob")
    trace = talk.ask()

    def answer(value: Any = None, approve: bool | None = None) -> None:
        with unit_of_work() as changes:
            lifecycle.answer_trace(
                trace_pk=trace.pk,
                session_pk=talk.pk,
                by=talk.agents["alice"],
                answer=value,
                approve=approve,
                changes=changes,
            )

    return talk, trace, answer


def end(trace: Trace, outcome: Any) -> Claimed:
    claimed = begin(trace)
    assert settle(Attempt(claimed, time.monotonic() + 60), outcome)
    trace.refresh_from_db()
    return claimed


def test_a_question_is_answered_once_and_the_run_begins_again_with_it(asked: tuple[Talk, Trace, Answer]) -> None:
    talk, trace, answer = asked
    with pytest.raises(Conflict):
        answer("early")
    end(trace, NeedsInput("Which colour?", {"type": "string"}))
    assert trace.status == "waiting"
    assert trace.pending_input["question"] == "Which colour?"
    assert trace.lease_until is None
    with pytest.raises(Invalid):
        answer(approve=True)
    answer("red")
    with pytest.raises(Conflict):
        answer("blue")
    claimed = begin(trace)
    request, _ = load_request(claimed, None)
    assert [entry["answer"] for entry in request.inputs] == ["red"]
    assert statuses(trace) == ["created", "running", "waiting", "created", "running"]
    assert talk.session.open_traces == {trace.public_id: "bob"}


def test_a_question_that_nobody_answers_fails_in_the_end(asked: tuple[Talk, Trace, Answer]) -> None:
    talk, trace, answer = asked
    end(trace, NeedsInput("Well?"))
    assert leases.sweep() == 0
    Trace.objects.filter(pk=trace.pk).update(input_until=utc_now() - timedelta(seconds=1))
    with pytest.raises(Conflict):
        answer("too late")
    assert leases.sweep() == 1
    trace.refresh_from_db()
    assert (trace.status, trace.error["code"]) == ("failed", "input_expired")
    assert len(talk.messages("result")) == 1


def test_an_approval_is_for_one_exact_call_and_is_used_once(asked: tuple[Talk, Trace, Answer]) -> None:
    _, trace, answer = asked
    call = {"path": "x", "force": True}
    report = reporting(trace, end(trace, NeedsApproval("delete", call)))
    assert trace.pending_input["call"] == {"tool": "delete", "arguments": call}
    with pytest.raises(Invalid):
        answer("yes")
    answer(approve=True)
    report = reporting(trace, begin(trace))
    assert not report.approved("delete", {"path": "y", "force": True})
    assert not report.approved("destroy", call)
    assert report.approved("delete", {"force": True, "path": "x"})
    assert not report.approved("delete", call), "it can be given, and used, once"


def test_an_approval_expires(asked: tuple[Talk, Trace, Answer]) -> None:
    _, trace, answer = asked
    end(trace, NeedsApproval("delete", {}))
    answer(approve=True)
    Approval.objects.update(expires_at=utc_now() - timedelta(seconds=1))
    assert not reporting(trace, begin(trace)).approved("delete", {})


def test_a_failed_outcome_is_told_with_its_code() -> None:
    talk = Talk("bob")
    trace = talk.ask()
    end(trace, Failed("not_found", "There is no such file."))
    assert (trace.status, trace.error) == ("failed", {"code": "not_found", "message": "There is no such file."})
    assert "not_found" in talk.messages("result")[0].content


def test_an_executor_that_nobody_knows_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownExecutor, match="planner"):
        find_executor("nonesuch")
    with pytest.raises(UnknownExecutor):
        find_executor("python:tests.executors:nonesuch")


def test_the_history_is_what_the_agent_may_read_and_no_more() -> None:
    talk = Talk("bob")
    for n in range(4):
        talk.send(f"line {n}", sender="alice" if n % 2 else "bob")
    trace = talk.ask("now")
    Agent.objects.get(agent_id="bob").participations.update(first_sequence=3)
    request, note = load_request(begin(trace), None)
    assert [(e["role"], e["content"]) for e in request.history] == [("assistant", "line 2"), ("user", "line 3")]
    assert note.data["history_sequences"] == [3, 4]
