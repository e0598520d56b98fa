"""Who may not read one agent does not read it through a main agent either: not its merged words, log, live text or questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hub.a2a.tasks import find_task
from hub.a2a.updates import page_after as updates_after
from hub.demo import weather
from hub.demo.model_server import Answer
from sessions_app.context import deliveries, turns, viewing
from sessions_app.context.deliveries import Ask
from sessions_app.context.profiles import View
from sessions_app.models import Agent, Delivery
from sessions_app.protocol.jsontext import dumps
from sessions_app.realtime.pieces import Piece
from tests.integration.models.conftest import Serve, configure, last_role
from tests.integration.models.groups import Group
from tests.integration.traces.conftest import raw
from traces_app import chunks
from traces_app.executors.contract import Completed, Failed, Report, Request
from traces_app.models import Trace
from traces_app.news import followed
from traces_app.selectors import event_view, events_after, log_of, trace_view

SECRET = "4711-the-secret"
BOTH = "@agent_a @agent_b 现在呢"
Fields = list[dict[str, Any]]


def tells_the_secret(request: Request, report: Report) -> Completed:
    report.chunk(SECRET)
    return Completed(SECRET)


def labels_the_secret(request: Request, report: Report) -> Completed:
    return Completed("open", ({"text": "open"}, {"text": SECRET, "metadata": {"sensitivity": "secret"}}))


def types_the_secret(request: Request, report: Report) -> Completed:
    return Completed("open", ({"text": "open"}, {"text": SECRET, "metadata": {"type": "Diagnosis"}}))


def fails_with_the_secret(request: Request, report: Report) -> Failed:
    return Failed("broken", f"could not read {SECRET}")


def logs_the_question(request: Request, report: Report) -> Completed:
    report.log(request.task)
    return Completed("hm")


def repeats_the_question(request: Request, report: Report) -> Completed:
    report.chunk(request.task)
    return Completed(f"you asked: {request.task}")


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Fields:
    """The live text that left the worker, as it travels to the serving processes."""
    sent: Fields = []
    monkeypatch.setattr(chunks, "send_frame", sent.append)
    return sent


def group_of(function: Callable[..., Any], *args: Any, **profile: Any) -> Group:
    """A group whose `agent_b` runs this function, and whose `agent_c` has this profile."""
    group = Group(*args)
    Agent.objects.filter(agent_id="agent_b").update(executor=f"python:{__name__}:{function.__name__}")
    group.restrict("agent_c", **profile)
    return group


def reaching(group: Group, agent: str, live: Fields) -> str:
    """Everything of the session that reaches this agent, on every way there is, as one text."""
    pk = group.agents[agent].pk
    view = viewing.find_view(group.pk, pk)
    messages = viewing.page_after(group.pk, 0, 500, view, pk)
    found: list[Any] = [message.body for message in messages if not message.withheld]
    found += [view.context(group.session.shared)]
    for trace in Trace.objects.filter(session_id=group.pk):
        found += [trace_view(trace.pk, view), *events_seen(trace, view)]
    found += [piece.frame for piece in map(Piece, live) if piece.is_for(view)]
    for strategy in ("embedded", "per_agent", "shared"):
        ask = Ask(group.pk, pk, f"4711 secret {strategy}", asker_pk=group.agents["alice"].pk, strategy=strategy)
        delivery = deliveries.prepare(ask)
        found += [delivery.parts, delivery.metadata, [turn.content for turn in turns.model_turns(delivery)]]
        deliveries.failed(delivery)
    return dumps([each if isinstance(each, str | list | dict) else str(each) for each in found])


def events_seen(trace: Trace, view: View) -> list[dict[str, Any]]:
    rows = events_after(trace.pk, 0, 500)
    return [event_view(row, trace.public_id, view, log_of(trace)) for row in rows]


@pytest.mark.parametrize(
    ("function", "profile"),
    [
        (tells_the_secret, {"withheld_senders": ["agent_b"]}),
        (tells_the_secret, {"senders": ["alice", "main", "agent_a"]}),
        (labels_the_secret, {"withheld_labels": ["secret"]}),
        (types_the_secret, {"withheld_part_types": ["Diagnosis"]}),
        (fails_with_the_secret, {"withheld_senders": ["agent_b"]}),
        (tells_the_secret, {"redactions": [{"pattern": SECRET}]}),
    ],
)
def test_what_is_withheld_of_one_agent_does_not_come_back_in_a_merged_answer(
    function: Callable[..., Any], profile: dict[str, Any], live: Fields
) -> None:
    group = group_of(function, **profile)
    trace = group.say(BOTH)
    merged = group.messages()[-1]
    assert merged.sender.agent_id == "main"
    assert SECRET in merged.content
    assert SECRET in reaching(group, "agent_a", live), "who may read all of it does"
    assert SECRET in dumps([piece.frame for piece in map(Piece, live)]), "it was told live"
    assert merged.metadata["provenance"]["agents"] == ["agent_a", "agent_b"]
    told = reaching(group, "agent_c", live)
    assert SECRET not in told
    assert weather.WEATHER in told, "agent_a's own answer is shown"
    view = viewing.find_view(group.pk, group.agents["agent_c"].pk)
    seen = events_seen(Trace.objects.get(pk=trace.pk), view)
    assert [event["sequence"] for event in seen] == list(range(1, len(seen) + 1)), "places are kept"


def test_the_failure_of_the_only_agent_that_was_called_is_told_to_whoever_may_read_that_agent(live: Fields) -> None:
    group = group_of(fails_with_the_secret, withheld_senders=["agent_b"])
    group.say("@agent_b 现在呢")
    assert group.messages()[-1].sender.agent_id == "main"
    assert SECRET in reaching(group, "agent_a", live)
    assert SECRET not in reaching(group, "agent_c", live)


def remembering(body: dict[str, Any]) -> Answer:
    """Calls agent_b first; from then on repeats what it has heard, to everybody."""
    messages = body["messages"]
    if not any(message["role"] == "tool" for message in messages):
        return Answer([], [("call_agent", {"agent": "agent_b", "query": "now"})])
    if last_role(body) == "tool":
        return Answer(["done"])
    if "ask" in str(messages[-1]["content"]):
        calls = [("call_agent", {"agent": name, "query": f"is it {SECRET}?"}) for name in ("agent_a", "agent_c")]
        return Answer([], calls)
    return Answer([f"it was {SECRET}"])


def test_a_model_that_repeats_what_it_heard_rounds_ago_does_so_to_those_who_may_hear_it(
    serve: Serve, live: Fields
) -> None:
    group = group_of(tells_the_secret, serve(remembering), withheld_senders=["agent_b"])
    group.say("first", requires_execution=True)
    group.say("again, please", requires_execution=True)
    assert group.messages()[-1].content == f"it was {SECRET}"
    assert SECRET in reaching(group, "agent_a", live)
    assert SECRET not in reaching(group, "agent_c", live)


def test_a_question_out_of_what_an_agent_may_not_read_is_put_to_it_in_the_users_words(
    serve: Serve, live: Fields
) -> None:
    group = group_of(tells_the_secret, serve(remembering), withheld_senders=["agent_b"])
    group.say("first", requires_execution=True)
    trace = group.say("ask them", requires_execution=True)
    tasks = {child.agent.agent_id: child.task for child in Trace.objects.filter(parent=trace)}
    assert tasks == {"agent_a": f"is it {SECRET}?", "agent_c": "ask them"}
    queries = Delivery.objects.filter(session_id=group.pk, agent=group.agents["agent_c"])
    assert {delivery.query for delivery in queries} == {"ask them"}
    assert SECRET not in reaching(group, "agent_c", live)


def test_a_label_on_a_part_of_the_users_question_holds_when_it_is_passed_on(live: Fields) -> None:
    group = group_of(tells_the_secret, withheld_labels=["secret"])
    parts = [{"text": "@agent_a @agent_c"}, {"text": SECRET, "metadata": {"sensitivity": "secret"}}]
    trace = group.say(None, parts=raw(parts), requires_execution=True)
    tasks = {child.agent.agent_id: child.task for child in Trace.objects.filter(parent=trace)}
    assert tasks == {"agent_a": f"@agent_a @agent_c\n{SECRET}", "agent_c": "@agent_a @agent_c"}
    assert SECRET not in reaching(group, "agent_c", live)


def test_the_log_of_a_called_agent_quotes_a_question_that_was_made_of_what_others_said(
    serve: Serve, live: Fields
) -> None:
    group = group_of(tells_the_secret, serve(remembering), withheld_senders=["agent_b"])
    Agent.objects.filter(agent_id="agent_a").update(executor=f"python:{__name__}:logs_the_question")
    group.say("first", requires_execution=True)
    trace = group.say("ask them", requires_execution=True)
    asked = Trace.objects.get(parent=trace, agent=group.agents["agent_a"])
    assert SECRET in dumps([event.data for event in events_after(asked.pk, 0, 100)])
    assert followed([asked.pk])[asked.pk].log == log_of(asked), "to those who follow it, too"
    assert SECRET in reaching(group, "agent_b", live)
    assert SECRET not in reaching(group, "agent_c", live)


def test_what_a_called_agent_answers_to_a_labelled_request_bears_its_labels(live: Fields) -> None:
    group = group_of(repeats_the_question, withheld_labels=["secret"])
    group.say(f"@agent_b {SECRET} 现在呢", metadata=raw({"sensitivity": "secret"}))
    answer = group.messages("result")[-1]
    assert (answer.sender.agent_id, SECRET in answer.content) == ("agent_b", True)
    assert SECRET in reaching(group, "agent_a", live)
    assert SECRET not in reaching(group, "agent_c", live)


def test_a_question_of_which_nothing_may_be_passed_on_is_not_asked() -> None:
    group = group_of(tells_the_secret, withheld_labels=["secret"])
    trace = group.say("@agent_c 现在呢", metadata=raw({"sensitivity": "secret"}))
    assert not Trace.objects.filter(parent=trace).exists()
    assert not Delivery.objects.filter(agent=group.agents["agent_c"]).exists()
    assert trace.error is not None
    assert trace.error["code"] == "not_found"


def test_a_model_is_asked_only_what_its_agent_may_read_of_the_question(serve: Serve) -> None:
    server = serve(lambda body: Answer(["understood"]))
    group = Group()
    configure("agent_a", server)
    group.restrict("agent_a", withheld_labels=["secret"])
    parts = [{"text": "look at this"}, {"text": SECRET, "metadata": {"sensitivity": "secret"}}]
    group.say(None, parts=raw(parts), to=["agent_a"], requires_execution=True)
    assert [message["content"] for message in server.requests[0]["messages"]][-1] == "look at this"
    assert SECRET not in dumps(server.requests)
    assert SECRET not in str(
        Delivery.objects.filter(agent=group.agents["agent_a"]).values_list("query", "parts", "sent")
    )


def test_a_task_of_a_stock_client_says_no_more_than_its_owner_may_read(live: Fields) -> None:
    group = group_of(tells_the_secret)
    group.restrict("alice", withheld_senders=["agent_b"])
    trace = group.say(BOTH)
    ref = find_task(trace.public_id, group.agents["alice"].pk, group.agents["main"].pk)
    assert SECRET in str(trace.result)
    assert SECRET not in str(updates_after(ref, 0).updates)
    view = viewing.find_view(group.pk, group.agents["alice"].pk)
    for strange in (view, viewing.find_view(group.pk, group.agents["agent_a"].pk)):
        told = "".join(piece.frame for piece in map(Piece, live) if piece.is_for(strange, asked=True))
        assert (SECRET in told) == (strange is not view)
