"""What may be stored of what an executor says: plain JSON within bounds, without secrets. Pure.

Secrets are found by the name under which they stand and by their own look. That is a net, not a promise: a tool that must
not leak should not be given the secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "[redacted]"
MAX_DEPTH = 48
MAX_TEXT = 256 * 1024
MAX_ITEMS = 20_000
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|secret|(?:^|[_-])token$|^token|api[_-]?key|access[_-]?key|private[_-]?key|credential"
    r"|^authorization$|cookie|^pwd$",
    re.IGNORECASE,
)
_SECRETS = (
    re.compile(r"\bak_[a-z2-7]{12}_[A-Za-z0-9_-]{20,}"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    re.compile(r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"\bAIza[0-9A-Za-z_-]{35}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}"),
    re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,10000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"),
    re.compile(r"(?i:\bbearer)\s+(?P<keep>)[A-Za-z0-9._~+/-]{12,}=*"),
)
_IN_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,100}:)[^\s/@]{1,200}(@)", re.IGNORECASE)
_SHORTEST = 15  # of what `_SECRETS` find; the other two find nothing without "=" or ":"
_ASSIGNED = re.compile(
    r"""\b((?:[A-Za-z0-9]{1,40}[_-]){0,5}(?:password|passwd|secret|token|api[_-]?key|access[_-]?key)["']?\s{0,3}[=:]\s{0,3}["']?)"""
    r"""([^\s"',;&)}\]]{6,500})""",
    re.IGNORECASE,
)


def redact_text(text: str) -> str:
    """`text` with what looks like a secret hidden."""
    if len(text) < _SHORTEST and "=" not in text and ":" not in text:
        return text  # most texts of events are single words
    for pattern in _SECRETS:
        text = pattern.sub(HIDDEN, text)
    text = _IN_URL.sub(rf"\1{HIDDEN}\2", text)
    return _ASSIGNED.sub(rf"\1{HIDDEN}", text)


def storable_text(text: str, characters: int = MAX_TEXT) -> str:
    """Text as every database and JSON reader takes it: no U+0000, no lone surrogates, bounded."""
    if len(text) > characters:
        text = text[: characters - 1] + "…"
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def storable(value: Any, *, redact: bool = True) -> Any:
    """`value` as plain JSON within bounds; what JSON does not know becomes text. With `redact`, secrets are hidden."""
    return _storable(value, redact, 0, [MAX_ITEMS])


def _storable(value: Any, redact: bool, depth: int, left: list[int]) -> Any:
    left[0] -= 1
    if depth > MAX_DEPTH or left[0] < 0:
        return "…"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = storable_text(value)
        return redact_text(text) if redact else text
    if isinstance(value, int):
        return int(value) if _INT_MIN <= value <= _INT_MAX else _digits(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        named: dict[str, Any] = {}
        for key, item in value.items():
            if left[0] <= 0:
                named["…"] = "…"
                break
            name = storable_text(str(key), 500)
            secret = redact and isinstance(item, str) and item and _SECRET_NAME.search(name)
            named[name] = HIDDEN if secret else _storable(item, redact, depth + 1, left)
        return named
    if isinstance(value, list | tuple | set | frozenset):
        listed: list[Any] = []
        for item in value:
            if left[0] <= 0:
                listed.append("…")
                break
            listed.append(_storable(item, redact, depth + 1, left))
        return listed
    return _storable(str(value), redact, depth, left)


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # longer than Python will write out
        return f"an integer of {value.bit_length()} bits"
