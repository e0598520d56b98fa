"""What a process counts of its conversations, for Prometheus: counted as it happens, so that nobody has to count rows."""

from __future__ import annotations

from collections import Counter as Tally

from prometheus_client import Counter

from sessions_app.changes import Changes

MESSAGES = Counter(
    "hub_messages_stored", "Messages that this process has stored; an embedded hub's worker counts here, too", ["kind"]
)


def count_stored(changes: Changes) -> None:
    """Count what was committed, once: in the process that committed it, or in the only one that serves."""
    tally = Tally(message.kind for change in changes.sessions.values() for message in change.messages)
    for kind, number in tally.items():
        MESSAGES.labels(kind).inc(number)
