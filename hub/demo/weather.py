"""The agents of the first seed: weather, activity and travel, without a model; and a script for the main agent's model.

They answer from a table, but only with what they need to know: the activity agent needs the weather, and a question about
boating at a place needs to know who brought that up. What they were not told they do not know.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from hub.demo.model_server import Answer
from traces_app.executors.contract import Completed, Report, Request

WEATHER = "北京今天晴，25-32℃，空气质量良"
ACTIVITY = "推荐：1.奥森跑步 2.颐和园划船 3.香山徒步"
TOMORROW = "明天多云转阴，22-28℃，建议上午去"
TRAVEL = "两天行程：第一天故宫，第二天颐和园"
LOST = "我不知道您指的是什么"

ASKED = ("帮我查询北京今天的天气", "推荐一个适合今天天气的户外活动", "如果去颐和园划船，明天天气怎么样，适合吗")
ANSWERED = (("agent_a", WEATHER), ("agent_b", ACTIVITY), ("agent_a", TOMORROW))


@dataclass(frozen=True, slots=True)
class Card:
    """How an agent of the demo is registered."""

    agent_id: str
    name: str
    description: str
    skills: list[dict[str, Any]]
    executor: str


CARDS = (
    Card(
        "agent_a",
        "天气查询智能体",
        "处理天气相关问题",
        [{"id": "weather", "tags": ["天气", "气温"]}],
        "python:hub.demo.weather:weather_agent",
    ),
    Card(
        "agent_b",
        "活动推荐智能体",
        "处理活动和出行推荐",
        [{"id": "activity", "tags": ["活动", "户外"], "needs": ["weather"]}],
        "python:hub.demo.weather:activity_agent",
    ),
    Card(
        "agent_c",
        "旅行规划智能体",
        "处理旅行行程规划",
        [{"id": "travel", "tags": ["旅行", "行程"]}],
        "python:hub.demo.weather:travel_agent",
    ),
)
MAIN = "main_agent"


def weather_agent(request: Request, report: Report) -> Completed:
    if "明天" not in request.task:
        return _say(WEATHER, report)
    known = "颐和园" not in request.task or any("颐和园" in text for text in _told(request))
    return _say(TOMORROW if known else LOST, report)


def activity_agent(request: Request, report: Report) -> Completed:
    return _say(ACTIVITY if any("晴" in text for text in _told(request)) else LOST, report)


def travel_agent(request: Request, report: Report) -> Completed:
    return _say(TRAVEL, report)


def _told(request: Request) -> list[str]:
    """What it was told now, and what it remembers of this session."""
    injected = (request.asked or {}).get("context_injections", [])
    return [item["content"] for item in injected] + [str(entry["content"]) for entry in request.history]


def _say(text: str, report: Report) -> Completed:
    for start in range(0, len(text), 6):
        report.chunk(text[start : start + 6])
    return Completed(text)


# The main agent's model, by the book: what the seed's model would answer to what it is really sent


_LISTED = re.compile(r"^- (msg-\S+) \[agent_b\]", re.MULTILINE)


def script(body: dict[str, Any]) -> Answer:
    """Answer as the first seed says: route by the question, name what matters by quotation (round 2) or by id (round 3)."""
    messages = body["messages"]
    last = messages[-1]
    if last["role"] == "tool":
        return Answer([f"{last['content']}。"])
    query = str(last["content"])
    if "推荐" in query:
        quoted = [m["content"] for m in messages if m["role"] == "tool" and "℃" in m["content"]]
        context = [{"source_agent": "agent_a", "content": text} for text in quoted[-1:]]
        return Answer([], [("call_agent_b_agent", {"query": query, "context_messages": context})])
    listed = _LISTED.findall(str(messages[0]["content"])) if "颐和园" in query else []
    arguments: dict[str, Any] = {"agent": "agent_a", "query": query}
    if listed:
        arguments["context_refs"] = listed[-1:]
    return Answer([], [("call_agent", json.dumps(arguments, ensure_ascii=False))])
