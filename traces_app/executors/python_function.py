"""`python:package.module:function`: any function of `(request, report)`, plain or async, as an executor.

Only an operator may set it: it runs code in the worker.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib.machinery import PathFinder
from typing import Any

from traces_app.executors.contract import Completed, Failed, NeedsApproval, NeedsInput, Outcome, Report, Request

PREFIX = "python:"


def load_function(name: str) -> Callable[..., Any]:
    """Import what `python:package.module:function` names; raises ImportError, AttributeError, TypeError."""
    module, _, attribute = name.removeprefix(PREFIX).partition(":")
    if not module or not attribute:
        raise TypeError("python:package.module:function")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{attribute} can't be called")
    return found  # type: ignore[no-any-return]


def missing_module(module: str) -> str | None:
    """The first package or module on the way to this one that the import path does not hold; None, too, where it can't be told
    without running any of them, which this never does."""
    if module in sys.modules:
        return None
    name, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(name)
        for part in rest:
            if spec is None:
                break
            name = f"{name}.{part}"
            inside = spec.submodule_search_locations
            spec = PathFinder.find_spec(name, inside) if inside is not None else None
    except (
        ValueError,
        KeyError,
    ):  # a module that does not say where it is from; a package without `__init__.py` in another
        return None
    return name if spec is None else None


class PythonFunction:
    """Calls the function; a string or a mapping that it returns is a completed outcome."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def run(self, request: Request, report: Report) -> Outcome | Awaitable[Outcome]:
        returned = self._function(request, report)
        if inspect.isawaitable(returned):
            return _later(returned)
        return as_outcome(returned)


async def _later(returned: Awaitable[Any]) -> Outcome:
    return as_outcome(await returned)


def as_outcome(value: Any) -> Outcome:
    if isinstance(value, Completed | Failed | NeedsInput | NeedsApproval):
        return value
    if value is None:
        return Completed("")
    if isinstance(value, Mapping):
        return Completed(
            str(value.get("summary", "")), tuple(value.get("parts") or ()), dict(value.get("context_patch") or {})
        )
    return Completed(str(value))
