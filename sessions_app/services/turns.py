"""The turn state as the execution layer moves it, in its own transactions: which traces are open, and what they leave."""

from __future__ import annotations

from typing import Any

from sessions_app import states
from sessions_app.changes import Changes
from sessions_app.context.shared import Shared
from sessions_app.db import column_time, prepared_cursor, utc_now, wire_time
from sessions_app.protocol.jsontext import dumps
from sessions_app.services.sessions import load_turn, lock_session, note_state, store_turn


def close_trace(*, session_pk: int, trace_id: str, changes: Changes) -> bool:
    """Take a trace that has ended out of `open_traces`, under the session's lock; returns whether the session still lives."""
    row = lock_session(session_pk)
    turn = load_turn(row)
    live = row.status in states.LIVE
    if turn.open_traces.pop(trace_id, None) is not None:
        if live:
            turn.settle()
        store_turn(session_pk, turn)
        note_state(session_pk, changes)
    return live


def open_trace(*, session_pk: int, trace_id: str, agent_id: str, changes: Changes) -> None:
    """Note a trace that no message has opened: its agent owes something, too. Under the session's lock."""
    turn = load_turn(lock_session(session_pk))
    turn.open_traces[trace_id] = agent_id
    turn.settle()
    store_turn(session_pk, turn)
    note_state(session_pk, changes)


PREVIOUS_RESULTS = "previous_results"
PREVIOUS_RESULTS_KEPT = 20


def add_to_context(
    *,
    session_pk: int,
    before: Shared,
    after: Shared,
    result: tuple[str, dict[str, Any]] | None,
    changes: Changes,
) -> bool:
    """Store the session's context as a trace has patched it, with the trace's result (`(id, what)`) among the last 20.

    Call it under the session's lock, with the context as it is `before`; the caller appends a message or notes the state
    afterwards. The context keeps within its size: old results go first, then the patch is left out; False when it was.
    """
    taken = True
    shared = _with_result(after, result)
    if shared is None:
        taken = after is before
        shared = _with_result(before, result)
    if shared is None or shared == before:
        return taken
    with prepared_cursor() as cursor:
        cursor.execute(
            """UPDATE sessions_app_session SET context = %s, context_provenance = %s, changed_at = %s,
                      context_revision = context_revision + 1, state_revision = state_revision + 1 WHERE id = %s""",
            [
                dumps(shared.values),
                dumps(shared.words) if shared.words else None,
                column_time(wire_time(utc_now()) or ""),
                session_pk,
            ],
        )
    changes.session(session_pk).shared = shared
    return taken


def _with_result(shared: Shared, result: tuple[str, dict[str, Any]] | None) -> Shared | None:
    """The context with the result, or None where it can't be brought below the limit by forgetting older ones."""
    known = shared.values.get(PREVIOUS_RESULTS)
    results: dict[str, Any] = dict(known) if isinstance(known, dict) else {}
    if result is not None:
        results.pop(result[0], None)
        results[result[0]] = result[1]
    while True:
        while len(results) > PREVIOUS_RESULTS_KEPT:
            del results[next(iter(results))]
        made = shared.with_entries(PREVIOUS_RESULTS, results) if result is not None else shared
        if made.fits():
            return made
        if result is None or len(results) <= 1:
            return None
        del results[next(iter(results))]
