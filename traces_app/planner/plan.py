"""From the text of a request to a plan: deterministic, in English and Chinese, and honest about what it cannot do.

The text is cut into clauses; each has a verb at its head and an object. A verb that needs a model, that would run or
change something, or that needs the web vetoes the whole request: answering another question than the one that was
asked is worse than saying no.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from traces_app.planner.clauses import MARK, Clause, Request, negated, read_request
from traces_app.planner.goals import outline
from traces_app.planner.targets import NAME, Target, find_path, find_paths, names_a_file, read_target
from traces_app.planner.tasks import (
    Call,
    Facts,
    ListDirectory,
    ModuleReports,
    Overview,
    Plan,
    ReadFile,
    Refusal,
    Search,
    Task,
)
from traces_app.planner.verbs import END, START, Verb, Veto, read_verb
from traces_app.workspace.words import Language, language_of

MAX_TASKS = 8
MAX_MODULES = 12

_SLASH = re.compile(r"\s*[/／]tool(?:\s+(?P<name>[^\s{]+)\s*(?P<json>.*))?$", re.DOTALL)
_CHAT = re.compile(
    r"(?:你好|您好|谢谢|多谢|感谢|收到|明白|再见|辛苦)?(?:了|啊|呀|你|您)*$"
    r"|(?:hi|hello|hey|thanks|thank you|bye|goodbye|got it|cheers|welcome)(?: (?:there|you|all|everyone|a lot))*$",
    re.IGNORECASE,
)
_HELP = re.compile(
    rf"(?:你)?(?:能|会|可以)(?:帮我)?(?:做|干)?(?:些|点)?(?:什么|啥|哪些)|(?:有什么|有哪些)(?:功能|能力|工具|用法)|帮助|怎么用|help{END}"
    rf"|what (?:can|do) you do|what are you able to|what tools|how do i use you|(?:your )?capabilities{END}",
    re.IGNORECASE,
)
_LINES = re.compile(
    r"第?\s*(\d{1,7})\s*(?:行)?\s*(?:[-–~—至到]|to)\s*第?\s*(\d{1,7})\s*行|第\s*(\d{1,7})\s*行"
    r"|lines?\s+(\d{1,7})\s*(?:[-–~]|to|and|through)\s*(?:line\s+)?(\d{1,7})|line\s+(\d{1,7})|前\s*(\d{1,7})\s*行|first\s+(\d{1,7})\s+lines",
    re.IGNORECASE,
)
_SUFFIX_LINES = re.compile(r":(\d{1,7})(?:[-–](\d{1,7}))?$")
_WHERE = re.compile(
    rf"(?P<zh>{NAME}|{MARK})\s*(?:类|函数|方法|变量|这个类|这个函数)?\s*(?:是)?(?:在哪里?|在哪儿|在什么地方|在哪个文件)(?:里|中)?(?P<how>定义|声明|实现|使用|用到|调用|出现)?"
    rf"|{START}where (?:is|are|do we|does it) (?:the )?(?:(?P<kind>class|function|method|variable) )?(?P<en>{NAME}|{MARK})"
    r"(?: (?P<howen>defined|declared|implemented|used|called))?",
    re.IGNORECASE,
)
_LOCATION_ZH = re.compile(
    rf"在\s*(?P<path>{NAME}|{MARK}|[A-Za-z0-9_./-]+)\s*(?:目录|文件夹|模块|包|文件)?\s*(?:里面?|中|下面?|内|之中|上)?\s*(?:的?所有文件)?"
)
_LOCATION_EN = re.compile(
    rf"\s+(?:in|under|inside|within)\s+(?:the\s+)?(?:directory\s+|folder\s+|file\s+)?(?P<path>{MARK}|[A-Za-z0-9_.-]*[./][A-Za-z0-9_./-]*"
    rf"|{NAME}(?=\s+(?:directory|folder)))(?:\s+(?:directory|folder|file))?\s*$",
    re.IGNORECASE,
)
_EVERYWHERE = re.compile(
    r"^(?:一下)?(?:项目|代码|整个项目|源码|源代码|文件|仓库)(?:里面?|中|下)?(?:的)?(?:所有)?|(?:\s+(?:in|throughout|across)\s+(?:the\s+|all\s+(?:of\s+)?(?:the\s+)?)?"
    r"(?:whole\s+|entire\s+)?(?:project|code ?base|code|repo|repository|files|source))$",
    re.IGNORECASE,
)
_NAMES_ONLY = re.compile(
    rf"(?:the\s+)?(?:{NAME}|{MARK})(?:(?:\s*[、,，和与及]\s*|\s+and\s+)(?:{NAME}|{MARK}))*(?:\s+please|吧|呢)?",
    re.IGNORECASE,
)
_QUOTED_IN = re.compile(rf"(?P<query>{MARK})\s+(?:in|under)\s+(?:the\s+)?(?P<path>{NAME})", re.IGNORECASE)
_DEFINITION = re.compile(
    rf"^(?:所有)?(?P<kind>类|函数|方法|class|function|def|method)\s+(?P<name>{NAME}|{MARK})$|^(?P<zh>{NAME}|{MARK})\s*(?:这个)?(?P<kindzh>类|函数|方法)?的?(?:定义|声明|实现)$"
    rf"|^(?:the )?(?:definition|declaration) of (?:the )?(?:class |function )?(?P<of>{NAME}|{MARK})$",
    re.IGNORECASE,
)
_USES = re.compile(
    r"^(?:all |the )*(?:usages?|uses|occurrences|references|mentions|instances) (?:of|to) "
    r"|(?:的)(?:用法|使用|引用|调用|位置|所有|地方|出现)*$|^(?:使用|用到|调用|引用|包含|含有|出现)(?:了)?",
    re.IGNORECASE,
)
_WEB = re.compile(
    rf"网上|网页|互联网|网络上|百度|谷歌|必应|{START}(?:internet|web|online|google|bing|stack ?overflow){END}",
    re.IGNORECASE,
)


def plan(
    request_text: str,
    context: Mapping[str, Any] | None = None,
    language: Language | None = None,
    tools: Iterable[str] = (),
) -> Plan:
    """`context` is the session's (`focus_module` is read); `tools` are the names that `/tool` may call.

    Without `language` it is that of the text. The same input gives the same plan.
    """
    language = language or language_of(request_text)
    names = tuple(tools)
    used: Mapping[str, Any] = {}
    if slash := _SLASH.match(request_text):
        tasks, refusal = _slash(slash, names)
    else:
        tasks, refusal, used = _Reader(context or {}).read(request_text)
    if refusal is not None:
        return Plan(request_text, language, refusal=refusal, known_tools=names)
    return Plan(request_text, language, tasks, outline(request_text, tasks, language), used=used, known_tools=names)


def _slash(found: re.Match[str], names: tuple[str, ...]) -> tuple[tuple[Task, ...], Refusal | None]:
    name = found["name"]
    if not name:
        return (), Refusal("invalid", "no_such_tool", "")
    if name not in names:
        return (), Refusal("unknown_tool", "no_such_tool", name[:128])
    try:
        arguments = json.loads(found["json"].strip() or "{}", parse_constant=_no_constants)
    except (ValueError, RecursionError):
        return (), Refusal("invalid", "bad_json", name)
    if not isinstance(arguments, dict):
        return (), Refusal("invalid", "bad_json", name)
    return (Call(name, arguments),), None


def _no_constants(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


class _Reader:
    """Reads the clauses in order; a clause may mean the module that an earlier one named."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        focus = context.get("focus_module")
        self._context_focus = focus if isinstance(focus, str) and 0 < len(focus) <= 200 else None
        self._focus: str | None = None
        self._used: dict[str, Any] = {}
        self._tasks: list[Task] = []

    def read(self, text: str) -> tuple[tuple[Task, ...], Refusal | None, Mapping[str, Any]]:
        request = read_request(text)
        asked = [c for c in request.clauses if not negated(c)]
        wanted = [c for c in asked if c.text and not _CHAT.match(c.text)]
        if _HELP.match(text.strip()) or (not wanted and not self._affirmed(request)):
            return (), None, {}
        if not wanted:
            self._details_of_focus()
        for clause in wanted:
            refusal = self._clause(clause, request)
            if refusal is not None:
                return (), refusal, {}
        if self._tasks and any(c.detail and not c.text for c in asked):  # "…, in detail"
            self._tasks = [
                replace(task, full=True) if isinstance(task, ModuleReports) else task for task in self._tasks
            ]
        tasks = _merged(self._tasks)[:MAX_TASKS]
        return tasks, None, self._used

    def _affirmed(self, request: Request) -> bool:
        """A bare yes answers the offer of details; a bare 请, a greeting or thanks asks for nothing."""
        yes = any(c.courteous and not c.text for c in request.clauses)
        return yes and self._context_focus is not None and len(request.clauses) <= 2 and request.yes

    def _details_of_focus(self) -> None:
        focus = self._current_focus()
        if focus:
            self._tasks.append(ModuleReports((focus,), full=True))

    def _current_focus(self) -> str | None:
        if self._focus is None and self._context_focus is not None:
            self._focus = self._context_focus
            self._used["focus_module"] = self._context_focus
        return self._focus

    def _clause(self, clause: Clause, request: Request) -> Refusal | None:
        text = clause.text
        if _HELP.match(text):
            return None
        verb = read_verb(text)
        if isinstance(verb, Veto):
            return Refusal("unsupported", verb.reason, request.quoted(text)[:120])
        where = _WHERE.search(text)
        if where and (verb is None or verb.action in ("lookup", "search", "show")):
            return self._where(where, request)
        if verb is None:
            return self._bare(clause, request)
        if verb.action == "read":
            return self._read(verb, clause, request)
        if verb.action == "list":
            return self._list(verb, clause, request)
        if verb.action in ("search", "lookup"):
            return self._search(verb, clause, request)
        if verb.action == "show":
            return self._show(verb, clause, request)
        return self._analyse(verb.rest, clause, request)

    def _bare(self, clause: Clause, request: Request) -> Refusal | None:
        """No verb: a question about a topic (有循环依赖吗), the name of a module (core模块), or nothing that we know."""
        location = _LOCATION_ZH.match(clause.text)
        verb = read_verb(clause.text[location.end() :].lstrip()) if location else None
        if location and isinstance(verb, Verb) and verb.action in ("search", "lookup"):
            return self._search(verb, clause, request, request.quoted(location["path"]))
        target = read_target(clause.text, request)
        if target.names and not target.explicit and not target.topic and not _NAMES_ONLY.fullmatch(clause.text):
            return Refusal("unsupported", "not_understood", request.quoted(clause.text)[:120])
        known = target.names or target.topic or target.project or target.this
        plain = not target.residue and (target.topic or target.explicit or len(clause.text) <= 40)
        question = target.topic is not None and (target.project or target.names or target.this or not target.residue)
        if known and (plain or question):
            return self._target(target, clause, request)
        return Refusal("unsupported", "not_understood", request.quoted(clause.text)[:120])

    def _analyse(self, rest: str, clause: Clause, request: Request) -> Refusal | None:
        target = read_target(rest, request)
        if target.residue and not (target.project or target.names or target.this or target.topic):
            return Refusal("unsupported", "outside", request.quoted(clause.text)[:120])
        if len(target.names) == 1 and names_a_file(target.names[0]):
            # Not Python: it can be shown, not understood.
            self._tasks.append(ReadFile(target.names[0]))
            return None
        return self._target(target, clause, request)

    def _target(self, target: Target, clause: Clause, request: Request) -> Refusal | None:
        full = clause.detail or target.topic in ("structure", "cycles", "dependencies")
        if target.names:
            self._focus = target.names[-1]
            self._tasks.append(ModuleReports(target.names[:MAX_MODULES], full))
            return None
        topic = target.topic
        if target.this or (topic == "structure" and not target.project) or (target.empty and not topic):
            focus = self._current_focus()
            if focus:
                wants_facts = topic in ("entry_points", "tests", "problems")
                self._tasks.append(ModuleReports((focus,), full or wants_facts or target.empty))
                return None
        if topic in ("cycles", "dependencies", "entry_points", "tests", "problems"):
            self._tasks.append(Facts(topic))
            return None
        self._tasks.append(Overview(detail=full))
        return None

    def _read(self, verb: Verb, clause: Clause, request: Request) -> Refusal | None:
        rest = verb.rest
        path = find_path(rest, request)
        if path is None:
            after = re.search(
                r"(?:文件|[档檔]案|文档)\s*[:：]?\s*([^\s，。]+)|\bfile\s+(?:named\s+|called\s+)?(\S+)", rest
            )
            word = re.match(rf"\s*(?:the\s+)?({NAME})\s*(?:的内容|文件|file)?\s*$", rest, re.IGNORECASE)
            found = next((g for g in after.groups() if g), None) if after else (word[1] if word else None)
            path = re.sub(r"(?:的)?(?:全部|所有|完整)?(?:内容|文本|代码)$|吧$|给我$", "", found) if found else None
        if not path:
            target = read_target(rest, request)
            if target.explicit or target.project or target.topic:
                return self._target(target, clause, request)
            return Refusal("unsupported", "which_file", request.quoted(clause.text)[:120])
        several = find_paths(rest)
        for each in several if path in several else [path]:
            self._tasks.append(_read_task(each, rest))
        return None

    def _show(self, verb: Verb, clause: Clause, request: Request) -> Refusal | None:
        path = find_path(verb.rest, request)
        if path is not None and not read_target(verb.rest, request).topic and not path.endswith("/"):
            self._tasks.append(_read_task(path, verb.rest))
            return None
        if path is not None and re.search(r"目录|文件夹|director|folder|/$", verb.rest):
            self._tasks.append(ListDirectory(path))
            return None
        after = re.match(r"\s*(?:一下)?文件\s*[:：]?\s*([^\s，。]+)", verb.rest)
        if after and path is None:
            self._tasks.append(_read_task(re.sub(r"的?内容$", "", after[1]), verb.rest))
            return None
        return self._analyse(verb.rest, clause, request)

    def _list(self, verb: Verb, clause: Clause, request: Request) -> Refusal | None:
        rest = verb.rest
        target = read_target(rest, request)
        if target.topic == "structure" and re.search(rf"类|{START}classes{END}", rest):
            self._tasks.append(Search(r"^\s*class \w+", regex=True, glob="*.py"))
            return None
        if target.topic == "structure" and re.search(rf"函数|方法|{START}(?:functions|methods){END}", rest):
            self._tasks.append(Search(r"^\s*(async )?def \w+", regex=True, glob="*.py"))
            return None
        if target.topic and target.topic != "structure":
            return self._target(target, clause, request)
        path = find_path(rest, request)
        if path is None:
            named = re.search(
                rf"({NAME})\s*(?:目录|文件夹|下|里|中)|(?:目录|文件夹)\s*({NAME})|(?:in|of|under)\s+(?:the\s+)?({NAME})|({NAME})\s+(?:directory|folder)",
                rest,
            )
            path = next((g for g in named.groups() if g), None) if named else None
            if path and path.lower() in ("the", "this", "project", "current", "files", "directory", "root", "repo"):
                path = None
        if path is not None:
            self._tasks.append(ListDirectory(path))
            return None
        if len(target.names) == 1 and not target.residue and not target.explicit:
            self._tasks.append(ListDirectory(target.names[0]))
            return None
        if target.residue or target.names:
            return Refusal("unsupported", "outside", request.quoted(clause.text)[:120])
        self._tasks.append(ListDirectory("."))
        return None

    def _search(self, verb: Verb, clause: Clause, request: Request, path: str | None = None) -> Refusal | None:
        if _WEB.search(clause.text) and not re.search(MARK, verb.rest):
            return Refusal("unsupported", "web", request.quoted(clause.text)[:120])
        target = read_target(verb.rest, request)
        if target.topic in ("cycles", "entry_points", "problems") and not re.search(MARK, verb.rest):
            return self._target(target, clause, request)
        query = re.sub(
            r"^\s*(?:for\s+|一下|所有的?|全部的?|all\s+(?:the\s+)?|the\s+)*", "", verb.rest, flags=re.I
        ).strip()
        query = re.sub(r"(?:吧|吗|呢|给我看?|please)$", "", query.rstrip(" .。?？!！"), flags=re.IGNORECASE).strip()
        for pattern in (_LOCATION_ZH, _LOCATION_EN):
            found = pattern.match(query) if pattern is _LOCATION_ZH else pattern.search(query)
            if found and path is None:
                path = request.quoted(found["path"])
                query = (query[found.end() :] if pattern is _LOCATION_ZH else query[: found.start()]).strip()
                query = re.sub(r"^(?:搜索|查找|检索|找|的)+", "", query).strip()
        if path is None and (inside := _QUOTED_IN.fullmatch(query)):
            query, path = inside["query"], inside["path"]
        query = _EVERYWHERE.sub("", query).strip()
        regex = re.search(rf"正则|{START}(?:regex|regular expression|pattern){END}", query, re.IGNORECASE)
        if regex:
            query = (query[: regex.start()] + query[regex.end() :]).strip(" :：式表达")
        if definition := _DEFINITION.match(query):
            name = next(v for k, v in definition.groupdict().items() if v and k in ("name", "zh", "of"))
            return self._definition(request.quoted(name), path)
        query = _USES.sub("", query).strip(" :：")
        marks = re.findall(MARK, query)
        if verb.action == "lookup" and not marks and not re.fullmatch(rf"(?:class |def )?{NAME}(?:\(\))?", query):
            return self._analyse_or_outside(verb, clause, request)
        text = request.quoted(marks[0] if marks else query)
        if len(text) > 2 and text[0] == text[-1] == "/" and marks:
            text, regex = text[1:-1], re.match("", "")
        if not text:
            return Refusal("unsupported", "not_understood", request.quoted(clause.text)[:120])
        self._tasks.append(Search(text[:500], path or ".", regex=regex is not None))
        return None

    def _analyse_or_outside(self, verb: Verb, clause: Clause, request: Request) -> Refusal | None:
        """查询 and "find" are also what one says of the weather: only what is known of a project is looked up."""
        target = read_target(verb.rest, request)
        if target.residue or not (target.topic or target.explicit or target.project):
            return Refusal("unsupported", "outside", request.quoted(clause.text)[:120])
        return self._target(target, clause, request)

    def _where(self, found: re.Match[str], request: Request) -> Refusal | None:
        name = request.quoted(found["zh"] or found["en"])
        how = found["how"] or found["howen"] or ""
        if how in ("使用", "用到", "调用", "出现", "used", "called"):
            self._tasks.append(Search(name))
            return None
        return self._definition(name, None)

    def _definition(self, name: str, path: str | None) -> Refusal | None:
        pattern = rf"^\s*(class|def|async def)\s+{re.escape(name)}\b|^\s*{re.escape(name)}\s*[:=]"
        self._tasks.append(Search(pattern, path or ".", regex=True, glob="*.py"))
        return None


def _read_task(path: str, rest: str) -> ReadFile:
    first, last = 1, None
    if suffix := _SUFFIX_LINES.search(path):
        path = path[: suffix.start()]
        first, last = int(suffix[1]), int(suffix[2] or suffix[1])
    elif suffix := re.search(re.escape(path) + r":(\d{1,7})(?:[-–](\d{1,7}))?", rest):
        first, last = int(suffix[1]), int(suffix[2] or suffix[1])
    elif lines := _LINES.search(rest.replace(path, " ")):
        a, b, c, d, e, f, g, h = lines.groups()
        if a or d:
            first, last = int(a or d), int(b or e)
        elif c or f:
            first = last = int(c or f)
        else:
            last = int(g or h)
    return ReadFile(path, max(1, first), last)


def _merged(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Without repetitions; details of a module take the place of its summary."""
    kept: list[Task] = []
    for task in tasks:
        if isinstance(task, ModuleReports) and task.full:
            kept = [t for t in kept if not (isinstance(t, ModuleReports) and set(t.modules) <= set(task.modules))]
        covered = isinstance(task, ModuleReports) and any(
            isinstance(t, ModuleReports) and set(task.modules) <= set(t.modules) and t.full >= task.full for t in kept
        )
        if task not in kept and not covered:
            kept.append(task)
    return tuple(kept)
