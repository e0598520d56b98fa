"""Which messages a question is about: BM25 over what a reader may see. The memory is the process's, the rows decide.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009); k1 1.2, b 0.5 for short texts.
A message is tokenised once per process; a question touches only the messages that share a word with it.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sessions_app.context.words import words

K1, B = 1.2, 0.5
MAX_INDEXES = 200
MAX_MESSAGES = 20_000
"""The newest so many of a session are searched."""


class Scored(NamedTuple):
    key: int
    score: float


class Index:
    """Messages by their words. `add` in ascending order of sequence; the same message again changes nothing."""

    def __init__(self) -> None:
        self.through = 0
        self._keys: list[int] = []
        self._lengths: list[int] = []
        self._postings: dict[str, list[tuple[int, int]]] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int, sequence: int, text: str) -> None:
        if sequence <= self.through:
            return
        self.through = sequence
        counts = Counter(words(text))
        place = len(self._keys)
        length = sum(counts.values())
        self._keys.append(key)
        self._lengths.append(length)
        self._total += length
        for word, number in counts.items():
            self._postings.setdefault(word, []).append((place, number))

    def scores(self, query: str, *, but: Iterable[int] = ()) -> list[Scored]:
        """All messages that share a word with the question, best first, without those of the keys in `but`.

        How rare a word is, is counted over every message of the index, so that few candidates don't make all words common.
        """
        number = len(self._keys)
        if not number:
            return []
        left_out = set(but)
        average = self._total / number or 1.0
        found: dict[int, float] = {}
        for word in set(words(query)):
            postings = self._postings.get(word)
            if postings is None:
                continue
            weight = math.log(1 + (number - len(postings) + 0.5) / (len(postings) + 0.5))
            for place, times in postings:
                norm = K1 * (1 - B + B * self._lengths[place] / average)
                found[place] = found.get(place, 0.0) + weight * times * (K1 + 1) / (times + norm)
        scored = (Scored(self._keys[place], score) for place, score in found.items())
        return sorted((item for item in scored if item.key not in left_out), key=lambda item: (-item.score, -item.key))

    def best(self, query: str, number: int) -> list[Scored]:
        return heapq.nsmallest(number, self.scores(query), key=lambda item: (-item.score, -item.key))


Fill = Callable[[Index], None]


class Indexes:
    """Indexes by (session, visibility hash): readers who see the same share one. The least used is forgotten first."""

    def __init__(self, most: int = MAX_INDEXES) -> None:
        self._most = most
        self._known: OrderedDict[tuple[int, str], tuple[threading.Lock, Index]] = OrderedDict()
        self._lock = threading.Lock()

    def search(self, name: tuple[int, str], fill: Fill, query: str) -> list[Scored]:
        """`fill(index)` adds what is newer than `index.through`; then the question is put."""
        with self._lock:
            known = self._known.get(name)
            if known is None:
                known = self._known[name] = (threading.Lock(), Index())
                if len(self._known) > self._most:
                    self._known.popitem(last=False)
            self._known.move_to_end(name)
        lock, index = known
        with lock:
            fill(index)
            return index.scores(query)

    def forget_everything(self) -> None:
        """For tests that replace the database under a running process."""
        with self._lock:
            self._known.clear()


indexes = Indexes()
