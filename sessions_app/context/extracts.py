"""Extractive summaries: the sentences that say most of what was said, in their order, each with who said it. Pure.

A sentence counts for its words (rare ones and repeated ones), its place in the message, and for naming a decision, a file,
a number or an open question; one that repeats what is taken already counts less. Deterministic.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sessions_app.context.words import cut_to_tokens, token_estimate, words

_SENTENCE_END = re.compile(r"(?<=[。！？!?；;])|(?<=\.)\s+|\n+")
_SIGNS = (
    (
        re.compile(
            r"决定|结论|确认|同意|选择|采用|改为|必须|不要|截止|推荐|建议"
            r"|\b(?:TODO|decid|agree|conclu|must|deadline|chose|recommend|will use)",
            re.IGNORECASE,
        ),
        1.5,
    ),
    (re.compile(r"[\w./-]{1,80}\.(?:py|md|txt|json|toml|ya?ml|js|ts|go|rs)\b|`[^`]{1,80}`"), 0.6),
    (re.compile(r"\d"), 0.35),
    (re.compile(r"[?？]\s*$"), 0.3),
)
_POOL = 60
_SENTENCES = 4_000
_SENTENCE_CHARACTERS = 400
_ALIKE = 0.7


@dataclass(frozen=True, slots=True)
class Said:
    """One remark to summarise."""

    who: str
    text: str


@dataclass(slots=True)
class _Sentence:
    remark: int
    place: int
    of: int
    text: str
    words: frozenset[str]
    weight: float = 0.0


def extract(remarks: Sequence[Said], tokens: int) -> str:
    """At most `tokens` of the remarks, as lines `[who] sentence …` in order. Empty only when nothing was said."""
    sentences = _sentences(remarks)
    if not sentences:
        joined = "\n".join(f"[{said.who}] {said.text.strip()}" for said in remarks if said.text.strip())
        return cut_to_tokens(joined, tokens)
    _weigh(sentences, len(remarks))
    picked = _pick(sentences, tokens)
    if not picked:  # one sentence is larger than all the room there is
        best = max(sentences, key=lambda sentence: sentence.weight)
        return cut_to_tokens(f"[{remarks[best.remark].who}] {best.text}", tokens)
    lines: list[str] = []
    last = -1
    for sentence in sorted(picked, key=lambda sentence: (sentence.remark, sentence.place)):
        if sentence.remark != last:
            lines.append(f"[{remarks[sentence.remark].who}] {sentence.text}")
        else:
            lines[-1] += " " + sentence.text
        last = sentence.remark
    return "\n".join(lines)


def _sentences(remarks: Sequence[Said]) -> list[_Sentence]:
    found: list[_Sentence] = []
    for number, said in enumerate(remarks):
        texts = [text.strip() for text in _SENTENCE_END.split(said.text) if text and text.strip()]
        for place, text in enumerate(texts):
            text = text if len(text) <= _SENTENCE_CHARACTERS else text[:_SENTENCE_CHARACTERS] + "…"
            named = frozenset(words(text))
            if len(named) >= 2:
                found.append(_Sentence(number, place, len(texts), text, named))
    return found[-_SENTENCES:]


def _weigh(sentences: list[_Sentence], remarks: int) -> None:
    spread = Counter(word for sentence in sentences for word in sentence.words)
    for sentence in sentences:
        central = sum(math.log(1 + len(sentences) / spread[word]) * min(spread[word], 6) for word in sentence.words) / (
            len(sentence.words) ** 0.6 + 1
        )
        where = 1.25 if sentence.place == 0 else 1.1 if sentence.place == sentence.of - 1 else 1.0
        signs = 1 + sum(weight for pattern, weight in _SIGNS if pattern.search(sentence.text))
        recent = 1 + 0.25 * sentence.remark / max(1, remarks - 1)
        sentence.weight = central * where * signs * recent


def _pick(sentences: list[_Sentence], tokens: int) -> list[_Sentence]:
    """Greedy, by maximal marginal relevance: what is said already is worth little a second time."""
    pool = sorted(sentences, key=lambda sentence: (-sentence.weight, sentence.remark, sentence.place))
    picked: list[_Sentence] = []
    used = 0
    while pool:
        best, best_score = None, -1.0
        for sentence in pool[:_POOL]:
            alike = max((_alike(sentence, taken) for taken in picked), default=0.0)
            score = sentence.weight * (1 - 0.85 * alike)
            if alike < _ALIKE and score > best_score:
                best, best_score = sentence, score
        if best is None:
            pool = pool[_POOL:]
            continue
        pool.remove(best)
        cost = token_estimate(best.text) + 4
        if used + cost <= tokens:
            picked.append(best)
            used += cost
        elif not any(used + token_estimate(sentence.text) + 4 <= tokens for sentence in pool[:_POOL]):
            break
    return picked


def _alike(one: _Sentence, other: _Sentence) -> float:
    return len(one.words & other.words) / max(1, len(one.words | other.words))
