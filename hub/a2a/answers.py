"""What a client's message answers to a task that waits for input."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sessions_app.protocol.errors import Invalid

_YES = re.compile(r"(?i)\s*(?:y|yes|ok|okay|approve|approved|true|go ahead|是|好|好的|可以|同意|批准)\s*[.!。！]?\s*")
_NO = re.compile(
    r"(?i)\s*(?:n|no|refuse|refused|reject|deny|denied|false|否|不|不行|不可以|拒绝|不同意)\s*[.!。！]?\s*"
)


def answer_of(parts: Sequence[Mapping[str, Any]], pending: Mapping[str, Any]) -> tuple[Any, bool | None]:
    """`(answer, approve)` of a message: a leave is given or refused in plain words or by `{"approve": …}` in a data part.

    An answer is the data of the only data part, else the text; raises `Invalid` for a leave that is neither yes nor no.
    """
    data = [part["data"] for part in parts if "data" in part]
    text = "\n".join(str(part["text"]) for part in parts if "text" in part)
    if pending.get("kind") != "approval":
        if len(data) == 1 and not text.strip():
            return data[0], None
        return text if text or not data else data, None
    if len(data) == 1 and isinstance(data[0], dict) and isinstance(data[0].get("approve"), bool):
        return None, data[0]["approve"]
    if _YES.fullmatch(text):
        return None, True
    if _NO.fullmatch(text):
        return None, False
    raise Invalid(
        'This task waits for a leave: answer yes or no, or a data part {"approve": true or false}.', field="parts"
    )
