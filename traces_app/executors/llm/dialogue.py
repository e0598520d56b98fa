"""A model and its tools, step by step: each text, call and result is an event before the next thing happens.

So a run can be taken up where an earlier attempt of the same trace ended: after a person's leave, or after a lost worker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sessions_app.protocol.jsontext import dumps
from traces_app.executors.contract import Failed, NeedsApproval, Report
from traces_app.executors.llm.asking import Call, ModelFailed, Step, ask_model
from traces_app.executors.llm.choice import Choice, Limits
from traces_app.executors.llm.toolbox import Answered, Toolbox
from traces_app.executors.llm.transcript import RESULT_BYTES, Entry, as_messages, result_text, said_by
from traces_app.redaction import storable

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

BETWEEN = "\n\n"  # what a model says before it calls and what it says after are told as paragraphs


@dataclass
class Used:
    """What a trace has used up, its earlier attempts included."""

    requests: int = 0
    tool_calls: int = 0
    tokens: int = 0
    call_ids: set[str] = field(default_factory=set)

    def over(self, limits: Limits) -> str | None:
        for used, limit, what in (
            (self.requests, limits.requests, "requests to the model"),
            (self.tool_calls, limits.tool_calls, "tool calls"),
            (self.tokens, limits.tokens, "tokens"),
        ):
            if limit and used >= limit:
                return f"The limit of {limit} {what} is reached."
        return None


@dataclass(frozen=True, slots=True)
class Said:
    """How a dialogue ended well: the whole text, which is what the chunks were, and the last step's alone."""

    text: str
    last: str


class Dialogue:
    """`resumed` are the events of earlier attempts of this trace. `sent` gets the body of this run's first request."""

    def __init__(
        self,
        choice: Choice,
        report: Report,
        toolbox: Toolbox,
        *,
        instructions: str,
        history: Sequence[Entry],
        resumed: Sequence[Entry] = (),
        sent: Callable[[str], None] | None = None,
    ) -> None:
        self._choice = choice
        self._report = report
        self._toolbox = toolbox
        self._instructions = instructions
        self._history = list(history)
        self._resumed = [entry for entry in resumed if entry.get("type") != "usage"]
        self._said: list[str] = []
        self._sent = sent
        self.counted = 0
        """Tokens of the first request, as its model counted them."""
        self._step = 0
        self.entries: list[dict[str, Any]] = [dict(entry) for entry in self._resumed]
        """What was said and done in this trace, in order."""
        self.used = _used(resumed)
        for entry in self._resumed:
            if entry.get("type") == "message" and entry.get("role") == "assistant":
                self._said.append(said_by(entry))
        self._step = self.used.requests

    def tells(self) -> bool:
        """Whether what the model says goes to those who watch while it says it; a kind of dialogue may know better."""
        return True

    def tells_at_the_end(self) -> bool:
        """Whether a last text that was held back is told after all."""
        return True

    def run(self) -> Said | Failed | NeedsApproval:
        """Raises `Cancelled`."""
        pending = _unanswered(self._resumed)
        messages = as_messages(self._instructions, [*self._history, *_settled(self._resumed, pending)])
        if pending:
            from pydantic_ai.messages import ModelResponse, ToolCallPart

            if not isinstance(messages[-1], ModelResponse):
                messages.append(ModelResponse(parts=[]))
            last: Any = messages[-1]
            parts = [ToolCallPart(call.name, call.arguments, call.call_id) for call in pending]
            messages[-1] = dataclasses.replace(last, parts=[*last.parts, *parts])
        while True:
            if pending:
                stopped = self._make(pending, messages)
                if stopped is not None:
                    return stopped
            if (why := self.used.over(self._choice.limits)) is not None:
                return Failed("limit", why, self.text)
            try:
                step = self._ask(messages)
            except ModelFailed as error:
                return Failed(error.code, error.message, self.text)
            if not step.calls:
                if not step.text.strip() and not self.text.strip() and self.tells_at_the_end():
                    return Failed("model_error", "The model said nothing.")
                return Said(self.text, step.text)
            pending = step.calls
            messages.append(step.message)

    @property
    def text(self) -> str:
        return "".join(self._said)

    def _ask(self, messages: list[ModelMessage]) -> Step:
        self._step += 1
        told = self.tells()
        began = False

        def say(piece: str) -> None:
            nonlocal began
            if told:
                if not began and self._said and not self.text.endswith("\n"):
                    piece = BETWEEN + piece
                began = True
                self._said.append(piece)
                self._report.chunk(piece)

        try:
            step = ask_model(
                self._choice, messages, self._toolbox.definitions(), say=say, look=self._look, sent=self._sent
            )
            if self._sent is not None:
                self.counted = int(step.usage.get("input_tokens", 0))
            self._sent = None
        finally:
            self._report.flush()
        if not told and not step.calls and self.tells_at_the_end():
            self._said.append(step.text)
            self._report.chunk(step.text)
        step = self._with_own_ids(step)
        self.used.requests += 1
        self.used.tokens += int(step.usage.get("input_tokens", 0) + step.usage.get("output_tokens", 0))
        if step.text.strip() and step.calls:
            # The last text is the result's own; what comes before a call would be lost without an event.
            self._keep("message", {"role": "assistant", "parts": [{"text": step.text}], "step": self._step})
        elif step.text.strip():
            self.entries.append({"type": "message", "role": "assistant", "content": step.text})
        self._report.event("usage", {"requests": 1, **step.usage, "model": self._choice.model})
        if step.cut:
            self._report.log("The model's answer reached the limit of its length.", level="warning")
        return step

    def _look(self) -> None:
        self._report.flush()
        self._report.check()

    def _with_own_ids(self, step: Step) -> Step:
        """A call's id names it in this trace; some servers count from 1 in each answer, or give none."""
        renamed: dict[int, str] = {}
        for index, call in enumerate(step.calls):
            if not call.call_id or len(call.call_id) > 64 or call.call_id in self.used.call_ids:
                renamed[index] = f"call_{self._step}_{index + 1}"
            self.used.call_ids.add(renamed.get(index, call.call_id))
        if not renamed:
            return step
        from pydantic_ai.messages import ToolCallPart

        parts, index = [], 0
        for part in step.message.parts:
            if isinstance(part, ToolCallPart):
                part = dataclasses.replace(part, tool_call_id=renamed.get(index, part.tool_call_id))
                index += 1
            parts.append(part)
        calls = [dataclasses.replace(call, call_id=renamed.get(i, call.call_id)) for i, call in enumerate(step.calls)]
        return dataclasses.replace(step, calls=calls, message=dataclasses.replace(step.message, parts=parts))

    def _make(self, calls: Sequence[Call], messages: list[ModelMessage]) -> Failed | NeedsApproval | None:
        """Make the calls of one step and tell the model; or why the run ends here."""
        from pydantic_ai.messages import ModelRequest, ToolReturnPart

        for call in calls:
            self._keep(
                "tool_call",
                {"call_id": call.call_id, "name": call.name, "arguments": call.arguments, "step": self._step},
                span=call.call_id,
            )
        limit = self._choice.limits.tool_calls
        if limit and self.used.tool_calls + len(calls) > limit:
            return Failed("limit", f"The limit of {limit} tool calls is reached.", self.text)
        answers = self._toolbox.call(calls, self._report)
        if isinstance(answers, NeedsApproval):
            return answers
        self.used.tool_calls += len(calls)
        parts: list[Any] = []
        for call, answer in zip(calls, answers, strict=True):
            self._answered(call, answer)
            parts.append(ToolReturnPart(call.name, result_text(answer.result, answer.error), call.call_id))
        messages.append(ModelRequest(parts=parts))
        return None

    def _answered(self, call: Call, answer: Answered) -> None:
        result = answer.result
        if not isinstance(result, str) and len(dumps(storable(result))) > RESULT_BYTES:
            result = result_text(result)
        data = {
            "call_id": call.call_id,
            "name": call.name,
            "ok": answer.error is None,
            "result": result,
            "error": answer.error,
        }
        self._keep("tool_result", data, span=call.call_id)

    def _keep(self, kind: str, data: dict[str, Any], span: str | None = None) -> None:
        self.entries.append({"type": kind, **data})
        self._report.event(kind, data, span_id=span)


def _used(resumed: Sequence[Entry]) -> Used:
    used = Used()
    for entry in resumed:
        if entry.get("type") == "usage":
            used.requests += int(entry.get("requests") or 0)
            used.tokens += int((entry.get("input_tokens") or 0) + (entry.get("output_tokens") or 0))
        elif entry.get("type") == "tool_call":
            used.call_ids.add(str(entry["call_id"]))
        elif entry.get("type") == "tool_result":
            used.tool_calls += 1
    return used


def _unanswered(entries: Sequence[Entry]) -> list[Call]:
    """The calls that an earlier attempt recorded and got no result of: they are made now."""
    answered = {str(entry["call_id"]) for entry in entries if entry.get("type") == "tool_result"}
    calls: dict[str, Call] = {}
    for entry in entries:
        if entry.get("type") == "tool_call" and str(entry["call_id"]) not in answered:
            arguments = entry.get("arguments")
            known = dict(arguments) if isinstance(arguments, Mapping) else {}
            calls.setdefault(str(entry["call_id"]), Call(str(entry["call_id"]), str(entry["name"]), known))
    return list(calls.values())


def _settled(entries: Sequence[Entry], pending: Sequence[Call]) -> list[Entry]:
    waiting = {call.call_id for call in pending}
    return [e for e in entries if e.get("type") != "tool_call" or str(e["call_id"]) not in waiting]
