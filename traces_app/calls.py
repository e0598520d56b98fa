"""One trace calls other agents: each call is a trace of its own, with its context, its lease and its end.

Whoever calls runs them in threads beside itself (a worker that waited for workers would wait for itself), or waits for the
connected agent that took the offer. After a lost worker the same call finds the trace it began.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection

from sessions_app.changes import Changes, unit_of_work
from sessions_app.context import deliveries, viewing
from sessions_app.context.deliveries import Reply
from sessions_app.context.provenance import Provenance, of_work_for, plain, read
from sessions_app.db import lend_connection, utc_now
from sessions_app.models import Agent, Delivery
from sessions_app.protocol.errors import NotFound
from sessions_app.protocol.ids import new_trace_id
from sessions_app.protocol.jsontext import loads
from sessions_app.services.turns import open_trace
from sessions_app.sql import messages_by_key
from traces_app import replies
from traces_app.asking import question_of
from traces_app.executors.contract import Cancelled, Report
from traces_app.leases import DELEGATE, HINT_SECONDS
from traces_app.lifecycle import LockedSession
from traces_app.models import Trace
from traces_app.moves import Lost, first_event
from traces_app.states import CANCELLED, COMPLETED, CREATED, FAILED, OPEN, RUNNING, TERMINAL

AT_ONCE = 8
LOOK_SECONDS = 0.05
LOOK_AT_ROWS_SECONDS = 0.25
Run = Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call: who is asked what, and what it takes along (`asking`: refs, model_refs, search, through)."""

    agent_pk: int
    agent_id: str
    executor: str
    query: str
    asking: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallResult:
    """What came of a call: the answer's text, or why there is none; both when it broke off in the middle.

    `posted`: it is in the log already, under its agent's name.
    """

    agent_id: str
    trace_id: str
    text: str | None = None
    error: dict[str, str] | None = None
    posted: bool = False


class Caller:
    """The calls of one attempt of a trace; raises `Cancelled` (from the report) and `Lost`.

    What the trace tells from its first call on may hold what those it calls have said: its row says whose words they are.
    """

    def __init__(self, trace: Trace, attempt: int, report: Report, run: Run) -> None:
        self._trace = trace
        self._attempt = attempt
        self._report = report
        self._run = run
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._taken: set[int] = set()

    def call(self, wanted: Sequence[Wanted]) -> list[CallResult]:
        """Call them all side by side, and wait for all."""
        begun = [self._begin(each) for each in wanted]
        try:
            while any(isinstance(each, _Call) and not each.over() for each in begun):
                lend_connection()  # those that are called want some, too
                self._report.flush()
                self._report.check()
                time.sleep(LOOK_SECONDS)
        except Cancelled:
            for each in begun:
                if isinstance(each, _Call):
                    each.left()
            raise
        return [each if isinstance(each, CallResult) else each.result() for each in begun]

    def post_answers(self) -> None:
        """Put what was answered so far into the log."""
        with unit_of_work() as changes:
            place = LockedSession(self._trace.session_id, changes)
            self._hold()
            if place.lives:
                for draft in replies.messages_by_now(self._trace):
                    place.post(draft)

    def remember(self) -> None:
        """The agent has its own earlier rounds before its eyes: what it was told in them may come up again."""
        self._add(replies.remembered(self._trace))

    def _add(self, more: Provenance) -> None:
        with unit_of_work() as changes:
            LockedSession(self._trace.session_id, changes)
            self._hold()
            replies.add_provenance(self._trace, more)
        self._report.made_of(self._trace.provenance)

    def _begin(self, wanted: Wanted) -> _Call | CallResult:
        try:
            wanted = self._as_it_may_be_asked(wanted)
        except NotFound as error:
            return CallResult(wanted.agent_id, "", error={"code": error.code, "message": error.message})
        known = self._known(wanted)
        trace = known or Trace(
            public_id=new_trace_id(),
            session_id=self._trace.session_id,
            message_key=self._trace.message_key,
            message_sequence=self._trace.message_sequence,
            agent_id=wanted.agent_pk,
            requested_by_id=self._trace.agent_id,
            executor=wanted.executor,
            task=wanted.query,
            parent_id=self._trace.pk,
            in_line=False,
            called=True,
            asking=wanted.asking,
        )
        # Before there is a trace to be run: whoever runs it finds the delivery, and a connected agent is offered it.
        # Executors that talk know of deliveries, and make and settle their own.
        delivery = None
        if wanted.executor not in settings.HUB_TALKING_EXECUTORS:
            try:
                delivery = deliveries.prepare(question_of(trace))
            except NotFound as error:
                return CallResult(wanted.agent_id, "", error={"code": error.code, "message": error.message})
        if known is None:
            self._make(trace, wanted)
        self._taken.add(trace.pk)
        return _Call(trace, wanted, delivery, self._run if wanted.executor != DELEGATE else None, self._slots)

    def _as_it_may_be_asked(self, wanted: Wanted) -> Wanted:
        view = viewing.find_views(self._trace.session_id, [wanted.agent_pk]).get(wanted.agent_pk)
        if view is None:
            raise NotFound("It takes no part any more.")
        made_of = read(Trace.objects.values_list("provenance", flat=True).get(pk=self._trace.pk)) if view else None
        query = viewing.question_for(view, wanted.query, self._trace.message_key, made_of or Provenance())
        if not query.strip():
            raise NotFound("Nothing of this question may be passed on to it.")
        if query != wanted.query:
            self._report.log(
                f"{wanted.agent_id} may not be asked in these words; it is asked what it may be", level="warning"
            )
        return replace(wanted, query=query)

    def _known(self, wanted: Wanted) -> Trace | None:
        """The trace that an earlier attempt began for this very call."""
        rows = Trace.objects.filter(
            parent_id=self._trace.pk, called=True, agent_id=wanted.agent_pk, status__in=[*OPEN, COMPLETED]
        )
        same = (t for t in rows.order_by("id") if t.pk not in self._taken and t.task == wanted.query)
        return next(same, None)

    def _make(self, trace: Trace, wanted: Wanted) -> None:
        with unit_of_work() as changes:
            LockedSession(trace.session_id, changes)
            self._hold()
            replies.add_provenance(self._trace, Provenance((wanted.agent_id,)))
            trace.provenance = plain(self._labels())
            open_beside(trace, wanted.agent_id, changes)
        self._report.made_of(self._trace.provenance)

    def _labels(self) -> Provenance:
        message = messages_by_key([self._trace.message_key]).get(self._trace.message_key)
        request = loads(message.body) if message is not None else {"metadata": {}, "parts": []}
        return of_work_for(request["metadata"], request["parts"])

    def results(self) -> list[CallResult]:
        """What came of all calls of this trace so far, earlier attempts included, in the order in which they ended."""
        ended = Trace.objects.filter(parent_id=self._trace.pk, called=True, status__in=TERMINAL).select_related("agent")
        return [result_of(trace, trace.agent.agent_id) for trace in ended.order_by("ended_at", "id")]

    def _hold(self) -> None:
        """A parent that runs no more calls nobody."""
        rows = Trace.objects.select_for_update().filter(pk=self._trace.pk, attempt=self._attempt, status=RUNNING)
        if not rows.exists():
            raise Lost()


def open_beside(trace: Trace, agent_id: str, changes: Changes) -> None:
    """Store a new trace that no append opens, under its session's lock."""
    now = utc_now()
    trace.created_at = trace.changed_at = now
    trace.next_hint_at = now + timedelta(seconds=HINT_SECONDS)
    trace.last_sequence = 1
    trace.save(force_insert=True)
    first_event(trace, changes)
    open_trace(session_pk=trace.session_id, trace_id=trace.public_id, agent_id=agent_id, changes=changes)


class _Call:
    def __init__(
        self,
        trace: Trace,
        wanted: Wanted,
        delivery: Delivery | None,
        run: Run | None,
        slots: threading.BoundedSemaphore,
    ) -> None:
        self._trace = trace
        self._wanted = wanted
        self._delivery = delivery
        self._run = run
        self._slots = slots
        self._thread: threading.Thread | None = None
        self._looked = 0.0
        self._start()

    def _start(self) -> None:
        if self._run is not None:
            self._thread = threading.Thread(target=self._work, name=f"call-{self._trace.public_id}", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        assert self._run is not None
        try:
            with self._slots:
                self._run(self._trace.pk)
        finally:
            connection.close()

    def over(self) -> bool:
        """Whether it has ended, whoever ran it. One that waited for an answer and got it is run again."""
        if self._thread is not None and self._thread.is_alive():
            return False
        if self._thread is None and time.monotonic() - self._looked < LOOK_AT_ROWS_SECONDS:
            return False
        self._looked = time.monotonic()
        self._trace.refresh_from_db()
        if self._trace.status in TERMINAL:
            return True
        self._thread = None
        if self._trace.status == CREATED:
            self._start()
        return False

    def left(self) -> None:
        """Nobody waits for it any more; what was reserved for one that was cancelled as well is given back."""
        self._trace.refresh_from_db()
        if self._delivery is not None and self._trace.status in (CANCELLED, FAILED):
            deliveries.failed(self._delivery, self._trace.status)

    def result(self) -> CallResult:
        result = result_of(self._trace, self._wanted.agent_id)
        if self._delivery is None:
            return result
        if result.error is None:
            reply = self._trace.reply or {}
            deliveries.delivered(self._delivery, Reply(content=result.text or "", message_key=reply.get("key")))
        else:
            deliveries.failed(self._delivery, result.error["code"])
        return result


def result_of(trace: Trace, agent_id: str) -> CallResult:
    """A called trace that has ended, as a call's result."""
    reply = trace.reply or {}
    text, posted = reply.get("content"), bool(reply.get("posted"))
    if trace.status == COMPLETED:
        return CallResult(agent_id, trace.public_id, text or "", posted=posted)
    error = {"code": CANCELLED if trace.status == CANCELLED else FAILED, "message": "The call was cancelled."}
    return CallResult(agent_id, trace.public_id, text, {**error, **(trace.error or {})}, posted)


def runner_of(agent: Agent, takes_offers: bool) -> str | None:
    """What runs a call to this agent, or None where nobody does."""
    return agent.executor or (DELEGATE if takes_offers else None)
