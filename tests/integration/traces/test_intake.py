"""When a message becomes a trace, and whose it is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from sessions_app import members
from sessions_app.changes import Changes, unit_of_work
from sessions_app.db import utc_now
from sessions_app.identities import hub_agent_key
from sessions_app.models import Agent, HubProcess, Participant, Presence
from sessions_app.protocol.bodies import AgentPatch
from sessions_app.protocol.errors import Busy, Invalid, SessionClosed
from sessions_app.services.agents import update_agent
from sessions_app.services.sessions import close_session, open_session
from tests.integration.traces.conftest import Talk, statuses
from traces_app import bell, leases
from traces_app.executors.contract import Completed
from traces_app.keeper import answer_bell
from traces_app.lifecycle import cancel_trace, complete
from traces_app.models import Trace


def test_the_other_one_in_a_session_of_two_runs_it_by_its_executor() -> None:
    talk = Talk("bob")
    trace = talk.ask()
    assert (trace.agent.agent_id, trace.executor, trace.status) == ("bob", "python:tests.executors:echo", "created")
    assert trace.requested_by.agent_id == "alice"
    message = talk.messages()[0]
    assert (message.kind, message.trace_id, trace.message_sequence) == ("task", trace.public_id, message.sequence)
    assert talk.session.open_traces == {trace.public_id: "bob"}
    assert talk.session.status == "waiting"
    assert statuses(trace) == ["created"]


def test_the_rules_open_a_trace_only_where_somebody_can_run_it() -> None:
    talk = Talk("bob", executor=None)
    stored = talk.send("分析core模块")
    assert (stored.message.kind, stored.message.trace_id) == ("task", None)
    Agent.objects.filter(agent_id="bob").update(executor="python:tests.executors:echo")
    assert talk.send("分析core模块").message.trace_id is not None
    assert talk.send("你好").message.trace_id is None
    assert talk.send("分析core模块", requires_execution=False).message.trace_id is None


def test_a_connected_agent_that_takes_traces_is_delegated_to() -> None:
    talk = Talk("bob", executor=None)
    now = utc_now()
    process = HubProcess.objects.create(started_at=now, lease_until=now + timedelta(seconds=60))
    place = Presence.objects.create(process=process, agent=talk.agents["bob"], since=now)
    assert talk.send("分析core模块").message.trace_id is None, "a socket without run=1 takes no traces"
    Presence.objects.filter(pk=place.pk).update(runs_traces=True)
    trace = Trace.objects.get(public_id=talk.send("分析core模块").message.trace_id)
    assert (trace.agent.agent_id, trace.executor) == ("bob", "delegate")
    HubProcess.objects.update(lease_until=now - timedelta(seconds=1))
    assert talk.send("分析core模块").message.trace_id is None, "a dead process vouches for nobody"


def test_without_anybody_the_hub_runs_what_the_sender_wants_executed() -> None:
    talk = Talk("bob", executor=None)
    trace = talk.ask()
    assert (trace.agent_id, trace.executor) == (hub_agent_key(), "planner")
    assert talk.session.open_traces == {trace.public_id: "hub"}
    with override_settings(HUB_DEFAULT_EXECUTOR=""), pytest.raises(Invalid) as refused:
        talk.ask()
    assert refused.value.details == {"field": "requires_execution"}
    assert len(talk.messages()) == 1


def test_in_a_group_one_addressee_runs_it_else_the_orchestrator_else_nobody() -> None:
    talk = Talk("bob", "carol")
    assert talk.ask(to=["carol"]).agent.agent_id == "carol"
    assert talk.ask().agent.agent_id == "hub"
    assert talk.ask(to=["bob", "carol"]).agent.agent_id == "hub"
    Participant.objects.filter(agent=talk.agents["carol"]).update(role="orchestrator")
    talk_members_changed(talk)
    assert talk.ask().agent.agent_id == "carol"
    assert talk.ask(to=["bob", "carol"]).agent.agent_id == "carol"


def talk_members_changed(talk: Talk) -> None:
    session = talk.session
    session.members_revision += 1
    session.save(update_fields=["members_revision"])


def test_enqueue_lets_them_run_one_after_the_other() -> None:
    talk = Talk("bob")
    first, second = talk.ask("one"), talk.ask("two")
    assert leases.claim(second.pk, "w") is None
    assert leases.claim(first.pk, "w") is not None
    assert leases.claim(second.pk, "w") is None
    with unit_of_work() as changes:
        cancel_trace(trace_pk=first.pk, session_pk=talk.pk, by="alice", changes=changes)
    assert leases.next_in_line([talk.pk]) == [second.pk]
    assert leases.claim(second.pk, "w") is not None


@pytest.mark.parametrize("policy", ["enqueue", "parallel"])
def test_an_end_rings_for_the_next_in_line_and_for_nobody_who_was_rung_for_before(
    policy: str, django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[Any]]
) -> None:
    talk = Talk("bob", busy_policy=policy)
    first, second, third = talk.ask("one"), talk.ask("two"), talk.ask("three")
    claimed = leases.claim(first.pk, "w")
    assert claimed is not None
    with django_capture_on_commit_callbacks(execute=True):
        assert complete(claimed, Completed("done"))
    assert not bell.is_heard(), "as in a process of a worker's pool"
    rung: list[int] = []

    def ringer(trace_pk: int) -> bool:
        rung.append(trace_pk)
        return True

    answer_bell(ringer)
    assert rung == ([second.pk] if policy == "enqueue" else [])
    assert {trace.status for trace in Trace.objects.filter(pk__in=[second.pk, third.pk])} == {"created"}


def test_a_bell_is_heard_by_whoever_listens_in_this_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rung = threading.Event()
    bell.listen(rung.set)
    try:
        assert bell.is_heard()
        bell.ring_next(1)
        assert rung.is_set()
        monkeypatch.setattr(os, "getpid", lambda: 0)  # as in a child that was forked later
        assert not bell.is_heard()
    finally:
        bell.forget(rung.set)
        bell.take_sessions()
    assert not bell.is_heard()


def test_parallel_lets_them_run_together() -> None:
    talk = Talk("bob", busy_policy="parallel")
    first, second = talk.ask("one"), talk.ask("two")
    assert leases.claim(second.pk, "w") is not None
    assert leases.claim(first.pk, "w") is not None


def test_reject_stores_nothing() -> None:
    talk = Talk("bob", busy_policy="reject")
    talk.ask("one")
    with pytest.raises(Busy):
        talk.ask("two")
    assert len(talk.messages()) == 1
    assert talk.send("just talk").message.sequence == 2


def test_interrupt_cancels_what_runs_and_tells_so_before_the_new_request() -> None:
    talk = Talk("bob", busy_policy="interrupt")
    first = talk.ask("one")
    assert leases.claim(first.pk, "w") is not None
    second = talk.ask("two")
    first.refresh_from_db()
    assert first.status == "cancelled"
    assert statuses(first) == ["created", "running", "cancelled"]
    assert [(m.kind, m.trace_id, m.sequence) for m in talk.messages()] == [
        ("task", first.public_id, 1),
        ("result", first.public_id, 2),
        ("task", second.public_id, 3),
    ]
    assert second.message_sequence == 3
    assert talk.session.open_traces == {second.public_id: "bob"}
    assert leases.claim(second.pk, "w") is not None


def test_what_an_agent_asks_while_it_runs_a_trace_is_part_of_that_trace() -> None:
    talk = Talk("bob", "carol")
    outer = talk.ask(to=["bob"])
    assert leases.claim(outer.pk, "w") is not None
    inner = talk.ask("help me", sender="bob", to=["carol"])
    assert (inner.parent_id, inner.in_line) == (outer.pk, False)
    assert leases.claim(inner.pk, "w") is not None, "it does not stand in line behind what waits for it"
    with unit_of_work() as changes:
        cancel_trace(trace_pk=outer.pk, session_pk=talk.pk, by="alice", changes=changes)
    inner.refresh_from_db()
    assert inner.status == "cancelled"
    assert talk.session.open_traces == {}


def test_a_close_cancels_what_is_open_and_tells_it_first() -> None:
    talk = Talk("bob")
    first, second = talk.ask("one"), talk.ask("two")
    assert leases.claim(first.pk, "w") is not None
    with unit_of_work() as changes:
        close_session(session_pk=talk.pk, reason=None, changes=changes)
    assert {t.status for t in Trace.objects.filter(pk__in=[first.pk, second.pk])} == {"cancelled"}
    assert [m.trace_id for m in talk.messages("result")] == [first.public_id, second.public_id]
    assert (talk.session.status, talk.session.open_traces) == ("completed", {})
    with pytest.raises(SessionClosed):
        talk.ask("three")


def test_a_status_query_tells_of_running_work_with_its_goals() -> None:
    talk = Talk("bob")
    trace = talk.ask("分析core模块")
    claimed = leases.claim(trace.pk, "w")
    assert claimed is not None
    from traces_app.moves import Note
    from traces_app.records import record

    trace.refresh_from_db()
    record(
        trace,
        1,
        [Note("goal", {"goal_id": str(n), "title": "g", "status": s}) for n, s in enumerate(["done", "open", "open"])],
        Changes(),
    )
    talk.send("当前进度如何？")
    answer = talk.messages("system")[-1].content
    assert trace.public_id in answer
    assert f"第 {trace.message_sequence} 条消息" in answer
    assert "core" not in answer, "not everybody who reads it may read what was asked"
    assert "已完成 1 个，剩余 2 个" in answer
    talk.send("how far are you?")
    assert "1 done, 2 open" in talk.messages("system")[-1].content


def talk_with_a_model(*others: str) -> Talk:
    talk = Talk("bob", *others, executor=None)
    Agent.objects.filter(agent_id="bob").update(executor="llm")
    members.forget_everything()
    return talk


def test_whatever_is_said_to_an_agent_for_whom_the_hub_talks_is_work_for_it() -> None:
    talk = talk_with_a_model()
    stored = talk.send("Hello there")
    trace = Trace.objects.get(public_id=stored.message.trace_id)
    assert (trace.agent.agent_id, trace.executor, stored.message.kind) == ("bob", "llm", "task")
    assert talk.messages()[0].classified_by == "agent:bob"
    assert talk.send("just so", requires_execution=False).message.trace_id is None
    assert talk.send("hello", sender="bob").message.trace_id is None


def test_in_a_group_an_orchestrator_answers_its_user_and_nobody_elses_small_talk() -> None:
    for name in ("bob", "carol", "orch"):
        Agent.objects.create(agent_id=name, executor="orchestrator" if name == "orch" else None)
    alice = Agent.objects.create(agent_id="alice")
    with unit_of_work() as changes:
        opened = open_session(
            initiator=alice, participants=list(Agent.objects.exclude(agent_id__in=["alice", "hub"])), changes=changes
        )
    talk = object.__new__(Talk)
    talk.agents, talk.pk = {a.agent_id: a for a in Agent.objects.all()}, opened.session.pk
    asked = talk.send("如果去颐和园划船，明天天气怎么样，适合吗")
    assert Trace.objects.get(public_id=asked.message.trace_id).agent.agent_id == "orch"
    assert talk.send("谢谢").message.trace_id is None
    assert talk.send("I have an idea", sender="bob").message.trace_id is None
    assert talk.send("to you", to="bob").message.trace_id is None
    assert talk.send("what do you think", sender="bob", to="orch").message.trace_id is not None


def test_an_executor_given_in_the_middle_of_a_session_counts_from_the_next_message() -> None:
    talk = Talk("bob", executor=None)
    assert talk.send("Hello there").message.trace_id is None
    update_agent(agent=talk.agents["bob"], patch=AgentPatch(executor="llm"), is_operator=True)
    assert talk.send("Hello again").message.trace_id is not None
