"""What is new of traces, for those who follow them: which have moved, and their events. Statements as in `sql`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from sessions_app.context.provenance import Provenance
from sessions_app.context.provenance import read as read_provenance
from sessions_app.db import from_column, prepared_cursor, time_as_text
from sessions_app.sql import marks, table
from traces_app.columns import prepared
from traces_app.models import Trace
from traces_app.sight import Log
from traces_app.sql import json_value


class Followed(NamedTuple):
    """What a follower must know of a trace besides its events."""

    pk: int
    session_pk: int
    session_id: str
    trace_id: str
    agent_id: str
    requested_by: str
    status: str
    last_sequence: int
    made_of: Provenance | None
    asked_with: Provenance | None

    @property
    def log(self) -> Log:
        return Log(self.agent_id, self.requested_by, self.made_of, self.asked_with)


def moved_since(moment: datetime, new: datetime, limit: int) -> list[tuple[int, int, int, bool]]:
    """Traces that have moved since then: key, session, `last_sequence`, and whether they were made since `new`."""
    with prepared_cursor() as cursor:
        cursor.execute(
            """SELECT id, session_id, last_sequence, created_at >= %s FROM traces_app_trace
                WHERE changed_at > %s ORDER BY changed_at LIMIT %s""",
            [prepared(Trace, "created_at", new), prepared(Trace, "changed_at", moment), limit],
        )
        return [(row[0], row[1], row[2], bool(row[3])) for row in cursor.fetchall()]


_FOLLOWED = """t.id, t.session_id, s.public_id, t.public_id, a.agent_id, by_.agent_id, t.status, t.last_sequence,
               t.provenance, p.provenance"""
_NAMES = """JOIN sessions_app_session s ON s.id = t.session_id
            JOIN sessions_app_agent a ON a.id = t.agent_id JOIN sessions_app_agent by_ ON by_.id = t.requested_by_id
            LEFT JOIN traces_app_trace p ON t.called AND p.id = t.parent_id"""


def followed(trace_pks: Sequence[int]) -> dict[int, Followed]:
    """These traces, by key."""
    if not trace_pks:
        return {}
    with prepared_cursor() as cursor:
        cursor.execute(
            f"SELECT {_FOLLOWED} FROM traces_app_trace t {_NAMES} WHERE t.id IN ({marks(trace_pks)})",
            list(trace_pks),
        )
        return {row[0]: _followed(row) for row in cursor.fetchall()}


def _followed(row: Sequence[Any]) -> Followed:
    return Followed(*row[:8], *(read_provenance(json_value(each)) for each in row[8:10]))


def news_of(after: Sequence[tuple[int, int]], limit: int) -> Iterator[tuple[Followed, list[dict[str, Any]]]]:
    """Traces, each with its events after its position as the doors show them; a page of all together.

    Both are as of one moment, so that no event comes with an older word on whose it is.
    """
    source, parameters = table(after, pk="bigint", position="bigint")
    with prepared_cursor() as cursor:
        cursor.execute(
            f"""SELECT {_FOLLOWED}, e.sequence, e.type, e.span_id, e.parent_id, e.attempt, {time_as_text('e."timestamp"')},
                       e.data
                  FROM {source} JOIN traces_app_traceevent e ON e.trace_id = r.pk AND e.sequence > r.position
                  JOIN traces_app_trace t ON t.id = e.trace_id {_NAMES}
                 ORDER BY e.trace_id, e.sequence LIMIT %s""",
            [*parameters, limit],
        )
        rows = cursor.fetchall()
    for _, of_trace in groupby(rows, itemgetter(0)):
        events = list(of_trace)
        trace = _followed(events[-1])
        yield (
            trace,
            [
                {
                    "trace_id": trace.trace_id,
                    "sequence": sequence,
                    "type": kind,
                    "span_id": span_id,
                    "parent_id": parent_id,
                    "attempt": attempt,
                    "timestamp": from_column(time),
                    "data": json_value(data),
                }
                for sequence, kind, span_id, parent_id, attempt, time, data in (row[10:] for row in events)
            ],
        )
