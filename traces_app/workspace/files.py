"""List, read and search: each bounded in entries, bytes, matches and time, each confined to the roots."""

from __future__ import annotations

import codecs
import difflib
import fnmatch
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from traces_app.workspace import ignore
from traces_app.workspace.budget import Budget
from traces_app.workspace.errors import Binary, InvalidPattern, NotFound, Timeout, TooLarge, Unreadable
from traces_app.workspace.pattern import LinePattern
from traces_app.workspace.roots import Opened, Roots
from traces_app.workspace.walk import FoundFile, Walk, presentable, read_descriptor

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_TEXT_CHARACTERS = 64 * 1024
MAX_LINE_CHARACTERS = 2000
MAX_LIST_ENTRIES = 1000
_SNIFF = 8192

Kind = Literal["file", "directory", "link", "other"]


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    kind: Kind
    size: int
    """Bytes of a file; 0 for anything else."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Directories first, then files, by name. `hidden`: caches, environments and the like that were left out."""

    path: str
    entries: tuple[Entry, ...]
    hidden: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class FileText:
    """Lines `first_line` to `last_line` (from 1, inclusive; last < first when there are none) of `total_lines`."""

    path: str
    text: str
    first_line: int
    last_line: int
    total_lines: int
    size: int
    truncated: bool
    """The text was cut at the character limit: `last_line` says how far it goes."""
    replaced: bool
    """Bytes that are not text in the file's encoding were replaced by U+FFFD."""


@dataclass(frozen=True, slots=True)
class Match:
    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`stopped`: which limit ended the search early, else None; what was found until then is here."""

    query: str
    matches: tuple[Match, ...]
    files_searched: int
    stopped: Literal["matches", "files", "bytes", "time"] | None


def list_directory(roots: Roots, path: str, budget: Budget, limit: int = MAX_LIST_ENTRIES) -> Listing:
    """Raises OutsideRoots, NotFound, WrongKind, Unreadable, Timeout."""
    with roots.open_directory(path) as opened:
        found: list[Entry] = []
        hidden = 0
        truncated = False
        with os.scandir(opened.fd) as entries:
            for entry in entries:
                budget.check()
                if not presentable(entry.name) or ignore.ignored_directory(entry.name):
                    hidden += 1
                    continue
                if len(found) >= max(1, min(limit, MAX_LIST_ENTRIES)):
                    truncated = True
                    break
                found.append(_entry(entry))
        found.sort(key=lambda e: (e.kind != "directory", e.name))
        return Listing(opened.relative, tuple(found), hidden, truncated)


def _entry(entry: os.DirEntry[str]) -> Entry:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return Entry(entry.name, "other", 0)
    if stat.S_ISDIR(status.st_mode):
        return Entry(entry.name, "directory", 0)
    if stat.S_ISREG(status.st_mode):
        return Entry(entry.name, "file", status.st_size)
    return Entry(entry.name, "link" if stat.S_ISLNK(status.st_mode) else "other", 0)


def read_file(roots: Roots, path: str, budget: Budget, first_line: int = 1, last_line: int | None = None) -> FileText:
    """The text of a file, or some of its lines. A file over 4 MiB is refused, a text over 64 Ki characters is cut.

    UTF-8, or UTF-16 with its mark. Raises OutsideRoots, NotFound (with names that are near), WrongKind, Unreadable,
    TooLarge, Binary.
    """
    try:
        opened = roots.open_file(path)
    except NotFound as error:
        raise NotFound(str(error), near=_near(roots, path, budget)) from None
    with opened:
        if opened.status.st_size > MAX_FILE_BYTES:
            raise TooLarge(f"{opened.relative} has {opened.status.st_size} bytes; the limit is {MAX_FILE_BYTES}")
        # One byte more than the limit: it may have grown since, and some files have no size.
        data = read_descriptor(opened.fd, MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise TooLarge(f"{opened.relative} has more than {MAX_FILE_BYTES} bytes")
        text, replaced = decode(data, opened.relative)
    lines = split_lines(text)
    first = max(1, first_line)
    last = len(lines) if last_line is None else min(len(lines), last_line)
    chosen: list[str] = []
    size = 0
    for line in lines[first - 1 : max(last, 0)]:
        size += len(line) + 1
        if size > MAX_TEXT_CHARACTERS:
            break
        chosen.append(line)
    if not chosen and first <= last:  # one line alone is over the limit
        cut = lines[first - 1][:MAX_TEXT_CHARACTERS]
        return FileText(opened.relative, cut, first, first, len(lines), len(data), True, replaced)
    reached = first + len(chosen) - 1
    return FileText(opened.relative, "\n".join(chosen), first, reached, len(lines), len(data), reached < last, replaced)


def decode(data: bytes, name: str) -> tuple[str, bool]:
    """(text, whether anything was replaced). Raises Binary."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and len(data) % 2 == 0:
        try:
            return data.decode("utf-16"), False
        except UnicodeDecodeError:
            raise Binary(f"{name} is not a text file") from None
    if b"\0" in data[:_SNIFF]:
        raise Binary(f"{name} is not a text file")
    try:
        return data.decode("utf-8-sig").replace("\0", "\N{REPLACEMENT CHARACTER}"), False
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
    head = text[:_SNIFF]
    odd = sum(c == "\N{REPLACEMENT CHARACTER}" or (ord(c) < 32 and c not in "\t\n\r\f\x1b") for c in head)
    if odd * 3 > len(head):
        raise Binary(f"{name} is not a text file")
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}"), True


def split_lines(text: str) -> list[str]:
    """Lines as editors and compilers count them; `str.splitlines` would also split at form feeds and U+2028."""
    lines = re.split(r"\r\n|\n|\r", text)
    if lines and not lines[-1]:
        lines.pop()
    return lines


def search_files(
    roots: Roots,
    query: str,
    path: str,
    budget: Budget,
    *,
    regex: bool = False,
    ignore_case: bool = False,
    glob: str = "",
    max_matches: int = 100,
    max_files: int = 20_000,
    max_bytes: int = 64 * 1024 * 1024,
) -> SearchResult:
    """Lines that hold `query`, a literal by default; with `regex` a pattern that runs in linear time (see `pattern`).

    `path` is a directory or one file; `glob` (`*.py`) narrows by name or path. Ignored, binary and large files are
    skipped. Running out of time is a result (`stopped: "time"`), a cancelled search is not (Cancelled).
    Raises OutsideRoots, NotFound, WrongKind, Unreadable, InvalidPattern.
    """
    if not query or len(query) > 1000 or "\n" in query:
        raise InvalidPattern("the text to search for must have 1 to 1000 characters and be one line")
    matches_line = _matcher(query, regex, ignore_case)
    wanted = _glob(glob)
    found: list[Match] = []
    stopped: Literal["matches", "files", "bytes", "time"] | None = None
    searched = read = 0
    with roots.open(path) as opened:
        prefix = "" if opened.relative == "." or not opened.is_directory else opened.relative + "/"
        walk = Walk(opened, budget, max_files) if opened.is_directory else None
        try:
            for file in walk or [None]:
                if file is not None and (file.size > MAX_FILE_BYTES or not wanted(file.path)):
                    continue
                name, data = _contents(opened, file, prefix)
                read += len(data)
                searched += 1
                if data and not _search_one(name, data, matches_line, budget, found, max_matches):
                    stopped = "matches"
                    break
                if read > max_bytes:
                    stopped = "bytes"
                    break
        except Timeout:
            stopped = "time"
        if stopped is None and walk is not None and walk.truncated:
            stopped = "files"
    return SearchResult(query, tuple(found), searched, stopped)


def _matcher(query: str, regex: bool, ignore_case: bool) -> Callable[[str], bool]:
    if regex:
        return LinePattern(query, ignore_case).matches
    if ignore_case:
        folded = query.casefold()
        return lambda line: folded in line.casefold()
    return lambda line: query in line


def _glob(glob: str) -> Callable[[str], bool]:
    if not glob:
        return lambda path: True
    if len(glob) > 200:
        raise InvalidPattern("the name pattern is longer than 200 characters")
    compiled = re.compile(fnmatch.translate(glob))
    return lambda path: bool(compiled.match(path) or compiled.match(path.rpartition("/")[2]))


def _contents(opened: Opened, file: FoundFile | None, prefix: str) -> tuple[str, bytes]:
    """(name to show, bytes); no bytes where it cannot be read. Without `file` it is what was opened itself."""
    try:
        if file is not None:
            return prefix + file.path, file.read(MAX_FILE_BYTES)
        return opened.relative, read_descriptor(opened.fd, MAX_FILE_BYTES)
    except Unreadable:
        return opened.relative, b""


def _search_one(
    name: str,
    data: bytes,
    matches_line: Callable[[str], bool],
    budget: Budget,
    found: list[Match],
    max_matches: int,
) -> bool:
    """Appends to `found`; False when that is full."""
    try:
        text, _ = decode(data, name)
    except Binary:
        return True
    for number, line in enumerate(split_lines(text), 1):
        if number % 200 == 0:
            budget.check()
        line = line[:MAX_LINE_CHARACTERS]
        if matches_line(line):
            found.append(Match(name, number, line.strip()[:300]))
            if len(found) >= max_matches:
                return False
    return True


def _near(roots: Roots, path: str, budget: Budget) -> tuple[str, ...]:
    """Paths of files that are called like the missing one, the same name first."""
    name = path.rstrip("/").rpartition("/")[2]
    if not name or not roots:
        return ()
    same: list[str] = []
    others: dict[str, str] = {}
    try:
        with roots.open_directory(".") as opened:
            for file in Walk(opened, budget, 5000):
                if file.name == name:
                    same.append(file.path)
                else:
                    others.setdefault(file.name, file.path)
    except (NotFound, Unreadable, Timeout):
        pass  # a hint only
    close = difflib.get_close_matches(name, list(others), 3, 0.7)
    return tuple([*same, *(others[c] for c in close)][:3])
