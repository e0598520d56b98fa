"""A request cut into clauses: quoted names kept whole, courtesies taken off, what is negated left out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from traces_app.planner.verbs import END, START, VERB_AHEAD_EN, VERB_AHEAD_ZH

MAX_REQUEST = 4000
MAX_CLAUSES = 12
MAX_CLAUSE = 300
"""Characters of one clause: patterns with several open ends take more than linear time."""

_QUOTES = re.compile(
    r"`([^`\n]{1,400})`|\"([^\"\n]{1,400})\"|“([^”\n]{1,400})”|「([^」\n]{1,400})」|『([^』\n]{1,400})』|《([^》\n]{1,400})》"
    r"|(?<![A-Za-z0-9])'([^'\n]{1,400})'(?![A-Za-z0-9])|(?<![A-Za-z0-9_./])/([^/\s][^/\n]{0,398})/(?![A-Za-z0-9_./])"
)
# Private-use characters stand for quoted text: no pattern takes them for a word.
_FIRST_MARK = 0xE000
MARK = "[\ue000-\ue0ff]"

_COURTESY_ZH = (
    r"请问|请(?!假|客|教|示|求)|麻烦|劳烦|烦请|拜托|您好|你好|大家好|嗨|喂|谢谢|你们?|您|咱们|我们(?=想|要|需要|希望)|帮我们?|帮忙|帮(?!助)"
    r"|给我们?|替我|为我|能不能|能否|可不可以|可否|可以(?!吗)|能(?!力|量|源|耗)|我想要?|我希望|我需要|我要|想要|需要(?!我)|希望"
    r"|现在|目前|先(?!进|验|例)|再(?!见|次)|再次|接着|接下来|然后|首先|其次|最后|顺便|一起|直接|立即|立刻|马上|继续|重新"
    r"|那么|那(?!个|些|里|边)|就(?!业)|去(?!重|除)|来(?!源|自)|也|还(?!原|款)|好的?(?!处|像)|是的|对的?(?![A-Za-z比应话]|.{0,40}?(?:进行|做))"
    r"|没错|嗯+|行(?!业|为|数|列)|可以|没问题|收到|明白了?|务必|只(?!读)|单独|另外|此外|并且?(?![发行列入])|同时|以及|还有|而且"
)
_ADVERB_ZH = (
    r"重点|详细地?|仔细地?|深入地?(?!了解)|全面地?|简单地?|简要地?|完整地?|快速地?|逐一|进一步|彻底地?|具体地?|一下"
)
_COURTESY_EN = (
    r"please|pls|plz|kindly|can (?:you|we)|could you|would you(?: mind)?|will you|may i ask you to"
    r"|i(?:'d| would) like(?: you)? to|i (?:want|need)(?: you)? to|let(?:'|’)?s|let us|help me(?: to)?|go ahead and"
    r"|yes|yep|yeah|ok|okay|sure|right"
    r"|alright|hi|hello|hey|thanks|thank you|great|good|now|first|then|next|also|and|so|just|again|finally|maybe|perhaps|but|plus"
)
_ADVERB_EN = r"carefully|briefly|quickly|thoroughly|closely|deeply|in (?:more )?(?:detail|depth)"
_COURTESY = re.compile(
    rf"(?:[\s,，、:：~!！]+|(?:{_COURTESY_ZH})|(?:{_ADVERB_ZH})|(?:{_COURTESY_EN}){END}|(?:{_ADVERB_EN}){END}"
    r"|@[A-Za-z0-9][A-Za-z0-9._-]{0,63})",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"不要|不用|不需要|不必|无需|无须|别(?!的|人|名)|禁止|除了"
    rf"|(?:do not|don['’]?t|never|no need|without|except|skip|ignore){END}",
    re.IGNORECASE,
)
_DETAIL = re.compile(
    r"详细|详情|细节|深入|仔细|全面|完整|彻底|进一步|展开|更多|关键组件"
    rf"|{START}(?:details?|detailed|depth|deeply|deep|thoroughly|elaborate|more|key components){END}",
    re.IGNORECASE,
)
_YES = re.compile(
    r"\s*(?:是的?|好的?|对的?|可以|需要|嗯+|行|没错|当然|请继续|继续|请详细"
    rf"|(?:yes|yep|yeah|ok|okay|sure|go on|go ahead|please do|continue){END})",
    re.IGNORECASE,
)
_HARD = re.compile(r"[,，。；;！!\n？?]+|\.(?=\s|$)")
_JOIN_ZH = re.compile(r"(?:并且?(?![发行列入])|然后|接着|随后|之后|再(?!见|次)|以及|和|同时|顺便|还要|而且)(?=.)")
_JOIN_EN = re.compile(r"\s(?:and then|and also|and|then|but|also|plus)\s+", re.IGNORECASE)
_ADVERBS_AHEAD = re.compile(rf"(?:{_COURTESY_ZH}|{_ADVERB_ZH}|进行|\s)*")
_ADVERBS_AHEAD_EN = re.compile(rf"(?:(?:{_COURTESY_EN}|{_ADVERB_EN}){END}\s*)*", re.IGNORECASE)
_SEARCHES = re.compile(r".{0,20}?(?:搜索|查找|检索|search|grep|look for|find)", re.IGNORECASE)
_DETERMINED = re.compile(
    rf"[A-Za-z]+ (?:it|them|the|an?|this|that|these|those|all|every|each|my|our|your|any){END}", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Clause:
    """`text` without courtesies; quoted spans are single marks that `Request.quoted` resolves."""

    text: str
    detail: bool
    """It asks for details: 详细, 深入, "in depth"."""
    courteous: bool
    """Something was taken off in front."""


@dataclass(frozen=True, slots=True)
class Request:
    clauses: tuple[Clause, ...]
    quotes: tuple[str, ...]
    yes: bool
    """It begins with a yes: 是的, 好的, "sure"."""

    def quoted(self, text: str) -> str:
        """With the marks replaced by what was quoted."""
        return re.sub(MARK, lambda mark: self.quotes[ord(mark[0]) - _FIRST_MARK], text)


def read_request(text: str) -> Request:
    text = re.sub("[\ue000-\uf8ff]", " ", text[:MAX_REQUEST]).strip()
    quotes: list[str] = []

    def keep(found: re.Match[str]) -> str:
        if len(quotes) >= 200:
            return found[0]
        index = next(i for i, group in enumerate(found.groups()) if group is not None)
        # /…/ keeps its slashes: they say that it is a pattern.
        quotes.append(found[0] if index == 7 else found[index + 1])
        return chr(_FIRST_MARK + len(quotes) - 1)

    marked = _QUOTES.sub(keep, text)
    clauses = []
    for piece in _HARD.split(marked):
        for part in _soft(piece[:MAX_CLAUSE]):
            body, courteous = _without_courtesies(part)
            if courteous or body:
                clauses.append(Clause(body, bool(_DETAIL.search(part)), courteous))
            if len(clauses) >= MAX_CLAUSES:
                break
    return Request(tuple(clauses), tuple(quotes), _YES.match(marked) is not None)


def negated(clause: Clause) -> bool:
    return _NEGATION.match(clause.text) is not None


def _soft(piece: str) -> list[str]:
    """Split at a conjunction only where a verb follows it: 分析core和api is one clause, 分析并翻译 are two."""
    parts: list[str] = []
    start = 0
    for found in sorted([*_JOIN_ZH.finditer(piece), *_JOIN_EN.finditer(piece)], key=lambda f: f.start()):
        if found.start() < start:
            continue
        ahead = found.end()
        chinese = bool(re.match(r"[^\x00-\x7f]", found[0]))
        skip = (_ADVERBS_AHEAD if chinese else _ADVERBS_AHEAD_EN).match(piece, ahead)
        at = skip.end() if skip else ahead
        if chinese:
            if not VERB_AHEAD_ZH.match(piece, at):
                continue
            if found[0] == "和" and not piece[start : found.start()].strip():
                continue
        else:
            if not (VERB_AHEAD_EN.match(piece, at) and re.match(r"\S+\s+\S", piece[at:])):
                continue
            # "search for read and write access": what is searched for may look like a verb.
            if _SEARCHES.match(piece[start:]) and not _DETERMINED.match(piece[at:]):
                continue
        parts.append(piece[start : found.start()])
        start = found.end()
    return [*parts, piece[start:]]


def _without_courtesies(text: str) -> tuple[str, bool]:
    text = text.strip()
    at = 0
    for _ in range(30):
        found = _COURTESY.match(text, at)
        if not found or found.end() == at:
            break
        at = found.end()
    return text[at:].strip(), at > 0
