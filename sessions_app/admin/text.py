"""Foreign text on our pages: what can't be seen is made visible, what is long is cut, JSON is laid out.

Escaping is the templates' and `format_html`'s; nothing that others wrote is ever marked safe.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.timezone import localtime

from sessions_app.protocol import jsontext
from sessions_app.protocol.errors import HubError

CUT = "…"

# Controls have pictures of their own; what changes the direction of the text around it is named.
_VISIBLE: dict[int, str] = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_VISIBLE[0x7F] = "\u2421"
_VISIBLE |= {
    code: f"⟨U+{code:04X}⟩"
    for code in (*range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
}


def visible(text: str) -> str:
    """`text` with control characters and marks of direction shown instead of obeyed."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def cut(text: str, characters: int) -> str:
    """The beginning of `text`, visible."""
    return visible(text) if len(text) <= characters else visible(text[:characters]) + CUT


def one_line(text: str, characters: int) -> str:
    """The beginning of `text` on one line."""
    return cut(" ".join(text[: characters * 4].split()), characters)


def moment(value: datetime | None) -> str:
    """A time as our pages show it: sortable by eye, in the time zone of the page."""
    return "–" if value is None else format_html("<time>{}</time>", localtime(value).strftime("%Y-%m-%d %H:%M"))


def short_id(public_id: str) -> str:
    """The beginning of a long id, enough to tell rows apart; the whole of it on hovering."""
    return format_html('<span class="hub-id" title="{}">{}…</span>', public_id, public_id[:13])


def pretty(value: Any) -> str:
    """A JSON value, laid out."""
    return visible(json.dumps(value, indent=2, ensure_ascii=False))


def pretty_text(text: str) -> str:
    """JSON text, laid out; what is no JSON as it is."""
    try:
        return pretty(jsontext.loads(text))
    except HubError:
        return visible(text)
