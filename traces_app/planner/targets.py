"""What the object of a clause names: the project, modules, a topic, a path, or something that is none of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from traces_app.planner.clauses import MARK, Request
from traces_app.planner.verbs import END, START
from traces_app.workspace.project import LANGUAGES

_OTHER_EXTENSIONS = frozenset({"txt", "cfg", "ini", "lock", "env", "log", "csv", "conf", "properties", "gradle", "in"})
Topic = Literal["cycles", "dependencies", "entry_points", "tests", "problems", "modules", "structure"]

NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:[./-][A-Za-z0-9_]+)*"
_ITEM = rf"(?:{NAME}|{MARK})"
_AND = r"(?:\s*[、,，]\s*|\s*(?:和|与|及|以及)\s*|\s+and\s+)"
_MODULE_ZH = r"(?:子?模块|子?包(?!括|含)|组件|子系统|应用(?!程序))"
_MODULE_EN = r"(?:sub)?(?:modules?|packages?|components?)"

_NAMED_ZH = re.compile(rf"({_ITEM}(?:{_AND}{_ITEM})*)\s*(?:这个|那个|这些|两个|几个|等)?\s*{_MODULE_ZH}")
_NAMED_AFTER_ZH = re.compile(rf"(?:模块|包)\s*[:：]?\s*({_ITEM}(?:{_AND}{_ITEM})*)")
_NAMED_EN = re.compile(rf"({_ITEM}(?:{_AND}{_ITEM})*)\s+{_MODULE_EN}{END}", re.IGNORECASE)
_NAMED_AFTER_EN = re.compile(
    rf"{START}{_MODULE_EN}\s+(?:called\s+|named\s+)?({_ITEM}(?:{_AND}{_ITEM})*)", re.IGNORECASE
)
_CHINESE_NAME = re.compile(r"([一-鿿]{1,12}?)(?:模块|子模块)")
_PATH = re.compile(
    r"(?:~|\.{1,2})?/?[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]*(?:/[A-Za-z0-9_.@+-]*)+|\.{1,2}(?:/[A-Za-z0-9_.@+-]*)+|/[A-Za-z0-9_.@+/-]+"
    r"|[A-Za-z]:[\\/][^\s]*|[^\s、，,]*\\[^\s]*"
    r"|[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]*\.[A-Za-z][A-Za-z0-9]{0,9}(?![A-Za-z0-9_(])|\.[A-Za-z][A-Za-z0-9_.-]{2,40}"
    r"|(?<![A-Za-z0-9_])(?:README|LICENSE|Makefile|Dockerfile|CHANGELOG|Procfile|Jenkinsfile)(?![A-Za-z0-9_])"
)

_TOPIC_PATTERNS: tuple[tuple[Topic, str], ...] = (
    (
        "cycles",
        r"循环(?:依赖|导入|引用|import)|(?:依赖|导入)(?:的)?(?:循环|环)|相互导入|互相(?:导入|依赖)"
        rf"|{START}(?:circular|cyclic|mutual) (?:imports?|dependenc(?:y|ies)){END}|{START}(?:import|dependency) cycles?{END}"
        rf"|{START}cycles{END}",
    ),
    ("problems", rf"语法错误|解析(?:失败|错误)|{START}(?:syntax|parse) errors?{END}"),
    (
        "dependencies",
        r"第三方(?:依赖|库|包)?|外部(?:依赖|库)|依赖(?:的)?(?:库|包|项|列表)|哪些依赖|依赖(?:有)?哪些"
        rf"|{START}(?:third[- ]party|external)(?: (?:dependenc(?:y|ies)|packages|libraries))?{END}"
        rf"|{START}dependenc(?:y|ies){END}",
    ),
    ("entry_points", rf"入口(?:点|文件)?|启动点|{START}(?:entry ?-?points?|main programs?|scripts){END}"),
    ("tests", rf"测试(?:用例|文件|代码|模块)?|{START}(?:unit )?tests{END}"),
    (
        "modules",
        r"(?:核心|主要|重要|关键)的?(?:子?模块|包)|(?:哪些|几个|多少个?|所有的?|全部的?|各个?|每个|主要的?|有什么)(?:的)?(?:子?模块|包)|模块(?:列表|有哪些|划分|有什么)"
        rf"|{START}(?:which|what|how many|all|every|each|main|any)(?: the)?(?: (?:main|python|of the|different))?"
        rf" (?:modules|packages){END}"
        rf"|{START}modules{END}",
    ),
    (
        "structure",
        r"架构|结构|设计|关键组件|核心组件|组件|依赖关系|依赖|导入|关键|类|函数|方法|实现|概况|概貌|整体情况"
        rf"|{START}(?:architecture|structured?|organi[sz]ed|design|layout|components?|classes|functions|methods|imports|organi[sz]ation"
        rf"|details?|it works?|works?){END}",
    ),
)
_TOPICS = tuple((topic, re.compile(pattern, re.IGNORECASE)) for topic, pattern in _TOPIC_PATTERNS)
_PROJECT = re.compile(
    r"(?:本地|当前|整个|这个|该|本|此|我的|我们的?)?(?:的)?(?:项目|工程|代码仓?库|仓库|源代码|源码|代码|工作区|文件夹|目录)|本地|整体|全部|所有"
    rf"|{START}(?:projects?|repo|repository|code ?base|source(?: code)?|code|workspace|directory|folder|everything){END}",
    re.IGNORECASE,
)
_THIS = re.compile(
    rf"(?:这个|该|此|上述|刚才的?|前面的?|那个)(?:子?模块|包)|它|其(?!他|它|余)"
    rf"|{START}(?:it|its|this|that|the) (?:module|package){END}|{START}(?:it|its){END}",
    re.IGNORECASE,
)
_FILLER_ZH = re.compile(
    r"一下子?|一遍|一次|一个|这个|这些|那个|那些|哪些|哪个|哪里|什么|怎么样|怎样|如何|多少|几个|有没有|是不是|是否|我们|咱们|你们|它们|他们"
    r"|里面|其中|上面|下面|关于|对于|针对|使用|当前|现在|目前|情况|更多|详细|深入|重点|具体|全面|完整|主要|重要|核心|简单|信息|内容|细节|详情"
    r"|概要|概览|分析|说明|介绍|报告|总结|作用|功能|用途|逻辑|原理|部分|以及|还有|之间|关系|模块|子模块|包|文件|语言|大小|行数|各自|各个|分别"
    r"|告诉|知道|存在|包含|包括|组成|工作|请|谢谢|[一下的地得吧呢吗嘛啊呀了和与及、我你您他它这那该此其本里中内有是个些为到出来给做用看说在上就都也还再并又要想让把被对或么本各每多全]"
)
_FILLER_WORDS_EN = """
a an the this that these those its it his her their my our your some any all each every whole entire of on in at to for
from with by about into over and or as is are was be been being do does did has have had there here what which who
where when how many much me us you we i please local current main key core-level more detail details detailed depth
full overview summary analysis report python python3 module modules package packages component components file files
project projects repo repository codebase code base source workspace directory folder app application everything
architecture structure design layout class classes function functions method methods import imports dependency
dependencies organisation organization works work look looks like between one's up out down inside used use uses using
between them both whether if also too now again built made up list show tell main exist exists contains contain
just only really thoroughly carefully briefly quickly deeply top most important
"""
_FILLER_EN = frozenset(_FILLER_WORDS_EN.split())
_WORD = re.compile(rf"{NAME}|{MARK}")


@dataclass(frozen=True, slots=True)
class Target:
    """`names`: modules as written. `explicit`: the text says that they are modules, so other words do not matter.

    `residue`: words that fit nothing known; a clause with residue and without a name or project is about something else.
    """

    names: tuple[str, ...]
    explicit: bool
    project: bool
    this: bool
    topic: Topic | None
    residue: str

    @property
    def empty(self) -> bool:
        return not (self.names or self.project or self.this or self.topic or self.residue)


def read_target(text: str, request: Request) -> Target:
    topic = next((name for name, pattern in _TOPICS if pattern.search(text)), None)
    this = _THIS.search(text) is not None
    named = _explicit_names(text)
    project = _PROJECT.search(text) is not None
    if named:
        return Target(tuple(request.quoted(n) for n in named), True, project, this, topic, "")
    rest = text
    for _, pattern in _TOPICS:
        rest = pattern.sub(" ", rest)
    rest = _PROJECT.sub(" ", _THIS.sub(" ", rest))
    words = [w for w in _WORD.findall(rest) if re.match(MARK, w) or w.lower() not in _FILLER_EN]
    rest = _FILLER_ZH.sub("", _WORD.sub(" ", rest))
    residue = "".join(re.findall(r"[一-鿿㐀-䶿]+", rest))
    chinese = _CHINESE_NAME.search(text)
    if chinese and not words and residue and residue in chinese[1]:
        # 核心模块: it says that this is a module, so the scan shall say that there is none of that name.
        name = re.sub(r"^(?:一下子?|一遍|这个|那个|我们的?|项目的?|里面?的?|的|下)+", "", chinese[1])
        return Target((name or residue,), True, project, this, topic, "")
    quoted = any(re.match(MARK, w) for w in words)
    paths = [w for w in words if "/" in w or w.endswith(".py")]
    if (quoted or paths) and not residue:
        chosen = [w for w in words if re.match(MARK, w) or w in paths]
        return Target(tuple(request.quoted(w) for w in chosen), True, project, this, topic, "")
    if residue or len(words) > 3:
        return Target((), False, project, this, topic, residue or " ".join(words))
    if project:
        # "analyse the project budget": the project is meant; names count only where they are said to be modules.
        return Target((), False, True, this, topic, " ".join(words))
    return Target(tuple(words), False, False, this, topic, "")


def _explicit_names(text: str) -> list[str]:
    for pattern in (_NAMED_ZH, _NAMED_EN, _NAMED_AFTER_ZH, _NAMED_AFTER_EN):
        for found in pattern.finditer(text):
            names = [n for n in re.split(_AND, found[1]) if n and (re.match(MARK, n) or n.lower() not in _FILLER_EN)]
            if names:
                return [n.rstrip(".") for n in names]
    return []


def find_path(text: str, request: Request) -> str | None:
    """The first thing that is written like a path or quoted, as it stands."""
    mark = re.search(MARK, text)
    path = _PATH.search(text)
    if mark and (path is None or mark.start() < path.start()):
        return request.quoted(mark[0])
    return path[0].rstrip(".") or path[0] if path else None


def find_paths(text: str) -> list[str]:
    """All that is written like a path, in order."""
    return list(dict.fromkeys(path.rstrip(".") or path for path in _PATH.findall(text)))


def names_a_file(name: str) -> bool:
    """A file that is no Python module, by its extension: `core.app` is a module, `package.json` is none."""
    extension = name.rpartition("/")[2].rpartition(".")[2].lower()
    return "." in name and extension != "py" and (extension in LANGUAGES or extension in _OTHER_EXTENSIONS)
