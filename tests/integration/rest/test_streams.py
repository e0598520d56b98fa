"""How streams of server-sent events end: none outlives what feeds it, none leaves anything behind."""

from __future__ import annotations

import asyncio

import pytest

from sessions_app.keys import verify_key
from sessions_app.realtime import subscriber
from sessions_app.realtime.event_stream import EventStream
from sessions_app.realtime.places import enter
from sessions_app.realtime.runtime import get_runtime
from tests.integration.rest.conftest import Door, MakeDoor
from traces_app.board import board_of
from traces_app.rest.stream import follow_trace
from traces_app.selectors import find_trace

pytestmark = pytest.mark.parametrize("application", ["express"], indirect=True)


async def test_a_stream_of_a_session_ends_when_its_delivery_has_failed(
    a: Door, b: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError

    session = await a.open("b")
    await a.say(session, "hello")
    runtime = get_runtime()
    await runtime.ready.wait()
    principal = await runtime.read(verify_key, b.key)
    place = await runtime.read(enter, session, principal.agent_pk, False)
    monkeypatch.setattr(subscriber, "messages_after", broken)
    async with asyncio.timeout(30):
        said = [text async for text in EventStream(runtime, principal).events(place, None)]
    assert said == [": connected\n\n"]
    assert not runtime.registry.subscribers


async def test_who_leaves_the_stream_of_a_trace_at_once_leaves_nothing_behind(a: Door, door: MakeDoor) -> None:
    await door("worker", executor="python:tests.executors:echo")
    session = await a.open("worker")
    trace_id = (await a.say(session, "work", requires_execution=True))["trace_id"]
    runtime = get_runtime()
    await runtime.ready.wait()
    principal = await runtime.read(verify_key, a.key)
    access = await runtime.read(find_trace, trace_id, principal)
    stream = follow_trace(runtime, principal, access, 0)
    assert await anext(stream) == ": connected\n\n"
    await stream.aclose()
    board = board_of(runtime)
    assert (board._followers, board._streams) == ({}, {})
