"""Which module of the project an import statement means, without running anything.

Several directories may serve as import paths (the project's own, `src`, that of a script, those of a monorepo), so
each module answers to every dotted name that it has from a directory above it which is not itself a package.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from traces_app.workspace.project import Edge, Module
from traces_app.workspace.python_source import Import, ImportKind

_STRENGTH: dict[ImportKind, int] = {"import": 2, "lazy": 1, "typing": 0}
_SOURCE_DIRECTORIES = ("src", "lib", "python")

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    module: str
    base: Path
    in_package: bool


def module_path(path: str) -> Path:
    """`a/b/c.py` → (a, b, c); `a/b/__init__.py` → (a, b)."""
    parts = path.removesuffix(".py").split("/")
    return tuple(parts[:-1] if parts[-1] == "__init__" else parts)


class Resolver:
    """`above` is the dotted name of the package that the scanned directory itself is, or empty."""

    def __init__(self, modules: Mapping[str, Module], above: str) -> None:
        self._modules = modules
        self._above: Path = tuple(above.split(".")) if above else ()
        self._by_path: dict[Path, str] = {}
        self._by_name: dict[Path, list[_Candidate]] = defaultdict(list)
        self._tops: set[str] = set(self._above[:1])
        packages = {module_path(m.path) for m in modules.values() if m.is_package}
        for module in modules.values():
            own = module_path(module.path)
            self._by_path[own] = module.name
            if above:
                self._by_name[self._above + own].append(_Candidate(module.name, (), True))
            for cut in range(len(own)):
                base = own[:cut]
                if base in packages or (above and not cut):
                    continue
                in_package = own[: cut + 1] in packages
                self._by_name[own[cut:]].append(_Candidate(module.name, base, in_package))
                # A directory without `__init__.py` may as well be a folder of scripts called like a library.
                if (in_package or cut == len(own) - 1) and (not base or base[-1] in _SOURCE_DIRECTORIES):
                    self._tops.add(own[cut])

    def edges(self) -> tuple[list[Edge], dict[str, set[str]]]:
        """(imports between the modules, third-party top-level name → importing modules)."""
        found: dict[tuple[str, str], Edge] = {}
        external: dict[str, set[str]] = defaultdict(set)
        for module in self._modules.values():
            for statement in module.source.imports:
                for target in self._targets(module, statement, external):
                    if target == module.name:
                        continue
                    edge = Edge(module.name, target, statement.line, statement.kind)
                    known = found.get((module.name, target))
                    if known is None or _STRENGTH[edge.kind] > _STRENGTH[known.kind]:
                        found[module.name, target] = edge
        return sorted(found.values(), key=lambda e: (e.source, e.line, e.target)), external

    def _targets(self, module: Module, statement: Import, external: dict[str, set[str]]) -> Iterable[str]:
        dotted: Path = tuple(statement.module.split(".")) if statement.module else ()
        if statement.level:
            return self._relative(module, statement.level, dotted, statement.names)
        directory = tuple(module.path.split("/")[:-1])
        targets = set()
        for name in statement.names or ("",):
            target = self._absolute((*dotted, name), directory, exact=True) if name else None
            targets.add(target or self._absolute(dotted, directory, exact=False))
        if targets == {None}:
            top = dotted[0]
            if (
                top not in sys.stdlib_module_names
                and top != "__main__"
                and top not in self._tops
                and not module.is_test
            ):
                external[top].add(module.name)
        return [target for target in targets if target is not None]

    def _relative(self, module: Module, level: int, dotted: Path, names: tuple[str, ...]) -> Iterable[str]:
        directory = tuple(module.path.split("/")[:-1])
        if level - 1 > len(directory):
            return []  # leaves the scanned directory
        base = directory[: len(directory) - (level - 1)] + dotted
        targets = {self._by_path.get((*base, name)) or self._longest(base) for name in names}
        return [target for target in targets if target is not None]

    def _longest(self, path: Path) -> str | None:
        while path not in self._by_path and path:
            path = path[:-1]
        return self._by_path.get(path)

    def _absolute(self, dotted: Path, directory: Path, exact: bool) -> str | None:
        for end in (len(dotted),) if exact else range(len(dotted), 0, -1):
            chosen = self._choose(self._by_name.get(dotted[:end], ()), dotted[0], directory)
            if chosen is not None:
                return chosen
        return None

    def _choose(self, candidates: Iterable[_Candidate], top: str, directory: Path) -> str | None:
        """The candidate from the deepest import path at or above the importing file; else the only package."""
        near = [c for c in candidates if directory[: len(c.base)] == c.base or c.base[-1] in _SOURCE_DIRECTORIES]
        if top in sys.stdlib_module_names:
            # A file called like a standard module shadows it only from the project's own import path.
            near = [c for c in near if not c.base or c.base[-1] in _SOURCE_DIRECTORIES]
            candidates = ()
        if near:
            return max(near, key=lambda c: len(c.base)).module
        packages = [c for c in candidates if c.in_package]
        return packages[0].module if len(packages) == 1 else None
