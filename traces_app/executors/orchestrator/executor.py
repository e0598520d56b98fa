"""A main agent's run: whom it calls with what, by its model or by rule, and how the round ends.

One called agent: its answer is the round's message, from that agent. Several: each is stored from its agent, then one
merged message from the main agent. Its own history is user → tool call → tool → assistant either way.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sessions_app.context import choosing, deliveries, turns
from sessions_app.context.deliveries import Reply
from sessions_app.context.histories import ASSISTANT, TOOL, NewEntry
from sessions_app.models import Delivery, HistoryEntry
from sessions_app.protocol.errors import NotFound
from traces_app.asking import question_of
from traces_app.calls import Caller, CallResult, Wanted
from traces_app.executors.contract import Cancelled, Completed, Failed, NeedsApproval, Outcome, Report, Request
from traces_app.executors.llm.choice import NoModel, choose, is_configured
from traces_app.executors.llm.dialogue import Dialogue, Said
from traces_app.executors.llm.executor import give_up, injected, sent_bytes
from traces_app.executors.llm.transcript import said_by
from traces_app.executors.orchestrator import prompt
from traces_app.executors.orchestrator.agenttools import AgentTools
from traces_app.executors.orchestrator.callees import Callee, answered_last, callees_of, route
from traces_app.models import Trace
from traces_app.results import is_chinese

PASSABLE = 30
CALL_ID = 12


class OrchestratorExecutor:
    def run(self, request: Request, report: Report) -> Outcome:
        trace = Trace.objects.select_related("agent").get(public_id=request.trace_id)
        try:
            # What it passes on, it knows by its calls: nothing is injected into its own talk.
            delivery = deliveries.prepare(replace(question_of(trace), refs=(), search=False))
        except NotFound:
            return Failed("not_found", "The orchestrator takes no part in this session.")
        callees = callees_of(trace.session_id, trace.agent_id, trace.requested_by_id)
        caller = Caller(trace, request.attempt, report, _run_trace())
        report.event("context", injected(delivery))
        try:
            if is_configured(request.config):
                outcome = _by_model(request, report, trace, delivery, caller, callees)
            else:
                outcome = _by_rule(request, report, trace, delivery, caller, callees)
        except Cancelled:
            give_up(delivery, "cancelled")
            raise
        if isinstance(outcome, Failed):
            give_up(delivery, outcome.code)
        return outcome


def _run_trace() -> Callable[[int], bool]:
    from traces_app.runner import run_trace  # which finds executors, this one too

    return run_trace


# With a model


class _MainDialogue(Dialogue):
    """Its own words are the round's message only when not exactly one agent has answered."""

    tools: AgentTools

    def tells(self) -> bool:
        return len(self.tools.results) > 1

    def tells_at_the_end(self) -> bool:
        return len(self.tools.results) != 1


def _by_model(
    request: Request,
    report: Report,
    trace: Trace,
    delivery: Delivery,
    caller: Caller,
    callees: Sequence[Callee],
) -> Outcome:
    try:
        choice = choose(request.config)
    except NoModel as error:
        return Failed("no_model", str(error))
    caller.remember()
    tools = AgentTools(trace, caller, callees)
    reader = choosing.reader_of(trace.session_id, trace.agent_id, trace.message_key)
    passable = choosing.candidates(reader, through=trace.message_sequence, most=PASSABLE)
    own = request.config.get("instructions")
    dialogue = _MainDialogue(
        choice,
        report,
        tools,
        instructions=prompt.instructions(
            callees, passable, chinese=is_chinese(request.task), own=own if isinstance(own, str) else ""
        ),
        history=_history(request, delivery),
        resumed=request.resumed,
        sent=functools.partial(deliveries.record_sent, delivery),
    )
    dialogue.tools = tools
    ended = dialogue.run()
    if isinstance(ended, NeedsApproval):  # calls of agents want no leave
        return ended
    entries = _entries(dialogue.entries)
    if isinstance(ended, Said):
        # With one answer the model's last words are for itself.
        text = ended.last if len(tools.results) == 1 else ended.text
        return _finished(delivery, tools.results, entries, text, dialogue.counted)
    if ended.said or not tools.results:
        return ended
    report.log(f"The model failed after its agents had answered: {ended.code}", level="warning")
    return _finished(delivery, tools.results, entries, None, dialogue.counted)


# By rule


def _by_rule(
    request: Request,
    report: Report,
    trace: Trace,
    delivery: Delivery,
    caller: Caller,
    callees: Sequence[Callee],
) -> Outcome:
    last = answered_last(trace.session_id, callees, trace.message_sequence)
    chosen = route(request.task, callees, last)
    if not chosen:
        text = _nobody(request.task, callees)
        report.chunk(text)
        return _finished(delivery, [], [], text)
    calls = [(f"call_{secrets.token_hex(CALL_ID)}", callee) for callee in chosen]
    kept: list[dict[str, Any]] = []
    for call_id, callee in calls:
        report.tool_call(call_id, callee.tool, {"query": request.task})
        kept.append(
            {"type": "tool_call", "call_id": call_id, "name": callee.tool, "arguments": {"query": request.task}}
        )
    asking = {"refs": list(trace.asking.get("refs", ())), "search": True, "through": trace.message_sequence}
    results = caller.call([Wanted(c.agent_pk, c.agent_id, c.runner, request.task, asking) for c in chosen])
    for (call_id, callee), result in zip(calls, results, strict=True):
        report.tool_result(call_id, callee.tool, result.text, error=result.error)
        said = {"ok": result.error is None, "result": result.text, "error": result.error}
        kept.append({"type": "tool_result", "call_id": call_id, "name": callee.tool, **said})
    if len(results) > 1:
        report.chunk(merged(results))
    return _finished(delivery, results, _entries(kept), None)


def _nobody(task: str, callees: Sequence[Callee]) -> str:
    if is_chinese(task):
        able = "\n".join(f"- {callee.name}：{callee.about}".rstrip("：") for callee in callees)
        return f"这里没有合适的智能体。可以提问的有：\n{able}" if able else "这个会话里现在没有可以调用的智能体。"
    able = "\n".join(f"- {callee.name}: {callee.about}".rstrip(": ") for callee in callees)
    return f"No agent here fits this. You can ask:\n{able}" if able else "No agent of this session can be called now."


# Either way


def merged(results: Sequence[CallResult]) -> str:
    """Several answers as one text, without a model: each under its agent's name."""
    return "\n\n".join(f"[{result.agent_id}] {_told(result)}" for result in results)


def _told(result: CallResult) -> str:
    if result.error is None:
        return result.text or ""
    failure = f"({result.error['code']}: {result.error['message']})"
    return f"{result.text} {failure}" if result.text else failure


def _finished(
    delivery: Delivery, results: Sequence[CallResult], entries: Sequence[NewEntry], text: str | None, counted: int = 0
) -> Outcome:
    """The round's end: what the only called agent said, or how it failed; else the main agent's own text."""
    if len(results) != 1 or results[0].posted:
        own = text if text is not None else merged(results)
        return Completed(own, settle=_settled(delivery, entries, own, counted))
    only = results[0]
    if only.error is not None:
        return Failed(only.error["code"], only.error["message"], relay=True)
    answer = only.text or ""
    return Completed(answer, settle=_settled(delivery, entries, text or answer, counted), relay=True)


def _settled(
    delivery: Delivery, entries: Sequence[NewEntry], text: str, counted: int
) -> Callable[[int | None], object]:
    size = sent_bytes(delivery) if counted else 0
    return lambda key: deliveries.delivered(
        delivery, Reply(content=text, message_key=key, entries=entries, usage_bytes=size, usage_tokens=counted)
    )


def _entries(kept: Sequence[dict[str, Any]]) -> list[NewEntry]:
    """A run's calls and results as entries of the main agent's own history; each once, however often it was begun."""
    found: list[NewEntry] = []
    seen: set[tuple[str, str]] = set()
    answered = {entry["call_id"] for entry in kept if entry["type"] == "tool_result"}
    for entry in kept:
        kind, call_id = entry["type"], str(entry.get("call_id", ""))
        if kind == "message" or (kind, call_id) in seen or call_id not in answered:
            continue
        seen.add((kind, call_id))
        if kind == "tool_call":
            data = {"call_id": call_id, "name": entry["name"], "arguments": entry["arguments"]}
            found.append(NewEntry(HistoryEntry.TOOL_CALL, ASSISTANT, "", data=data))
        else:
            data = {"call_id": call_id, "name": entry["name"], "ok": entry["ok"]}
            text = entry["result"] if entry["ok"] else str((entry["error"] or {}).get("message", ""))
            found.append(NewEntry(HistoryEntry.TOOL_RESULT, TOOL, str(text), data=data))
    return found


def _history(request: Request, delivery: Delivery) -> list[dict[str, Any]]:
    """Its own history in the form of events, with the question last."""
    told: list[dict[str, Any]] = []
    for turn in turns.model_turns(delivery, mode=str(request.config.get("history", "tiered"))):
        data = turn.data or {}
        if turn.kind == HistoryEntry.TOOL_CALL:
            told.append({"type": "tool_call", **data})
        elif turn.kind == HistoryEntry.TOOL_RESULT:
            told.append({"type": "tool_result", **data, "result": turn.content})
        else:
            told.append({"type": "message", "role": turn.role, "content": turn.content})
    return [entry for entry in told if entry["type"] != "message" or said_by(entry)]
