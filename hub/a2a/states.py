"""The life of a question that came by A2A, as a table. A task that an executor runs is a trace, and has the trace's table.

The words are A2A's own states (specification, section 4.1.3), without their prefix.
"""

from __future__ import annotations

SUBMITTED = "submitted"
COMPLETED, FAILED, CANCELED = "completed", "failed", "canceled"
STATES = (SUBMITTED, COMPLETED, FAILED, CANCELED)
OPEN = frozenset({SUBMITTED})

MOVES: dict[str, tuple[frozenset[str], str]] = {
    # action    from    to
    "answer": (OPEN, COMPLETED),
    "cancel": (OPEN, CANCELED),
    "end": (OPEN, CANCELED),  # the session has ended
    "leave": (OPEN, FAILED),  # the agent takes part no more, so nobody owes an answer
}
