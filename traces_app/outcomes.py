"""How the run of an executor ends. Pure: executors in other processes and plug-ins return these, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Part = Mapping[str, Any]
"""As in the protocol: exactly one of `text`, `data`, `url`, `raw`, and may have `mediaType`, `filename`, `metadata`."""


@dataclass(frozen=True, slots=True)
class Completed:
    """`summary` is the text of the result. `parts`, when given, are the whole result, that text included.

    `context_patch` is a JSON Merge Patch for the session's context.
    """

    summary: str
    parts: tuple[Part, ...] = ()
    context_patch: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """`code` is stable (`unsupported`, `not_found`, `outside_roots`, `timeout`, …); `message` is for the requester."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NeedsInput:
    """The trace waits for an answer that fits the JSON schema, then starts again with it."""

    question: str
    schema: Mapping[str, Any] = field(default_factory=dict)


Outcome = Completed | Failed | NeedsInput


class Cancelled(Exception):
    """Raised out of a run when it is no longer wanted: the row that cancelled it has said all there is to say."""
