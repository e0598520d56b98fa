"""Walking a directory through descriptors: no links are followed, and files are read where they were found."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from traces_app.workspace import ignore
from traces_app.workspace.budget import Budget
from traces_app.workspace.errors import Unreadable
from traces_app.workspace.roots import Opened

_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_DIRECTORY = _OPEN_FILE | os.O_DIRECTORY


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file; `path` is relative to the start of the walk. Readable only until the walk goes on."""

    path: str
    name: str
    size: int
    directory_fd: int

    def read(self, limit: int) -> bytes:
        """At most `limit` bytes. Raises Unreadable."""
        return read_at(self.directory_fd, self.name, limit)


def read_at(directory_fd: int, name: str, limit: int) -> bytes:
    try:
        fd = os.open(name, _OPEN_FILE, dir_fd=directory_fd)
    except OSError as error:
        raise Unreadable(f"{os.strerror(error.errno or 5).lower()}: {name}") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise Unreadable(f"not a regular file: {name}")
        return read_descriptor(fd, limit)
    finally:
        os.close(fd)


def read_descriptor(fd: int, limit: int) -> bytes:
    chunks = []
    while limit > 0:
        try:
            chunk = os.read(fd, min(limit, 1 << 20))
        except OSError as error:
            raise Unreadable(os.strerror(error.errno or 5).lower()) from None
        if not chunk:
            break
        chunks.append(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


class Walk:
    """Files in a fixed order: those of a directory by name, then its directories by name.

    After the iteration `truncated` says why not all were seen (`files`, `depth`, `entries`) or is None; `directories`
    counts those entered; one that can't be read is passed over.
    """

    MAX_DEPTH = 48
    MAX_ENTRIES = 100_000

    def __init__(self, start: Opened, budget: Budget, max_files: int) -> None:
        self._start = start
        self._budget = budget
        self._max_files = max_files
        self.files = 0
        self.directories = 0
        self.truncated: str | None = None

    def __iter__(self) -> Iterator[FoundFile]:
        yield from self._directory(self._start.fd, "", [], 0)

    def _directory(
        self, fd: int, prefix: str, rules: list[tuple[int, ignore.GitIgnore]], depth: int
    ) -> Iterator[FoundFile]:
        self.directories += 1
        entries = self._entries(fd)
        names = {name for name, _ in entries}
        if depth and ignore.ignored_contents(prefix.rstrip("/").rpartition("/")[2], names):
            self.directories -= 1
            return
        if ".gitignore" in names:
            rules = [*rules, (depth, _gitignore(fd))]
        above = prefix.split("/")[:-1]
        below: list[str] = []
        for name, entry in entries:
            self._budget.check()
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone since it was listed
            is_directory = stat.S_ISDIR(status.st_mode)
            if not is_directory and not stat.S_ISREG(status.st_mode):
                continue
            if is_directory and ignore.ignored_directory(name):
                continue
            if rules and _ignored(rules, [*above, name], is_directory):
                continue
            if is_directory:
                below.append(name)
                continue
            if self.files >= self._max_files:
                self.truncated = "files"
                return
            self.files += 1
            yield FoundFile(prefix + name, name, status.st_size, fd)
        for name in below:
            if depth >= self.MAX_DEPTH:
                self.truncated = self.truncated or "depth"
                return
            try:
                child = os.open(name, _OPEN_DIRECTORY, dir_fd=fd)
            except OSError:
                continue
            try:
                yield from self._directory(child, f"{prefix}{name}/", rules, depth + 1)
            finally:
                os.close(child)
            if self.truncated == "files":
                return

    def _entries(self, fd: int) -> list[tuple[str, os.DirEntry[str]]]:
        entries: list[tuple[str, os.DirEntry[str]]] = []
        try:
            with os.scandir(fd) as found:
                for entry in found:
                    if len(entries) >= self.MAX_ENTRIES:
                        self.truncated = self.truncated or "entries"
                        break
                    if len(entries) % 1000 == 0:
                        self._budget.check()
                    if presentable(entry.name):
                        entries.append((entry.name, entry))
        except OSError:
            pass  # what was listed before is shown
        entries.sort(key=lambda pair: pair[0])
        return entries


def presentable(name: str) -> bool:
    """Names that are not valid UTF-8 or hold control characters cannot be written into a message."""
    return name.isprintable() and not any("\ud800" <= c <= "\udfff" for c in name)


def _gitignore(fd: int) -> ignore.GitIgnore:
    try:
        return ignore.GitIgnore(read_at(fd, ".gitignore", ignore.MAX_GITIGNORE_BYTES).decode("utf-8", "replace"))
    except Unreadable:
        return ignore.GitIgnore("")


def _ignored(rules: list[tuple[int, ignore.GitIgnore]], parts: list[str], is_directory: bool) -> bool:
    for depth, rule in reversed(rules):
        decision = rule.decide(parts[depth:], is_directory)
        if decision is not None:
            return decision
    return False
