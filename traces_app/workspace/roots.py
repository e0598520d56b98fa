"""The only door to the file system: paths are confined to the directories that an operator allowed."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from traces_app.workspace.errors import NotFound, OutsideRoots, Unreadable, WorkspaceError, WrongKind

# O_NONBLOCK: opening a pipe that nobody writes to must not hang.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_LINKS = 40
_MAX_DEPTH = 100
_MAX_PATH = 4096
_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9]|lpt[0-9])(\..*)?$", re.IGNORECASE)


@dataclass(slots=True)
class Opened:
    """An open descriptor inside a root. `relative` is the real path below that root with `/`, `.` for the root itself."""

    fd: int
    root: Path
    relative: str
    status: os.stat_result

    @property
    def path(self) -> Path:
        return self.root if self.relative == "." else self.root / self.relative

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Roots:
    """Directories that may be read; none by default, and then nothing may.

    Paths are relative to the first root that has them, or absolute below one of them. Every component is opened
    relative to the descriptor of the one before and never through a link; links are followed here, by hand, and only
    as long as they stay inside a root. So there is no moment between a check and a use in which a link could be put
    in the way. POSIX only, like the hub itself.
    """

    def __init__(self, directories: Iterable[str | Path] = ()) -> None:
        self._roots: list[tuple[Path, tuple[Path, ...]]] = []
        for directory in directories:
            given = Path(os.path.abspath(directory))
            real = Path(os.path.realpath(given))
            if all(real != known for known, _ in self._roots):
                self._roots.append((real, (real, given) if given != real else (real,)))

    def __bool__(self) -> bool:
        return bool(self._roots)

    def __repr__(self) -> str:
        return f"Roots({[str(real) for real, _ in self._roots]})"

    @property
    def directories(self) -> tuple[Path, ...]:
        return tuple(real for real, _ in self._roots)

    def resolve(self, path: str | Path) -> Path:
        """The real absolute path of something that exists inside a root. For showing; to read, use `open`."""
        with self.open(path) as opened:
            return opened.path

    def open(self, path: str | Path) -> Opened:
        """Raises OutsideRoots, NotFound, WrongKind (neither file nor directory) or Unreadable."""
        text = _refuse_odd_paths(str(path))
        if not self._roots:
            raise OutsideRoots("no directory is open to reading: no roots are configured")
        missing: NotFound | None = None
        for root, names in self._starts(text):
            try:
                return self._descend(root, names, text)
            except NotFound as error:
                missing = missing or error
        if missing is None:
            raise OutsideRoots(f"outside the allowed directories: {_shown(text)}")
        raise missing

    def open_directory(self, path: str | Path) -> Opened:
        opened = self.open(path)
        if not opened.is_directory:
            opened.close()
            raise WrongKind(f"not a directory: {_shown(str(path))}")
        return opened

    def open_file(self, path: str | Path) -> Opened:
        opened = self.open(path)
        if opened.is_directory:
            opened.close()
            raise WrongKind(f"a directory, not a file: {_shown(str(path))}")
        return opened

    def _starts(self, text: str) -> list[tuple[Path, list[str]]]:
        """(root, names below it) to try in order; an absolute path outside every root gives none."""
        names = _split(text)
        if not text.startswith("/"):
            return [(root, names) for root, _ in self._roots]
        found = []
        for root, spellings in self._roots:
            for spelling in spellings:
                above = list(spelling.parts[1:])
                if names[: len(above)] == above:
                    found.append((root, names[len(above) :]))
                    break
        # The deepest root first: with nested roots it is the tighter one.
        return sorted(found, key=lambda start: len(start[1]))

    def _descend(self, root: Path, names: list[str], asked: str) -> Opened:
        pending = names[::-1]
        links = 0
        stack: list[tuple[str, int]] = []
        try:
            stack.append((".", _open_root(root)))
            while pending:
                if len(pending) + len(stack) > _MAX_DEPTH:
                    raise Unreadable(f"too deep: {_shown(asked)}")
                name = pending.pop()
                if name == "..":
                    if len(stack) == 1:
                        raise OutsideRoots(f"outside the allowed directories: {_shown(asked)}")
                    os.close(stack.pop()[1])
                    continue
                try:
                    stack.append((name, os.open(name, _FLAGS, dir_fd=stack[-1][1])))
                    continue
                except OSError as error:
                    if error.errno not in (errno.ELOOP, errno.EMLINK):
                        raise _translated(error, asked) from None
                links += 1
                if links > _MAX_LINKS:
                    raise Unreadable(f"too many links: {_shown(asked)}")
                try:
                    target = os.readlink(name, dir_fd=stack[-1][1])
                except OSError as error:  # it was replaced just now
                    raise _translated(error, asked) from None
                if not target.startswith("/"):
                    pending.extend(_split(target)[::-1])
                    continue
                starts = self._starts(target)
                if not starts:
                    raise OutsideRoots(f"a link leads outside the allowed directories: {_shown(asked)}")
                root, rest = starts[0]
                pending.extend(rest[::-1])
                while stack:
                    os.close(stack.pop()[1])
                stack.append((".", _open_root(root)))
            fd = stack[-1][1]
            status = os.fstat(fd)
            if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                raise WrongKind(f"neither a file nor a directory: {_shown(asked)}")
            stack_names = [name for name, _ in stack[1:]]
            stack[-1] = (stack[-1][0], -1)
            return Opened(fd, root, "/".join(stack_names) or ".", status)
        finally:
            for _, fd in stack:
                if fd >= 0:
                    os.close(fd)


def _open_root(root: Path) -> int:
    try:
        return os.open(root, _FLAGS | os.O_DIRECTORY)
    except OSError:
        raise NotFound("an allowed directory does not exist any more") from None


def _split(text: str) -> list[str]:
    return [name for name in text.split("/") if name not in ("", ".")]


def _shown(text: str) -> str:
    """What the caller wrote, harmless in a log line or a terminal."""
    safe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return safe if len(safe) <= 200 else safe[:200] + "…"


def _translated(error: OSError, asked: str) -> WorkspaceError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return NotFound(f"no such file or directory: {_shown(asked)}")
    if error.errno in (errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP):
        return WrongKind(f"neither a file nor a directory: {_shown(asked)}")
    return Unreadable(f"{os.strerror(error.errno or errno.EIO).lower()}: {_shown(asked)}")


def _refuse_odd_paths(text: str, windows: bool = os.name == "nt") -> str:
    """Paths that mean something else elsewhere are refused on every system; device names where they are devices."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise OutsideRoots("not a path: a lone surrogate") from None
    if not text or len(text) > _MAX_PATH or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise OutsideRoots("not a path: empty, too long or with control characters")
    if "\\" in text or _DRIVE.match(text):
        raise OutsideRoots(f"outside the allowed directories (write paths with /): {_shown(text)}")
    if windows and any(":" in name or _DEVICE.match(name) for name in text.split("/")):
        raise OutsideRoots(f"a device name: {_shown(text)}")
    return text
