"""Reading what a client asks: query strings, bodies, the `Idempotency-Key`. Everything is checked before it meets SQL."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from sessions_app.protocol import limits
from sessions_app.protocol.errors import Invalid, TooLarge, Unsupported
from sessions_app.protocol.jsontext import decode, dumps

T = TypeVar("T")

_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)
# However a client's language writes a number: 50, 0.30000000000000004, 5e-1 (RFC 8259, section 6; zeros may lead).
_SECONDS = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_POSITION_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z?", re.ASCII)
_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{1,255}", re.ASCII)
_STORED_KEY = 128
_PARAMETERS = 100
SEQUENCE_MAX = (1 << 63) - 1


class Query:
    """A query string; of a repeated parameter the last counts. A number out of range is `invalid` with its field."""

    def __init__(self, text: str) -> None:
        try:
            self._values = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_PARAMETERS)) if text else {}
        except ValueError:
            raise Invalid("That is not a query string we take.") from None

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def number(self, name: str, *, least: int = 0, most: int = SEQUENCE_MAX) -> int | None:
        given = self._values.get(name)
        if given is None:
            return None
        if _NUMBER.fullmatch(given) is None or not least <= (value := int(given)) <= most:
            raise Invalid(f"{name} is a whole number from {least} to {most}.", field=name)
        return value

    def limit(self) -> int:
        return self.number("limit", least=1, most=limits.PAGE_MAX) or limits.PAGE_DEFAULT

    def seconds(self, name: str) -> float | None:
        """Any JSON number; the range is the caller's to check."""
        given = self._values.get(name)
        if given is not None and _SECONDS.fullmatch(given) is None:
            raise Invalid(f"{name} is a number of seconds, like 30, 0.5 or 5e-1.", field=name)
        return None if given is None else float(given)

    def flag(self, name: str) -> bool:
        given = self._values.get(name)
        if given not in (None, "0", "1", "false", "true"):
            raise Invalid(f"{name} is 0 or 1.", field=name)
        return given in ("1", "true")


# Cursors of lists are opaque to clients. Whoever makes one up gets `invalid`, never a statement that fails.

_position = msgspec.json.Decoder(tuple[str, int])


def list_cursor(text: str, number: int = 0) -> str:
    return base64.urlsafe_b64encode(dumps([text, number]).encode()).decode().rstrip("=")


def read_list_cursor(given: str) -> tuple[str, int]:
    try:
        text, number = _position.decode(
            base64.b64decode(given + "=" * (-len(given) % 4), altchars=b"-_", validate=True)
        )
    except (ValueError, msgspec.MsgspecError):
        raise Invalid("That is no cursor of this list.", field="cursor") from None
    if "\0" in text or len(text) > 100 or not 0 <= number <= SEQUENCE_MAX:
        raise Invalid("That is no cursor of this list.", field="cursor")
    return text, number


def read_time_cursor(given: str) -> tuple[str, int]:
    """A cursor whose text is a time as the database shows it."""
    text, number = read_list_cursor(given)
    try:
        if _POSITION_TIME.fullmatch(text) is None:
            raise ValueError
        datetime.fromisoformat(text)
    except ValueError:
        raise Invalid("That is no cursor of this list.", field="cursor") from None
    return text, number


# Bodies


def check_json_type(headers: Mapping[str, str]) -> None:
    """A body says that it is JSON, or nothing; UTF-8, not compressed. Raises `Unsupported`."""
    given = headers.get("content-type", "")
    if given:
        kind, _, parameters = given.lower().partition(";")
        kind = kind.strip()
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise Unsupported("Send application/json.")
        charset = parameters.partition("charset=")[2].split(";")[0].strip(' "')
        if charset not in ("", "utf-8", "utf8"):
            raise Unsupported("JSON is UTF-8.")
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise Unsupported("Send the body as it is, without a content encoding.")


def too_large(data: bytes, headers: Mapping[str, str]) -> bool:
    """Of a body that says that it is, nothing was read."""
    return len(data) > limits.FRAME_BYTES or declared_too_large(headers)


def declared_too_large(headers: Mapping[str, str]) -> bool:
    length = headers.get("content-length", "")
    return length.isdecimal() and (len(length) > 15 or int(length) > limits.FRAME_BYTES)


def read_body(data: bytes, headers: Mapping[str, str], decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a body by `decoder`; an empty one is `{}`. Raises `TooLarge`, `Unsupported`, `Invalid`."""
    if too_large(data, headers):
        raise TooLarge(f"A body holds {limits.FRAME_BYTES} bytes at the most.")
    if not data:
        return decode(b"{}", decoder)
    check_json_type(headers)
    return decode(data, decoder)


def idempotency_key(headers: Mapping[str, str]) -> str | None:
    """The `Idempotency-Key`, at most 128 characters long (a longer one is kept as its digest), or None."""
    given = headers.get("idempotency-key")
    if given is None:
        return None
    if _IDEMPOTENCY_KEY.fullmatch(given) is None:
        raise Invalid("Idempotency-Key is 1 to 255 printable ASCII characters.", field="Idempotency-Key")
    return given if len(given) <= _STORED_KEY else "sha256:" + hashlib.sha256(given.encode()).hexdigest()


def key_as_client_message_id(key: str) -> str:
    """A message is created once by its `client_message_id`; without one the `Idempotency-Key` stands in for it."""
    name = "idem-" + key
    return name if len(name) <= _STORED_KEY else "idem-sha256:" + hashlib.sha256(key.encode()).hexdigest()
