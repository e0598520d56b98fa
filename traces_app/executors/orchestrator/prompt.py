"""What a main agent's model is told of its part: the first seed's prompt in both languages, with the session's agents."""

from __future__ import annotations

from collections.abc import Sequence

from sessions_app.context import fences
from sessions_app.context.choosing import Choice
from traces_app.executors.orchestrator.callees import Callee

HEAD_CHARACTERS = 160

_ZH = """你是一个智能路由助手，负责将用户的问题分发给合适的子智能体处理。

## 可用工具
{tools}

## 工作规则
1. 根据用户意图，判断应该调用哪个智能体工具
2. 判断之前的对话历史中，哪些子智能体的回复对当前问题有参考价值
3. 如果有相关的历史信息，将对应的消息编号放入 context_refs（或按时间顺序将来源和原文放入 context_messages）
4. 每条 context_message 需要标注来源智能体名称和原始内容

## 注意事项
- 只传递与当前问题相关的历史信息，不要传无关内容
- context_messages 按时间顺序排列
- 用户的原始问题通过 query 参数传递，不要混入 context_messages"""

_EN = """You route: you hand the user's questions to the sub-agents that fit.

## Tools
{tools}

## Rules
1. From what the user wants, decide which agent's tool to call; several at once when the question is for several
2. Decide which earlier replies of other agents matter for this question
3. Put the ids of those messages into context_refs (or source and exact text, in order of time, into context_messages)
4. Each context_message names its source agent and quotes it exactly

## Mind
- Pass on only what matters for the question
- Keep context_messages in order of time
- The user's own question goes into query, never into context_messages"""


def instructions(callees: Sequence[Callee], passable: Sequence[Choice], *, chinese: bool, own: str = "") -> str:
    """The system message; `passable` are the replies that may be named in `context_refs`."""
    tools = "\n".join(f"- {callee.tool}: {callee.name}{'，' if chinese else ', '}{callee.about}" for callee in callees)
    text = (_ZH if chinese else _EN).format(tools=tools or "-")
    if passable:
        text += "\n\n## " + ("可引用的消息（context_refs）" if chinese else "Messages for context_refs") + "\n"
        text += "\n".join(_line(choice) for choice in passable)
    if own:
        text += "\n\n" + own
    return f"{text}\n\n{fences.NOTE}"


def _line(choice: Choice) -> str:
    """One message on one line: nothing in it can stand as a rule of its own."""
    head = " ".join(fences.neutral(choice.content).split())
    head = head if len(head) <= HEAD_CHARACTERS else head[: HEAD_CHARACTERS - 1] + "…"
    return f"- {choice.message_id} [{choice.source_agent}] (round {choice.round}): {head!r}"
