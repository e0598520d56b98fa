"""Scanning a project: what it consists of and what imports what, without running any of it."""

from __future__ import annotations

import re
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from traces_app.workspace.budget import Budget
from traces_app.workspace.errors import Unreadable, WorkspaceError
from traces_app.workspace.project import (
    LANGUAGES,
    EntryPoint,
    Folder,
    Module,
    Part,
    Problem,
    Project,
    Readme,
    make_part,
)
from traces_app.workspace.python_imports import Resolver, module_path
from traces_app.workspace.python_source import SourceError, parse
from traces_app.workspace.roots import Opened, Roots
from traces_app.workspace.walk import FoundFile, Walk

# Never parts of a project that has packages: what builds, tests and documents it.
_TOOLING = frozenset(
    [
        "setup",
        "conftest",
        "noxfile",
        "fabfile",
        "versioneer",
        "manage",
        "tasks",
        "docs",
        "doc",
        "examples",
        "example",
        "scripts",
        "tools",
        "benchmarks",
    ]
)
_SOURCE_DIRECTORIES = ("src", "lib", "python")


@dataclass(frozen=True, slots=True)
class ScanLimits:
    files: int = 20_000
    python_files: int = 5_000
    file_bytes: int = 1024 * 1024
    python_bytes: int = 96 * 1024 * 1024


@dataclass(slots=True)
class _Tally:
    """What the walk gathers besides the modules."""

    languages: Counter[str]
    language_bytes: Counter[str]
    folders: Counter[str]
    folder_bytes: Counter[str]
    size: int = 0
    readme: Readme | None = None
    scripts: tuple[EntryPoint, ...] = ()


def scan(roots: Roots, path: str = ".", budget: Budget | None = None, limits: ScanLimits | None = None) -> Project:
    """Facts about the directory `path`; a few seconds for a thousand files.

    Files that do not parse become `problems`. Raises OutsideRoots, NotFound, WrongKind, Unreadable, Timeout (half a scan
    would state things that are not true) and Cancelled. Limits in number and size do not raise: see `truncated`.
    """
    started = time.monotonic()
    budget = budget or Budget()
    limits = limits or ScanLimits()
    with roots.open_directory(path) as opened:
        above = _packages_above(roots, opened)
        walk = Walk(opened, budget, limits.files)
        tally = _Tally(Counter(), Counter(), Counter(), Counter())
        sources, problems, cut = _read_all(walk, budget, limits, tally)
        relative, name = opened.relative, opened.path.name or "/"
    package_itself = "__init__.py" in sources
    above = [*above, name] if package_itself else []
    modules = _modules(sources, problems, ".".join(above), budget)
    edges, external = Resolver(modules, ".".join(above)).edges()
    parts, package = find_parts(modules, ".".join(above))
    return Project(
        name=name,
        path=relative,
        modules=modules,
        edges=tuple(edges),
        external={top: tuple(sorted(users)) for top, users in sorted(external.items())},
        problems=tuple(sorted(problems, key=lambda p: p.path)),
        entry_points=tally.scripts + tuple(_entry_points(modules.values())),
        parts=parts,
        package=package,
        languages={
            language: (count, tally.language_bytes[language]) for language, count in tally.languages.most_common()
        },
        folders=tuple(
            Folder(folder, count, tally.folder_bytes[folder]) for folder, count in tally.folders.most_common()
        ),
        readme=tally.readme,
        files=walk.files,
        size=tally.size,
        seconds=time.monotonic() - started,
        truncated=walk.truncated or cut,
    )


def _read_all(
    walk: Walk, budget: Budget, limits: ScanLimits, tally: _Tally
) -> tuple[dict[str, bytes], list[Problem], str | None]:
    sources: dict[str, bytes] = {}
    problems: list[Problem] = []
    python_bytes = 0
    cut: str | None = None
    for file in walk:
        _count(file, tally)
        if not file.name.endswith(".py"):
            continue
        if len(sources) >= limits.python_files or python_bytes > limits.python_bytes:
            cut = "files" if len(sources) >= limits.python_files else "bytes"
            continue
        if file.size > limits.file_bytes:
            problems.append(Problem(file.path, 0, f"not read: {file.size} bytes"))
            continue
        budget.check()
        try:
            data = file.read(limits.file_bytes)
        except Unreadable as error:
            problems.append(Problem(file.path, 0, f"not read: {error}"))
            continue
        sources[file.path] = data
        python_bytes += len(data)
    return sources, problems, cut


def _count(file: FoundFile, tally: _Tally) -> None:
    extension = file.name.rpartition(".")[2].lower()
    language = LANGUAGES.get(extension, "") if "." in file.name else ""
    if language:
        tally.languages[language] += 1
        tally.language_bytes[language] += file.size
    folder, slash, _ = file.path.partition("/")
    if slash:
        tally.folders[folder] += 1
        tally.folder_bytes[folder] += file.size
    elif file.name.lower().split(".")[0] == "readme" and tally.readme is None:
        tally.readme = _readme(file)
    elif file.name == "pyproject.toml":
        tally.scripts = _scripts(file)
    tally.size += file.size


def _readme(file: FoundFile) -> Readme | None:
    try:
        text = file.read(16 * 1024).decode("utf-8", "replace")
    except Unreadable:
        return None
    for number, line in enumerate(text.splitlines(), 1):
        title = re.sub(r"^[#=*\s]+|[#=*\s]+$", "", line)
        # Badges, pictures, comments, rules and directives name nothing.
        if title and title[0] not in "<[!-~`|." and any(c.isalnum() for c in title):
            return Readme(file.path, number, "".join(c if c.isprintable() else " " for c in title)[:120])
    return None


def _scripts(file: FoundFile) -> tuple[EntryPoint, ...]:
    try:
        text = file.read(256 * 1024).decode("utf-8")
        project = tomllib.loads(text).get("project", {})
        names = [str(name) for key in ("scripts", "gui-scripts") for name in project.get(key, {})]
    except (Unreadable, UnicodeDecodeError, tomllib.TOMLDecodeError, AttributeError, TypeError, RecursionError):
        return ()
    lines = text.splitlines()
    found = []
    for name in names[:50]:
        written = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*=""")
        line = next((n for n, text in enumerate(lines, 1) if written.match(text)), 1)
        found.append(EntryPoint(file.path, line, name))
    return tuple(found)


def _packages_above(roots: Roots, opened: Opened) -> list[str]:
    """Names of the packages that contain the scanned directory, outermost first, as far as the root goes."""
    names: list[str] = []
    directory = opened.path
    while directory != opened.root:
        directory = directory.parent
        try:
            roots.open_file(directory / "__init__.py").close()
        except WorkspaceError:
            break
        names.insert(0, directory.name)
    return names


def _modules(sources: Mapping[str, bytes], problems: list[Problem], above: str, budget: Budget) -> dict[str, Module]:
    packages = {module_path(path) for path in sources if path.endswith("__init__.py")}
    test_directories = _test_directories(sources)
    modules: dict[str, Module] = {}
    for path, data in sources.items():
        budget.check()
        source = parse(data)
        if isinstance(source, SourceError):
            problems.append(Problem(path, source.line, source.message))
            continue
        parts = module_path(path)
        if not above and len(parts) > 1 and parts[0] in _SOURCE_DIRECTORIES and parts[:1] not in packages:
            parts = parts[1:]
        name = ".".join(filter(None, (above, *parts)))
        if not name or name in modules:
            continue  # `a.py` beside `a/__init__.py`: the package wins in Python, and here by the walk's order last
        modules[name] = Module(
            name=name,
            path=path,
            is_package=path.endswith("__init__.py"),
            is_test=_is_test(path, test_directories),
            size=len(data),
            source=source,
        )
    return modules


def _test_directories(paths: Iterable[str]) -> set[str]:
    """Directories called `tests`, and those called `test`, `testing` or `t` that hold test files."""
    holders: defaultdict[str, bool] = defaultdict(bool)
    for path in paths:
        above = path.split("/")[:-1]
        is_test = _test_name(path.rpartition("/")[2])
        for end in range(1, len(above) + 1):
            directory = "/".join(above[:end])
            holders[directory] |= is_test or above[end - 1] == "tests"
    return {d for d, holds in holders.items() if holds and d.rpartition("/")[2] in ("tests", "test", "testing", "t")}


def _test_name(name: str) -> bool:
    return name.startswith("test_") or name.endswith("_test.py") or name in ("conftest.py", "tests.py")


def _is_test(path: str, directories: set[str]) -> bool:
    above = path.split("/")[:-1]
    return _test_name(path.rpartition("/")[2]) or any(
        "/".join(above[:end]) in directories for end in range(1, len(above) + 1)
    )


def _entry_points(modules: Iterable[Module]) -> Iterable[EntryPoint]:
    for module in modules:
        if module.is_test:
            continue
        if module.path.rpartition("/")[2] == "__main__.py":
            yield EntryPoint(module.path, 1, "package")
        elif module.source.main_line:
            yield EntryPoint(module.path, module.source.main_line, "main")


def find_parts(modules: Mapping[str, Module], above: str) -> tuple[tuple[Part, ...], str]:
    """(the parts, the single package they are children of or "").

    A project with one package is described by what is inside that package; one with several by the packages; one
    with none by its modules.
    """
    chosen = [m for m in modules.values() if not m.is_test] or list(modules.values())
    prefix = above
    names = _children(chosen, prefix)
    packages = [n for n in names if n in modules and modules[n].is_package]
    if not prefix:
        if len(packages) == 1:
            prefix = packages[0]
        elif packages:
            names = [n for n in names if n in packages or n.rpartition(".")[2] not in _TOOLING]
    while prefix:
        names = _children(chosen, prefix)
        names = [n for n in names if n.rpartition(".")[2] != "__main__"]
        if len(names) != 1 or names[0] not in modules or not modules[names[0]].is_package:
            break
        prefix = names[0]
    if prefix and len(names) < 2:
        names = [prefix]
    made = [make_part(n.rpartition(".")[2], n, chosen, tests=True) for n in names]
    made.sort(key=lambda part: (not part.is_package, -part.lines, part.name))
    return tuple(made), prefix if names != [prefix] else ""


def _children(modules: Iterable[Module], prefix: str) -> list[str]:
    """Dotted names one level below `prefix`."""
    start = prefix + "." if prefix else ""
    found = {
        start + m.name[len(start) :].split(".")[0] for m in modules if m.name.startswith(start) and m.name != prefix
    }
    return sorted(found)
