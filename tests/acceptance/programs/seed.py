"""Runs a program of the third seed document, letter by letter: `python -m tests.acceptance.programs.seed cloud|terminal`.

The text lies beside this file and is never edited. It has no import, so `A2ASessionClient` is put into its names: the
SDK's, at the test's hub and with the test's key in the place of `https://cloud` and `ak_xxx`. The three analysis functions
that the seed leaves to the reader are ours, and read the project that `PROJECT` names.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

from hub.client import A2ASessionClient
from traces_app.workspace.architecture import describe
from traces_app.workspace.project import Project
from traces_app.workspace.python_project import scan
from traces_app.workspace.roots import Roots


def client(base_url: str, agent_id: str, api_key: str) -> A2ASessionClient:
    return A2ASessionClient(os.environ["HUB_URL"], agent_id, os.environ["HUB_API_KEY"])


def project() -> Project:
    return scan(Roots([Path(os.environ["PROJECT"])]))


async def analyze_project() -> list[str]:
    return [part.name for part in project().parts]


async def analyze_module(name: str) -> dict[str, str]:
    found = project()
    return {"architecture": describe(found, found.find(name)).architecture.shape}


async def deep_analyze(name: str) -> str:
    found = project()
    return "\n".join(f"{cls.name} {cls.where}" for cls in describe(found, found.find(name)).key_classes)


def main(name: str) -> None:
    names: dict[str, Any] = {
        "A2ASessionClient": client,
        "analyze_project": analyze_project,
        "analyze_module": analyze_module,
        "deep_analyze": deep_analyze,
    }
    path = Path(__file__).with_name(f"seed_{name}.txt")
    code = compile(path.read_text(), str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:  # it awaits outside functions, as in a notebook
        asyncio.run(FunctionType(code, names)())
    else:  # nothing starts a loop: the registered handlers keep the process alive
        exec(code, names)


if __name__ == "__main__":
    main(sys.argv[1])
