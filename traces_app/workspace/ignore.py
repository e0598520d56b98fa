"""What a walk leaves out: version control, environments, caches, build outputs, and what `.gitignore` names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from functools import lru_cache

IGNORED_DIRECTORIES = frozenset(
    [
        ".git",
        ".hg",
        ".svn",
        ".bzr",
        ".venv",
        ".tox",
        ".nox",
        ".direnv",
        ".eggs",
        ".cache",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".idea",
        ".vscode",
        ".next",
        ".nuxt",
        ".gradle",
        ".terraform",
        ".svelte-kit",
        ".parcel-cache",
        "node_modules",
        "bower_components",
        "__pycache__",
        "__pypackages__",
        "site-packages",
        "htmlcov",
    ]
)
# Names of outputs that are also honest package names: left out only when they hold no package.
OUTPUT_DIRECTORIES = frozenset(["venv", "env", "ENV", "build", "dist", "target", "out", "coverage"])
# A file that marks its directory as one to leave out.
MARKERS = frozenset(("pyvenv.cfg", "CACHEDIR.TAG"))

MAX_GITIGNORE_BYTES = 64 * 1024
_MAX_PATTERNS = 1000
_MAX_PATTERN_LENGTH = 200


def ignored_directory(name: str) -> bool:
    return name in IGNORED_DIRECTORIES or name.endswith((".egg-info", ".dist-info"))


def ignored_contents(name: str, names: set[str]) -> bool:
    """Whether a directory called `name` that holds `names` is an environment, a cache or a build output."""
    return bool(MARKERS & names) or (name in OUTPUT_DIRECTORIES and "__init__.py" not in names)


class GitIgnore:
    """The patterns of one `.gitignore`; the last one that matches decides, as in git."""

    def __init__(self, text: str) -> None:
        self._names: dict[str, list[int]] = {}
        self._matchers: list[tuple[int, Callable[[list[str]], bool]]] = []
        self._flags: list[tuple[bool, bool]] = []  # (negated, directories only)
        for line in text.splitlines()[: _MAX_PATTERNS * 4]:
            self._add(line)
            if len(self._flags) >= _MAX_PATTERNS:
                break

    def _add(self, line: str) -> None:
        pattern = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n\t"))
        if not pattern or pattern.startswith("#") or len(pattern) > _MAX_PATTERN_LENGTH:
            return
        negated = pattern.startswith("!")
        pattern = pattern[1:] if negated else pattern
        directories_only = pattern.endswith("/")
        pattern = pattern.rstrip("/")
        if not pattern:
            return
        index = len(self._flags)
        self._flags.append((negated, directories_only))
        if "/" not in pattern:
            if not re.search(r"[*?\[\\]", pattern):
                self._names.setdefault(pattern, []).append(index)
            else:
                matches = _segment(pattern)
                self._matchers.append((index, lambda parts: matches(parts[-1])))
        else:
            segments = [None if s == "**" else _segment(s) for s in pattern.lstrip("/").split("/")]
            self._matchers.append((index, lambda parts: _match_path(segments, parts)))

    def decide(self, parts: list[str], is_directory: bool) -> bool | None:
        """`parts`: the path below this file's directory. True: ignored; False: kept by a `!`; None: says nothing."""
        best = -1
        for index in self._names.get(parts[-1], ()):
            if is_directory or not self._flags[index][1]:
                best = max(best, index)
        for index, matches in reversed(self._matchers):
            if index < best:
                break
            if (is_directory or not self._flags[index][1]) and matches(parts):
                best = index
                break
        return None if best < 0 else not self._flags[best][0]


@lru_cache(maxsize=4096)
def _segment(pattern: str) -> Callable[[str], bool]:
    # fnmatch's translation has atomic groups: no pattern makes it backtrack without end.
    compiled = re.compile(fnmatch.translate(re.sub(r"\\(.)", r"\1", pattern)))
    return lambda name: compiled.match(name) is not None


def _match_path(segments: list[Callable[[str], bool] | None], parts: list[str]) -> bool:
    """Whether the segments (None: `**`) cover all parts; quadratic at worst."""
    reachable = {0}
    for i, segment in enumerate(segments):
        last = i == len(segments) - 1
        if segment is None:
            if not reachable:
                return False
            # A trailing ** needs something below it.
            reachable = set(range(min(reachable) + (1 if last else 0), len(parts) + 1))
        else:
            reachable = {at + 1 for at in reachable if at < len(parts) and segment(parts[at])}
    return len(parts) in reachable
