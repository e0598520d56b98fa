"""Strict JSON for every door: one place that says which text the hub takes.

Refused with `invalid`: malformed text, trailing characters, NaN and infinities, lone surrogates, U+0000 in any string or
key, integers beyond 64 bits, and nesting deeper than 64. (RFC 8259; I-JSON's rule on surrogates, RFC 7493.)
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from sessions_app.protocol.errors import Invalid
from sessions_app.protocol.fields import named, path_of

MAX_DEPTH = 64
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1
_LONG_NUMBER = re.compile(r"[0-9](?:[0-9]{18}|[eE]\+?[0-9]{3})")
_AT_FIELD = re.compile(r" - at `\$\.?(.*?)`$")
_QUOTED_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', re.DOTALL)

T = TypeVar("T")


def check_depth(text: str) -> None:
    """Raise `Invalid` when brackets nest deeper than `MAX_DEPTH`."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for match in _QUOTED_OR_BRACKET.finditer(text):
        if match[1]:
            depth += 1
            if depth > MAX_DEPTH:
                raise Invalid(f"JSON may nest {MAX_DEPTH} deep at the most.")
        elif match[2]:
            depth -= 1


def check_values(value: Any) -> None:
    """Raise `Invalid` for U+0000 in a string or key and for integers beyond 64 bits, anywhere inside `value`."""
    todo = [value]
    while todo:
        item = todo.pop()
        if _holds_nul(item):
            raise Invalid("Text may not hold U+0000.", **_at(path_of(value, _holds_nul)))
        if _is_too_big(item):
            sentence = "Integers beyond 64 bits are not taken; send them as strings."
            raise Invalid(sentence, **_at(path_of(value, _is_too_big)))
        if isinstance(item, dict):
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)


def _holds_nul(item: Any) -> bool:
    """Whether the text itself, or a key of the object, holds it."""
    return "\0" in item if isinstance(item, str) else isinstance(item, dict) and any("\0" in key for key in item)


def _is_too_big(item: Any) -> bool:
    return isinstance(item, int) and not _INT_MIN <= item <= _INT_MAX


def _at(path: str) -> dict[str, str]:
    return {"field": path} if path else {}


def as_text(data: bytes | str) -> str:
    """Decode a body: UTF-8, as RFC 8259 asks; a byte order mark is not JSON."""
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise Invalid("The body is not UTF-8.") from None


def decode(data: bytes | str, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode by `decoder` under the rules of this module; `details.field` names what was wrong where that is known."""
    text = as_text(data)
    check_depth(text)
    try:
        result = decoder.decode(text)
        if "\\u0000" in text or _LONG_NUMBER.search(text):
            check_values(msgspec.json.decode(text))
        return result
    except msgspec.ValidationError as error:
        raise invalid_from(error, text) from None
    except msgspec.DecodeError:
        raise Invalid("That is not valid JSON.") from None
    except (RecursionError, UnicodeError):
        raise Invalid("That is not valid JSON.") from None


def invalid_from(error: msgspec.ValidationError, text: str | bytes) -> Invalid:
    """Turn a failed validation of `text` into our error: the sentence, and the field as a path like `parts[0].text`."""
    sentence = str(error)
    match = _AT_FIELD.search(sentence)
    field = match[1] if match else ""
    if not field and (missing := re.search(r"field `([^`]+)`", sentence)):
        field = missing[1]
    return Invalid(_AT_FIELD.sub("", sentence) + ".", **_at(named(field, text, sentence)))


_ANY = msgspec.json.Decoder()


def loads(data: bytes | str) -> Any:
    """Decode to plain Python values under the rules of this module."""
    return decode(data, _ANY)


def dumps(value: Any) -> str:
    """Encode compactly; text stays as it is (no ASCII escapes)."""
    return msgspec.json.encode(value).decode()


def same_json(one: str | None, other: str | None) -> bool:
    """Whether two stored JSON texts mean the same, whatever their white space and order of keys."""
    if one == other:
        return True
    if one is None or other is None:
        return False
    return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
