"""Where in a JSON text something is wrong, as a path that its writer can follow: `context.a[3].b`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

MOST_CHARACTERS = 300
ANY_KEY = "[...]"  # msgspec's word for some key of an object whose keys it does not know
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_STEP = re.compile(r"\[\.\.\.\]|\[(\d+)\]|\.?([^.\[]+)")
_GOT = re.compile(r"got `(\w+)`")
_KINDS: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, float),
    "null": lambda value: value is None,
}


def below(path: str, step: str | int) -> str:
    """The path of an item (a number) or a member (a name). A name that a path can't hold plainly is quoted and cut."""
    if isinstance(step, int):
        longer = f"{path}[{step}]"
    elif _PLAIN_KEY.fullmatch(step):
        longer = f"{path}.{step}" if path else step
    else:
        longer = f"{path}[{json.dumps(step[:64])}]"
    return longer if len(longer) <= MOST_CHARACTERS else path


def path_of(value: Any, is_wrong: Callable[[Any], bool]) -> str:
    """The path of the first item inside `value`, in the order of its text, that is wrong; empty for the whole."""
    todo = [("", value)]
    while todo:
        path, item = todo.pop()
        if is_wrong(item):
            return path
        if isinstance(item, dict):
            todo.extend((below(path, key), member) for key, member in reversed(item.items()))
        elif isinstance(item, list):
            todo.extend((below(path, index), item[index]) for index in reversed(range(len(item))))
    return ""


def named(pattern: str, text: str | bytes, sentence: str) -> str:
    """The path that a validation error's `pattern` stands for, its unknown keys looked up in the text that was refused.

    The first place in the text that fits the pattern and the error is the one at which reading has stopped.
    """
    if ANY_KEY not in pattern:
        return pattern
    is_wrong = _test_of(sentence)
    steps = list(_STEP.finditer(pattern))
    try:
        value = json.loads(text, parse_int=_number)
    except (ValueError, RecursionError):
        return pattern
    return next((path for path, found in _matching(value, steps, "") if is_wrong(found)), pattern)


def _test_of(sentence: str) -> Callable[[Any], bool]:
    if (got := _GOT.search(sentence)) is not None:
        return _KINDS.get(got[1], lambda value: True)
    if "out of range" in sentence:
        return lambda value: isinstance(value, float) and math.isinf(value)
    return lambda value: True


def _number(digits: str) -> float | int:
    """An integer; one that is too long to be read in reasonable time is as good as any float."""
    return int(digits) if len(digits) < 400 else math.inf


def _matching(value: Any, steps: list[re.Match[str]], path: str) -> Iterator[tuple[str, Any]]:
    if not steps:
        yield path, value
        return
    step, rest = steps[0], steps[1:]
    if step[0] == ANY_KEY:
        for key, member in value.items() if isinstance(value, dict) else ():
            yield from _matching(member, rest, below(path, key))
    elif step[1] is not None:
        if isinstance(value, list) and int(step[1]) < len(value):
            yield from _matching(value[int(step[1])], rest, below(path, int(step[1])))
    elif isinstance(value, dict) and step[2] in value:
        yield from _matching(value[step[2]], rest, below(path, step[2]))
