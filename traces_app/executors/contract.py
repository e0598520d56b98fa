"""The contract between a trace and what runs it: `run(request, report) -> outcome`. Plug-ins import from here.

    from traces_app.executors.contract import Completed, Report, Request

    def count_words(request: Request, report: Report) -> Completed:
        report.goal("count", "Count the words", status="running")
        number = len(request.task.split())
        report.goal("count", "Count the words", status="done")
        return Completed(f"{number} words", context_patch={"current_topic": "words"})

An operator gives it to an agent as executor `python:package.module:count_words`, or a distribution registers it under a
name of its own with the entry point group `session_hub.executors`. It may be `async`. Rules: ask `report.check()` (or
report something) between steps, so that a cancel or a lost lease ends it; never catch `Cancelled`; a run may be started
again from its beginning after a crash or an answer, so anything that must not happen twice goes through `report.approved`
or is keyed by `request.trace_id`. A worker loads a module once: start it anew when you have changed one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from traces_app.outcomes import Cancelled, Completed, Failed, NeedsInput
from traces_app.outcomes import Outcome as PlainOutcome


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """The trace waits for a person's leave to make exactly this call, then starts again; see `Report.approved`."""

    tool: str
    arguments: Mapping[str, Any]
    question: str = ""


Outcome = PlainOutcome | NeedsApproval


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. `context` is the session's, `history` the talk before (`{role, name, content, sequence}`), then, for a
    trace that continues another, that one's messages, calls and results. `inputs` are the questions answered so far.
    `resumed` are the events of this trace's earlier attempts (messages, calls, results, usage). `asked` is how a main agent
    put its question: `{session_id, current_query, context_injections?: [{source_agent, round, content}], round}`.
    `deadline` is on `time.monotonic()`; `config` the agent's `executor_config`."""

    trace_id: str
    session_id: str
    attempt: int
    task: str
    agent_id: str
    requested_by: str
    kind: str = "task"
    parts: Sequence[Mapping[str, Any]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()
    inputs: Sequence[Mapping[str, Any]] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    continue_from: Mapping[str, Any] | None = None
    resumed: Sequence[Mapping[str, Any]] = ()
    asked: Mapping[str, Any] | None = None
    deadline: float | None = None


class Report(Protocol):
    """Where a run tells what it does. Each method but `cancelled` raises `Cancelled` when the run is not wanted any more."""

    def message(self, role: str, text: str) -> None: ...

    def goal(self, goal_id: str, title: str, *, status: str = "open", parent_id: str | None = None) -> None:
        """Make a goal or move it: `open`, `running`, `done`, `failed`, `cancelled`."""

    def tool_call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> None: ...

    def tool_result(self, call_id: str, name: str, result: Any = None, *, error: Any = None) -> None: ...

    def artifact(self, name: str, text: str, *, media_type: str = "text/plain") -> None: ...

    def usage(self, **numbers: float) -> None: ...

    def log(self, text: str, *, level: str = "info") -> None: ...

    def event(
        self, type: str, data: Mapping[str, Any], *, span_id: str | None = None, parent_id: str | None = None
    ) -> None:
        """Any event of the log."""

    def chunk(self, text: str) -> None:
        """A piece of the answer for those who watch; never stored. The outcome's summary is the whole text."""

    def flush(self) -> None:
        """Send the pieces that are waiting to be sent together."""

    def made_of(self, provenance: Mapping[str, Any]) -> None:
        """Whose words the pieces may hold from now on, as the trace's row has it (`traces_app.calls` says so)."""

    def approved(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Use up the leave for exactly this call. True: make it now. False: return `NeedsApproval(tool, arguments)`.
        Raises `Refused` when a person said no."""

    def check(self) -> None: ...

    def cancelled(self) -> bool: ...


class Refused(Exception):
    """A person refused the call."""


class Executor(Protocol):
    def run(self, request: Request, report: Report) -> Outcome | Awaitable[Outcome]: ...


__all__ = [
    "Cancelled",
    "Completed",
    "Executor",
    "Failed",
    "NeedsApproval",
    "NeedsInput",
    "Outcome",
    "Refused",
    "Report",
    "Request",
]
