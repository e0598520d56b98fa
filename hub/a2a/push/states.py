"""The life of a notification, as a table. Pure.

pending ──deliver──> sent          the receiver answered 2xx
pending ──give_up──> dead          it did not, `ATTEMPTS` times, or said that it is gone
"""

from __future__ import annotations

PENDING, SENT, DEAD = "pending", "sent", "dead"
STATES = (PENDING, SENT, DEAD)

MOVES: dict[str, tuple[frozenset[str], str]] = {
    # action    from                   to
    "deliver": (frozenset({PENDING}), SENT),
    "give_up": (frozenset({PENDING}), DEAD),
}
