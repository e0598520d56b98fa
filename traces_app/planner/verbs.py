"""The verbs that decide: what can be done without a model, and what cannot and must say so.

A verb counts only at the head of a clause (or after its object with 把, 将, 对), never as a part of another word or of
an object: 分析师 is no request for an analysis, `fixture` none for a repair. Chinese letters are letters for `\\w` and
`\\b`, so neither is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Action = Literal["analyse", "read", "list", "search", "lookup", "show"]
Reason = Literal["model", "execute", "web"]

END = r"(?![A-Za-z0-9_'’-]|[./][A-Za-z0-9])"
START = r"(?<![A-Za-z0-9_./-])"

# --- Chinese: longer verbs before their beginnings; (?!…) keeps out nouns that begin the same way. ---
_CAN_ZH: dict[Action, str] = {
    "read": r"读取(?!器)|读一下|阅读(?!器)|读(?!者|音|书)",
    "list": r"列出来?|列举|列一下|列个?清单",
    "search": r"搜索(?!引擎)|搜一下|搜查|检索|查找|搜(?!索)",
    "lookup": r"找出来?|找一下|找到|寻找|查询|查一下|找|查(?!看|阅|验|验证|重|收)",
    "show": r"打开|查看|查阅|显示|展示|输出|看一下|看一看|看看|看下|看(?!法|来|好|待|起|上去|守|护)",
    "analyse": (
        r"分析(?!师|员|家|仪|器|法|学)|剖析|解析(?!器)|扫描(?!仪|件|枪)|检查(?!点|站|员)|梳理|研究(?!员|生|所|院|者)|了解"
        r"|概览|概述|概括|总结|介绍|说明(?!书|文)|讲解|讲讲|讲一下|解释(?!器)|描述|聚焦|关注(?!度|者)|深入|展开|统计|盘点"
        r"|说说|说一下|谈谈|详细说说?"
    ),
}
_CANNOT_ZH: dict[Reason, str] = {
    "model": (
        r"翻译成?|译成|译为|改写|重写|润色|改成|改为|修改|更新|替换|编辑|整理|重构|优化|改进|改善|完善|重新设计|拆分|合并|改(?!动)"
        r"|编写|撰写|写(?!法|的)|起草|草拟|实现|开发(?!者|环境)|创建|新建|新增|添加|增加|补充|生成(?!器)|制作|画|绘制"
        r"|修复|修好|修一下|解决|调试|推荐|建议|评价|评审|评估|审查|审核|审计|设计(?!模式|上|是|怎)|规划|对比|比较|预测|猜"
        r"|排查|诊断|计算|算一下|回答|告诉我(?:为什么|怎么|如何|为何)|想一下|帮我想"
    ),
    "execute": (
        r"运行(?!时)|执行(?!器|力|者|官)|启动|部署|安装|卸载|编译|构建|打包|发布|提交|推送|跑一下|跑|删除|删掉|删|移动|重命名"
        r"|复制|停止|重启|清理|清空|格式化|测试(?!有|文件|用例|覆盖|模块|数量|情况|在|是)|调用|执行一下"
    ),
    "web": r"下载|上传|抓取|爬取|访问|联网|上网|浏览(?!器)|发送|发邮件|通知|预订|预定|订|买|购买",
}
_LIGHT_ZH = r"(?:执行|进行|做|作|开展|来|运行|完成|给出|给)"
_MEASURE_ZH = r"(?:一下|一次|一遍|一个|个|一份|一些|一番)?"

# --- English ---
_CAN_EN: dict[Action, str] = {
    "read": r"read",
    "list": r"list|ls|enumerate",
    "search": r"search|grep|look for",
    "lookup": r"find|locate|look up|query",
    "show": r"show(?: me)?|open|view|display|print|see|cat",
    "analyse": (
        r"analy[sz]e|inspect|scan|examine|explore|describe|explain|summari[sz]e|outline|map|study|investigate"
        r"|focus(?: on)?|look (?:at|into|through)|dig into|go into|elaborate(?: on)?|walk me through|check|have a look at"
        r"|take a look at|tell me (?:more )?about|tell me|give me|detail"
    ),
}
_CANNOT_EN: dict[Reason, str] = {
    "model": (
        r"translate|rewrite|rephrase|paraphrase|proofread|polish|edit|modify|change|update|replace|convert|port|migrate"
        r"|refactor|restructure|reorgani[sz]e|optimi[sz]e|improve|simplify|extend|clean up|write|draft|compose|implement"
        r"|develop|create|add|generate|make|build|code|draw|design|fix|debug|solve|repair|patch|suggest|recommend"
        r"|propose|advise|review|audit|evaluate|assess|judge|rate|rank|compare|predict|guess|plan|decide|imagine|answer"
        r"|diagnose|calculate|compute|tell me (?:why|how to|what to)|document|comment|merge|split"
    ),
    "execute": (
        r"run|execute|start|stop|restart|launch|deploy|install|uninstall|compile|test|benchmark|commit|push|pull|delete"
        r"|remove|rename|move|copy|kill|format|invoke"
    ),
    "web": (
        r"download|upload|fetch|browse|visit|crawl|scrape|send|email|mail|notify|order|book|buy|google"
        r"|(?:search|browse|surf|look up on|check) (?:the |on the )?(?:web|internet|online)"
    ),
}
_LIGHT_EN = r"(?:do|perform|run|conduct|make|start|carry out|execute|give me|provide)"
_NOUNS_EN = (
    r"(?:analysis|scan|overview|summary|inspection|breakdown|outline|examination|description|walkthrough|report"
    r"|details?|more details?|list)"
)

# Anywhere in a clause: a question for reasons or advice needs a model, whatever the verb is.
_ADVICE = re.compile(
    r"为什么|为何|为啥|怎么(?:改|优化|修|做|办|写|用|实现)|如何(?:改|优化|修|提高|提升|避免|解决|重构|使用|编写)|应该怎|该不该"
    r"|(?:给出|给|提出|提供|写出|有什么|有哪些)[^，。]{0,12}?(?:建议|意见|方案|改进|优化|补丁|测试用例|文档)"
    rf"|{START}why{END}|{START}how (?:to|can|could|should|do|would) (?:i|we|you|one|improve|fix|refactor|use|make){END}"
    rf"|{START}should (?:i|we|it|they|this){END}"
    rf"|{START}(?:suggestions?|recommendations?|advice|improvements?) (?:for|on|about|to){END}",
    re.IGNORECASE,
)
_OBJECT_FIRST_ZH = r"(?:把|将|將)(?P<object>.{1,120}?)"
_ABOUT_ZH = rf"(?:对|對|针对|就|给|为|關於|关于)(?P<object>.{{1,120}}?){_LIGHT_ZH}{_MEASURE_ZH}"
_ABOUT_ZH += r"(?:(?:详细|深入|全面|简单|完整)地?的?){0,3}"


@dataclass(frozen=True, slots=True)
class Verb:
    """What a clause asks for, and what is left of it: the object. `word` is as it was written."""

    action: Action
    word: str
    rest: str


@dataclass(frozen=True, slots=True)
class Veto:
    """What cannot be done, and the words that ask for it."""

    reason: Reason
    word: str


def _alternatives(verbs: dict[Action, str] | dict[Reason, str]) -> str:
    """One group per meaning, the longest written verb winning: the alternatives are tried by length."""
    pairs = [(name, verb) for name, text in verbs.items() for verb in _split(text)]
    pairs.sort(key=lambda pair: -len(re.sub(r"\(\?.*?\)", "", pair[1])))
    return "|".join(f"(?P<{name}_{index}>{verb})" for index, (name, verb) in enumerate(pairs))


def _split(text: str) -> list[str]:
    """Top-level alternatives of a pattern."""
    found, depth, start = [], 0, 0
    for index, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "|" and not depth:
            found.append(text[start:index])
            start = index + 1
    return [*found, text[start:]]


_CAN_HEAD_ZH = re.compile(_alternatives(_CAN_ZH))
_CANNOT_HEAD_ZH = re.compile(_alternatives(_CANNOT_ZH))
_CAN_HEAD_EN = re.compile(f"(?:{_alternatives(_CAN_EN)}){END}", re.IGNORECASE)
_CANNOT_HEAD_EN = re.compile(f"(?:{_alternatives(_CANNOT_EN)}){END}", re.IGNORECASE)
_HEADS = ((_CANNOT_HEAD_ZH, False), (_CAN_HEAD_ZH, True), (_CANNOT_HEAD_EN, False), (_CAN_HEAD_EN, True))
_NOT_OF = "(?!的)"  # 负责翻译的模块: a verb that belongs to a noun
_OBJECT_FIRST = re.compile(f"{_OBJECT_FIRST_ZH}(?:{_alternatives(_CANNOT_ZH)}){_NOT_OF}")
_OBJECT_FIRST_CAN = re.compile(f"{_OBJECT_FIRST_ZH}(?:{_alternatives(_CAN_ZH)}){_NOT_OF}")
_ABOUT = re.compile(f"{_ABOUT_ZH}(?:{_alternatives(_CANNOT_ZH)}){_NOT_OF}")
_ABOUT_CAN = re.compile(f"{_ABOUT_ZH}(?:{_alternatives(_CAN_ZH)}){_NOT_OF}")
_GIVE = re.compile(rf"(?:给|为|替)(?P<object>.{{1,60}}?)(?:{_alternatives(_CANNOT_ZH)}){_NOT_OF}")
_LIGHT_HEAD_ZH = re.compile(
    rf"{_LIGHT_ZH}{_MEASURE_ZH}(?P<object>[^，。]{{0,60}}?)(?:的)?"
    r"(?P<noun>分析|扫描|检查|梳理|概览|概述|总结|统计|搜索|说明|介绍)(?:任务|工作|报告|结果)?(?P<tail>.*)$"
)
_LIGHT_HEAD_EN = re.compile(
    rf"{_LIGHT_EN} (?:an? |the |some |another |your )?(?P<before>(?:[A-Za-z_-]+ ){{0,3}}?){_NOUNS_EN}{END}"
    r"(?: (?:of|on|about|for|over|in))?(?P<object>.*)$",
    re.IGNORECASE,
)
VERB_AHEAD_ZH = re.compile(
    f"{_alternatives(_CANNOT_ZH)}|{_CAN_HEAD_ZH.pattern.replace('(?P<', '(?P<can_')}|把|将|对(?!比|应)"
)
VERB_AHEAD_EN = re.compile(
    f"(?:{_alternatives(_CANNOT_EN)}|{_alternatives(_CAN_EN).replace('(?P<', '(?P<can_')}){END}", re.IGNORECASE
)


def read_verb(clause: str) -> Verb | Veto | None:
    """The request of a clause that begins with it (courtesies are gone already). None: it has no known verb."""
    light = _light(clause)
    if advice := _ADVICE.search(clause):
        return Veto("model", advice[0])
    if light is not None:
        return light
    for pattern in (_OBJECT_FIRST, _ABOUT, _GIVE):
        if found := pattern.match(clause):
            return Veto(_meaning(found), clause[: found.end()])  # type: ignore[arg-type]
    for pattern in (_OBJECT_FIRST_CAN, _ABOUT_CAN):
        if found := pattern.match(clause):
            return Verb(_meaning(found), found[0], found["object"] + " " + clause[found.end() :])  # type: ignore[arg-type]
    # Of two verbs that fit the longer one is meant: 查看 is not 查, "search the web" not "search".
    heads = [(head, can) for pattern, can in _HEADS if (head := pattern.match(clause))]
    if not heads:
        return None
    head, can = max(heads, key=lambda pair: (pair[0].end(), not pair[1]))
    if can:
        return Verb(_meaning(head), head[0], clause[head.end() :])  # type: ignore[arg-type]
    return Veto(_meaning(head), clause[: head.end() + 12].strip())  # type: ignore[arg-type]


def _light(clause: str) -> Verb | None:
    """执行一次分析, "run a scan of core": the noun is what is asked for."""
    if (found := _LIGHT_HEAD_ZH.match(clause)) and not VERB_AHEAD_ZH.match(found["object"]):
        action: Action = "search" if found["noun"] == "搜索" else "analyse"
        return Verb(action, found[0], f"{found['object']} {found['tail']}")
    if found := _LIGHT_HEAD_EN.match(clause):
        return Verb("analyse", found[0], f"{found['before'] or ''} {found['object']}")
    return None


def _meaning(found: re.Match[str]) -> str:
    """The name of the alternative that matched, without its number."""
    return next(
        name.rpartition("_")[0]
        for name, text in found.groupdict().items()
        if text is not None and name.rpartition("_")[2].isdigit()
    )
