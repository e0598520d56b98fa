"""What a board asks for: what is new of several traces, each after the place where it was told last."""

from __future__ import annotations

from datetime import UTC, datetime

from sessions_app.context.provenance import Provenance
from tests.integration.traces.conftest import Talk
from traces_app import leases, lifecycle
from traces_app.executors.contract import Completed
from traces_app.models import Trace, TraceEvent
from traces_app.news import followed, news_of
from traces_app.replies import add_provenance
from traces_app.sight import Log


def ended(talk: Talk) -> Trace:
    trace = talk.ask()
    claimed = leases.claim(trace.pk, "worker")
    assert claimed is not None
    assert lifecycle.complete(claimed, Completed("done"))
    return trace


def test_each_trace_comes_with_its_events_after_its_position_as_the_doors_show_them() -> None:
    talk = Talk("bob", busy_policy="parallel")
    new, known, old = ended(talk), ended(talk), ended(talk)
    news = list(news_of([(known.pk, 2), (new.pk, 0), (old.pk, 3), (0, 0)], 100))
    assert [(trace.pk, [event["sequence"] for event in events]) for trace, events in news] == [
        (new.pk, [1, 2, 3]),
        (known.pk, [3]),
    ]
    told = followed([new.pk, known.pk])
    for trace, events in news:
        assert trace == told[trace.pk]
        for event in events:
            row = TraceEvent.objects.get(trace_id=trace.pk, sequence=event["sequence"])
            assert event.pop("trace_id") == row.trace.public_id
            assert datetime.fromisoformat(event.pop("timestamp")) == row.timestamp.astimezone(UTC)
            shown = {
                name: getattr(row, name) for name in ("sequence", "type", "span_id", "parent_id", "attempt", "data")
            }
            assert event == shown


def test_a_page_of_all_together_ends_where_it_is_full() -> None:
    talk = Talk("bob", busy_policy="parallel")
    first, second = ended(talk), ended(talk)
    news = list(news_of([(first.pk, 0), (second.pk, 0)], 4))
    assert [len(events) for _, events in news] == [3, 1]
    assert not list(news_of([(first.pk, 3)], 4))


def test_whose_words_it_holds_comes_with_them() -> None:
    trace = ended(Talk("bob"))
    add_provenance(trace, Provenance(("carol",)))
    [(told, _)] = news_of([(trace.pk, 0)], 10)
    assert told.log == Log("bob", "alice", Provenance(("carol",)))
