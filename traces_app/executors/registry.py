"""Executors by name: the built-in ones, those of installed distributions, and `python:package.module:function`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from sessions_app.protocol.errors import Invalid
from traces_app.executors.python_function import PREFIX, PythonFunction, load_function, missing_module

GROUP = "session_hub.executors"
ELSEWHERE = frozenset({"delegate"})  # run by the connected agent itself


class UnknownExecutor(Exception):
    """No executor has that name; `str()` is fit to be shown."""


def executor_names() -> list[str]:
    """The names that can be given to an agent, besides `python:…`."""
    return sorted({*settings.HUB_EXECUTORS, *_installed(), *ELSEWHERE})


def check_name(name: str) -> str | None:
    """One of `EXECUTOR_HOOKS`: raises `Invalid` for a name that `find_executor` would not know; returns what is doubtful.

    The function of `python:…` is the worker's to import, and need not exist in this process: nothing of it is run here, and
    that its module is not found is a remark.
    """
    if name.startswith(PREFIX):
        module, _, attribute = name.removeprefix(PREFIX).partition(":")
        if not all(part.isidentifier() for dotted in (module, attribute) for part in dotted.split(".")):
            raise Invalid("executor python: names a function, as python:package.module:function.", field="executor")
        if (missing := missing_module(module)) is not None:
            return f"{name[:200]}: there is no module {missing[:200]} here; traces fail unless their worker has it."
    elif name not in executor_names():
        raise Invalid(
            f"No executor is called {name[:200]}; there are: {', '.join(executor_names())}, python:package.module:function.",
            field="executor",
        )
    return None


def find_executor(name: str) -> Any:
    """A fresh executor; raises `UnknownExecutor`, by whatever its module raises when it is imported."""
    if not name.startswith(PREFIX) and name not in settings.HUB_EXECUTORS and name not in _installed():
        raise UnknownExecutor(f"No executor is called {name[:200]}; there are: {', '.join(executor_names())}.")
    try:
        made = _load(name)
    except Exception as error:
        raise UnknownExecutor(f"The executor {name[:200]} can't be loaded: {type(error).__name__}.") from error
    if inspect.isclass(made):
        return made()
    return made if hasattr(made, "run") else PythonFunction(made)


def _load(name: str) -> Any:
    if name.startswith(PREFIX):
        return PythonFunction(load_function(name))
    return import_string(settings.HUB_EXECUTORS[name]) if name in settings.HUB_EXECUTORS else _installed()[name]()


@cache
def _installed() -> dict[str, Callable[[], Any]]:
    return {point.name: point.load for point in entry_points(group=GROUP)}
