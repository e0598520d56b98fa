"""Log lines that nobody can forge: control characters are escaped, and no line is endless."""

from __future__ import annotations

import logging
import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_KEY = re.compile(r"ak_[A-Za-z0-9_-]{6,}")
MAX_CHARACTERS = 8000


def one_line(text: str) -> str:
    """`text` with control characters escaped, keys masked, and cut at `MAX_CHARACTERS`."""
    text = _KEY.sub("ak_***", text)
    text = _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text.replace("\n", "\\n"))
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"


class OneLine(logging.Filter):
    """Rewrites the message before it is formatted; tracebacks keep their lines."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = one_line(record.getMessage())
        record.args = None
        return True
