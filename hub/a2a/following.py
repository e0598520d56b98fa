"""Following a task: its rows are read, hints only say when to look. Any process can, of a task that runs in any other.

Live text comes between the rows as pieces of the result's artifact. It is never stored, so what a reader missed is put right
by the whole result: as the rest of it where all the pieces came, else in their place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from types import TracebackType
from typing import Any, Self

import msgspec
from a2a.types import Artifact, Part, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent

from hub.a2a.desk import desk_of
from hub.a2a.models import Question
from hub.a2a.states import OPEN
from hub.a2a.tasks import INTERRUPTED, RESULT, TERMINAL, TaskRef, find_task, sight_of
from hub.a2a.updates import Update, artifact_update, page_after
from sessions_app.context.profiles import View
from sessions_app.keys import Principal, bad_keys
from sessions_app.protocol.errors import Unauthenticated, Unavailable
from sessions_app.realtime.runtime import Runtime
from traces_app.board import MAX_FOLLOWER_FRAMES, board_of

CHECK_SECONDS = 2.0
_frame = msgspec.json.Decoder(dict[str, Any])


class Watch:
    """What wakes a reader of one task, and the live text that comes. On the loop from here on nothing is missed, so it is made
    before the task is read, and for a new task as soon as there is one: an agent may answer at once."""

    def __init__(self, runtime: Runtime, ref: TaskRef) -> None:
        self.runtime = runtime
        self.ref = ref
        if ref.is_trace:
            self._seat: Any = board_of(runtime).follow(
                ref.pk, ref.task_id, session_pk=ref.session_pk, agent_pk=ref.agent_pk
            )
        else:
            self._seat = desk_of(runtime).listen(ref.session_pk)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.ref.is_trace:
            board_of(self.runtime).unfollow(self.ref.pk, self.ref.task_id, self._seat)
        else:
            desk_of(self.runtime).forget(self.ref.session_pk, self._seat)

    def frames(self, view: View) -> list[dict[str, Any]]:
        """Chunk frames since the last call, as far as the task's owner may get them; from now on, what comes rings."""
        self._seat.wake.clear()
        pieces, self._seat.frames = self._seat.frames, []
        return [_frame.decode(piece.frame) for piece in pieces if piece.is_for(view, asked=True)]

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):  # `wait_for` may swallow a cancellation (Python 3.11)
                await self._seat.wake.wait()
        except TimeoutError:
            pass


class LiveText:
    """The pieces of one answer as one reader has been sent them."""

    def __init__(self, ref: TaskRef) -> None:
        self._ref = ref
        self._stream: str | None = None
        self._text = ""
        self._next = 0

    @property
    def stream(self) -> str | None:
        return self._stream

    def take(self, frame: dict[str, Any]) -> TaskArtifactUpdateEvent | None:
        """A piece as an update; None for one that does not follow what was sent."""
        stream, index, text = str(frame.get("stream_id")), frame.get("index"), str(frame.get("text") or "")
        if index == 0:  # a new answer, or the same one begun again by another worker
            self._stream, self._text, self._next = stream, "", 0
        if stream != self._stream or index != self._next:
            self._next = -1  # a gap: the whole result will come
            return None
        self._next += 1
        self._text += text
        artifact = Artifact(artifact_id=RESULT, name=RESULT, parts=[Part(text=text)])
        return artifact_update(self._ref, artifact, append=index > 0, last=False)

    def finish(self, update: Update) -> Update:
        """The result's artifact: only the rest of it, where it is the text that was sent so far."""
        if not isinstance(update, TaskArtifactUpdateEvent) or update.artifact.artifact_id != RESULT or self._next <= 0:
            return update
        parts = update.artifact.parts
        if len(parts) == 1 and parts[0].WhichOneof("content") == "text" and parts[0].text.startswith(self._text):
            rest = Artifact(artifact_id=RESULT, name=RESULT, parts=[Part(text=parts[0].text[len(self._text) :])])
            return artifact_update(self._ref, rest, append=True, last=True)
        return update


async def follow(
    watch: Watch,
    principal: Principal,
    after: int,
    *,
    until_it_rests: bool = False,
    begun_within: float | None = None,
) -> AsyncGenerator[tuple[int | None, Update]]:
    """The updates of the watched task after `after`, each with its sequence (None: live text), until it has ended.

    `until_it_rests`: or waits for its client. `begun_within`: or nobody has begun it for so many seconds. Raises `Unavailable`
    when this process stops, `Unauthenticated` when the key has gone and `NotFound` when the owner has left the context.
    """
    runtime, ref = watch.runtime, watch.ref
    loop = runtime.loop
    checked = loop.time()
    deadline = checked + begun_within if begun_within is not None else None
    live = LiveText(ref)
    frames: list[dict[str, Any]] = []
    view = await runtime.read(lambda: sight_of(ref).view)
    while True:
        frames = [*frames, *watch.frames(view)][:MAX_FOLLOWER_FRAMES]
        # Read after the text was taken: if its writer's claim is committed, the page says so; else the text waits for it.
        page = await runtime.read(page_after, ref, after)
        pieces: list[TaskArtifactUpdateEvent] = []
        if page.begun:
            frames, taken = [], frames
            pieces = [
                piece
                for frame in taken
                if await _is_of(runtime, ref, live, frame) and (piece := live.take(frame)) is not None
            ]
        for number, update in _in_order(page.updates, pieces):
            if number is not None:
                update = live.finish(update)
            if not isinstance(update, TaskStatusUpdateEvent) or update.status.state != TaskState.TASK_STATE_SUBMITTED:
                deadline = None
            yield number, update
            if isinstance(update, TaskStatusUpdateEvent) and (
                update.status.state in TERMINAL or (until_it_rests and update.status.state in INTERRUPTED)
            ):
                return
        after = max(after, page.position)
        if page.over:
            return
        if page.more:
            continue
        if runtime.stopping:
            raise Unavailable(stored=False)
        if deadline is not None and loop.time() >= deadline:
            return
        await watch.wait(CHECK_SECONDS if deadline is None else min(CHECK_SECONDS, deadline - loop.time()))
        if loop.time() - checked >= CHECK_SECONDS:
            checked = loop.time()
            view = await runtime.read(_check, principal, ref)


def _in_order(
    updates: list[tuple[int, Update]], pieces: list[TaskArtifactUpdateEvent]
) -> Iterator[tuple[int | None, Update]]:
    """Live text behind the update that says that its task is at work, where that is among them, and before all others."""
    working, begun = False, 0
    for place, (_, update) in enumerate(updates, 1):
        if isinstance(update, TaskStatusUpdateEvent):
            was, working = working, update.status.state == TaskState.TASK_STATE_WORKING
            begun = place if working and not was else begun
    yield from updates[:begun]
    for piece in pieces:
        yield None, piece
    yield from updates[begun:]


def _check(principal: Principal, ref: TaskRef) -> View:
    """What the owner may still see."""
    if bad_keys({principal.key_pk}):
        raise Unauthenticated()
    find_task(ref.task_id, ref.owner_pk, ref.agent_pk)
    return sight_of(ref).view


async def _is_of(runtime: Runtime, ref: TaskRef, live: LiveText, frame: dict[str, Any]) -> bool:
    """Whether this piece belongs to the task: text without a trace goes to the oldest question that the agent owes."""
    if ref.is_trace:
        return True
    if frame.get("trace_id") is not None:
        return False
    if frame.get("index") != 0:
        return frame.get("stream_id") == live.stream
    return bool(await runtime.read(_is_next, ref, frame.get("from")))


def _is_next(ref: TaskRef, sender: Any) -> bool:
    rows = Question.objects.filter(session_id=ref.session_pk, agent_id=ref.agent_pk, state__in=OPEN).order_by("pk")
    first = rows.values_list("pk", "agent__agent_id").first()
    return first is not None and first == (ref.pk, sender)
