"""Delegated work: traces that the hub hands to this agent, run by a handler under a lease."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from hub.client.errors import ClientClosed, ClientError, HubError
from hub.client.frames import TraceOffer, TraceUpdate
from hub.client.requests import Request, Requests

log = logging.getLogger("hub.client")


class Completed:
    """The outcome of a trace: a summary that becomes the result message, and what goes with it."""

    def __init__(
        self,
        summary: str,
        *,
        parts: list[dict[str, Any]] | None = None,
        context_patch: dict[str, Any] | None = None,
    ) -> None:
        self.summary = summary
        self.parts = parts
        self.context_patch = context_patch


class TraceFailed(Exception):
    """Raise it in a trace handler to fail with a code of your own; any other exception fails with `failed`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TraceRun:
    """One attempt at one trace. `task` is what was asked; `context` and `history` are the session's.

    Where a main agent asks, `question` is how: `{session_id, current_query, context_injections?, round, parts, …}`, and
    `history` is this agent's own, with what is injected in fences.
    """

    def __init__(self, offer: TraceOffer, runs: TraceRuns) -> None:
        self.trace_id = offer.trace_id
        self.session_id = str(offer.trace.get("session_id") or offer.session_id or "")
        self.attempt = offer.attempt
        self.task = str(offer.trace.get("task") or "")
        self.trace = offer.trace
        self.context = offer.context or {}
        self.history = offer.history or []
        self.question = offer.question
        self.lease_seconds = offer.lease_seconds
        self._runs = runs

    async def event(self, type: str, **data: Any) -> None:
        """Write an event into the trace's log (`message`, `artifact`, `context`, `usage`, and those below by name).

        Raises `Conflict` when the lease was lost to another attempt: stop then.
        """
        await self._runs.call(self, "trace.event", event={"type": type, "data": data})

    async def goal(self, goal_id: str, title: str, *, status: str = "open", parent_id: str | None = None) -> None:
        """Add or change a goal: `open`, `running`, `done`, `failed` or `cancelled`."""
        await self.event("goal", goal_id=goal_id, title=title, status=status, parent_id=parent_id)

    async def tool_call(self, call_id: str, name: str, arguments: dict[str, Any]) -> None:
        await self.event("tool_call", call_id=call_id, name=name, arguments=arguments)

    async def tool_result(self, call_id: str, name: str, result: Any = None, *, error: Any = None) -> None:
        await self.event("tool_result", call_id=call_id, name=name, ok=error is None, result=result, error=error)

    async def log(self, text: str, *, level: str = "info") -> None:
        await self.event("log", level=level, text=text)

    def chunk(self, text: str) -> None:
        """Show a piece of text that is being written; best effort."""
        self._runs.post({"type": "chunk", "session_id": self.session_id, "stream_id": self.trace_id, "text": text})


Outcome = Completed | str | dict[str, Any] | None
TraceHandler = Callable[[TraceRun], Awaitable[Outcome] | Outcome]


class TraceRuns:
    """Accepts offers while fewer than `parallel` runs are under way, keeps their leases, reports how they ended."""

    def __init__(self, requests: Requests, wake: Callable[[], None], *, parallel: int = 4) -> None:
        self.handler: TraceHandler | None = None
        self.parallel = parallel
        self._requests = requests
        self._wake = wake
        self._runs: dict[str, asyncio.Task[None]] = {}

    def offered(self, offer: TraceOffer) -> None:
        """Left alone when we are full or have it already: the hub repeats its offers."""
        if self.handler is None or not offer.trace_id or offer.trace_id in self._runs:
            return
        if len(self._runs) >= self.parallel:
            return
        run = TraceRun(offer, self)
        self._runs[offer.trace_id] = asyncio.create_task(self._run(run), name=f"hub trace {offer.trace_id}")

    def updated(self, frame: TraceUpdate) -> None:
        task = self._runs.get(frame.trace_id)
        if task is not None and frame.status == "cancelled":
            task.cancel()

    async def stop(self) -> None:
        tasks = list(self._runs.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def post(self, frame: dict[str, Any]) -> None:
        self._requests.post(frame)
        self._wake()

    async def call(self, run: TraceRun, type_: str, **fields: Any) -> TraceUpdate | None:
        frame = {
            "type": type_,
            "session_id": run.session_id,
            "trace_id": run.trace_id,
            "attempt": run.attempt,
            **fields,
        }
        request: Request = self._requests.call(frame)
        self._wake()
        try:
            answer = await request.answer
        finally:
            self._requests.drop(request)
        return answer if isinstance(answer, TraceUpdate) else None

    async def _run(self, run: TraceRun) -> None:
        keeper: asyncio.Task[None] | None = None
        try:
            await self.call(run, "trace.accept")
            me = asyncio.current_task()
            assert me is not None
            keeper = asyncio.create_task(self._keep(run, me))
            frame = await self._outcome(run)
            type_ = frame.pop("type")
            await self.call(run, type_, **frame)
        except asyncio.CancelledError:
            log.info("trace %s: stopped here", run.trace_id)
            raise
        except ClientClosed:
            return
        except HubError as error:
            # `conflict`: somebody else accepted it, or our lease ran out meanwhile. The hub knows the outcome.
            log.info("trace %s: %s: %s", run.trace_id, error.code, error)
        except ClientError as error:
            log.warning("trace %s: %s", run.trace_id, error)
        finally:
            if keeper is not None:
                keeper.cancel()
            self._runs.pop(run.trace_id, None)

    async def _outcome(self, run: TraceRun) -> dict[str, Any]:
        assert self.handler is not None
        try:
            result = self.handler(run)
            if inspect.isawaitable(result):
                result = await result
        except TraceFailed as error:
            return {"type": "trace.fail", "code": error.code, "message": str(error)}
        except Exception as error:
            log.exception("trace %s: the handler failed", run.trace_id)
            return {"type": "trace.fail", "code": "failed", "message": str(error) or type(error).__name__}
        if isinstance(result, dict):
            result = Completed(
                str(result.get("summary", "")), parts=result.get("parts"), context_patch=result.get("context_patch")
            )
        if not isinstance(result, Completed):
            result = Completed("" if result is None else str(result))
        frame: dict[str, Any] = {"type": "trace.complete", "summary": result.summary}
        if result.parts is not None:
            frame["parts"] = result.parts
        if result.context_patch is not None:
            frame["context_patch"] = result.context_patch
        return frame

    async def _keep(self, run: TraceRun, work: asyncio.Task[None]) -> None:
        """Renew the lease; when the hub says that it is no longer ours, stop the work: its result would be refused."""
        while True:
            await asyncio.sleep(max(0.5, run.lease_seconds / 3))
            try:
                await self.call(run, "trace.event")
            except HubError as error:
                if error.code in ("conflict", "not_found"):
                    log.warning("trace %s: the lease is lost", run.trace_id)
                    work.cancel()
                    return
            except ClientError:
                return
