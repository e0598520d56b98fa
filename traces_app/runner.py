"""Running one attempt from claim to outcome. Where it runs (a Celery task, a test) is not its business.

The executor has a thread beside the worker's own, so that a limit or a cancel holds even against code that never looks up:
the attempt is over then, the thread is left behind, and the fence sees to it that nothing it still does counts.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import queue
import socket
import time
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db import connection

from sessions_app.db import is_outage, lend_connection
from sessions_app.protocol.errors import HubError
from traces_app import leases, lifecycle, sql
from traces_app.attempts import Attempt, attempts
from traces_app.beside import run_beside
from traces_app.executors.contract import (
    Cancelled,
    Completed,
    Failed,
    NeedsApproval,
    NeedsInput,
    Outcome,
    Refused,
)
from traces_app.executors.python_function import as_outcome
from traces_app.executors.registry import UnknownExecutor, find_executor
from traces_app.moves import Lost, Note
from traces_app.report import TraceReport, call_digest
from traces_app.requests import load_request

log = logging.getLogger("hub.traces")

SETTLE_SECONDS = 120.0
GRACE_SECONDS = 1.0


def run_trace(trace_pk: int) -> bool:
    """Claim and run a trace to the end of this attempt; False when there was nothing to claim."""
    claimed = leases.claim(trace_pk, f"{socket.gethostname()[:60]}:{os.getpid()}")
    if claimed is None:
        return False
    attempt = Attempt(claimed, time.monotonic() + settings.HUB_TRACE_SECONDS)
    attempts.add(attempt)
    try:
        run = _Run(attempt)
        outcome = run.outcome()
        if outcome is not None:
            settle(attempt, outcome, stream_id=claimed.trace_id if run.streamed else None, notes=run.pending)
    finally:
        attempts.remove(attempt)
    return True


class _Run:
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._returned: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        self._report: TraceReport | None = None

    @property
    def streamed(self) -> bool:
        return self._report is not None and self._report.streamed

    @property
    def pending(self) -> list[Note]:
        return self._report.pending if self._report is not None else []

    def outcome(self) -> Outcome | None:
        """What the executor returned, `timeout` when it did not, None when nobody wants to know any more."""
        attempt = self._attempt
        attempt.on_stop = lambda: self._returned.put(None)
        if attempt.stopped.is_set():  # by the keeper's thread, before there was anybody to tell
            self._returned.put(None)
        beside = run_beside(self._run, attempt.claimed.trace_id)
        lend_connection()
        try:
            outcome = self._returned.get(timeout=max(0.0, attempt.deadline - time.monotonic()))
        except queue.Empty:
            attempt.stop("timeout")
            outcome = None
        if not beside.idle.wait(GRACE_SECONDS if outcome is None else None):
            beside.leave()
            log.warning("%s: the executor does not stop; it is left behind", attempt.claimed.trace_id)
        if outcome is None and attempt.why == "timeout":
            return Failed("timeout", f"It took longer than {settings.HUB_TRACE_SECONDS:g} seconds.")
        return outcome

    def _run(self) -> None:
        outcome: Outcome | None = None
        try:
            outcome = self._execute()
        except (Cancelled, Lost):
            pass
        except UnknownExecutor as error:
            log.warning("%s: %s", self._attempt.claimed.trace_id, error, exc_info=error.__cause__)
            outcome = Failed("unknown_executor", str(error))
        except Refused as error:
            outcome = Failed("refused", str(error))
        except HubError as error:
            outcome = Failed(error.code, error.message)
        except BaseException as error:  # a plug-in may raise anything, SystemExit too
            log.exception("%s: the executor failed", self._attempt.claimed.trace_id)
            outcome = Failed("internal", f"The executor failed ({type(error).__name__}).")
        if isinstance(outcome, Completed) and self._attempt.why == "over":
            self._keep_late(outcome)
        self._returned.put(outcome)

    def _keep_late(self, outcome: Completed) -> None:
        """It went on after its trace had been cancelled: what it has found is not thrown away."""
        try:
            lifecycle.keep_late(self._attempt.claimed, outcome)
        except Exception as error:
            log.warning("%s: a late result is lost: %r", self._attempt.claimed.trace_id, error)

    def _execute(self) -> Outcome:
        claimed = self._attempt.claimed
        executor: Any = find_executor(claimed.executor)
        request, injected = load_request(claimed, self._attempt.deadline)
        trace = claimed.trace or sql.load(claimed.pk)
        self._report = report = TraceReport(self._attempt, trace, request.agent_id, request.session_id)
        report.pending = [injected]
        returned = executor.run(request, report)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_awaited(returned))  # a loop of its own: nothing of it is shared between runs
        report.flush()
        return as_outcome(returned)


async def _awaited(returned: Any) -> Any:
    return await returned


def settle(attempt: Attempt, outcome: Outcome, *, stream_id: str | None = None, notes: Sequence[Note] = ()) -> bool:
    """Write how an attempt ended, and `notes` before, as soon as the database can; False when it was over before."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        try:
            return _settle(attempt, outcome, stream_id, notes)
        except Exception as error:
            if not is_outage(error):
                raise
            log.warning("%s: the outcome can't be written yet: %r", attempt.claimed.trace_id, error)
            connection.close()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)


def _settle(attempt: Attempt, outcome: Outcome, stream_id: str | None, notes: Sequence[Note]) -> bool:
    claimed = attempt.claimed
    if isinstance(outcome, Completed):
        return lifecycle.complete(claimed, outcome, stream_id=stream_id, notes=notes)
    if isinstance(outcome, Failed):
        return lifecycle.fail(
            claimed,
            outcome.code,
            outcome.message,
            said=outcome.said,
            stream_id=stream_id,
            relay=outcome.relay,
            notes=notes,
        )
    if isinstance(outcome, NeedsInput):
        pending = {"kind": "question", "question": outcome.question, "schema": dict(outcome.schema)}
        return lifecycle.ask(claimed, pending, notes=notes)
    if isinstance(outcome, NeedsApproval):
        call = {"tool": outcome.tool, "arguments": dict(outcome.arguments)}
        question = outcome.question or f"May {outcome.tool} be called?"
        pending = {"kind": "approval", "question": question, "call": call}
        digest = call_digest(outcome.tool, outcome.arguments)
        return lifecycle.ask(claimed, pending, (digest, outcome.tool, outcome.arguments), notes=notes)
    raise AssertionError(f"no outcome: {outcome!r}")
