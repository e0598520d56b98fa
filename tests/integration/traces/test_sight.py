"""A trace through the eyes of somebody from whom part of the talk is withheld."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from sessions_app.changes import unit_of_work
from sessions_app.context.profiles import View
from sessions_app.context.viewing import find_view, page_after
from sessions_app.models import Agent
from sessions_app.protocol.jsontext import dumps
from tests.integration.traces.conftest import Talk, raw
from traces_app import leases, lifecycle, records
from traces_app.board import Board
from traces_app.models import Trace
from traces_app.moves import Note
from traces_app.news import followed
from traces_app.offers import _offer_of
from traces_app.outcomes import Completed
from traces_app.requests import load_request
from traces_app.selectors import event_view, events_after, log_of, trace_view

SECRET = "the-secret-4711"

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(eq=False)
class Place:
    """As much of a feed as the board looks at."""

    view: View
    held: tuple[()] = ()


def finished(talk: Talk, patch: dict[str, Any] | None = None) -> Trace:
    """A trace of worker's in which everything says the secret."""
    trace = talk.ask(f"find {SECRET}", to=["worker"])
    claimed = leases.claim(trace.pk, "test")
    assert claimed is not None
    with unit_of_work() as changes:
        goal = Note("goal", {"goal_id": "g", "title": SECRET, "status": "done"})
        records.record(Trace.objects.get(pk=trace.pk), claimed.attempt, [goal, Note("log", {"text": SECRET})], changes)
    parts = ({"text": SECRET}, {"data": {"x": SECRET}, "metadata": {"type": "UserContext", "sensitivity": "secret"}})
    assert lifecycle.complete(claimed, Completed(SECRET, parts, patch or {}))
    return Trace.objects.get(pk=trace.pk)


def as_seen_by(talk: Talk, agent: str, trace: Trace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    view = find_view(talk.pk, talk.agents[agent].pk)
    events = [event_view(row, trace.public_id, view, log_of(trace)) for row in events_after(trace.pk, 0, 100)]
    return trace_view(trace.pk, view), events


@pytest.mark.parametrize("profile", [{"withheld_senders": ["alice", "worker"]}, {"scope": "addressed"}])
def test_whoever_may_not_see_who_asked_and_who_worked_sees_neither_task_nor_events(profile: dict[str, Any]) -> None:
    talk = Talk("worker", "reader")
    talk.restrict("reader", **profile)
    trace = finished(talk)
    shape, events = as_seen_by(talk, "reader", trace)
    assert SECRET not in str(shape["task"]) + str(shape["goals"])
    assert SECRET not in str(events)
    assert [event["sequence"] for event in events] == list(range(1, trace.last_sequence + 1)), "places are kept"
    assert [event["data"] for event in events if event["type"] == "status"][-1] == {"status": "completed"}
    if "withheld_senders" in profile:
        assert shape["result"] is None
    whole, _ = as_seen_by(talk, "alice", trace)
    assert (whole["task"], whole["result"]["summary"]) == (f"find {SECRET}", SECRET)


def test_redaction_reaches_task_goals_events_and_result() -> None:
    talk = Talk("worker", "reader")
    talk.restrict("reader", redactions=[{"pattern": SECRET, "replacement": "[x]"}])
    shape, events = as_seen_by(talk, "reader", finished(talk))
    assert SECRET not in str(shape) + str(events)
    assert (shape["task"], shape["goals"][0]["title"], shape["result"]["summary"]) == ("find [x]", "[x]", "[x]")


def test_labels_reach_the_parts_of_a_result() -> None:
    talk = Talk("worker", "reader")
    talk.restrict("reader", withheld_labels=["secret"])
    shape, events = as_seen_by(talk, "reader", finished(talk))
    assert shape["result"]["parts"] == [{"text": SECRET}]
    assert all(event.get("withheld") for event in events), "what events hold bears no label, so it can't be judged"


def test_what_an_executor_is_given_is_what_its_agent_may_get() -> None:
    talk = Talk("worker", "other", context={"private": SECRET, "open": 1})
    talk.restrict("worker", withheld_senders=["other"], withheld_context=["private"], withheld_labels=["l"])
    talk.send(f"other says {SECRET}", "other")
    talk.send("labelled " + SECRET, metadata=raw({"sensitivity": "l"}))
    talk.send("for all")
    trace = talk.ask("work", to=["worker"])
    claimed = leases.claim(trace.pk, "test")
    assert claimed is not None
    request, _ = load_request(claimed, None)
    assert SECRET not in repr(request)
    assert [entry["content"] for entry in request.history] == ["for all"]
    assert (request.task, dict(request.context)) == ("work", {"open": 1})


def test_an_offer_holds_no_more_than_its_agent_may_get() -> None:
    talk = Talk("worker", "other", executor="delegate", context={"private": SECRET})
    talk.restrict("worker", withheld_senders=["other"], withheld_context=["private"])
    talk.send(f"other says {SECRET}", "other")
    trace = talk.ask("work", to=["worker"])
    offer = _offer_of(trace.pk, 1)
    assert offer is not None
    assert '"task":"work"' in offer
    assert SECRET not in offer


def test_a_continued_trace_of_somebody_withheld_brings_nothing_along() -> None:
    talk = Talk("worker", "other")
    first = finished(talk)
    Agent.objects.filter(agent_id="other").update(visibility={"withheld_senders": ["worker", "alice"]})
    trace = talk.ask("go on", to=["other"])
    Trace.objects.filter(pk=trace.pk).update(
        continue_from={"trace_id": first.public_id, "after_sequence": first.last_sequence}
    )
    claimed = leases.claim(trace.pk, "test")
    assert claimed is not None
    assert SECRET not in repr(load_request(claimed, None)[0])


@pytest.mark.parametrize("profile", [{"withheld_senders": ["alice"]}, {"senders": ["worker"]}])
def test_what_a_trace_does_quotes_who_asked_and_is_withheld_like_him(profile: dict[str, Any]) -> None:
    """Goals, calls and errors hold the words of the request; the answer is its agent's own."""
    talk = Talk("worker", "reader")
    talk.restrict("reader", **profile)
    trace = finished(talk)
    shape, events = as_seen_by(talk, "reader", trace)
    assert SECRET not in dumps([shape["task"], shape["goals"], shape["error"], shape["pending_input"], events])
    assert shape["result"]["summary"] == SECRET
    talk.restrict("alice", senders=["worker"])
    shape, events = as_seen_by(talk, "alice", trace)
    assert shape["goals"][0]["title"] == SECRET, "his own words are no secret to him"
    assert SECRET in dumps(events)


@pytest.mark.parametrize("where", ["message", "part"])
def test_what_is_done_and_found_for_a_labelled_request_bears_its_labels(where: str) -> None:
    talk = Talk("worker", "reader")
    talk.restrict("reader", withheld_labels=["secret"])
    label = {"sensitivity": "secret"}
    if where == "part":
        trace = talk.ask(None, to=["worker"], parts=raw([{"text": f"find {SECRET}", "metadata": label}]))
    else:
        trace = talk.ask(f"find {SECRET}", to=["worker"], metadata=raw(label))
    claimed = leases.claim(trace.pk, "test")
    assert claimed is not None
    assert lifecycle.complete(claimed, Completed(f"I found {SECRET}", context_patch={"found": SECRET}))
    shape, events = as_seen_by(talk, "reader", Trace.objects.get(pk=trace.pk))
    view = find_view(talk.pk, talk.agents["reader"].pk)
    log = page_after(talk.pk, 0, 100, view, talk.agents["reader"].pk)
    assert SECRET not in dumps([shape, events, [str(message.body) for message in log]])
    assert SECRET not in dumps(view.context(talk.session.shared))
    whole = find_view(talk.pk, talk.agents["alice"].pk)
    assert SECRET in dumps(whole.context(talk.session.shared))
    assert talk.messages("result")[-1].content == f"I found {SECRET}"


def test_who_asked_is_told_more_than_another_with_the_same_profile() -> None:
    talk = Talk("worker", "reader")
    for name in ("alice", "reader"):
        talk.restrict(name, senders=["worker"])
    trace = followed([finished(talk).pk]).popitem()[1]
    told: dict[str, list[str]] = {"alice": [], "reader": []}
    followers: dict[Any, Any] = {
        Place(find_view(talk.pk, talk.agents[name].pk)): SimpleNamespace(control=[], say=told[name].append)
        for name in told
    }
    topics = {talk.pk: SimpleNamespace(followers=followers)}
    board: Any = SimpleNamespace(_runtime=SimpleNamespace(registry=SimpleNamespace(topics=topics)))
    Board._tell_event(board, trace, {"type": "log", "sequence": 3, "data": {"text": SECRET}})
    assert {name: SECRET in frame for name, [frame] in told.items()} == {"alice": True, "reader": False}
