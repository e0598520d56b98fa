"""`Report` as the worker keeps it: each event one fenced transaction, text chunks live only, a stop noticed at every call."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from sessions_app.changes import unit_of_work
from sessions_app.services.sessions import touch
from traces_app import chunks, lifecycle, records
from traces_app.attempts import Attempt
from traces_app.executors.contract import Cancelled, Refused
from traces_app.models import Trace
from traces_app.moves import Lost, Note
from traces_app.redaction import storable, storable_text

TOUCH_SECONDS = 1.0
CHUNK_SECONDS = 0.05


def call_digest(tool: str, arguments: Mapping[str, Any]) -> str:
    """Of one exact call: the same name and arguments, whatever the order of their keys."""
    plain = msgspec.json.encode([tool, storable(arguments, redact=False)], order="deterministic")
    return hashlib.sha256(plain).hexdigest()


class TraceReport:
    def __init__(self, attempt: Attempt, trace: Trace, agent_id: str, session_id: str) -> None:
        self._attempt = attempt
        self._trace = trace
        # Who follows a main agent's trace sees the text of those it calls.
        above = trace.parent.public_id if trace.called and trace.parent is not None else None
        self._stream = chunks.Stream(trace.session_id, session_id, agent_id, trace.public_id, above)
        self._stream.provenance = trace.provenance
        self._touched = time.monotonic()
        self._text: list[str] = []
        self._text_at = 0.0
        self.pending: list[Note] = []
        """Written with whatever comes next: a note of its own would cost a commit."""

    def made_of(self, provenance: Mapping[str, Any]) -> None:
        self.flush()
        self._stream.provenance = dict(provenance)

    @property
    def streamed(self) -> bool:
        return self._stream.used

    def check(self) -> None:
        if self._attempt.stopped.is_set():
            raise Cancelled(self._attempt.why)
        if time.monotonic() >= self._attempt.deadline:
            self._attempt.stop("timeout")
            raise Cancelled("timeout")

    def cancelled(self) -> bool:
        return self._attempt.stopped.is_set()

    def event(
        self, type: str, data: Mapping[str, Any], *, span_id: str | None = None, parent_id: str | None = None
    ) -> None:
        self.flush()
        self.note(Note(type, data, span_id, parent_id))

    def note(self, *notes: Note) -> None:
        """Store events; an attempt that does not run any more learns so here at the latest."""
        self.check()
        try:
            with unit_of_work() as changes:
                if time.monotonic() - self._touched >= TOUCH_SECONDS:
                    touch(self._trace.session_id)  # sessions first, then traces
                    self._touched = time.monotonic()
                records.record(self._trace, self._attempt.claimed.attempt, [*self.pending, *notes], changes)
            self.pending = []
        except Lost:
            self._attempt.stop("over")
            raise Cancelled("over") from None

    def message(self, role: str, text: str) -> None:
        self.event("message", {"role": role, "parts": [{"text": text}]})

    def goal(self, goal_id: str, title: str, *, status: str = "open", parent_id: str | None = None) -> None:
        self.event(
            "goal", {"goal_id": goal_id, "parent_id": parent_id, "title": title, "status": status}, span_id=goal_id
        )

    def tool_call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> None:
        self.event("tool_call", {"call_id": call_id, "name": name, "arguments": arguments}, span_id=call_id)

    def tool_result(self, call_id: str, name: str, result: Any = None, *, error: Any = None) -> None:
        data = {"call_id": call_id, "name": name, "ok": error is None, "result": result, "error": error}
        self.event("tool_result", data, span_id=call_id)

    def artifact(self, name: str, text: str, *, media_type: str = "text/plain") -> None:
        self.event("artifact", {"name": name, "media_type": media_type, "text": text, "size": len(text)})

    def usage(self, **numbers: float) -> None:
        self.event("usage", numbers)

    def log(self, text: str, *, level: str = "info") -> None:
        self.event("log", {"level": level, "text": text})

    def chunk(self, text: str) -> None:
        self.check()
        self._text.append(storable_text(text))
        if time.monotonic() - self._text_at >= CHUNK_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Send the text that is waiting: before any other event, and at the end."""
        if self._text:
            text, self._text = "".join(self._text), []
            self._text_at = time.monotonic()
            self._stream.send(text)

    def approved(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        self.check()
        try:
            verdict = lifecycle.use_approval(self._attempt.claimed, call_digest(tool, arguments))
        except Lost:
            self._attempt.stop("over")
            raise Cancelled("over") from None
        if verdict == "refused":
            raise Refused(f"{tool} was refused.")
        return verdict == "used"
