"""How the run of an executor ends. Pure: executors in other processes and plug-ins return these, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Part = Mapping[str, Any]
"""As in the protocol: exactly one of `text`, `data`, `url`, `raw`, and may have `mediaType`, `filename`, `metadata`."""


@dataclass(frozen=True, slots=True)
class Completed:
    """`summary` is the text of the result. `parts`, when given, are the whole result, that text included.

    `context_patch` is a JSON Merge Patch for the session's context. `settle(message key)` is called in the transaction that
    posts the result, so that what an executor remembers of it is kept with it or not at all. `relay`: where exactly one
    agent was called, its answer is the result.
    """

    summary: str
    parts: tuple[Part, ...] = ()
    context_patch: Mapping[str, Any] = field(default_factory=dict)
    settle: Callable[[int | None], object] | None = field(default=None, compare=False)
    relay: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """`code` is stable (`unsupported`, `not_found`, `outside_roots`, `timeout`, …); `message` is for the requester.

    `said` is what was told as chunks before it broke off: then that is the message, marked `interrupted`. `relay`: where
    exactly one agent was called, what it said before it broke off is the message.
    """

    code: str
    message: str
    said: str = ""
    relay: bool = False


@dataclass(frozen=True, slots=True)
class NeedsInput:
    """The trace waits for an answer that fits the JSON schema, then starts again with it."""

    question: str
    schema: Mapping[str, Any] = field(default_factory=dict)


Outcome = Completed | Failed | NeedsInput


class Cancelled(Exception):
    """Raised out of a run when it is no longer wanted: the row that cancelled it has said all there is to say."""
