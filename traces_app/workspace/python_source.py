"""The facts of one Python source file, by `ast` alone: nothing is imported and nothing runs."""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

ImportKind = Literal["import", "lazy", "typing"]
"""At import time; inside a function; only for type checkers."""

_MAX_DOC = 120
# `warnings.catch_warnings` changes the whole process: one at a time, and only around one file.
_parsing = threading.Lock()


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Class:
    name: str
    line: int
    bases: tuple[str, ...]
    """As written, without type arguments: `models.Model`."""
    methods: tuple[Named, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    line: int
    is_async: bool
    doc: str


@dataclass(frozen=True, slots=True)
class Import:
    """`from ..x import a, b` is (module "x", level 2, names (a, b)); `import x.y` has no names."""

    module: str
    level: int
    names: tuple[str, ...]
    line: int
    kind: ImportKind


@dataclass(frozen=True, slots=True)
class Source:
    lines: int
    doc: str
    classes: tuple[Class, ...]
    functions: tuple[Function, ...]
    constants: tuple[Named, ...]
    """Other names assigned at module level."""
    imports: tuple[Import, ...]
    main_line: int
    """Line of `if __name__ == "__main__"`, else 0."""
    tests: int
    """Functions and methods called `test…`."""


@dataclass(frozen=True, slots=True)
class SourceError:
    line: int
    message: str


def parse(data: bytes) -> Source | SourceError:
    """Never raises for what the file holds: broken, hostile or foreign source gives a SourceError."""
    try:
        with _parsing, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except SyntaxError as error:
        return SourceError(error.lineno or 0, _one_line(error.msg or "invalid syntax"))
    except (ValueError, UnicodeError) as error:
        return SourceError(0, _one_line(str(error)))
    except (RecursionError, MemoryError):
        return SourceError(0, "nested too deeply to be parsed")
    try:
        return _Reader().read(tree, data)
    except RecursionError:
        return SourceError(0, "nested too deeply to be read")


class _Reader:
    def __init__(self) -> None:
        self.classes: list[Class] = []
        self.functions: list[Function] = []
        self.constants: dict[str, Named] = {}
        self.imports: list[Import] = []
        self.main_line = 0
        self.tests = 0

    def read(self, tree: ast.Module, data: bytes) -> Source:
        self._module_level(tree.body, "import")
        return Source(
            lines=data.count(b"\n") + (1 if data and not data.endswith(b"\n") else 0),
            doc=_doc(tree),
            classes=tuple(self.classes),
            functions=tuple(self.functions),
            constants=tuple(self.constants.values()),
            imports=tuple(self.imports),
            main_line=self.main_line,
            tests=self.tests,
        )

    def _module_level(self, body: Sequence[ast.stmt], kind: ImportKind) -> None:
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node, kind)
            elif isinstance(node, ast.ClassDef):
                self._class(node, kind)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                is_async = isinstance(node, ast.AsyncFunctionDef)
                self.functions.append(Function(node.name, node.lineno, is_async, _doc(node)))
                self.tests += node.name.startswith("test")
                self._inside(node.body, "lazy" if kind == "import" else kind)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for name in _names(target):
                        self.constants.setdefault(name, Named(name, node.lineno))
            elif isinstance(node, ast.If):
                if _is_main_guard(node.test):
                    self.main_line = self.main_line or node.lineno
                self._module_level(node.body, "typing" if _is_type_checking(node.test) else kind)
                self._module_level(node.orelse, kind)
            else:
                for block in _blocks(node):
                    self._module_level(block, kind)

    def _class(self, node: ast.ClassDef, kind: ImportKind) -> None:
        methods: list[Named] = []
        for child in node.body:
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                methods.append(Named(child.name, child.lineno))
                self.tests += child.name.startswith("test")
                self._inside(child.body, "lazy" if kind == "import" else kind)
            else:
                self._inside([child], kind)
        bases = tuple(name for base in node.bases if (name := _dotted(base)))
        self.classes.append(Class(node.name, node.lineno, bases, tuple(methods), _doc(node)))

    def _inside(self, body: Sequence[ast.stmt], kind: ImportKind) -> None:
        """Only imports matter here; statements are followed, expressions cannot hold any."""
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node, kind)
                continue
            deeper: ImportKind = kind
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and kind == "import":
                deeper = "lazy"
            for block in _blocks(node):
                self._inside(block, deeper)

    def _import(self, node: ast.Import | ast.ImportFrom, kind: ImportKind) -> None:
        if isinstance(node, ast.Import):
            self.imports.extend(Import(alias.name, 0, (), node.lineno, kind) for alias in node.names)
        else:
            names = tuple(alias.name for alias in node.names)
            self.imports.append(Import(node.module or "", node.level, names, node.lineno, kind))


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list):
            yield block
    if isinstance(node, (ast.Try, ast.TryStar)):
        for handler in node.handlers:
            yield handler.body
    elif isinstance(node, ast.Match):
        for case in node.cases:
            yield case.body


def _names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _names(element)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        above = _dotted(node.value)
        return f"{above}.{node.attr}" if above else ""
    if isinstance(node, ast.Subscript):
        return _dotted(node.value)
    return ""


def _is_main_guard(test: ast.expr) -> bool:
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return False
    sides = (test.left, test.comparators[0])
    named = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return named and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)


def _is_type_checking(test: ast.expr) -> bool:
    return _dotted(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING", "t.TYPE_CHECKING")


def _doc(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    doc = ast.get_docstring(node, clean=False)
    lines = [line.strip() for line in doc.splitlines()] if doc else []
    return _one_line(next((line for line in lines if line), ""))


def _one_line(text: str) -> str:
    text = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()
    return text if len(text) <= _MAX_DOC else text[: _MAX_DOC - 1] + "…"
