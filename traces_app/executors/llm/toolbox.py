"""The hub's registered tools as a model may call them: names as its wire takes them, leaves asked, failures told as results."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from django.conf import settings

from traces_app.executors.contract import Cancelled, NeedsApproval, Refused, Report, Request
from traces_app.executors.llm.asking import Call
from traces_app.executors.llm.choice import NoModel
from traces_app.planner.jsonable import as_json
from traces_app.redaction import storable
from traces_app.report import call_digest
from traces_app.results import is_chinese
from traces_app.tools import Registry, Tool, ToolContext, ToolError
from traces_app.workspace.roots import Roots
from traces_app.workspace.words import Language

if TYPE_CHECKING:
    from pydantic_ai.tools import ToolDefinition

MARGIN_SECONDS = 2.0
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


class Answered:
    """A call's result, or its error `{code, message}`."""

    def __init__(self, result: Any = None, error: Mapping[str, Any] | None = None) -> None:
        self.result = result
        self.error = error


class Toolbox(Protocol):
    """What a model may call."""

    def definitions(self) -> list[ToolDefinition]: ...

    def call(self, calls: Sequence[Call], report: Report) -> list[Answered] | NeedsApproval:
        """Make the calls of one step, or say which one wants a person's leave. Never raises but `Cancelled`."""


def wire_name(name: str) -> str:
    """A tool's name as every provider takes it."""
    return _UNFIT.sub("_", name)[:64]


class HubTools:
    """Registered tools, all or those an operator named, one after the other."""

    def __init__(self, tools: Registry, request: Request) -> None:
        config = request.config
        self._tools = {wire_name(tool.name): tool for tool in _chosen(tools, config.get("tools"))}
        leave = config.get("approve") or ()
        self._leave = {str(name) for name in leave} if isinstance(leave, list | tuple) else {str(leave)}
        self._request = request
        self._context: ToolContext | None = None

    def definitions(self) -> list[ToolDefinition]:
        from pydantic_ai.tools import ToolDefinition

        return [
            ToolDefinition(name=name, description=tool.description, parameters_json_schema=dict(tool.parameters))
            for name, tool in self._tools.items()
        ]

    def call(self, calls: Sequence[Call], report: Report) -> list[Answered] | NeedsApproval:
        answers = []
        for call in calls:
            answer = self._call(call, report)
            if isinstance(answer, NeedsApproval):
                return answer
            answers.append(answer)
        return answers

    def _call(self, call: Call, report: Report) -> Answered | NeedsApproval:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(sorted(self._tools)[:50]) or "none"
            return _failed("unknown_tool", f"no tool is called {call.name[:128]}; there are: {known}")
        if call.problem is not None:
            return _failed("invalid", call.problem)
        if tool.needs_approval or tool.name in self._leave or "*" in self._leave:
            if call_digest(tool.name, call.arguments) != call_digest(tool.name, storable(call.arguments)):
                # What a person is shown is redacted: a leave for something else than what is shown is none.
                return _failed("invalid", "the arguments hold what looks like a secret; this call can't be approved")
            try:
                if not report.approved(tool.name, call.arguments):
                    return NeedsApproval(tool.name, call.arguments)
            except Refused:
                return _failed("refused", "a person refused this call; do not try it again")
        try:
            return Answered(as_json(tool.call(call.arguments, self._used_by(report))))
        except ToolError as error:
            return _failed(error.code, error.message)
        except Cancelled:
            raise
        except Exception as error:
            report.log(f"{tool.name} failed: {type(error).__name__}", level="error")
            return _failed("internal", f"{tool.name} failed ({type(error).__name__})")

    def _used_by(self, report: Report) -> ToolContext:
        if self._context is None:
            deadline = self._request.deadline
            if deadline is not None:
                deadline = max(deadline - MARGIN_SECONDS, time.monotonic() + 0.5)
            language: Language = "zh" if is_chinese(self._request.task) else "en"
            self._context = ToolContext(Roots(settings.HUB_ROOTS), deadline, report.cancelled, language)
        return self._context


def _failed(code: str, message: str) -> Answered:
    return Answered(error={"code": code, "message": message})


def _chosen(tools: Registry, names: Any) -> Iterable[Tool]:
    if names is None:
        return tools
    if not isinstance(names, list | tuple):
        raise NoModel("`tools` is a list of names.")
    unknown = [str(name) for name in names if name not in tools]
    if unknown:
        raise NoModel(f"No tool is called {', '.join(unknown)[:200]}.")
    return [tools.get(str(name)) for name in names]
