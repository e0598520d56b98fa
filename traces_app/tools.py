"""Tools that executors may call: a name, a description, a JSON schema, and a function of arguments and context."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from traces_app.workspace.budget import Budget, never
from traces_app.workspace.roots import Roots
from traces_app.workspace.words import Language

Arguments = Mapping[str, Any]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}")


class ToolError(Exception):
    """A call that failed in a way its caller may be told: a stable `code` and a message fit to be shown."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a call may use. `memo` lives as long as one run: a scan is made once and asked many times.

    `deadline` is on `time.monotonic()`; None is no limit but the tool's own. `cancelled` may be asked at any time.
    """

    roots: Roots = field(default_factory=Roots)
    deadline: float | None = None
    cancelled: Callable[[], bool] = never
    language: Language = "en"
    memo: dict[Any, Any] = field(default_factory=dict)

    def budget(self, seconds: float) -> Budget:
        """At most `seconds`, and not past the deadline of the run."""
        if self.deadline is not None:
            seconds = min(seconds, self.deadline - time.monotonic())
        return Budget(seconds, self.cancelled)


Function = Callable[[Arguments, ToolContext], Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """`parameters` is a JSON schema of type object. The result is JSON; its `text`, where it has one, is for people.

    With `needs_approval` a model's call waits for a person's leave; the planner makes no such call.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Function
    needs_approval: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"not a tool name: {self.name!r}")

    def call(self, arguments: Arguments, context: ToolContext) -> Any:
        """Raises ToolError (`invalid` where the arguments do not fit the schema) and whatever the function raises."""
        check(self.parameters, arguments)
        return self.function(arguments, context)


def tool(name: str, description: str, parameters: Mapping[str, Any]) -> Callable[[Function], Tool]:
    """`@tool("add", "Adds two numbers.", {"type": "object", "properties": …})` makes a Tool of a function."""

    def made(function: Function) -> Tool:
        return Tool(name, description, parameters, function)

    return made


class Registry:
    """Tools by name. Later ones may not take an earlier one's name unless `replace` says so."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for each in tools:
            self.add(each)

    def add(self, new: Tool, replace: bool = False) -> None:
        if new.name in self._tools and not replace:
            raise ValueError(f"there is already a tool called {new.name!r}")
        self._tools[new.name] = new

    def get(self, name: str) -> Tool:
        """Raises ToolError `unknown_tool`, with the names there are."""
        try:
            return self._tools[name]
        except KeyError:
            raise ToolError("unknown_tool", f"no tool is called {name[:128]}; there are: {self._listed()}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def _listed(self) -> str:
        return ", ".join(sorted(self._tools)[:50]) or "none"


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (Mapping,),
    "array": (list, tuple),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def check(schema: Mapping[str, Any], value: Any, where: str = "arguments") -> None:
    """The keywords that tools use: type, enum, properties, required, additionalProperties, items and the bounds.

    Raises ToolError `invalid`. Keywords it does not know are not checked.
    """
    wanted = schema.get("type")
    kinds = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if kinds and not any(_is(value, kind) for kind in kinds):
        raise ToolError("invalid", f"{where} must be of type {' or '.join(kinds)}")
    if "enum" in schema and value not in schema["enum"]:
        raise ToolError("invalid", f"{where} must be one of {', '.join(map(str, schema['enum']))}")
    if isinstance(value, Mapping):
        _check_object(schema, value, where)
    elif isinstance(value, str):
        _check_bounds(len(value), schema.get("minLength"), schema.get("maxLength"), f"the length of {where}")
    elif isinstance(value, (list, tuple)):
        _check_bounds(len(value), schema.get("minItems"), schema.get("maxItems"), f"the length of {where}")
        for index, item in enumerate(value):
            check(schema.get("items", {}), item, f"{where}[{index}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_bounds(value, schema.get("minimum"), schema.get("maximum"), where)


def _check_object(schema: Mapping[str, Any], value: Mapping[str, Any], where: str) -> None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            raise ToolError("invalid", f"{where} needs {name}")
    for name, item in value.items():
        if name in properties:
            check(properties[name], item, name if where == "arguments" else f"{where}.{name}")
        elif schema.get("additionalProperties") is False:
            raise ToolError(
                "invalid", f"{where} has no {str(name)[:100]}; there are: {', '.join(properties) or 'none'}"
            )


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, (object,)))


def _check_bounds(value: float, low: float | None, high: float | None, where: str) -> None:
    if (low is not None and value < low) or (high is not None and value > high):
        raise ToolError("invalid", f"{where} must be between {low if low is not None else '…'} and {high or '…'}")
