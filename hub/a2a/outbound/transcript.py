"""What a remote agent has said so far, put together from its events: the text as it grows, the parts, the state.

The text that is passed on in pieces is the text that is stored in the end: `take` returns what is new of it. A remote
sends an artifact's text whole, in pieces to be appended, or, after a cut, once more from its beginning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from a2a.types import Artifact, Message, StreamResponse, Task, TaskState
from google.protobuf.json_format import MessageToDict

FINAL = {
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_REJECTED,
}
INTERRUPTED = {TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED}
MAX_ARTIFACTS = 200
MAX_TEXT = 4 << 20
_EXACT = 1 << 53


class TooMuch(ValueError):
    """The remote says more than is taken."""


class Transcript:
    """`rejoined` is set when a stream was taken up again: the task then lists as parts what a stream sends in pieces."""

    def __init__(self) -> None:
        self.rejoined = False
        self.state: TaskState | None = None
        self.task_id = ""
        self.context_id = ""
        self.message: Message | None = None
        """The task's latest status message, or the message that is the whole answer."""
        self._artifacts: dict[str, list[dict[str, Any]]] = {}
        self._pieces: set[str] = set()
        self._told = ""
        self._answered = False

    @property
    def over(self) -> bool:
        return self._answered or self.state in FINAL

    @property
    def _has_said(self) -> bool:
        """Whether `message` is an answer, and not a question, a remark or a complaint."""
        return self.message is not None and (self._answered or self.state == TaskState.TASK_STATE_COMPLETED)

    @property
    def resting(self) -> bool:
        """Nothing more comes by itself."""
        return self.over or self.state in INTERRUPTED

    def take(self, event: StreamResponse) -> str:
        """Take an event in; returns the text that is new."""
        kind = event.WhichOneof("payload")
        if kind == "task":
            self._take_task(event.task)
        elif kind == "status_update":
            update = event.status_update
            self._named(update.task_id, update.context_id)
            self._status(update.status.state, update.status.message if update.status.HasField("message") else None)
        elif kind == "artifact_update":
            changed = event.artifact_update
            self._named(changed.task_id, changed.context_id)
            self._artifact(changed.artifact, append=changed.append)
        elif kind == "message":
            self._named(event.message.task_id, event.message.context_id)
            self.message = event.message
            self._answered = True
        return self._news()

    def text(self) -> str:
        """All of it; without any artifact's text that of the message with which the task was completed."""
        return self._artifact_text() or _text(self._last_word())

    def parts(self) -> tuple[dict[str, Any], ...]:
        """The whole as parts of one message: its text, then what is not text. Empty when the text is all there is."""
        held = self._artifact_parts()
        if not self._artifact_text():
            held = self._last_word() + held
        others = [part for part in held if "text" not in part]
        types = {part.get("mediaType") for part in held if "text" in part}
        media_type = types.pop() if len(types) == 1 else None
        if not others and media_type in (None, "text/plain"):
            return ()
        text = self.text()
        first: dict[str, Any] = {"text": text, **({"mediaType": media_type} if media_type else {})}
        return ((first,) if text else ()) + tuple(others)

    def remark(self) -> str:
        """What the latest message says: of an interrupted task the question, of a failed one the reason."""
        return _text(_parts(self.message)) if self.message is not None else ""

    def _last_word(self) -> list[dict[str, Any]]:
        return _parts(self.message) if self.message is not None and self._has_said else []

    def _take_task(self, task: Task) -> None:
        self._named(task.id, task.context_id)
        for artifact in task.artifacts:
            self._artifact(artifact, append=False)
        self._status(task.status.state, task.status.message if task.status.HasField("message") else None)

    def _named(self, task_id: str, context_id: str) -> None:
        self.task_id = task_id or self.task_id
        self.context_id = context_id or self.context_id

    def _status(self, state: TaskState, message: Message | None) -> None:
        self.state = state
        if message is not None:
            self.message = message
        elif state in FINAL or state in INTERRUPTED:
            self.message = None  # what it said while it worked is not its last word

    def _artifact(self, artifact: Artifact, *, append: bool) -> None:
        key = artifact.artifact_id
        if key not in self._artifacts and len(self._artifacts) >= MAX_ARTIFACTS:
            raise TooMuch(f"more than {MAX_ARTIFACTS} artifacts")
        fresh = [_part(part) for part in artifact.parts]
        if append:
            self._pieces.add(key)
            self._artifacts[key] = _joined([*self._artifacts.get(key, []), *fresh])
        else:
            self._artifacts[key] = fresh
        if sum(len(part["text"]) for parts in self._artifacts.values() for part in parts if "text" in part) > MAX_TEXT:
            raise TooMuch(f"more than {MAX_TEXT} characters")

    def _artifact_parts(self) -> list[dict[str, Any]]:
        return [
            part
            for key, parts in self._artifacts.items()
            for part in (_joined(parts) if self.rejoined or key in self._pieces else parts)
        ]

    def _artifact_text(self) -> str:
        return _text(self._artifact_parts())

    def _news(self) -> str:
        """What `text` has grown by. A text that was changed behind what was told already is not told again."""
        text = self.text()
        if not text.startswith(self._told):
            return ""
        new = text[len(self._told) :]
        self._told = text
        return new


def _joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbouring texts of the same kind as one."""
    whole: list[dict[str, Any]] = []
    for part in parts:
        last = whole[-1] if whole else None
        if last is not None and "text" in part and "text" in last and part.get("mediaType") == last.get("mediaType"):
            whole[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            whole.append(part)
    return whole


def _text(parts: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join(str(part["text"]) for part in parts if "text" in part)


def _parts(message: Message) -> list[dict[str, Any]]:
    return [_part(part) for part in message.parts]


def _part(part: Any) -> dict[str, Any]:
    told: dict[str, Any] = _numbers(MessageToDict(part))
    if part.WhichOneof("content") == "text":
        told.setdefault("text", "")
    return told


def _numbers(value: Any) -> Any:
    """Protobuf knows one kind of number: 1 comes back as 1.0, and is 1 again."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() and abs(value) < _EXACT else value
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value
