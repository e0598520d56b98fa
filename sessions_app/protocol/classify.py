"""Which kind a message is, decided by ordered rules in English and Chinese; pure, no I/O, safe between threads.

How a message is read: its first `HEAD` characters, less leading white space, less greeting and courtesy (你好，请帮我,
"OK, could you please now", "@agent"; after a courtesy that asks also less a closing 吗？). What is left is matched *at
its start*, ignoring case, by the rules in their order; the first that matches decides, and when none does it is `chat`
by "default". So a request is found only where a message opens with it: a report that ends in 请执行 make test opens no
trace. For the rest there are `requires_execution` and, where one is configured, the model, which is asked about
"default" alone.

The order of `DEFAULT_RULES` (an operator's rules are put before them):

1. `tool-slash`, `tool-read-zh`, `tool-read-en`: `/tool name {json}`, and the reading of one file and no more.
2. `status-zh`, `status-en`: whole short questions about this session. Before 4: 分析完成了吗 begins like 分析完成.
3. `chat-courtesy`: nothing was left (你好, 收到，谢谢, a 请 alone). `chat-negation`: 不要…, 取消…, "don't …".
   `chat-speaker`: the sender about itself, and offers (我正在…, 需要我…吗, "shall I", "let me").
4. Vetoes, which open with the same verbs as the tasks: `chat-model` (translate, rewrite), `chat-report-zh` and
   `chat-report-en` (分析完成：, 执行失败, "analysis finished"), `chat-noun-zh` (执行官, 查询语句是什么),
   `chat-question-zh` and `chat-question-en` (分析哪个？, "analyse core?").
5. `task-zh`, `task-object-zh` (把…分析一下), `task-en`, `task-run-en` (run, check, search …: verbs that are nouns as
   well need an object that looks like one), `task-read-en` ("read file X and …").

Cost: no rule may need more than `MAX_EFFORT` steps, whatever the text (`effort`); one that could is refused when made.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from sessions_app.protocol import jsontext
from sessions_app.protocol.errors import Invalid
from sessions_app.protocol.kind_rules import (
    ASKED,
    ASKS,
    COURTESIES,
    DEFAULT_RULES,
    READ_FORMS,
    SEP,
    Kind,
    Rule,
)

__all__ = [
    "DEFAULT_RULES",
    "HEAD",
    "KINDS",
    "MAX_EFFORT",
    "MAX_PATTERN",
    "Classification",
    "Classifier",
    "Kind",
    "Rule",
    "RuleError",
    "check_rule",
    "default_classifier",
    "effort",
    "parse_tool_call",
]

KINDS: tuple[Kind, ...] = get_args(Kind)
HEAD = 400
"""Characters that are looked at. A message that goes on gets a `…` there, so that no rule takes it for complete."""
MAX_EFFORT = 250_000
"""Steps of the regular expression engine that one rule may need at worst: a few milliseconds."""
MAX_PATTERN = 8_000
"""Characters of a rule's pattern."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}", re.ASCII)
_SLASH = re.compile(r"\s*/tool\s+([A-Za-z_][A-Za-z0-9_.:/-]{0,127})(?:\s+|(?=\{)|$)", re.ASCII | re.IGNORECASE)
_MANY = 10**12
_COURTESIES_MAX = 10

T = TypeVar("T")


class RuleError(ValueError):
    """A rule that cannot be used; the text says why, for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Classification:
    """The decision: `rule` is the rule's name or None; `classified_by` is "sender", "rule:<name>" or "default"."""

    kind: Kind
    rule: str | None
    classified_by: str


_UNDECIDED = Classification("chat", None, "default")
_BY_SENDER: dict[Kind, Classification] = {kind: Classification(kind, None, "sender") for kind in KINDS}


class Classifier:
    """The rules made ready; immutable. Raises `RuleError` for one that is malformed, too expensive or named twice."""

    __slots__ = ("_others", "_table", "rules")

    def __init__(self, rules: Iterable[Rule] = DEFAULT_RULES) -> None:
        self.rules = tuple(rules)
        names = [rule.name for rule in self.rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise RuleError(f"More than one rule is named {', '.join(twice)}.")
        ready = []
        for rule in self.rules:
            match = check_rule(rule).match
            decision = Classification(rule.kind, rule.name, f"rule:{rule.name}")
            ready.append((first_letters(rule.pattern), (match, decision)))
        # Nearly all messages match nothing, and most rules can be left out by the first letter alone.
        self._table, self._others = _by_letter(ready)

    def classify(self, content: str) -> Classification:
        """What the rules say about a message's text; never raises."""
        request = _request(content)
        for match, decision in self._table.get(request[:1].lower(), self._others):
            if match(request) is not None:
                return decision
        return _UNDECIDED

    def decide(self, content: str, requires_execution: bool | None) -> Classification:
        """The kind to store: the sender's word is final (true: work, false: chat); without one the rules decide."""
        if requires_execution is None:
            return self.classify(content)
        if not requires_execution:
            return _BY_SENDER["chat"]
        return _BY_SENDER["tool_call" if self.classify(content).kind == "tool_call" else "task"]


@functools.cache
def default_classifier() -> Classifier:
    """The one of `DEFAULT_RULES`, made at the first use and kept."""
    return Classifier()


def parse_tool_call(content: str) -> tuple[str, dict[str, Any]] | None:
    """The tool and its arguments, or None where the text is no call or its arguments are not one JSON object.

    `/tool name {json}` gives (name, the object or {}), the ways to read a file give ("read_file", {"path": …}).
    A message of kind `tool_call` may still give None: it looked like a call, but its JSON is broken.
    """
    if slash := _SLASH.match(content):
        rest = content[slash.end() :].strip()
        if not rest:
            return slash[1], {}
        try:
            arguments = jsontext.loads(rest)
        except Invalid:
            return None
        return (slash[1], arguments) if isinstance(arguments, dict) else None
    request = _request(content)
    for form in READ_FORMS:
        if found := form.match(request):
            path = found["path"].strip("\"'`“”「」")
            # A full stop ends the sentence, not the path; but `.` and `..` are paths.
            return "read_file", {"path": path.rstrip(".。") or path}
    return None


def _request(content: str) -> str:
    """The part of a message that the rules look at."""
    head = content[:HEAD] + "…" if len(content) > HEAD else content
    head = head.lstrip()
    start = 0
    for _ in range(_COURTESIES_MAX):
        match = _COURTESY.get(head[start : start + 1].lower())
        if match is None or (courtesy := match(head, start)) is None:
            break
        start = courtesy.end()
    # Never before a slash: `/tool` stands at the very start of a message, or it is none.
    if start == 0 or head.startswith("/", start):
        return head
    request = head[start:]
    return request.rstrip(ASKED) if ASKS.search(head, 0, start) is not None else request


# --- What a rule may cost ---------------------------------------------------------------------------
_parser: Any = importlib.import_module("re._parser")
"""The standard library's own parser of patterns. It is private: a test holds what is used of it."""


def check_rule(rule: Rule) -> re.Pattern[str]:
    """Compile a rule's pattern; raise `RuleError`, worded for its author, when the rule is not fit to be used."""
    if not _NAME.fullmatch(rule.name):
        raise RuleError(f"{rule.name!r}: a name is 1 to 60 letters, digits, '-' and '_'.")
    if rule.kind not in KINDS:
        raise RuleError(f"{rule.name}: the kind is one of {', '.join(KINDS)}.")
    if not 1 <= len(rule.pattern) <= MAX_PATTERN:
        raise RuleError(f"{rule.name}: a pattern has 1 to {MAX_PATTERN} characters.")
    try:
        compiled = re.compile(rule.pattern, re.IGNORECASE)
        cost = effort(rule.pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise RuleError(f"{rule.name}: not a regular expression that can be used here: {error}.") from None
    if cost > MAX_EFFORT:
        raise RuleError(f"{rule.name}: could take too long on some text; use fewer, bounded repeats (.{{0,40}}).")
    return compiled


def effort(pattern: str) -> int:
    """An upper bound of the steps to match `pattern` at one place of a text of `HEAD` characters, from its structure.

    The number of ways to match a part multiplies the work of what follows it, which is what backtracking does.
    Raises `re.error` for a malformed pattern and for a back reference, which cannot be bounded.
    """
    return _cost(_parser.parse(pattern, re.IGNORECASE))[1]


def _cost(parts: Any) -> tuple[int, int]:
    """(ways to match, steps to try them all) of a sequence."""
    ways, work = 1, 0
    for operation, argument in parts:
        part_ways, part_work = _cost_of(str(operation), argument)
        work = min(work + ways * part_work, _MANY)
        ways = min(ways * part_ways, _MANY)
    return ways, work


def _cost_of(operation: str, argument: Any) -> tuple[int, int]:
    match operation:
        case "BRANCH":
            return _cost_of_branch(argument[1])
        case "SUBPATTERN":
            return _cost(argument[3])
        case "ASSERT" | "ASSERT_NOT":
            return 1, 1 + _cost(argument[1])[1]
        case "ATOMIC_GROUP":
            return 1, 1 + _cost(argument)[1]
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            low, high = min(int(argument[0]), HEAD), min(int(argument[1]), HEAD)
            ways, work = _cost(argument[2])
            # A round can be reached in ways ** (rounds before it) ways, and each number of rounds is a way to match.
            reached = [1]
            while len(reached) <= high:
                reached.append(min(reached[-1] * ways, _MANY))
            total = 1 if operation == "POSSESSIVE_REPEAT" else min(sum(reached[low:]), _MANY)
            return total, min(1 + work * sum(reached[:-1]), _MANY)
        case "GROUPREF" | "GROUPREF_EXISTS":
            raise re.error("back references are not taken")
        case _:  # one character, a set, an anchor
            return 1, 1


def _cost_of_branch(branches: list[Any]) -> tuple[int, int]:
    """Alternatives with different first letters exclude each other: the ways are those of the largest family."""
    families: dict[str, int] = {}
    anywhere = work = 0
    for branch in branches:
        branch_ways, branch_work = _cost(branch)
        work += 1 + branch_work
        first = branch[0] if len(branch) else None
        if first is not None and str(first[0]) == "LITERAL":
            letter = chr(first[1]).lower()
            families[letter] = families.get(letter, 0) + branch_ways
        else:
            anywhere += branch_ways
    return anywhere + max(families.values(), default=0), work


# --- What a rule can start with -----------------------------------------------------------------------
def first_letters(pattern: str, flags: int = re.IGNORECASE) -> frozenset[str] | None:
    """Lower-case letters, one of which opens each text that `pattern` matches ("" for none); None if it cannot be told."""
    letters, may_be_empty = _starts(_parser.parse(pattern, flags))
    return None if letters is None or may_be_empty else frozenset(letters)


def _starts(parts: Any) -> tuple[set[str] | None, bool]:
    """(first letters or None for any, whether it may match without taking a character) of a sequence."""
    found: set[str] = set()
    for operation, argument in parts:
        letters, may_be_empty = _starts_of(str(operation), argument)
        if letters is None:
            return None, True
        found |= letters
        if not may_be_empty:
            return found, False
    return found, True


def _starts_of(operation: str, argument: Any) -> tuple[set[str] | None, bool]:
    match operation:
        case "LITERAL":
            return {chr(argument).lower()}, False
        case "IN":
            letters: set[str] = set()
            for kind, value in argument:
                if str(kind) == "LITERAL":
                    letters.add(chr(value).lower())
                elif str(kind) == "RANGE" and value[1] - value[0] < 256:
                    letters.update(chr(code).lower() for code in range(value[0], value[1] + 1))
                elif str(value) == "CATEGORY_SPACE":
                    letters |= _SPACES
                else:
                    return None, False
            return letters, False
        case "BRANCH":
            branches = [_starts(branch) for branch in argument[1]]
            if any(letters is None for letters, _ in branches):
                return None, True
            return set().union(*(letters or () for letters, _ in branches)), any(empty for _, empty in branches)
        case "SUBPATTERN":
            return _starts(argument[3])
        case "ATOMIC_GROUP":
            return _starts(argument)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            letters_, may_be_empty = _starts(argument[2])
            return letters_, may_be_empty or int(argument[0]) == 0
        case "AT" if str(argument) == "AT_END":
            return {"", "\n"}, False
        case "ASSERT" | "ASSERT_NOT" | "AT":
            return set(), True
        case _:
            return None, False


def _by_letter(choices: Iterable[tuple[frozenset[str] | None, T]]) -> tuple[dict[str, list[T]], list[T]]:
    """For each letter what may start with it, in order; and what may start with any other."""
    choices = list(choices)
    letters = {letter for starts, _ in choices for letter in starts or ()}
    table = {letter: [item for starts, item in choices if starts is None or letter in starts] for letter in letters}
    return table, [item for starts, item in choices if starts is None]


_SPACES = frozenset(letter for letter in map(chr, range(0x3001)) if letter.isspace())
_COURTESY = {
    letter: re.compile(rf"(?>{'|'.join(patterns)}){SEP}{{0,8}}+", re.IGNORECASE).match
    for letter, patterns in _by_letter((first_letters(pattern), pattern) for pattern in COURTESIES)[0].items()
}
