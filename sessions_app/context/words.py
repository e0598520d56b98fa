"""Words of a text in any language, and what text costs a model. Pure.

Chinese, Japanese and Korean have no spaces: there a pair of neighbouring characters stands for a word.
"""

from __future__ import annotations

import re

_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_RUNS = re.compile(rf"[{_CJK}]+|[^\W\d_{_CJK}](?:[^\W{_CJK}]|_)*|\d+(?:[.,]\d+)*", re.UNICODE)
_IS_CJK = re.compile(rf"[{_CJK}]")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")

_COMMON_WORDS = (
    "a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it its me"
    " my no not of on or our please she should so than that the their them then there these they this those to up us was we"
    " were what when where which who will with would you your"
)
_COMMON = frozenset(_COMMON_WORDS.split())
_COMMON_CJK = frozenset(
    "的了和是在我你他她它们这那有就也都吗呢吧请把被对与及或不要能会可以一个什么怎么如何帮给再又还很"
)
_ANAPHORS = re.compile(
    r"它们?|这个|这些|那个|那些|这样|那样|上面|前面|刚才|前者|后者"
    r"|\b(?:it|its|that|this|those|these|them|the former|the latter|the above)\b",
    re.IGNORECASE,
)
# "that" as a conjunction ("make sure that …") and "it is" as filler are no reference to what was said.
_NO_ANAPHORS = re.compile(r"\b(?:so|sure|say|says|said|think|know|such) that\b|\bit is\b|\bit's\b", re.IGNORECASE)

RESERVE = 1.25
TEXT_MOST = 20_000
"""Characters of a text that are looked at; what follows tells little that is new."""


def words(text: str) -> list[str]:
    """The words of a text, in order, as they are compared: lower case, plural `s` cut, parts of compound names added."""
    found: list[str] = []
    for run in _RUNS.findall(text[:TEXT_MOST]):
        if _IS_CJK.match(run):
            if len(run) == 1:
                if run not in _COMMON_CJK:
                    found.append(run)
                continue
            found.extend(
                run[i : i + 2] for i in range(len(run) - 1) if not (run[i] in _COMMON_CJK and run[i + 1] in _COMMON_CJK)
            )
            continue
        word = run.lower()
        if word in _COMMON:
            continue
        found.append(_stem(word))
        parts = [part.lower() for part in _HUMPS.findall(run)]
        if len(parts) > 1:
            found.extend(_stem(part) for part in parts if len(part) > 1 and part not in _COMMON)
    return found


def _stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def has_anaphor(text: str) -> bool:
    """Whether a question points at what was said before instead of naming it (它, 这个, that, it)."""
    return _ANAPHORS.search(_NO_ANAPHORS.sub(" ", text)) is not None


def token_estimate(text: str) -> int:
    """What a text costs, about: a token for four bytes of UTF-8, without the reserve."""
    return -(-len(text.encode()) // 4)


def with_reserve(tokens: int, correction: float = 1.0) -> int:
    """What to plan for: a quarter more, by the proportion that the model's own counts have shown."""
    return int(-(-tokens * RESERVE * correction // 1))


def cut_to_tokens(text: str, tokens: int) -> str:
    """The beginning of a text that costs at most `tokens`, marked where it was cut; too long a text is cut, never dropped."""
    if token_estimate(text) <= tokens:
        return text
    room = max(tokens * 4 - len(_CUT.encode()), 0)
    return text.encode()[:room].decode("utf-8", "ignore") + _CUT


_CUT = " …[cut]"
