"""Whether what was said about a directory is true: every place that is named must be there, and say what was said."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_PLACE = re.compile(r"([\w][\w./-]*\.\w+):(\d+)")
_COMPONENT = re.compile(r"^- (\w+)(?:\([^)]*\))?\s*[（(]([\w./-]+\.py):(\d+)[）)]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Facts:
    """How many places were checked, and what turned out wrong."""

    places: int
    components: int
    wrong: list[str]


def check(root: Path, text: str) -> Facts:
    """Check every `file:line` and every `- Name (file:line)` in `text` against the files below `root`."""
    wrong = []
    lines: dict[str, list[str]] = {}

    def line(name: str, number: int) -> str | None:
        if name not in lines:
            try:
                lines[name] = (root / name).read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                lines[name] = []
        return lines[name][number - 1] if 0 < number <= len(lines[name]) else None

    places = _PLACE.findall(text)
    for name, number in places:
        if line(name, int(number)) is None:
            wrong.append(f"there is no {name}:{number}")
    components = _COMPONENT.findall(text)
    for component, name, number in components:
        found = line(name, int(number)) or ""
        if not re.search(rf"\b{re.escape(component)}\b", found):
            wrong.append(f"{name}:{number} does not define {component}")
    return Facts(len(places), len(components), wrong)


def named_modules(root: Path, names: list[str]) -> list[str]:
    """Which of these modules have no file or folder of that name anywhere near the root."""
    missing = []
    for name in names:
        inside = name.replace(".", "/")
        places = (root, root / "src", root / "lib")
        candidates = [path for place in places for path in (place / inside, place / f"{inside}.py")]
        if not any(path.exists() for path in candidates) and not any(root.glob(f"*/{inside}")):
            missing.append(name)
    return missing
