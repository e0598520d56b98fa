from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces_app.workspace.errors import InvalidPattern
from traces_app.workspace.pattern import LinePattern

ATOMS = st.sampled_from(["a", "b", "_", " ", ".", r"\w", r"\d", r"\s", r"\W", "[ab]", "[^a]", "[a-c_]", r"\.", "é"])
REPEATS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,2}", "{,2}", "*?", "+?"])
ASSERTIONS = st.sampled_from(["^", "$", r"\b", r"\B"])


def pieces(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeated = st.tuples(inner, REPEATS).map("".join)
    sequence = st.lists(st.one_of(repeated, repeated, ASSERTIONS), max_size=4).map("".join)
    return st.lists(sequence, min_size=1, max_size=3).map("|".join)


PATTERNS = pieces(st.one_of(ATOMS, ATOMS, pieces(ATOMS).map(lambda p: f"({p})")))


@settings(max_examples=600, deadline=None)
@given(PATTERNS, st.text(alphabet="ab_c .1é", min_size=1, max_size=7))
def test_it_matches_exactly_where_the_standard_library_does(pattern: str, line: str) -> None:
    assert LinePattern(pattern).matches(line) == (re.search(pattern, line) is not None)


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        (r"^class \w+\(", "class Foo(Bar):", True),
        (r"^class \w+\(", "    class Foo(Bar):", False),
        (r"(?:def|class)\s+foo\b", "def foo():", True),
        (r"(?:def|class)\s+foo\b", "def foobar():", False),
        (r"(?P<name>a)b", "ab", True),
        (r"模块", "core模块", True),
        (r"[一-龥]{2}", "a模块", True),
        (r"\u6a21", "模", True),
        (r"a{x}", "a{x}", True),
        (r"[]a]", "]", True),
        (r"[\d\-]+$", "12-3", True),
        (r"\$\{", "${x}", True),
        ("", "anything", True),
        ("^$", "", True),
        ("a++b", "aab", True),
    ],
)
def test_the_usual_syntax_is_understood(pattern: str, line: str, expected: bool) -> None:
    assert LinePattern(pattern).matches(line) is expected


def test_case_is_ignored_when_asked_for() -> None:
    assert LinePattern("TODO [a-f]", ignore_case=True).matches("todo F")
    assert not LinePattern("TODO").matches("todo")


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "(a",
        "a)",
        "[",
        "[a",
        "*",
        "a**",
        "+a",
        "a{3,1}",
        "a{999}",
        "\\",
        r"(?=a)",
        r"(?<!a)",
        r"(a)\1",
        r"(?i)a",
        r"\p{L}",
        "[b-a]",
        r"\xZZ",
        r"\U00FFFFFF",
        "(((a{200}){200}){200})",
        "(" * 60 + ")" * 60,
        "x" * 501,
    ],
)
def test_what_is_broken_unsupported_or_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        LinePattern(pattern)


def test_memory_stays_bounded_for_a_pattern_with_many_states() -> None:
    pattern = LinePattern("a.{12}b")
    for seed in range(400):
        pattern.matches("".join("ab"[(seed * n * n >> 3) & 1] for n in range(300)))
    assert len(pattern._states) <= 3000
