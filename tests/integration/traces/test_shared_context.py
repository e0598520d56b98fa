"""What somebody may not read of another does not reach it by the session's shared context either, by no door."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sessions_app.changes import unit_of_work
from sessions_app.context import deliveries, turns
from sessions_app.context.deliveries import Ask
from sessions_app.context.shared import Words
from sessions_app.context.viewing import find_view
from sessions_app.models import Agent, Participant, Session
from sessions_app.protocol.bodies import BranchBody, SessionPatch
from sessions_app.protocol.errors import TooLarge
from sessions_app.protocol.jsontext import dumps
from sessions_app.services.branches import create_branch
from sessions_app.services.sessions import patch_session
from sessions_app.session_views import session_view, session_views
from tests.integration.traces.conftest import Talk
from traces_app import leases, lifecycle
from traces_app.models import Trace
from traces_app.offers import _offer_of
from traces_app.outcomes import Completed
from traces_app.requests import load_request
from traces_app.selectors import event_view, events_after, log_of, trace_view

SECRET = "4711-the-secret"
FOR_ALL = "for all"
Door = Callable[[Talk, str], Any]

pytestmark = pytest.mark.django_db(transaction=True)


def a_talk(**profile: Any) -> Talk:
    """A session in which `c` has a profile."""
    talk = Talk("a", "b", "c", "main", context={"open": FOR_ALL}, busy_policy="parallel")
    Participant.objects.filter(session_id=talk.pk, agent__agent_id="c").update(visibility=profile)
    return talk


def patch(talk: Talk, by: str, **values: Any) -> None:
    with unit_of_work() as changes:
        patch_session(session_pk=talk.pk, patch=SessionPatch(context=values), by=by, changes=changes)


def work(talk: Talk, by: str, values: dict[str, Any], *parts: dict[str, Any], **columns: Any) -> Trace:
    """A trace of this agent whose result patches the context."""
    trace = talk.ask("work", to=[by])
    Trace.objects.filter(pk=trace.pk).update(**columns)
    claimed = leases.claim(trace.pk, "test")
    assert claimed is not None
    assert lifecycle.complete(claimed, Completed("done", parts, values))
    return Trace.objects.get(pk=trace.pk)


# The ways in


def by_a_patch(talk: Talk) -> None:
    patch(talk, "b", plan=SECRET)


def by_adding_to_an_object(talk: Talk) -> None:
    patch(talk, "a", plan={"one": 1})
    patch(talk, "b", plan={"two": SECRET})


def by_naming_a_key(talk: Talk) -> None:
    patch(talk, "b", **{SECRET: 1})


def by_a_result(talk: Talk) -> None:
    work(talk, "b", {"plan": SECRET})


def by_a_result_made_of_it(talk: Talk) -> None:
    work(talk, "main", {"plan": SECRET}, provenance={"agents": ["b"]})


def by_a_labelled_result(talk: Talk) -> None:
    work(talk, "a", {"plan": SECRET}, {"text": "done", "metadata": {"sensitivity": "secret"}})


def by_claiming_anothers_result(talk: Talk) -> None:
    patch(talk, "b", previous_results={"trace-x": {"agent_id": "a", "summary": SECRET}})


def by_beginning_a_branch_with_it(talk: Talk) -> None:
    """The talk goes on in the branch: what its context holds is still whose it was."""
    by_a_patch(talk)
    with unit_of_work() as changes:
        opened = create_branch(parent_pk=talk.pk, body=BranchBody(), caller=talk.agents["a"], changes=changes)
    talk.pk, talk.session_id = opened.session.pk, opened.session.public_id


WITHOUT_B = {"withheld_senders": ["b"]}
WAYS_IN = [
    (by_a_patch, WITHOUT_B),
    (by_a_patch, {"senders": ["alice", "a", "main"]}),
    (by_adding_to_an_object, WITHOUT_B),
    (by_naming_a_key, WITHOUT_B),
    (by_a_result, WITHOUT_B),
    (by_a_result, {"withheld_kinds": ["result"]}),
    (by_a_result_made_of_it, WITHOUT_B),
    (by_a_labelled_result, {"withheld_labels": ["secret"]}),
    (by_claiming_anothers_result, WITHOUT_B),
    (by_beginning_a_branch_with_it, WITHOUT_B),
]


# The doors


def the_session(talk: Talk, reader: str) -> Any:
    return session_view(talk.pk, talk.agents[reader].pk)


def the_list_of_sessions(talk: Talk, reader: str) -> Any:
    return session_views([talk.pk], talk.agents[reader].pk)


def traces_of_others(talk: Talk, reader: str) -> Any:
    """Those that wrote and one that began later, with their logs."""
    begun = talk.ask("look", to=["main"])
    claimed = leases.claim(begun.pk, "test")
    assert claimed is not None
    _, note = load_request(claimed, None)
    assert lifecycle.complete(claimed, Completed("seen"), notes=[note])
    view = find_view(talk.pk, talk.agents[reader].pk)
    found = []
    for trace in Trace.objects.filter(session_id=talk.pk).select_related("agent"):
        rows = events_after(trace.pk, 0, 100)
        found.append([event_view(row, trace.public_id, view, log_of(trace)) for row in rows])
        found.append([trace_view(trace.pk, view)])
    return found


def what_its_executor_is_given(talk: Talk, reader: str) -> Any:
    claimed = leases.claim(talk.ask("work", to=[reader]).pk, "test")
    assert claimed is not None
    request, note = load_request(claimed, None)
    return dict(request.context), note.data


def what_it_is_offered(talk: Talk, reader: str) -> Any:
    Agent.objects.filter(agent_id=reader).update(executor="delegate")
    return _offer_of(talk.ask("work", to=[reader]).pk, 1)


def what_is_delivered_to_it(talk: Talk, reader: str) -> Any:
    ask = Ask(talk.pk, talk.agents[reader].pk, "and?", strategy="embedded")
    delivery = deliveries.prepare(ask)
    return delivery.parts, [turn.content for turn in turns.model_turns(delivery)]


def a_branch_that_it_makes(talk: Talk, reader: str) -> Any:
    with unit_of_work() as changes:
        opened = create_branch(parent_pk=talk.pk, body=BranchBody(), caller=talk.agents[reader], changes=changes)
    row = Session.objects.get(pk=opened.session.pk)
    return row.context, row.context_provenance


DOORS: list[Door] = [
    the_session,
    the_list_of_sessions,
    traces_of_others,
    what_its_executor_is_given,
    what_it_is_offered,
    what_is_delivered_to_it,
    a_branch_that_it_makes,
]


@pytest.mark.parametrize(("way_in", "profile"), WAYS_IN)
def test_what_is_withheld_of_another_is_not_found_in_the_shared_context(
    way_in: Callable[[Talk], None], profile: dict[str, Any]
) -> None:
    talk = a_talk(**profile)
    way_in(talk)
    for door in DOORS:
        told = dumps(door(talk, "c"))
        assert SECRET not in told, door.__name__
        assert SECRET in dumps(door(talk, "a")), f"{door.__name__}: who may read all of it does"
        if "senders" not in profile and door is not traces_of_others:
            assert FOR_ALL in told or "open" in told, f"{door.__name__}: the rest is shown"
    assert SECRET in dumps(session_view(talk.pk, None)), "an operator sees everything"


def test_who_wrote_a_key_is_shown_it() -> None:
    talk = a_talk(senders=["alice"], withheld_labels=["secret"])
    patch(talk, "c", mine=1)
    work(talk, "c", {"found": 2}, {"text": "done", "metadata": {"sensitivity": "secret"}})
    shown = the_session(talk, "c")["context"]
    assert {**shown, "previous_results": ...} == {"open": FOR_ALL, "mine": 1, "found": 2, "previous_results": ...}


def test_who_overwrites_blindly_learns_nothing_and_what_stood_there_is_gone() -> None:
    talk = a_talk(**WITHOUT_B)
    patch(talk, "b", plan={"one": SECRET})
    patch(talk, "c", plan={"two": 2})
    assert talk.session.context["plan"] == {"one": SECRET, "two": 2}
    assert the_session(talk, "c")["context"] == {"open": FOR_ALL}
    patch(talk, "c", plan="all new")
    assert the_session(talk, "c")["context"] == {"open": FOR_ALL, "plan": "all new"}


def test_a_trace_shows_what_was_shared_when_it_began_to_who_might_read_it_then() -> None:
    talk = a_talk(**WITHOUT_B)
    patch(talk, "b", plan=SECRET)
    trace = work(talk, "main", {})
    patch(talk, "a", plan="all new")
    view = find_view(talk.pk, talk.agents["c"].pk)
    assert trace_view(trace.pk, view)["context"] == {"open": FOR_ALL}
    assert the_session(talk, "c")["context"]["plan"] == "all new"


def test_whoever_opens_a_session_has_said_what_it_begins_with() -> None:
    talk = a_talk(withheld_senders=["alice"])
    assert the_session(talk, "c")["context"] == {}
    assert the_session(talk, "b")["context"] == {"open": FOR_ALL}


def test_a_session_from_before_names_nobody_and_is_everybodys() -> None:
    talk = a_talk(withheld_senders=["alice", "b"])
    Session.objects.filter(pk=talk.pk).update(context_provenance=None)
    assert the_session(talk, "c")["context"] == {"open": FOR_ALL}
    patch(talk, "b", plan=SECRET)
    assert the_session(talk, "c")["context"] == {"open": FOR_ALL}


def test_results_are_kept_without_naming_whoever_found_them_for_the_whole_key() -> None:
    talk = a_talk(**WITHOUT_B)
    work(talk, "b", {})
    work(talk, "a", {})
    assert [each["agent_id"] for each in talk.session.context["previous_results"].values()] == ["b", "a"]
    assert talk.session.shared.words == [Words(("open",), ("alice",))]
    assert [each["agent_id"] for each in the_session(talk, "c")["context"]["previous_results"].values()] == ["a"]


def test_a_patch_with_names_without_end_is_refused_and_a_results_is_left_out() -> None:
    talk = a_talk()
    labels = [f"label-{number}-{'x' * 50}" for number in range(10_000)]
    work(talk, "b", {"plan": 1}, {"text": "done", "metadata": {"sensitivity": labels}})
    assert set(talk.session.context) == {"open", "previous_results"}
    with pytest.raises(TooLarge):
        patch(talk, "b", plan="x" * 300_000)
