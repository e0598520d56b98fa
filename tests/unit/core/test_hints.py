"""Hints between processes: a stop ends them, whatever they are doing just then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sessions_app.realtime import hints
from sessions_app.realtime.hints import LayerHints


class Layer:
    """A channel layer that finishes its sends when it is told to, and hears nothing."""

    def __init__(self) -> None:
        self.sending = asyncio.Event()
        self.finish = asyncio.Event()

    async def new_channel(self, prefix: str) -> str:
        return f"{prefix}mine"

    async def group_add(self, group: str, channel: str) -> None:
        pass

    async def receive(self, channel: str) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self.sending.set()
        await self.finish.wait()


async def test_a_stop_in_the_moment_in_which_a_send_is_done_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = Layer()
    monkeypatch.setattr(hints, "get_channel_layer", lambda: layer)
    mine = LayerHints(lambda changes: None, lambda frame: None)
    await mine.start()
    mine.send_frame(text="on its way")
    await layer.sending.wait()
    layer.finish.set()
    stopping = asyncio.create_task(mine.stop())
    done, _ = await asyncio.wait({stopping}, timeout=20)
    assert done, "the stop still waits for a send that has been done long ago"
