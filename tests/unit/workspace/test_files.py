from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.workspace.trees import plant
from traces_app.workspace import files
from traces_app.workspace.budget import Budget
from traces_app.workspace.errors import (
    Binary,
    Cancelled,
    InvalidPattern,
    NotFound,
    OutsideRoots,
    Timeout,
    TooLarge,
    Unreadable,
    WrongKind,
)
from traces_app.workspace.files import list_directory, read_file, search_files
from traces_app.workspace.roots import Roots


class Clock:
    """Time that passes by `step` at each look."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_a_listing_has_directories_first_and_hides_caches(tmp_path: Path) -> None:
    plant(tmp_path, {"b.txt": "12345", "a/x": "", "__pycache__/y.pyc": "", ".git/config": "", "z/x": ""})
    os.symlink("b.txt", tmp_path / "link")
    found = list_directory(Roots([tmp_path]), ".", Budget())
    assert [(e.name, e.kind, e.size) for e in found.entries] == [
        ("a", "directory", 0),
        ("z", "directory", 0),
        ("b.txt", "file", 5),
        ("link", "link", 0),
    ]
    assert (found.hidden, found.truncated) == (2, False)


def test_a_listing_is_bounded_and_says_so(tmp_path: Path) -> None:
    plant(tmp_path, {f"{n}.txt": "" for n in range(30)})
    found = list_directory(Roots([tmp_path]), ".", Budget(), limit=10)
    assert len(found.entries) == 10
    assert found.truncated


def test_a_file_is_listed_and_a_directory_read_with_an_error_that_says_so(tmp_path: Path) -> None:
    roots = Roots([plant(tmp_path, {"a/b.txt": ""})])
    with pytest.raises(WrongKind):
        list_directory(roots, "a/b.txt", Budget())
    with pytest.raises(WrongKind):
        read_file(roots, "a", Budget())


def test_a_range_of_lines_is_exact(tmp_path: Path) -> None:
    roots = Roots([plant(tmp_path, {"a.txt": "".join(f"line {n}\n" for n in range(1, 11))})])
    found = read_file(roots, "a.txt", Budget(), 3, 5)
    assert found.text == "line 3\nline 4\nline 5"
    assert (found.first_line, found.last_line, found.total_lines, found.truncated) == (3, 5, 10, False)
    assert read_file(roots, "a.txt", Budget(), 9, 99).text == "line 9\nline 10"
    beyond = read_file(roots, "a.txt", Budget(), 11, 20)
    assert (beyond.text, beyond.last_line < beyond.first_line) == ("", True)


@pytest.mark.parametrize(
    ("content", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\n\n", 2), ("a\r\nb\rc", 3), ("a\x0cb\u2028c\n", 1)]
)
def test_lines_are_counted_as_editors_do(tmp_path: Path, content: str, lines: int) -> None:
    roots = Roots([plant(tmp_path, {"a.txt": content})])
    assert read_file(roots, "a.txt", Budget()).total_lines == lines


def test_a_long_text_is_cut_at_a_line_and_says_where(tmp_path: Path) -> None:
    roots = Roots([plant(tmp_path, {"a.txt": "x" * 999 + "\n" + ("y" * 999 + "\n") * 200, "one.txt": "z" * 200_000})])
    found = read_file(roots, "a.txt", Budget())
    assert found.truncated
    assert len(found.text) <= files.MAX_TEXT_CHARACTERS
    assert found.last_line == found.text.count("\n") + 1
    one = read_file(roots, "one.txt", Budget())
    assert (len(one.text), one.truncated) == (files.MAX_TEXT_CHARACTERS, True)


def test_a_huge_file_is_refused_without_being_read(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(files.MAX_FILE_BYTES + 1)
    with pytest.raises(TooLarge) as refused:
        read_file(Roots([tmp_path]), "huge.txt", Budget())
    assert refused.value.code == "too_large"


@pytest.mark.parametrize(
    "content", [b"\0\0\0", b"PNG\r\n\x1a\n\0\0", bytes(range(128, 256)) * 20, b"\xff\xfe\x00\xd8\x00\x00"]
)
def test_binary_files_are_refused(tmp_path: Path, content: bytes) -> None:
    roots = Roots([plant(tmp_path, {"a.bin": content})])
    with pytest.raises(Binary):
        read_file(roots, "a.bin", Budget())


def test_encodings_are_understood_or_replaced(tmp_path: Path) -> None:
    roots = Roots(
        [
            plant(
                tmp_path,
                {
                    "bom.txt": b"\xef\xbb\xbfhi",
                    "utf16.txt": "模块".encode("utf-16"),
                    "latin.txt": b"caf\xe9 au lait, and more of it",
                },
            )
        ]
    )
    assert read_file(roots, "bom.txt", Budget()).text == "hi"
    assert read_file(roots, "utf16.txt", Budget()).text == "模块"
    latin = read_file(roots, "latin.txt", Budget())
    assert (latin.text, latin.replaced) == ("caf\N{REPLACEMENT CHARACTER} au lait, and more of it", True)


def test_a_missing_file_is_told_with_names_that_are_near(tmp_path: Path) -> None:
    roots = Roots([plant(tmp_path, {"src/settings.py": "", "README.md": ""})])
    with pytest.raises(NotFound) as missing:
        read_file(roots, "settings.py", Budget())
    assert missing.value.near == ("src/settings.py",)
    with pytest.raises(NotFound) as missing:
        read_file(roots, "READM.md", Budget())
    assert missing.value.near == ("README.md",)


def test_a_file_without_permission_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = Roots([plant(tmp_path, {"a.txt": ""})])
    real_open = os.open

    def refusing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "a.txt":
            raise PermissionError(13, "denied")
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(Unreadable, match="permission denied"):
        read_file(roots, "a.txt", Budget())


def test_search_finds_lines_with_their_places_in_a_fixed_order(tmp_path: Path) -> None:
    roots = Roots([plant(tmp_path, {"b.py": "x = 1\ny = TODO\n", "a/c.py": "# TODO\n", "a/d.txt": "todo\n"})])
    found = search_files(roots, "TODO", ".", Budget())
    assert [(m.path, m.line, m.text) for m in found.matches] == [("b.py", 2, "y = TODO"), ("a/c.py", 1, "# TODO")]
    assert (found.files_searched, found.stopped) == (3, None)
    assert [m.path for m in search_files(roots, "todo", "a", Budget(), ignore_case=True).matches] == [
        "a/c.py",
        "a/d.txt",
    ]
    assert [m.path for m in search_files(roots, "TODO", ".", Budget(), glob="a/*.py").matches] == ["a/c.py"]
    assert [m.line for m in search_files(roots, "TODO", "b.py", Budget()).matches] == [2]


def test_a_literal_search_takes_no_character_for_a_pattern(tmp_path: Path) -> None:
    roots = Roots([plant(tmp_path, {"a.py": "a.b\naxb\n(x+\n"})])
    assert [m.line for m in search_files(roots, "a.b", ".", Budget()).matches] == [1]
    assert [m.line for m in search_files(roots, "(x+", ".", Budget()).matches] == [3]
    assert [m.line for m in search_files(roots, r"a.b", ".", Budget(), regex=True).matches] == [1, 2]


def test_search_skips_what_is_ignored_binary_or_huge(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            ".git/x": "needle",
            "node_modules/x.js": "needle",
            "a.bin": b"needle\0",
            ".gitignore": "*.log\n/out/\n",
            "x.log": "needle",
            "out/x": "needle",
            "ok.txt": "needle",
            "env/pyvenv.cfg": "",
            "env/x.py": "needle",
        },
    )
    (tmp_path / "huge.txt").write_bytes(b"needle" + b"x" * files.MAX_FILE_BYTES)
    os.symlink("/etc", tmp_path / "etc")
    assert [m.path for m in search_files(Roots([tmp_path]), "needle", ".", Budget()).matches] == ["ok.txt"]


def test_each_limit_of_a_search_is_named(tmp_path: Path) -> None:
    roots = Roots([plant(tmp_path, {f"{n:02}.txt": "needle\n" * 10 for n in range(20)})])
    assert search_files(roots, "needle", ".", Budget(), max_matches=15).stopped == "matches"
    assert len(search_files(roots, "needle", ".", Budget(), max_matches=15).matches) == 15
    assert search_files(roots, "needle", ".", Budget(), max_files=5).stopped == "files"
    assert search_files(roots, "needle", ".", Budget(), max_bytes=100).stopped == "bytes"
    late = search_files(roots, "needle", ".", Budget(1.0, clock=Clock(0.1)))
    assert late.stopped == "time"
    assert late.files_searched < 20


def test_a_cancelled_search_raises_and_gives_nothing(tmp_path: Path) -> None:
    roots = Roots([plant(tmp_path, {"a.txt": "needle"})])
    with pytest.raises(Cancelled):
        search_files(roots, "needle", ".", Budget(cancelled=lambda: True))


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+b", "(x+x+)+y", "(.*)*(.*)*z", "a{0,200}a{0,200}a{0,200}b"])
def test_a_pattern_made_to_backtrack_costs_no_more_than_a_plain_one(tmp_path: Path, pattern: str) -> None:
    roots = Roots([plant(tmp_path, {"a.txt": ("a" * 1900 + "!\n") * 20})])
    found = search_files(roots, pattern, ".", Budget(60), regex=True)
    assert (found.matches, found.stopped) == ((), None)


@pytest.mark.parametrize("query", ["", "a\nb", "x" * 1001])
def test_an_empty_or_endless_query_is_refused(tmp_path: Path, query: str) -> None:
    with pytest.raises(InvalidPattern):
        search_files(Roots([tmp_path]), query, ".", Budget())


def test_a_search_outside_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutsideRoots):
        search_files(Roots([tmp_path]), "x", "../", Budget())


def test_the_budget_asks_for_cancel_seldom_and_for_the_time_always() -> None:
    clock = Clock()
    asked: list[float] = []

    def cancelled() -> bool:
        asked.append(clock.now)
        return False

    budget = Budget(10.0, cancelled=cancelled, clock=clock)
    for _ in range(100):
        clock.now += 0.01
        budget.check()
    assert 8 <= len(asked) <= 12
    clock.now = 10.0
    assert budget.expired()
    with pytest.raises(Timeout):
        budget.check()
