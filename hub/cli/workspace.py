"""The agent that knows a project: what it answers to whom. Reads inside its root only, and runs nothing."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from traces_app.workspace import report
from traces_app.workspace.budget import Budget
from traces_app.workspace.errors import NotFound, WorkspaceError
from traces_app.workspace.files import list_directory, read_file, search_files
from traces_app.workspace.project import Part, Project
from traces_app.workspace.python_project import scan
from traces_app.workspace.roots import Roots
from traces_app.workspace.words import Language, language_of

SECONDS = 60.0
FRESH_SECONDS = 5.0
TALKS = 1000
SHOWN_LINES = 200
COURTESIES = 3  # answered in a row: two agents must not thank each other for ever
SMALL_CHARACTERS = 100

# ASCII on purpose: with Unicode letters "core模块" would be one word.
_NAME = r"[A-Za-z_][A-Za-z0-9_./-]*"
_BEFORE_MODULE = re.compile(rf"({_NAME})\s*(?:模块|包|\bmodule\b|\bpackage\b)", re.ASCII)
_NAMED = (
    re.compile(rf"[`「“\"']({_NAME})[`」”\"']"),
    _BEFORE_MODULE,
    re.compile(rf"(?:模块|\bmodule\b|\bpackage\b)\s*({_NAME})", re.ASCII),
)
_WORD = re.compile(_NAME)
_READ = re.compile(
    r"(?:读取|查看|打开|\bread|\bshow|\bopen|\bcat)\s*(?:the\s+)?(?:文件|\bfile\b)?\s*[`“\"']?([\w./-]+\.[\w]+)", re.I
)
_SEARCH = re.compile(r"(?:搜索|查找|\bsearch(?:\s+for)?|\bgrep|\bfind)\s*[`“\"']?([^`”\"'\n]{1,200})", re.I)
_LIST = re.compile(r"(?:列出|目录|\blist\b|\bls\b)\s*(?:the\s+)?(?:文件|files?\s+(?:in|of)\b)?\s*([\w./-]*)", re.I)
_DETAILS = re.compile(
    r"详细|细节|深入|展开|是的|好的|需要|\byes\b|\bdetails?\b|\bexplain\b|\bmore\b|\bdeep|\bgo on\b|\bplease do\b", re.I
)
_PROJECT = re.compile(
    r"分析|扫描|看看|了解|项目|模块|\banaly[sz]e\b|\bscan\b|\bproject\b|\bmodules?\b|\boverview\b", re.I
)
# A message that holds nothing but these is small talk. English words are whole words: "this" greets nobody.
_SMALL_WORDS = {
    "farewell": (r"再见|再會|拜拜|回头见", r"good ?bye|bye(?:[ -]bye)?|see you(?: later| soon)?"),
    "thanks": (r"(?:非常|十分|太|多多)?(?:谢谢|謝謝|感谢|多谢)|辛苦了", r"(?:many )?thanks|thank you|thx|cheers"),
    "greeting": (
        r"[你您]好|大家好|嗨|哈[喽啰]|[早晚]上好|[上中下]午好|早安|[你您]?在吗",
        r"hello|hi|hey|good (?:morning|afternoon|evening|day)|are you there",
    ),
    "noted": (r"收到|明白|知道|好[的了]?", r"got it|ok(?:ay)?|great|alright|fine|nice|perfect"),
    "besides": (
        r"[你您们了啦呀啊哦呢]",
        r"very much|so much|a lot|there|again|all|everyone|everybody|for (?:now|that|this|your help)",
    ),
}
_SMALL_TALK = re.compile(
    "|".join(rf"(?P<{kind}>{chinese}|(?<!\w)(?:{english})(?!\w))" for kind, (chinese, english) in _SMALL_WORDS.items()),
    re.I | re.ASCII,
)


HELP: dict[Language, str] = {
    "zh": "我了解这个项目：可以介绍它（“分析项目”）、它的模块（“分析X模块”，然后“详细说明”），也可以读取、列出或搜索文件。",
    "en": 'I know this project: ask for an overview ("analyse the project"), for a module ("analyse the X module", then '
    '"details"), or to read, list or search files.',
}
POLITE: dict[tuple[str, Language], str] = {
    ("greeting", "zh"): "你好！",
    ("greeting", "en"): "Hello! ",
    ("thanks", "zh"): "不客气！",
    ("thanks", "en"): "You are welcome. ",
}
PROBLEM: dict[Language, str] = {"zh": "做不到：", "en": "I cannot: "}


@dataclass
class Talk:
    """What one session has come to: the part it is about, whether we have said what we can do, courtesies in a row."""

    focus: str | None = None
    helped: bool = False
    courtesies: int = 0


class Guide:
    """Answers for one project. Safe to call from several threads; scans are shared and a few seconds old at most."""

    def __init__(self, root: Path) -> None:
        self._roots = Roots([root])
        self._lock = threading.Lock()
        self._talks: OrderedDict[str, Talk] = OrderedDict()
        self._project: Project | None = None
        self._scanned_at = 0.0

    def answer(self, session_id: str, text: str) -> str | None:
        """The reply to a message, in its language; None when nothing is to be said (goodbye, or a second time 'what?')."""
        language = language_of(text)
        with self._lock:
            talk = self._talks.setdefault(session_id, Talk())
            self._talks.move_to_end(session_id)
            while len(self._talks) > TALKS:
                self._talks.popitem(last=False)
            try:
                return self._reply(talk, text, language)
            except WorkspaceError as error:
                return f"{PROBLEM[language]}{error}"

    def help(self, text: str) -> str:
        """What this agent can be asked for, in the language of `text`."""
        with self._lock:
            return self._help(self._scan(), language_of(text))

    def _help(self, project: Project, language: Language) -> str:
        return f"{HELP[language]}\n{report.question(project, language)}"

    def _reply(self, talk: Talk, text: str, language: Language) -> str | None:
        if (found := _READ.search(text)) is not None:
            return report.file_text(read_file(self._roots, found[1], Budget(SECONDS), 1, SHOWN_LINES), language)
        if (found := _SEARCH.search(text)) is not None:
            hits = search_files(self._roots, found[1].strip(), ".", Budget(SECONDS), ignore_case=True)
            return report.matches(hits, language)
        courtesy = small_talk(text)
        if courtesy not in (None, "noted"):  # a project may be large: who only greets does not wait until it is read
            return self._courtesy(talk, str(courtesy), language)
        project = self._scan()
        try:
            part = _named(project, text, language)
        except Unnamed as problem:
            return report.not_found(problem.error, problem.asked, project, language)
        agrees = talk.focus is not None and _DETAILS.search(text) is not None
        if courtesy is not None and part is None and not agrees:  # 好的 may mean yes
            return None
        talk.courtesies = 0
        if part is not None:
            talk.focus, talk.helped = part.dotted, False
            return (report.details if _DETAILS.search(text) else report.summary)(project, part, language)
        if (found := _LIST.search(text)) is not None and not _PROJECT.search(text):
            return report.listing(list_directory(self._roots, found[1] or ".", Budget(SECONDS)), language)
        if agrees and talk.focus is not None:
            return report.details(project, project.find(talk.focus), language)
        if _PROJECT.search(text):
            talk.helped = False
            return f"{report.overview(project, language)}\n{report.question(project, language)}"
        if talk.helped:
            return None  # two agents that do not understand each other must not go on for ever
        talk.helped = True
        return self._help(project, language)

    @staticmethod
    def _courtesy(talk: Talk, courtesy: str, language: Language) -> str | None:
        polite = POLITE.get((courtesy, language))
        if polite is None or talk.courtesies >= COURTESIES:
            return None
        talk.courtesies += 1
        return f"{polite}{HELP[language]}"

    def _scan(self) -> Project:
        if self._project is None or time.monotonic() - self._scanned_at > FRESH_SECONDS:
            self._project = scan(self._roots, ".", Budget(SECONDS))
            self._scanned_at = time.monotonic()
        return self._project


class Unnamed(Exception):
    """A module was meant, and which one cannot be told."""

    def __init__(self, asked: str, error: NotFound) -> None:
        self.asked = asked
        self.error = error


def small_talk(text: str) -> str | None:
    """`farewell`, `thanks`, `greeting` or `noted` where the text is nothing else; None for a text that says more."""
    if len(text) > SMALL_CHARACTERS or re.search(r"\w", _SMALL_TALK.sub(" ", text)):
        return None
    found = {match.lastgroup for match in _SMALL_TALK.finditer(text)} - {"besides"}
    return next((kind for kind in _SMALL_WORDS if kind in found), None)


def _named(project: Project, text: str, language: Language) -> Part | None:
    """The part that the text names; `Unnamed` where it says that it names one, and there is none or more than one."""
    for pattern in _NAMED:
        for found in pattern.finditer(text):
            try:
                return project.find(found[1])
            except NotFound as error:
                # "foo模块" can mean nothing else; "the module" in English can, and so can a quoted word.
                if (pattern is _BEFORE_MODULE and language == "zh") or "more than one" in str(error):
                    raise Unnamed(found[1], error) from None
    names = {part.name: part for part in project.parts} | {part.dotted: part for part in project.parts}
    for found in _WORD.finditer(text):
        if (part := names.get(found[0].rstrip("."))) is not None:
            return part
        if "/" in found[0] or "." in found[0].strip("."):
            try:
                return project.find(found[0].rstrip("."))
            except NotFound:
                continue
    return None
