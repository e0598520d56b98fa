"""What a layer above adds to a serving process (`RUNTIME_PARTS`): it hears what the runtime hears. All on the event loop."""

from __future__ import annotations

from typing import Any, Protocol

from sessions_app.realtime.subscriber import Subscriber


class Part(Protocol):
    """None of these may block or raise."""

    def start(self) -> None: ...

    def moved(self, hints: list[dict[str, Any]]) -> None:
        """`Changes.traces` of a commit, here or in another process."""

    def joined(self, subscriber: Subscriber) -> None:
        """A socket is open; its welcome is already queued."""

    def frame(self, fields: dict[str, Any]) -> None:
        """Live text: `session_pk`, `stream_id`, `frame`."""

    async def look(self) -> None:
        """With each look at the rows: find what no hint told."""

    def wake(self) -> None:
        """The process stops: have whoever waits look once more, and end."""

    def stop(self) -> None: ...
