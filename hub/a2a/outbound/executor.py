"""The executor `a2a`: a trace becomes a task of a remote agent, and what that says becomes the trace's.

    created trace ──> message with the id <trace>.0 ──> remote task ──> chunks, log ──> result
    input-required ──> the trace waits; its answer goes to the same task as <trace>.1, …
    a later attempt takes the remote task up where it stands; only what is not known to have arrived is sent again

An executor works in a thread without an event loop, where the database may be used. The conversation with the remote is
asynchronous and is driven step by step from here: while the loop stands still nothing is lost, events wait in the socket.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import httpx
from django.conf import settings

from hub.a2a.addresses import AddressRefused
from hub.a2a.outbound import ends, rows
from hub.a2a.outbound.cards import CardRefused, card_of, usable_interface
from hub.a2a.outbound.client import NoCredential, open_client
from hub.a2a.outbound.config import MissingSecret, RemoteConfig, read_config
from hub.a2a.outbound.models import RemoteTask
from hub.a2a.outbound.question import Question
from hub.a2a.outbound.states import SENDING
from traces_app.executors.contract import Cancelled, Completed, Failed, NeedsInput, Outcome, Report, Request
from traces_app.models import Trace

if TYPE_CHECKING:
    from a2a.client import Client
    from a2a.types import AgentCard, StreamResponse

    from hub.a2a.outbound.talk import Talk
    from hub.a2a.outbound.transcript import Transcript

MARGIN_SECONDS = 2.0  # before the run's own limit, so that it is we who say what took so long
LOOK_SECONDS = 0.1
TOOL = "a2a.task"
FORGOTTEN = ("remote_task_lost", "remote_invalid")  # the answers of remotes that do not know a contextId


class RemoteAgent:
    def run(self, request: Request, report: Report) -> Outcome:
        from hub.a2a.outbound.transcript import TooMuch
        from hub.a2a.outbound.trouble import Trouble, trouble_of

        run = _Run(request, report)
        try:
            return run.outcome()
        except Trouble as trouble:
            return Failed(trouble.code, trouble.message, run.said())
        except (CardRefused, NoCredential, MissingSecret, AddressRefused) as refusal:
            refused = trouble_of(refusal)
            return Failed(refused.code, refused.message)
        except TooMuch as error:
            return Failed("remote_protocol", f"The remote agent says {error}.")


class _Run:
    def __init__(self, request: Request, report: Report) -> None:
        from hub.a2a.outbound.transcript import Transcript

        self._request = request
        self._report = report
        self._config: RemoteConfig = read_config(request.config)
        self._trace = Trace.objects.select_related("agent", "session").get(public_id=request.trace_id)
        self._limit = self._deadline()
        self._row: RemoteTask | None = None
        self._transcript: Transcript = Transcript()
        self._logged = ""

    def outcome(self) -> Outcome:
        card = card_of(self._config)
        self._report.check()
        row, is_new = rows.begin(self._trace, self._request.attempt, len(self._request.inputs))
        self._row = row
        try:
            with asyncio.Runner() as runner:
                self._converse(runner, card, row, is_new)
        except Cancelled:
            # A row says whether somebody cancelled it, or another attempt goes on with it: only then it is told nothing.
            ends.end_remote(row.pk)
            raise
        return self._outcome()

    def said(self) -> str:
        """What was told before it broke off."""
        return self._transcript.text()

    def _deadline(self) -> float:
        now = time.monotonic()
        limits = [now + self._config.timeout_seconds] if self._config.timeout_seconds else []
        if self._request.deadline is not None:
            limits.append(max(self._request.deadline - MARGIN_SECONDS, now + 0.5))
        return min(limits, default=float("inf"))

    def _converse(self, runner: asyncio.Runner, card: AgentCard, row: RemoteTask, is_new: bool) -> None:
        from hub.a2a.outbound.talk import Talk

        asking = row.state == SENDING or not row.task_id
        question = Question(self._request, self._trace, row, card) if asking else None
        client, http = runner.run(self._open(card))
        talk = Talk(client, streaming=card.capabilities.streaming, retry_seconds=settings.HUB_A2A_RETRY_SECONDS)
        if question is not None:
            http.event_hooks = {"request": [Recorder(talk, question)]}
        try:
            self._say(card, row)
            self._ask(runner, talk, question, row, is_new)
            self._said(row, talk.connections)
        finally:
            runner.run(http.aclose())

    async def _open(self, card: AgentCard) -> tuple[Client, httpx.AsyncClient]:
        return open_client(card, self._config)

    def _ask(
        self, runner: asyncio.Runner, talk: Talk, question: Question | None, row: RemoteTask, is_new: bool
    ) -> None:
        """Send the question, or take the task up, and listen; a remote that has forgotten the context is told all of it, once."""
        from hub.a2a.outbound.trouble import Trouble

        if question is None:
            self._listen(runner, talk, talk.take_up(row.task_id), None, row)
            return
        request = question.message()
        try:
            if row.task_id and not is_new:
                events = talk.take_up(row.task_id, request)
            else:
                events = talk.send(request)
            self._listen(runner, talk, events, question, row)
        except Trouble as trouble:
            if trouble.code in FORGOTTEN and question.forgotten():
                self._report.log("The remote agent does not know this session any more; it is told everything again.")
                self._listen(runner, talk, talk.send(question.message()), question, row)
                return
            question.refused(trouble.code)
            raise

    def _listen(
        self,
        runner: asyncio.Runner,
        talk: Talk,
        events: AsyncIterator[StreamResponse],
        question: Question | None,
        row: RemoteTask,
    ) -> None:
        while (event := runner.run(self._next(events))) is not None:
            if question is not None:
                question.taken()
            self._transcript.rejoined = talk.resumed
            self._take(event, row)
            if self._transcript.resting:
                return

    async def _next(self, events: AsyncIterator[StreamResponse]) -> StreamResponse | None:
        """The next event; None at the end. Looks up while it waits: raises `Cancelled`, or `Trouble` when the time is up."""
        from hub.a2a.outbound.trouble import Trouble

        step: asyncio.Task[StreamResponse | None] = asyncio.ensure_future(_step(events))
        while True:
            await asyncio.wait({step}, timeout=LOOK_SECONDS)
            if step.done():
                return step.result()
            late = time.monotonic() >= self._limit
            if late or self._report.cancelled():
                step.cancel()
                await asyncio.wait({step})
                if not step.cancelled() and step.exception() is None:
                    return step.result()  # it came in this very moment
                if late:
                    raise Trouble("remote_timeout", "The remote agent took longer than it may.")
                self._report.check()
                raise Cancelled("over")

    def _take(self, event: StreamResponse, row: RemoteTask) -> None:
        from hub.a2a.outbound.trouble import fit

        said = self._transcript
        new = said.take(event)
        if said.task_id:
            rows.hear(
                row,
                self._request.attempt,
                task_id=said.task_id,
                context_id=said.context_id,
            )
        if new:
            self._report.chunk(new)
        if not said.resting and said.message is not None:
            remark = fit(said.remark())
            if remark and remark != self._logged:
                self._logged = remark
                self._report.log(remark)

    def _say(self, card: AgentCard, row: RemoteTask) -> None:
        interface = usable_interface(card, self._config)
        told = {"agent": card.name[:200], "url": interface.url, "binding": interface.protocol_binding}
        if row.task_id:
            told["task_id"] = row.task_id
        self._report.tool_call(row.message_id, TOOL, told)

    def _said(self, row: RemoteTask, connections: int) -> None:
        from a2a.types import TaskState

        state = self._transcript.state
        told: dict[str, Any] = {"connections": connections}
        if row.task_id:
            told |= {"task_id": row.task_id, "context_id": row.context_id}
        if state is not None:
            told["state"] = TaskState.Name(state)
        self._report.tool_result(row.message_id, TOOL, told)

    def _outcome(self) -> Outcome:
        from a2a.types import TaskState

        from hub.a2a.outbound.trouble import fit

        assert self._row is not None
        said = self._transcript
        if said.over:
            rows.finish(self._row, self._request.attempt)
        words = fit(said.remark())
        match said.state:
            case TaskState.TASK_STATE_INPUT_REQUIRED:
                return NeedsInput(said.remark()[:4000] or "The remote agent asks for more.")
            case TaskState.TASK_STATE_AUTH_REQUIRED:
                return Failed("remote_auth_required", words or "The remote agent wants a further authorisation.")
            case TaskState.TASK_STATE_FAILED:
                return Failed("remote_failed", words or "The remote agent failed.")
            case TaskState.TASK_STATE_REJECTED:
                return Failed("remote_rejected", words or "The remote agent rejected the task.")
            case TaskState.TASK_STATE_CANCELED:
                return Failed("remote_canceled", words or "The remote agent's task was cancelled there.")
        return Completed(said.text(), said.parts())


class Recorder:
    """Writes down what carries a question, before it leaves.

    An agent without streams may answer only when it is done, whatever we ask for; that silence is borne to the end, since
    sending again could do the work twice.
    """

    def __init__(self, talk: Talk, question: Question) -> None:
        self._talk = talk
        self._question = question

    async def __call__(self, request: httpx.Request) -> None:
        if self._talk.sending:
            await self._question.record(request.content)
            if not self._talk.streaming:
                request.extensions["timeout"] = {**request.extensions["timeout"], "read": settings.HUB_TRACE_SECONDS}


async def _step(events: AsyncIterator[StreamResponse]) -> StreamResponse | None:
    return await anext(events, None)
