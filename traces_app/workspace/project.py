"""What a scan found, as plain data. Paths are relative to the scanned directory, with `/`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from traces_app.workspace import graph
from traces_app.workspace.errors import NotFound
from traces_app.workspace.python_source import ImportKind, Source

LANGUAGES = {
    "py": "Python", "pyi": "Python", "ipynb": "Jupyter", "js": "JavaScript", "mjs": "JavaScript", "cjs": "JavaScript",
    "jsx": "JavaScript", "ts": "TypeScript", "tsx": "TypeScript", "vue": "Vue", "svelte": "Svelte", "go": "Go",
    "rs": "Rust", "java": "Java", "kt": "Kotlin", "scala": "Scala", "c": "C", "h": "C/C++ header", "cc": "C++",
    "cpp": "C++", "cxx": "C++", "hpp": "C++", "cs": "C#", "swift": "Swift", "m": "Objective-C", "rb": "Ruby",
    "php": "PHP", "lua": "Lua", "r": "R", "jl": "Julia", "ex": "Elixir", "exs": "Elixir", "erl": "Erlang",
    "hs": "Haskell", "clj": "Clojure", "dart": "Dart", "sh": "Shell", "bash": "Shell", "ps1": "PowerShell",
    "sql": "SQL", "html": "HTML", "css": "CSS", "scss": "CSS", "less": "CSS", "md": "Markdown",
    "rst": "reStructuredText", "json": "JSON", "yaml": "YAML", "yml": "YAML", "toml": "TOML", "xml": "XML",
    "proto": "Protocol Buffers", "tf": "Terraform",
}  # fmt: skip
PROSE_AND_DATA = frozenset({"Markdown", "reStructuredText", "JSON", "YAML", "TOML", "XML", "HTML", "CSS", "Jupyter"})


@dataclass(frozen=True, slots=True)
class Edge:
    """One module imports another, first at `line`, in the strongest of the kinds it does so."""

    source: str
    target: str
    line: int
    kind: ImportKind


@dataclass(frozen=True, slots=True)
class Module:
    """`name` is dotted, from the scanned directory (or the package it is part of)."""

    name: str
    path: str
    is_package: bool
    is_test: bool
    size: int
    source: Source

    @property
    def lines(self) -> int:
        return self.source.lines


@dataclass(frozen=True, slots=True)
class Problem:
    path: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """`what`: `main` (a main guard), `package` (a `__main__.py`), or the name of a script in `pyproject.toml`."""

    path: str
    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Readme:
    path: str
    line: int
    title: str


@dataclass(frozen=True, slots=True)
class Folder:
    name: str
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class Part:
    """What a conversation calls a module: a top-level package or module, with everything below it."""

    name: str
    dotted: str
    path: str
    modules: tuple[str, ...]
    lines: int
    is_package: bool


@dataclass(frozen=True)
class Project:
    name: str
    path: str
    """Relative to the root it is in; `.` for the root itself."""
    modules: Mapping[str, Module]
    edges: tuple[Edge, ...]
    external: Mapping[str, tuple[str, ...]]
    """Third-party top-level names → the modules that import them."""
    problems: tuple[Problem, ...]
    entry_points: tuple[EntryPoint, ...]
    parts: tuple[Part, ...]
    """The largest packages first, then single modules; without tests."""
    package: str
    """The one package whose children the parts are, or empty."""
    languages: Mapping[str, tuple[int, int]]
    """Language → (files, bytes)."""
    folders: tuple[Folder, ...]
    readme: Readme | None
    files: int
    size: int
    seconds: float
    truncated: str | None = None
    """Why not everything was looked at (`files`, `depth`, `entries`, `bytes`), or None."""

    @cached_property
    def imports(self) -> Mapping[str, frozenset[str]]:
        """Module → the modules it imports when it is imported itself."""
        return _graph(self.modules, (e for e in self.edges if e.kind == "import"))

    @cached_property
    def all_imports(self) -> Mapping[str, frozenset[str]]:
        """The same with imports inside functions, without those for type checkers only."""
        return _graph(self.modules, (e for e in self.edges if e.kind != "typing"))

    @cached_property
    def cycles(self) -> list[list[str]]:
        """Groups of modules that import one another at import time, the largest first."""
        return graph.cycles(self.modules, self.imports)

    @cached_property
    def edge_lines(self) -> Mapping[tuple[str, str], Edge]:
        return {(e.source, e.target): e for e in self.edges}

    @cached_property
    def part_of(self) -> Mapping[str, Part]:
        return {name: part for part in self.parts for name in part.modules}

    @property
    def production(self) -> list[Module]:
        return [m for m in self.modules.values() if not m.is_test]

    @property
    def tests(self) -> list[Module]:
        return [m for m in self.modules.values() if m.is_test]

    def at(self, path: str, line: int = 0) -> str:
        """`path:line` from the root, as `read_file` takes it; without a line only the path."""
        path = path if self.path == "." else f"{self.path}/{path}"
        return f"{path}:{line}" if line else path

    def where(self, module: str, line: int) -> str:
        return self.at(self.modules[module].path, line)

    def find(self, asked: str) -> Part:
        """A part, or any package or module below, by short name, dotted name or path.

        Raises NotFound; `near` then holds the names it could have been.
        """
        wanted = asked.strip().strip("`'\"“”「」").removeprefix("./").rstrip("/")
        for fold in (str, str.lower):
            hits = [p for p in self.parts if fold(wanted) in (fold(p.name), fold(p.dotted), fold(p.path))]
            if len(hits) == 1:
                return hits[0]
        dotted = wanted.removesuffix(".py").replace("/", ".") if "/" in wanted or wanted.endswith(".py") else wanted
        for by_path in (m for m in self.modules.values() if m.path == wanted):
            return self._below(by_path.name)
        for suffixes in (False, True):
            for fold in (str, str.lower):
                found = {n for n in self._dotted_names if _names_it(fold(n), fold(dotted), suffixes)}
                if len(found) == 1:
                    return self._below(found.pop())
                if found:
                    near = tuple(sorted(found, key=lambda n: (n.count("."), n))[:10])
                    raise NotFound(f"more than one module is called {asked}", near=near)
        raise NotFound(f"no module is called {asked}", near=tuple(p.name for p in self.parts[:20]))

    @cached_property
    def _dotted_names(self) -> set[str]:
        names = set()
        for name in self.modules:
            while name:
                names.add(name)
                name = name.rpartition(".")[0]
        return names

    def _below(self, dotted: str) -> Part:
        for part in self.parts:
            if part.dotted == dotted:
                return part
        return make_part(dotted.rpartition(".")[2], dotted, self.modules.values(), tests=True)


def _names_it(name: str, wanted: str, suffixes: bool) -> bool:
    return name == wanted or (suffixes and name.endswith("." + wanted))


def _graph(modules: Iterable[str], edges: Iterable[Edge]) -> Mapping[str, frozenset[str]]:
    targets: dict[str, set[str]] = {name: set() for name in modules}
    for edge in edges:
        targets[edge.source].add(edge.target)
    return {name: frozenset(found) for name, found in targets.items()}


def make_part(name: str, dotted: str, modules: Iterable[Module], tests: bool = False) -> Part:
    """The part of everything called `dotted` or below it; tests only where they are asked for."""
    inside = [m for m in modules if (m.name == dotted or m.name.startswith(dotted + ".")) and (tests or not m.is_test)]
    own = next((m for m in inside if m.name == dotted), None)
    if own is not None:
        path = own.path.removesuffix("/__init__.py") if own.is_package else own.path
    else:
        path = _common_directory(dotted, inside)
    return Part(
        name=name,
        dotted=dotted,
        path=path,
        modules=tuple(sorted(m.name for m in inside)),
        lines=sum(m.lines for m in inside),
        is_package=own is None or own.is_package,
    )


def _common_directory(dotted: str, modules: list[Module]) -> str:
    """The directory of a package without `__init__.py`, from a module in it."""
    first = modules[0]
    below = first.name[len(dotted) + 1 :].count(".") + (0 if not first.is_package else 1)
    parts = first.path.split("/")[:-1]
    return "/".join(parts[: len(parts) - below]) if below else "/".join(parts)


def base_name(base: str) -> str:
    return base.rpartition(".")[2]
