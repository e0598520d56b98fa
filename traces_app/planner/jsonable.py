"""Whatever a tool returns, made into JSON that a message or an event can hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from traces_app.tools import ToolError

MAX_EVENT_BYTES = 16 * 1024
MAX_DEPTH = 60
MAX_ITEMS = 200_000
# A NUL or a lone surrogate is refused by the message store (and by PostgreSQL).
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

T = TypeVar("T")


def clean(value: T) -> T:
    """Strings everywhere in `value` without what cannot be stored."""
    return _clean(value, 0)  # type: ignore[no-any-return]


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {_clean(str(key), depth): _clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item, depth + 1) for item in value]
    return value


def as_json(value: Any) -> Any:
    """Plain dicts, lists, strings, finite numbers, booleans and None; other objects by their `str`.

    Raises ToolError `invalid_result` for what is too deep, endless or not a finite number.
    """
    return _as_json(value, 0, [MAX_ITEMS])


def _as_json(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth > MAX_DEPTH or left[0] < 0:
        raise ToolError("invalid_result", "the tool's result is nested too deeply or has too many items")
    if value is None or isinstance(value, (bool, str)):
        return clean(value)
    if isinstance(value, int):
        if value.bit_length() > 1024:
            raise ToolError("invalid_result", "the tool's result has a number that is too large")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ToolError("invalid_result", "the tool's result has a number that is not finite")
        return value
    if isinstance(value, Mapping):
        return {clean(str(key)): _as_json(item, depth + 1, left) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_as_json(item, depth + 1, left) for item in value]
    if isinstance(value, bytes):
        return clean(value.decode("utf-8", "replace"))
    return clean(str(value))


def preview(value: Any) -> Any:
    """`value` itself while it is small, else its beginning and its size in bytes of JSON."""
    text = json.dumps(value, ensure_ascii=False)
    size = len(text.encode())
    if size <= MAX_EVENT_BYTES:
        return value
    return {"truncated": True, "bytes": size, "preview": text[:2000]}
