"""`FRAME_HANDLERS`: how a connected agent runs what was delegated to it. Each is answered by `trace` or `error`.

The attempt in the frame is the fence: whoever lost the lease gets `conflict`, whatever it sends.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from sessions_app.changes import unit_of_work
from sessions_app.db import write_transaction
from sessions_app.keys import Principal
from sessions_app.protocol import frames, limits
from sessions_app.protocol.errors import Conflict, Invalid, TooLarge
from sessions_app.protocol.jsontext import dumps, loads
from sessions_app.services.sessions import touch
from sessions_app.sockets.answering import Socket
from traces_app import leases, lifecycle, records
from traces_app.lifecycle import Claimed
from traces_app.models import Trace
from traces_app.moves import Lost, Note
from traces_app.news import Followed, followed
from traces_app.outcomes import Completed
from traces_app.records import REPORTABLE
from traces_app.selectors import find_trace
from traces_app.states import RUNNING

EVENT_BYTES = 256 * 1024
LOST = "This attempt is not the one that runs (any more)."


def _trace_of(trace_id: str, principal: Principal) -> Trace:
    """A trace that is delegated to this agent; `NotFound` for a foreign one, `Conflict` for one that is not its to run."""
    found = find_trace(trace_id, principal)
    trace = Trace.objects.get(pk=found.pk)
    if trace.agent_id != principal.agent_pk or trace.executor != leases.DELEGATE:
        raise Conflict("This trace is not yours to run.")
    return trace


def _claimed(trace_id: str, attempt: int, principal: Principal) -> Claimed:
    trace = _trace_of(trace_id, principal)
    if trace.status != RUNNING or trace.attempt != attempt:
        raise Conflict(LOST, status=trace.status, attempt=trace.attempt)
    return Claimed(trace.pk, trace.session_id, trace.public_id, attempt, trace.executor)


async def _answer(socket: Socket, frame: frames.TraceFrame, pk: int) -> None:
    trace: Followed = (await socket.runtime.read(followed, [pk]))[pk]
    fields: dict[str, Any] = {} if frame.id is None else {"id": frame.id}
    socket.say(
        frames.encode(
            "trace",
            session_id=trace.session_id,
            trace_id=trace.trace_id,
            status=trace.status,
            agent_id=trace.agent_id,
            attempt=frame.attempt,
            **fields,
        )
    )


async def accept(socket: Socket, frame: frames.TraceAccept) -> None:
    await _answer(socket, frame, await socket.runtime.read(_accept, frame, socket.principal, socket.connection_id))


def _accept(frame: frames.TraceAccept, principal: Principal, connection_id: str) -> int:
    trace = _trace_of(frame.trace_id, principal)
    claimed = leases.claim(trace.pk, f"{principal.agent_id[:60]}:{connection_id}", attempt=frame.attempt)
    if claimed is None:
        raise Conflict("Somebody else has accepted it, or it is not on offer.")
    return trace.pk


async def event(socket: Socket, frame: frames.TraceEvent) -> None:
    socket.runtime.rates_messages.take(socket.principal.agent_pk, 0.2)
    await _answer(socket, frame, await socket.runtime.read(_event, frame, socket.principal))


def _event(frame: frames.TraceEvent, principal: Principal) -> int:
    claimed = _claimed(frame.trace_id, frame.attempt, principal)
    note = _note(frame.event) if frame.event is not None else None
    with write_transaction():
        if note is not None:
            try:
                with unit_of_work() as changes:
                    touch(claimed.session_pk)
                    trace = Trace.objects.get(pk=claimed.pk)
                    records.record(trace, claimed.attempt, [note], changes)
            except Lost:
                raise Conflict(LOST) from None
        if leases.renew([claimed]):
            raise Conflict(LOST)
    return claimed.pk


def _note(given: dict[str, Any]) -> Note:
    kind, data = given.get("type"), given.get("data", {})
    if kind not in REPORTABLE:
        raise Invalid(f"type is one of {', '.join(REPORTABLE)}.", field="event.type")
    if not isinstance(data, dict):
        raise Invalid("data is an object.", field="event.data")
    if len(dumps(data).encode()) > EVENT_BYTES:
        raise TooLarge(f"An event holds {EVENT_BYTES} bytes at the most.", field="event")
    span, parent = given.get("span_id"), given.get("parent_id")
    return Note(
        kind,
        data,
        span if isinstance(span, str) and span else None,
        parent if isinstance(parent, str) and parent else None,
    )


async def complete(socket: Socket, frame: frames.TraceComplete) -> None:
    streamed = frame.trace_id if socket.runtime.live.has_streamed(socket, frame.trace_id) else None
    await _answer(socket, frame, await socket.runtime.read(_complete, frame, socket.principal, streamed))


def _complete(frame: frames.TraceComplete, principal: Principal, stream_id: str | None) -> int:
    claimed = _claimed(frame.trace_id, frame.attempt, principal)
    parts: list[Any] = []
    if isinstance(frame.parts, Raw) and bytes(frame.parts) != b"null":
        if len(bytes(frame.parts)) > limits.PARTS_BYTES:
            raise TooLarge(f"All parts hold {limits.PARTS_BYTES} bytes at the most.", field="parts")
        given = loads(bytes(frame.parts))
        if not isinstance(given, list) or not all(isinstance(part, dict) for part in given):
            raise Invalid("parts is a list of parts.", field="parts")
        parts = given
    outcome = Completed(frame.summary, tuple(parts), frame.context_patch or {})
    if not lifecycle.complete(claimed, outcome, stream_id=stream_id):
        raise Conflict(LOST)
    return claimed.pk


async def fail(socket: Socket, frame: frames.TraceFail) -> None:
    await _answer(socket, frame, await socket.runtime.read(_fail, frame, socket.principal))


def _fail(frame: frames.TraceFail, principal: Principal) -> int:
    claimed = _claimed(frame.trace_id, frame.attempt, principal)
    if not lifecycle.fail(claimed, frame.code or "failed", frame.message):
        raise Conflict(LOST)
    return claimed.pk
