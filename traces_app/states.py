"""The life of a trace, as a table. Nobody assigns `status`; everybody asks `moves.move`."""

from __future__ import annotations

CREATED, RUNNING, WAITING = "created", "running", "waiting"
COMPLETED, FAILED, CANCELLED = "completed", "failed", "cancelled"
OPEN = frozenset({CREATED, RUNNING, WAITING})
TERMINAL = frozenset({COMPLETED, FAILED, CANCELLED})
STATUSES = (CREATED, RUNNING, WAITING, COMPLETED, FAILED, CANCELLED)

MOVES: dict[str, tuple[frozenset[str], str]] = {
    # action      from                 to
    "claim": (frozenset({CREATED}), RUNNING),
    "ask": (frozenset({RUNNING}), WAITING),
    "lose": (frozenset({RUNNING}), CREATED),
    "release": (frozenset({RUNNING}), CREATED),  # handed back in an orderly stop: counts as no loss
    "answer": (frozenset({WAITING}), CREATED),
    "finish": (frozenset({RUNNING}), COMPLETED),
    "fail": (frozenset({RUNNING}), FAILED),
    "expire": (frozenset({WAITING}), FAILED),  # nobody answered in time
    "cancel": (OPEN, CANCELLED),
}

GOAL_STATUSES = ("open", "running", "done", "failed", "cancelled")
GOAL_OPEN = ("open", "running")
EVENT_TYPES = ("status", "message", "tool_call", "tool_result", "goal", "artifact", "context", "usage", "log")
