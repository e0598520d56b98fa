"""What is written to the terminal: text of others made harmless, JSON exact, errors with stable exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NoReturn

from rich.console import Console

from hub.client.errors import (
    ClientError,
    Forbidden,
    HubError,
    NotFound,
    RateLimited,
    Unauthenticated,
    Unavailable,
    Unreachable,
)


class Exit(IntEnum):
    """Exit codes; programs may rely on them."""

    OK = 0
    FAILED = 1  # something unexpected
    USAGE = 2  # the command line was wrong
    DENIED = 3  # no key, a bad one, or not allowed
    NOT_FOUND = 4
    REFUSED = 5  # the hub refused it: invalid, conflict, session closed, too large
    UNREACHABLE = 6  # nobody answers, or not now
    TIMEOUT = 7  # no answer in the time given
    INTERRUPTED = 130


def _table() -> dict[int, str]:
    # A picture for each control character, so that it is seen and does nothing. Tab and newline stay.
    table = {code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)}
    table[0x7F] = "␡"
    table |= dict.fromkeys(range(0x80, 0xA0), "\ufffd")  # C1: some terminals obey them
    bidi = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    table |= dict.fromkeys(bidi, "\ufffd")  # they reorder what is read
    table |= {0x2028: "\n", 0x2029: "\n"}
    return table


_HARMLESS = _table()


def harmless(text: object) -> str:
    """Text of others for a terminal. Character by character, so that a sequence cut into two chunks is harmless too."""
    return str(text).translate(_HARMLESS)


def one_line(text: object, width: int = 100) -> str:
    line = " ".join(harmless(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


class Screen:
    """stdout for what was asked for, stderr for everything else. With `as_json` stdout holds JSON only, one value a line."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        for stream in (sys.stdout, sys.stderr):
            reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="replace")
        self.console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self.errors = Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty() and not self.as_json

    def data(self, value: Any) -> None:
        """One JSON value on one line; control characters stay as JSON escapes, exact for who parses it."""
        sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")
        sys.stdout.flush()

    def line(self, text: object = "", *, style: str | None = None) -> None:
        self.console.print(harmless(text), style=style)

    def piece(self, text: object) -> None:
        """Text without a newline, at once (a reply that is being written)."""
        sys.stdout.write(harmless(text))
        sys.stdout.flush()

    def note(self, text: object, *, style: str | None = "dim") -> None:
        """For the person, not for the pipe."""
        self.errors.print(harmless(text), style=style)

    def fail(self, error: BaseException, *, hint: str = "") -> NoReturn:
        """Say what went wrong, and end with its code."""
        code = exit_code(error)
        if self.as_json:
            body = error.body() if isinstance(error, HubError) else {"code": _name(error), "message": str(error)}
            sys.stderr.write(json.dumps({"error": body, "exit": int(code)}) + "\n")
        else:
            self.note(f"hub: {str(error) or _name(error)}", style="red")
            hint = hint or _hint(error)
            if hint:
                self.note(hint)
        raise SystemExit(int(code))


def exit_code(error: BaseException) -> Exit:
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    if isinstance(error, Unauthenticated | Forbidden):
        return Exit.DENIED
    if isinstance(error, NotFound):
        return Exit.NOT_FOUND
    if isinstance(error, TimeoutError):
        return Exit.TIMEOUT
    if isinstance(error, Unavailable | Unreachable | RateLimited):
        return Exit.UNREACHABLE
    if isinstance(error, HubError):
        return Exit.REFUSED
    if isinstance(error, ValueError):
        return Exit.USAGE
    return Exit.FAILED


def _name(error: BaseException) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in type(error).__name__).strip("_")


def _hint(error: BaseException) -> str:
    if isinstance(error, Unauthenticated):
        return "Try `hub login`, or set HUB_URL, HUB_AGENT and HUB_API_KEY."
    if isinstance(error, Unreachable | ClientError):
        return "Try `hub doctor`."
    return ""
