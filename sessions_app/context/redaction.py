"""Cutting out of texts what a profile's patterns name. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

Patterns = tuple[tuple[re.Pattern[str], str], ...]
"""Compiled patterns with what stands in their place."""


def redact(text: str, patterns: Patterns) -> str:
    for pattern, replacement in patterns:
        text = pattern.sub(replacement.replace("\\", "\\\\"), text)  # a template in which nothing is special
    return text


def redact_value(value: Any, patterns: Patterns) -> Any:
    """A JSON value with its texts redacted, the names of its fields too."""
    if not patterns:
        return value
    if isinstance(value, str):
        return redact(value, patterns)
    if isinstance(value, list):
        return [redact_value(item, patterns) for item in value]
    if isinstance(value, dict):
        return {redact(str(name), patterns): redact_value(item, patterns) for name, item in value.items()}
    return value


def redact_part(part: dict[str, Any], patterns: Patterns) -> dict[str, Any] | None:
    """The part without what is redacted; None for bytes that hold some of it, which can't be cut out of them."""
    if not patterns:
        return part
    raw = part.get("raw")
    if isinstance(raw, str):
        try:
            text = base64.b64decode(raw).decode("utf-8", "replace")
        except (binascii.Error, ValueError):
            return None
        if any(pattern.search(text) for pattern, _ in patterns):
            return None
        return {**redact_value({k: v for k, v in part.items() if k != "raw"}, patterns), "raw": raw}
    return dict(redact_value(part, patterns))
