"""Traces in the admin: the list and its filters, a page with the goal tree, calls and events, and cancelling."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from sessions_app.changes import Changes
from tests.integration.traces.conftest import Talk
from traces_app import leases, lifecycle
from traces_app.models import Trace
from traces_app.moves import Note
from traces_app.outcomes import Completed
from traces_app.records import record

LIST = "/admin/traces_app/trace/"


@pytest.fixture
def talk(db: None) -> Talk:
    return Talk("bob", busy_policy="parallel")


def with_goals(talk: Talk, goals: int) -> Trace:
    trace = talk.ask("analyse <b>core</b>")
    claimed = leases.claim(trace.pk, "worker:1")
    assert claimed is not None
    notes = [Note("goal", {"goal_id": "g0", "title": "look <around>", "status": "running"})]
    for number in range(1, goals + 1):
        data = {"goal_id": f"g{number}", "parent_id": "g0", "title": f"part {number}", "status": "done"}
        call = {"call_id": f"c{number}", "name": "read_file", "arguments": {"path": f"f{number}.py"}}
        notes += [
            Note("goal", data),
            Note("tool_call", call),
            Note("tool_result", {**call, "result": "text", "ok": True}),
        ]
    record(trace, 1, notes, Changes())
    trace.refresh_from_db()
    return trace


def page_of(trace: Trace) -> str:
    return f"{LIST}{trace.pk}/change/"


def test_a_traces_page_has_its_goal_tree_calls_and_events(admin: Client, talk: Talk) -> None:
    trace = with_goals(talk, 3)
    text = admin.get(page_of(trace)).content.decode()
    assert "look &lt;around&gt;" in text
    assert "<b>core</b>" not in text
    for expected in ("part 1", "part 3", "read_file", "f2.py", trace.public_id, "tool_result"):
        assert expected in text
    assert text.index("look &lt;around&gt;") < text.index("part 1") < text.index("part 3")
    by_name = admin.get(f"{LIST}{trace.public_id}/change/", follow=True)
    assert by_name.status_code == 200


def test_a_traces_page_takes_as_many_queries_for_300_goals_as_for_3(admin: Client, talk: Talk) -> None:
    small, large = with_goals(talk, 3), with_goals(talk, 300)
    counts = []
    for trace in (small, large):
        with CaptureQueriesContext(connection) as queries:
            assert admin.get(page_of(trace)).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 15


def test_the_list_takes_as_many_queries_for_60_traces_as_for_6_and_never_counts(admin: Client, talk: Talk) -> None:
    counts = []
    for number in (6, 54):
        for n in range(number):
            talk.ask(f"work {n}")
        with CaptureQueriesContext(connection) as queries:
            assert admin.get(LIST).status_code == 200
        counts.append(len(queries))
        assert not any("COUNT(" in query["sql"].upper() for query in queries.captured_queries)
    assert counts[0] == counts[1] <= 15


def test_the_filter_on_open_traces_leaves_out_what_has_ended(admin: Client, talk: Talk) -> None:
    done, left = talk.ask("done"), talk.ask("left")
    claimed = leases.claim(done.pk, "w")
    assert claimed is not None
    assert lifecycle.complete(claimed, Completed("ok"))
    text = admin.get(f"{LIST}?status=open").content.decode()
    assert left.public_id in text
    assert done.public_id not in text
    assert done.public_id in admin.get(f"{LIST}?status=completed").content.decode()


def test_cancelling_is_asked_for_and_posts_one_message(admin: Client, superuser: User, talk: Talk) -> None:
    trace = with_goals(talk, 1)
    address = f"{LIST}{trace.pk}/cancel/"
    admin.get(address)
    trace.refresh_from_db()
    assert trace.status == "running", "to look at it cancels nothing"
    for _ in range(2):
        admin.post(address, {"reason": "wrong module"})
    trace.refresh_from_db()
    assert trace.status == "cancelled"
    assert len(talk.messages("result")) == 1
    assert set(trace.goals.values_list("status", flat=True)) == {"done", "cancelled"}
