"""The session's agents as tools of a main agent's model: `call_agent(agent, query, context_refs)` and one tool per agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sessions_app.context import choosing, viewing
from sessions_app.models import Message, Session
from sessions_app.protocol.ids import message_key
from traces_app.calls import Caller, CallResult, Wanted
from traces_app.executors.contract import Report
from traces_app.executors.llm.asking import Call
from traces_app.executors.llm.toolbox import Answered
from traces_app.executors.orchestrator.callees import Callee
from traces_app.models import Trace

if TYPE_CHECKING:
    from pydantic_ai.tools import ToolDefinition

CALL_AGENT = "call_agent"

_REFS = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Ids of earlier messages that matter for the question. 与当前问题相关的历史消息编号。",
}
_MESSAGES = {
    "type": "array",
    "description": "Earlier replies of other agents that matter, in order of time, quoted exactly."
    " 与当前问题相关的其他智能体历史回复，按时间顺序排列。",
    "items": {
        "type": "object",
        "properties": {"source_agent": {"type": "string"}, "content": {"type": "string"}},
        "required": ["source_agent", "content"],
    },
}


class AgentTools:
    """A toolbox whose calls are traces of other agents; `results` are what came of them, earlier attempts included."""

    def __init__(self, trace: Trace, caller: Caller, callees: Sequence[Callee]) -> None:
        self._trace = trace
        self._caller = caller
        self._by_name = {callee.agent_id: callee for callee in callees}
        self._by_tool = {callee.tool: callee for callee in callees}
        self._view = viewing.find_view(trace.session_id, trace.agent_id)
        self.results = caller.results()

    def definitions(self) -> list[ToolDefinition]:
        from pydantic_ai.tools import ToolDefinition

        if not self._by_name:
            return []
        query = {"type": "string", "description": "The user's question for it. 用户的具体问题。"}
        agent = {"type": "string", "enum": list(self._by_name)}
        found = [
            ToolDefinition(
                name=CALL_AGENT,
                description="Ask one of the agents of this conversation. 调用一个子智能体。",
                parameters_json_schema={
                    "type": "object",
                    "properties": {"agent": agent, "query": query, "context_refs": _REFS},
                    "required": ["agent", "query"],
                },
            )
        ]
        for callee in self._by_tool.values():
            found.append(
                ToolDefinition(
                    name=callee.tool,
                    description=f"调用{callee.name} / Ask {callee.name}: {callee.about}"[:1000],
                    parameters_json_schema={
                        "type": "object",
                        "properties": {"query": query, "context_messages": _MESSAGES, "context_refs": _REFS},
                        "required": ["query"],
                    },
                )
            )
        return found

    def call(self, calls: Sequence[Call], report: Report) -> list[Answered]:
        """All calls of one step, side by side. What was answered in an earlier step is posted first: it may be passed on."""
        if self.results and any(self._callee(call) is not None for call in calls):
            self._caller.post_answers()
        through = Session.objects.values_list("last_sequence", flat=True).get(pk=self._trace.session_id)
        wanted: dict[int, Wanted] = {}
        answers: dict[int, Answered] = {}
        for number, call in enumerate(calls):
            asked = self._wanted(call, through, report)
            if isinstance(asked, Wanted):
                wanted[number] = asked
            else:
                answers[number] = asked
        for number, result in zip(wanted, self._caller.call(list(wanted.values())), strict=True):
            answers[number] = _answered(result)
        self.results = self._caller.results()
        return [answers[number] for number in range(len(calls))]

    def _wanted(self, call: Call, through: int, report: Report) -> Wanted | Answered:
        if call.problem is not None:
            return _failed("invalid", call.problem)
        arguments = call.arguments
        callee = self._callee(call)
        if callee is None:
            return _failed("unknown_agent", f"there is no such agent; there are: {', '.join(self._by_name) or 'none'}")
        query = arguments.get("query")
        if not isinstance(query, str) or not query.strip():
            return _failed("invalid", "query is the user's question, as text")
        keys = self._named(arguments.get("context_refs"), report)
        keys += self._quoted(arguments.get("context_messages"), through, report)
        asking = {
            "refs": list(self._trace.asking.get("refs", ())),
            "model_refs": list(dict.fromkeys(keys)),
            "search": False,
            "through": through,
        }
        return Wanted(callee.agent_pk, callee.agent_id, callee.runner, query, asking)

    def _callee(self, call: Call) -> Callee | None:
        if call.name == CALL_AGENT:
            return self._by_name.get(str(call.arguments.get("agent")))
        return self._by_tool.get(call.name)

    def _named(self, given: Any, report: Report) -> list[int]:
        """Message keys of this session; what is none is dropped, and the context layer drops what may not be seen."""
        texts = [text for text in given if isinstance(text, str)] if isinstance(given, list) else []
        keys = [key for text in texts if (key := message_key(text)) is not None]
        here = set(Message.objects.filter(pk__in=keys, session_id=self._trace.session_id).values_list("pk", flat=True))
        if dropped := len(texts) - len([key for key in keys if key in here]):
            report.log(f"{dropped} context_refs name no message of this session; dropped", level="warning")
        return [key for key in keys if key in here]

    def _quoted(self, given: Any, through: int, report: Report) -> list[int]:
        keys = []
        for quotation in given if isinstance(given, list) else []:
            if not isinstance(quotation, Mapping):
                continue
            source, content = str(quotation.get("source_agent", "")), str(quotation.get("content", ""))
            key = choosing.find_quoted(self._trace.session_id, self._id_of(source), content, self._view, through)
            if key is None:
                report.log(f"{source[:64]} said nothing of the kind; the quotation is dropped", level="warning")
            else:
                keys.append(key)
        return keys

    def _id_of(self, name: str) -> str:
        """A model may name an agent by its tool."""
        for callee in self._by_name.values():
            if name in (callee.agent_id, callee.name, callee.tool, callee.tool.removeprefix("call_")):
                return callee.agent_id
        return name


def _answered(result: CallResult) -> Answered:
    if result.error is None:
        return Answered(result.text)
    error: dict[str, Any] = {**result.error, "agent": result.agent_id}
    if result.text:
        error["said"] = result.text
    return Answered(error=error)


def _failed(code: str, message: str) -> Answered:
    return Answered(error={"code": code, "message": message})
