"""Client frames that are answered by `id`: kept until answered, written again after a cut."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from dataclasses import dataclass
from typing import Any

from hub.client.errors import ClientError, HubError, error_from
from hub.client.frames import ErrorFrame, ServerFrame
from hub.client.wire import encode


@dataclass(eq=False)
class Request:
    id: str
    text: str
    answer: asyncio.Future[ServerFrame]
    written: bool = False


class Requests:
    """Requests under way and frames that need no answer (`post`: dropped when there is no connection)."""

    def __init__(self, *, posts_max: int = 1000) -> None:
        self._open: dict[str, Request] = {}
        self._posts: deque[str] = deque(maxlen=posts_max)
        self._numbers = itertools.count(1)

    def call(self, frame: dict[str, Any]) -> Request:
        """Register a frame; its answer is the frame with the same id, an error frame is raised."""
        number = f"rq-{next(self._numbers)}"
        answer: asyncio.Future[ServerFrame] = asyncio.get_running_loop().create_future()
        request = Request(number, encode({**frame, "id": number}), answer)
        self._open[number] = request
        return request

    def drop(self, request: Request) -> None:
        self._open.pop(request.id, None)

    def post(self, frame: dict[str, Any]) -> None:
        self._posts.append(encode(frame))

    def outgoing(self) -> list[str]:
        texts = []
        for request in self._open.values():
            if not request.written:
                request.written = True
                texts.append(request.text)
        texts.extend(self._posts)
        self._posts.clear()
        return texts

    def answered(self, frame: ServerFrame) -> bool:
        """Whether this frame answers one of ours (by its id)."""
        number = getattr(frame, "id", None)
        request = self._open.pop(number, None) if isinstance(number, str) else None
        if request is None:
            return False
        if not request.answer.done():
            if isinstance(frame, ErrorFrame):
                request.answer.set_exception(error_from(frame.code, frame.message, frame.details))
            else:
                request.answer.set_result(frame)
        return True

    def lost(self) -> None:
        """The connection ended: what was not answered is written again, passing frames are not."""
        self._posts.clear()
        for request in self._open.values():
            request.written = False

    def fail(self, error: HubError | ClientError) -> None:
        for request in self._open.values():
            if not request.answer.done():
                request.answer.set_exception(error)
                request.answer.exception()
        self._open.clear()
