"""Regular expressions in linear time: a search pattern from a stranger must not be able to hang a worker.

Python's `re` backtracks, cannot be given a time limit and holds the interpreter meanwhile. This is Thompson's
construction with a deterministic automaton that is built as it is needed. It answers one question, whether a line
matches somewhere, for the usual syntax: literals, `.`, classes, escapes (\\d \\w \\s \\b …), anchors, groups,
alternatives, repetitions. Look-around and back-references are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from traces_app.workspace.errors import InvalidPattern

MAX_PATTERN = 500
MAX_REPEAT = 200
MAX_NODES = 4000
MAX_STATES = 3000

Test = Callable[[str], bool]


def _word(c: str) -> bool:
    return c == "_" or c.isalnum()


_CLASSES: dict[str, Test] = {"d": str.isdecimal, "s": str.isspace, "w": _word}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}


@dataclass(slots=True)
class _Node:
    """`test`: consumes a character; `assertion`: one of ^ $ b B; neither: passes on to all of `next`."""

    test: Test | None = None
    assertion: str = ""
    next: list[int] = field(default_factory=list)


class _Parser:
    """Recursive descent straight to automaton nodes; a fragment is (entry, open ends)."""

    def __init__(self, pattern: str, ignore_case: bool) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0
        self.ignore_case = ignore_case
        self.nodes: list[_Node] = []

    def parse(self) -> int:
        entry, ends = self._alternatives()
        if self.at < len(self.pattern):
            raise InvalidPattern("unbalanced ) in the pattern")
        accept = self._node(_Node())
        self._join(ends, accept)
        return entry

    def _node(self, node: _Node) -> int:
        if len(self.nodes) >= MAX_NODES:
            raise InvalidPattern("the pattern is too large once its repetitions are written out")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _join(self, ends: list[int], target: int) -> None:
        for end in ends:
            self.nodes[end].next.append(target)

    def _peek(self) -> str:
        return self.pattern[self.at] if self.at < len(self.pattern) else ""

    def _alternatives(self) -> tuple[int, list[int]]:
        self.depth += 1
        if self.depth > 50:
            raise InvalidPattern("too many nested groups in the pattern")
        entry, ends = self._sequence()
        if self._peek() == "|":
            fork = self._node(_Node(next=[entry]))
            while self._peek() == "|":
                self.at += 1
                branch, more = self._sequence()
                self.nodes[fork].next.append(branch)
                ends = ends + more
            entry = fork
        self.depth -= 1
        return entry, ends

    def _sequence(self) -> tuple[int, list[int]]:
        first = self._node(_Node())
        ends = [first]
        while (c := self._peek()) and c not in "|)":
            start = self.at
            entry, more = self._repeated(start)
            self._join(ends, entry)
            ends = more
        return first, ends

    def _repeated(self, start: int) -> tuple[int, list[int]]:
        entry, ends = self._atom()
        stop = self.at
        bounds = self._bounds()
        if bounds is None:
            return entry, ends
        low, high = bounds
        after = self.at
        if self._peek() in ("?", "+"):  # lazy or possessive: the same lines match
            self.at += 1
            after = self.at
        if self._peek() in ("*", "+", "?"):
            raise InvalidPattern("a repetition of a repetition in the pattern")
        # The atom is read again for each copy that the bounds ask for.
        head = self._node(_Node())
        tails = [head]
        done: list[int] = []
        copies = 0
        for _ in range(low):
            if copies:
                entry, ends = self._again(start, stop)
            copies += 1
            self._join(tails, entry)
            tails = ends
        if high is None:
            if copies:
                entry, ends = self._again(start, stop)
            loop = self._node(_Node(next=[entry]))
            self._join(tails, loop)
            self._join(ends, loop)
            done = [loop]
        else:
            for _ in range(high - low):
                if copies:
                    entry, ends = self._again(start, stop)
                copies += 1
                fork = self._node(_Node(next=[entry]))
                self._join(tails, fork)
                done.append(fork)
                tails = ends
            done = done + tails
        self.at = after
        return head, done

    def _again(self, start: int, stop: int) -> tuple[int, list[int]]:
        self.at = start
        fragment = self._atom()
        assert self.at == stop
        return fragment

    def _bounds(self) -> tuple[int, int | None] | None:
        c = self._peek()
        if c and c in "*+?":
            self.at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
        if c != "{":
            return None
        end = self.pattern.find("}", self.at)
        low, comma, high = self.pattern[self.at + 1 : end].partition(",") if end > 0 else ("", "", "")
        digits = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
        if not (low or high) or not set(low + high) <= digits or len(low) > 4 or len(high) > 4:
            return None  # as in Python, a brace that is no repetition is itself
        first = int(low or 0)
        last = int(high) if high else (None if comma else first)
        if first > MAX_REPEAT or (last or 0) > MAX_REPEAT or (last is not None and last < first):
            raise InvalidPattern(f"a repetition count in the pattern is above {MAX_REPEAT} or upside down")
        self.at = end + 1
        return first, last

    def _atom(self) -> tuple[int, list[int]]:
        c = self._peek()
        self.at += 1
        if c == "(":
            return self._group()
        if c == "[":
            return self._single(self._set())
        if c == ".":
            return self._single(lambda x: x != "\n")
        if c in "^$":
            return self._assertion(c)
        if c in "*+?":
            raise InvalidPattern("nothing to repeat in the pattern")
        if c == "\\":
            return self._escape()
        return self._single(self._literal(c))

    def _group(self) -> tuple[int, list[int]]:
        if self._peek() == "?":
            if self.pattern.startswith("?:", self.at):
                self.at += 2
            elif self.pattern.startswith("?P<", self.at) and (end := self.pattern.find(">", self.at)) > 0:
                self.at = end + 1
            else:
                raise InvalidPattern("look-around, flags and conditions in groups are not supported")
        fragment = self._alternatives()
        if self._peek() != ")":
            raise InvalidPattern("unbalanced ( in the pattern")
        self.at += 1
        return fragment

    def _single(self, test: Test) -> tuple[int, list[int]]:
        node = self._node(_Node(test=test))
        return node, [node]

    def _assertion(self, kind: str) -> tuple[int, list[int]]:
        node = self._node(_Node(assertion=kind))
        return node, [node]

    def _literal(self, wanted: str) -> Test:
        if self.ignore_case:
            folded = wanted.casefold()
            return lambda x: x.casefold() == folded
        return lambda x: x == wanted

    def _escape(self) -> tuple[int, list[int]]:
        c = self._peek()
        self.at += 1
        if not c:
            raise InvalidPattern("the pattern ends with a backslash")
        if c in "bB":
            return self._assertion(c)
        if c in "AZz":
            return self._assertion("^" if c == "A" else "$")
        return self._single(self._escaped(c))

    def _escaped(self, c: str) -> Test:
        if c.lower() in _CLASSES:
            test = _CLASSES[c.lower()]
            return test if c.islower() else lambda x: not test(x)
        if c in _CONTROLS:
            return self._literal(_CONTROLS[c])
        if c in "xuU":
            size = {"x": 2, "u": 4, "U": 8}[c]
            digits = self.pattern[self.at : self.at + size]
            try:
                wanted = chr(int(digits, 16)) if len(digits) == size else ""
            except (ValueError, OverflowError):
                wanted = ""
            if not wanted:
                raise InvalidPattern(f"a broken \\{c} escape in the pattern")
            self.at += size
            return self._literal(wanted)
        if c.isascii() and c.isalnum():
            raise InvalidPattern(f"\\{c} is not supported in a pattern")
        return self._literal(c)

    def _set(self) -> Test:
        negated = self._peek() == "^"
        self.at += negated
        singles: set[str] = set()
        ranges: list[tuple[str, str]] = []
        tests: list[Test] = []
        first = True
        while first or self._peek() != "]":
            first = False
            low = self._set_member(tests)
            if low is None:
                continue
            if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self._set_member(tests)
                if high is None or high < low:
                    raise InvalidPattern("a broken range in a class of the pattern")
                ranges.append((low, high))
            else:
                singles.add(low)
        self.at += 1

        def contains(x: str) -> bool:
            return x in singles or any(a <= x <= b for a, b in ranges) or any(t(x) for t in tests)

        def contains_any_case(x: str) -> bool:
            return contains(x) or contains(x.lower()) or contains(x.upper())

        chosen = contains_any_case if self.ignore_case else contains
        return (lambda x: not chosen(x)) if negated else chosen

    def _set_member(self, tests: list[Test]) -> str | None:
        """The next single character, or None after adding a class such as \\d to `tests`."""
        c = self._peek()
        self.at += 1
        if not c:
            raise InvalidPattern("unbalanced [ in the pattern")
        if c != "\\":
            return c
        c = self._peek()
        self.at += 1
        if not c:
            raise InvalidPattern("the pattern ends with a backslash")
        if c.lower() in _CLASSES:
            tests.append(self._escaped(c))
            return None
        if c == "b":
            return "\b"
        if c in _CONTROLS:
            return _CONTROLS[c]
        if c in "xuU":
            size = {"x": 2, "u": 4, "U": 8}[c]
            self._escaped(c)
            return chr(int(self.pattern[self.at - size : self.at], 16))
        if c.isascii() and c.isalnum():
            raise InvalidPattern(f"\\{c} is not supported in a class of a pattern")
        return c


@dataclass(slots=True)
class _State:
    """A set of nodes not yet followed through assertions, and what stood before: "" the start, "w" a word, "o" other."""

    nodes: frozenset[int]
    before: str
    moves: dict[str, _State | None] = field(default_factory=dict)
    at_end: bool | None = None


class LinePattern:
    """Compiled once, then `matches(line)` in time proportional to the line. Raises InvalidPattern.

    The automaton grows as lines are seen and is thrown away when it has too many states, so memory is bounded too.
    """

    def __init__(self, pattern: str, ignore_case: bool = False) -> None:
        if len(pattern) > MAX_PATTERN:
            raise InvalidPattern(f"the pattern is longer than {MAX_PATTERN} characters")
        parser = _Parser(pattern, ignore_case)
        self._entry = parser.parse()
        self._nodes = parser.nodes
        self._accept = len(parser.nodes) - 1
        self._states: dict[tuple[frozenset[int], str], _State] = {}

    def matches(self, line: str) -> bool:
        state = self._state(frozenset((self._entry,)), "")
        for c in line:
            moves = state.moves
            if c in moves:
                following = moves[c]
            else:
                if len(moves) > 512:
                    moves.clear()
                following = moves[c] = self._step(state, c)
            if following is None:
                return True
            state = following
        if state.at_end is None:
            state.at_end = self._accept in self._closure(state, "")
        return state.at_end

    def _state(self, nodes: frozenset[int], before: str) -> _State:
        key = (nodes, before)
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= MAX_STATES:
                self._states.clear()
            state = self._states[key] = _State(nodes, before)
        return state

    def _step(self, state: _State, c: str) -> _State | None:
        """The state after `c`, or None when the line matches already."""
        closure = self._closure(state, c)
        if self._accept in closure:
            return None
        following = {self._entry}
        for index in closure:
            node = self._nodes[index]
            if node.test is not None and node.test(c):
                following.update(node.next)
        return self._state(frozenset(following), "w" if _word(c) else "o")

    def _closure(self, state: _State, c: str) -> set[int]:
        """Nodes reachable without consuming, with `c` ahead ("" at the end of the line)."""
        boundary = (state.before == "w") != (bool(c) and _word(c))
        holds = {"^": state.before == "", "$": c == "", "b": boundary, "B": not boundary}
        seen: set[int] = set()
        todo = list(state.nodes)
        while todo:
            index = todo.pop()
            if index in seen:
                continue
            seen.add(index)
            node = self._nodes[index]
            if node.test is None and (not node.assertion or holds[node.assertion]):
                todo.extend(node.next)
        return seen
