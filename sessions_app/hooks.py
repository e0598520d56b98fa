"""The calls upwards: short visible lists of dotted names in settings, resolved once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string


@cache
def _resolved(setting: str) -> tuple[Callable[..., Any], ...]:
    return tuple(import_string(name) for name in getattr(settings, setting))


def append_hooks() -> tuple[Callable[..., Any], ...]:
    """`hook(entry: append.Entry) -> None`, called inside the append transaction for each message that may ask for work."""
    return _resolved("APPEND_HOOKS")


def close_hooks() -> tuple[Callable[..., Any], ...]:
    """`hook(session_pk, changes) -> None`, called inside the closing transaction, before the state moves."""
    return _resolved("CLOSE_HOOKS")


def question_hooks() -> tuple[Callable[..., Any], ...]:
    """`hook(session_pk, questions, how, answer_key)`: open questions (public message ids) that are open no more.

    Called under the session's lock, inside the transaction: `answered` (by the message of this key), `left` (nobody owes them
    any more) or `ended` (the session has).
    """
    return _resolved("QUESTION_HOOKS")


def keep_hooks() -> tuple[Callable[..., Any], ...]:
    """`hook(session_pk) -> bool`: whether a session must not time out now, called inside the sweep's transaction."""
    return _resolved("KEEP_HOOKS")


def status_hooks() -> tuple[Callable[..., Any], ...]:
    """`hook(session_pk, language) -> str`: sentences that a status query's answer adds; `language` is `zh` or `en`."""
    return _resolved("STATUS_HOOKS")


def executor_hooks() -> tuple[Callable[..., Any], ...]:
    """`hook(name) -> str | None`: raises `Invalid` when no executor of this name could run an agent's work; a remark when it is
    doubtful."""
    return _resolved("EXECUTOR_HOOKS")


class NotReady(Exception):
    """What a check may tell anybody of why it fails: a stable code, and a sentence for people."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@cache
def ready_checks() -> dict[str, Callable[..., Any]]:
    """`{name: check() -> None}`: what `/readyz` asks besides; a check that raises is not ready, `NotReady` says why."""
    return {name: import_string(dotted) for name, dotted in settings.READY_CHECKS.items()}


@cache
def frame_handlers() -> dict[str, Callable[..., Any]]:
    """`{frame type: handler}` for client frames that a layer above answers."""
    return {kind: import_string(name) for kind, name in settings.FRAME_HANDLERS.items()}


def runtime_parts() -> tuple[Callable[..., Any], ...]:
    """`make(runtime) -> realtime.parts.Part`: what layers above add to a serving process."""
    return _resolved("RUNTIME_PARTS")
