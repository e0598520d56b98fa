"""What we write: JSON that says what was meant, or an error before it is sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hub.client.errors import Invalid, TooLarge
from sessions_app.protocol.limits import CONTENT_BYTES, FRAME_BYTES, PARTS_BYTES

BATCH_BYTES = 128 * 1024


def encode(value: Any) -> str:
    """JSON text. NaN, lone surrogates, and what JSON does not know are `Invalid` here: silently altered text is a loss."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise Invalid(f"That cannot be sent as JSON: {error}") from None
    return text


def check_size(body: dict[str, Any], text: str) -> None:
    """Refuse what the hub would refuse, before it costs a connection. Sizes are UTF-8 bytes."""
    content = body.get("content")
    if isinstance(content, str) and len(content.encode()) > CONTENT_BYTES:
        raise TooLarge(f"content holds {CONTENT_BYTES} bytes at the most.", field="content")
    parts = body.get("parts")
    if parts is not None and len(encode(parts).encode()) > PARTS_BYTES:
        raise TooLarge(f"All parts hold {PARTS_BYTES} bytes at the most.", field="parts")
    if len(text.encode()) > FRAME_BYTES - 1024:
        raise TooLarge(f"A frame holds {FRAME_BYTES} bytes at the most.")


def pack(texts: Iterable[str]) -> Iterable[str]:
    """Frames, several to a WebSocket message (`batch=1`), in their order."""
    batch: list[str] = []
    size = 0
    for text in texts:
        # Characters, not bytes: the worst case of four bytes each still fits into a frame.
        if batch and size + len(text) > BATCH_BYTES:
            yield _join(batch)
            batch, size = [], 0
        batch.append(text)
        size += len(text) + 1
    if batch:
        yield _join(batch)


def _join(batch: list[str]) -> str:
    return batch[0] if len(batch) == 1 else "[" + ",".join(batch) + "]"
