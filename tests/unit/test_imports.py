"""The house: imports run downwards only, and a module that grows too long wants a wall.

    hub  ->  traces_app  ->  sessions_app  ->  sessions_app.protocol

`hub.client`, `hub.cli` and `sessions_app.protocol` are what a program with the light dependencies gets, so they import
nothing of the server.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("hub", "traces_app", "sessions_app")
MOST_LINES = 450
MOST_LINES_OF_TESTS = 800

# Of two rooms the longer name counts: `hub.client.session` is in `hub.client`, not in `hub`.
LAYERS = ("sessions_app.protocol", "sessions_app", "traces_app", "hub")
LIGHT = {
    # who                     what of this house it may import
    "sessions_app.protocol": ("sessions_app.protocol",),
    "hub.client": ("hub.client", "sessions_app.protocol"),
    "hub.cli": ("hub.cli", "hub.client", "traces_app.workspace", "sessions_app.protocol"),
    "traces_app.workspace": (
        "traces_app.workspace",
        "traces_app.tools",
        "sessions_app.protocol",
    ),  # pure: the terminal agent shares it
}
SERVER_LIBRARIES = (
    "django", "channels", "channels_redis", "rest_framework", "drf_spectacular", "celery", "kombu", "daphne", "twisted",
    "redis", "psycopg", "psycopg_pool", "dj_database_url", "whitenoise", "structlog", "prometheus_client",
)  # fmt: skip
IMPORTERS = {"import_module", "importlib.import_module", "__import__"}
EMPTY = ("hub", "sessions_app", "traces_app")  # the `__init__` of these import nothing


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Each module of the house as (dotted name, path)."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(name: str, path: Path) -> Iterator[tuple[str, int]]:
    """What a module imports as (dotted name, line), wherever it stands: in functions and under TYPE_CHECKING, too."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            # `from hub import client` imports hub.client: the longer name decides about the room.
            for alias in node.names:
                yield f"{base}.{alias.name}", node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in IMPORTERS:
            for value in node.args[:1]:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value, node.lineno


def inside(name: str, room: str) -> bool:
    return name == room or name.startswith(room + ".")


def layer_of(name: str) -> int | None:
    """The number of a module's floor, from the ground up; None for what is not of this house."""
    return next((floor for floor, room in enumerate(LAYERS) if inside(name, room)), None)


def wrong_arrows(root: Path) -> list[str]:
    """Each import that the house forbids, as `path:line: why`."""
    wrong = []
    for name, path in modules(root):
        light = next((room for room in LIGHT if inside(name, room)), None)
        for target, line in imports(name, path):
            where = f"{path.relative_to(root)}:{line}: "
            floor, target_floor = layer_of(name), layer_of(target)
            if path.name == "__init__.py" and name in EMPTY and not target.startswith("__future__"):
                wrong.append(f"{where}{name}/__init__ imports nothing, but here {target}")
            if inside(target, "tests"):
                wrong.append(f"{where}{name} imports the tests")
            if floor is not None and target_floor is not None and target_floor > floor:
                wrong.append(f"{where}{name} imports {target}, which is above it")
            if light and target_floor is not None and not any(inside(target, room) for room in LIGHT[light]):
                wrong.append(f"{where}{light} may be installed without the server, but imports {target}")
            if light and any(inside(target, library) for library in SERVER_LIBRARIES):
                wrong.append(f"{where}{light} may be installed without the server, but imports {target}")
    return wrong


def too_long(root: Path) -> list[str]:
    """Each module that has too many lines. Migrations are generated; tests may hold tables of cases, so they get more."""
    paths = [path for _, path in modules(root)] + sorted((root / "tests").rglob("*.py"))
    written = [path for path in paths if "migrations" not in path.parts]
    counted = [(path.relative_to(root), len(path.read_text(encoding="utf-8").splitlines())) for path in written]
    return [
        f"{path}: {lines} lines"
        for path, lines in counted
        if lines > (MOST_LINES_OF_TESTS if path.parts[0] == "tests" else MOST_LINES)
    ]


def test_imports_run_downwards_only() -> None:
    assert wrong_arrows(ROOT) == []


def test_no_module_is_too_long_to_be_read() -> None:
    assert too_long(ROOT) == []


def test_the_walk_sees_the_whole_house() -> None:
    names = {name for name, _ in modules(ROOT)}
    assert {"hub.settings", "sessions_app.protocol", "sessions_app", "traces_app"} <= names


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sessions_app/append.py", "from traces_app.models import Trace"),
        ("sessions_app/append.py", "def f():\n    import hub.settings"),
        ("sessions_app/append.py", "from hub import settings"),
        ("sessions_app/rest/views.py", "from ...traces_app import models"),
        ("sessions_app/append.py", "import importlib\nimportlib.import_module('traces_app.intake')"),
        ("traces_app/tasks.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import hub.celery"),
        ("traces_app/tasks.py", "from tests.services import RedisServer"),
        ("sessions_app/protocol/frames.py", "from sessions_app.models import Message"),
        ("sessions_app/protocol/frames.py", "from ..models import Message"),
        ("sessions_app/protocol/frames.py", "from django.utils import timezone"),
        ("hub/client/session.py", "import channels.layers"),
        ("hub/client/session.py", "from sessions_app import append"),
        ("hub/client/session.py", "from hub.settings import REDIS_URL"),
        ("hub/client/session.py", "from hub.cli import main"),
        ("hub/cli/main.py", "import rest_framework"),
        ("hub/cli/main.py", "from .. import settings"),
        ("sessions_app/__init__.py", "import json"),
        ("hub/__init__.py", "from hub.celery import app"),
    ],
)
def test_a_forbidden_arrow_is_found(tmp_path: Path, path: str, text: str) -> None:
    assert wrong_arrows(fake_tree(tmp_path, path, text)) != []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sessions_app/append.py", "from sessions_app.protocol import frames\nfrom . import db"),
        ("traces_app/tasks.py", "from sessions_app.append import append\nimport celery"),
        ("hub/asgi.py", "import traces_app.routing\nfrom sessions_app import routing\nfrom hub.client import session"),
        ("hub/client/session.py", "import httpx\nfrom sessions_app.protocol import frames\nfrom .outbox import Outbox"),
        ("hub/cli/main.py", "import typer\nfrom hub.client import A2ASessionClient"),
        ("sessions_app/__init__.py", "from __future__ import annotations"),
        ("sessions_app/hubs.py", "import hubris\nimport traces_apparatus"),
    ],
)
def test_an_allowed_arrow_is_allowed(tmp_path: Path, path: str, text: str) -> None:
    assert wrong_arrows(fake_tree(tmp_path, path, text)) == []


def test_a_long_module_is_found_and_a_long_migration_is_not(tmp_path: Path) -> None:
    long = "x = 1\n" * (MOST_LINES + 1)
    fake_tree(tmp_path, "sessions_app/migrations/0001_initial.py", long)
    assert too_long(tmp_path) == []
    fake_tree(tmp_path, "sessions_app/append.py", long)
    assert too_long(tmp_path) == [f"sessions_app/append.py: {MOST_LINES + 1} lines"]


def fake_tree(root: Path, path: str, text: str) -> Path:
    """A house of one module."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return root
