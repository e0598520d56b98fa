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
from traces_app.executors.python_function import PREFIX, PythonFunction, load_function

GROUP = "session_hub.executors"
ELSEWHERE = frozenset({"delegate"})  # run by the connected agent itself


class UnknownExecutor(Exception):
    """No executor has that name; `str()` is fit to be shown."""


def executor_names() -> list[str]:
    """The names that can be given to an agent, besides `python:…`."""
    return sorted({*settings.HUB_EXECUTORS, *_installed(), *ELSEWHERE})


def check_name(name: str) -> None:
    """One of `EXECUTOR_HOOKS`: raises `Invalid` for a name that `find_executor` would not know.

    Of `python:…` only the form is looked at: the function is the worker's to import, and need not exist in this process.
    """
    if name.startswith(PREFIX):
        module, _, attribute = name.removeprefix(PREFIX).partition(":")
        if not all(part.isidentifier() for dotted in (module, attribute) for part in dotted.split(".")):
            raise Invalid("executor python: names a function, as python:package.module:function.", field="executor")
    elif name not in executor_names():
        raise Invalid(
            f"No executor is called {name[:200]}; there are: {', '.join(executor_names())}, python:package.module:function.",
            field="executor",
        )


def find_executor(name: str) -> Any:
    """A fresh executor; raises `UnknownExecutor`."""
    if name.startswith(PREFIX):
        try:
            return PythonFunction(load_function(name))
        except (ImportError, AttributeError, TypeError) as error:
            raise UnknownExecutor(f"{name[:200]} can't be loaded: {type(error).__name__}.") from error
    made: Any
    if name in settings.HUB_EXECUTORS:
        made = import_string(settings.HUB_EXECUTORS[name])
    elif name in _installed():
        made = _installed()[name]()
    else:
        raise UnknownExecutor(f"No executor is called {name[:200]}; there are: {', '.join(executor_names())}.")
    if inspect.isclass(made):
        return made()
    return made if hasattr(made, "run") else PythonFunction(made)


@cache
def _installed() -> dict[str, Callable[[], Any]]:
    return {point.name: point.load for point in entry_points(group=GROUP)}
