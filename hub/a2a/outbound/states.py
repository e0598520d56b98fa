"""The states of a remote task as we last heard of it. Pure.

sending ──hear──> open ──send──> sending       the message is on its way; the task is there; an answer is on its way
sending, open ──finish──> over                 it has ended, so we heard
sending, open ──abandon──> abandoned           the trace ended first: the remote was told, or could not be
"""

from __future__ import annotations

SENDING, OPEN, OVER, ABANDONED = "sending", "open", "over", "abandoned"
STATES = (SENDING, OPEN, OVER, ABANDONED)
UNFINISHED = (SENDING, OPEN)

MOVES: dict[str, tuple[frozenset[str], str]] = {
    # action    from                         to
    "send": (frozenset({SENDING, OPEN}), SENDING),
    "hear": (frozenset({SENDING, OPEN}), OPEN),
    "finish": (frozenset({SENDING, OPEN}), OVER),
    "abandon": (frozenset({SENDING, OPEN}), ABANDONED),
}
