"""Text that is being written: numbered here, passed on to whoever follows, never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sessions_app.protocol.frames import encode
from sessions_app.realtime.feed import Feed
from sessions_app.realtime.pieces import Piece
from sessions_app.realtime.subscriber import Subscriber

if TYPE_CHECKING:
    from sessions_app.realtime.runtime import Runtime

MAX_STREAMS = 50_000


class LiveText:
    """The chunks that pass through this process. Losing one is allowed; the whole text follows as a message."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._numbers: dict[tuple[str, str], int] = {}

    def chunk(self, *, sender: Subscriber, feed: Feed, stream_id: str, text: str, trace_id: str | None = None) -> None:
        """Pass live text on to whoever follows the session, in any process."""
        number = self._numbers.get((sender.connection_id, stream_id), -1) + 1
        if len(self._numbers) > MAX_STREAMS:
            self._numbers.clear()
        self._numbers[(sender.connection_id, stream_id)] = number
        names: dict[str, Any] = {
            "session_id": feed.session_id,
            "from": feed.agent_id,
            "stream_id": stream_id,
            "index": number,
            "text": text,
        }
        if trace_id is not None:
            names["trace_id"] = trace_id
        fields = {"session_pk": feed.session_pk, "stream_id": stream_id, "frame": encode("chunk", **names)}
        fields["by"] = sender.principal.agent_pk  # the name of a stream is of the sender's choosing
        self._pass_on(fields, but=sender)
        self._runtime.hints.send_frame(**fields)

    def heard(self, fields: dict[str, Any]) -> None:
        """From another process; the fields are those of a `Piece`."""
        self._pass_on(fields)

    def has_streamed(self, sender: Subscriber, stream_id: str) -> bool:
        """Whether this connection has sent chunks of that stream."""
        return (sender.connection_id, stream_id) in self._numbers

    def _pass_on(self, fields: dict[str, Any], but: Subscriber | None = None) -> None:
        self._runtime.registry.chunk(fields["session_pk"], fields["stream_id"], Piece(fields), but=but)
        for part in self._runtime.parts:
            part.frame(fields)
