"""Agents that are models, against a server that speaks the real wire format; runs in this process, with real threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from django.db import connection

from hub.demo.model_server import Answer, ModelServer, Script
from sessions_app.context import profiles
from sessions_app.models import Agent
from tests.integration.traces.conftest import Talk
from traces_app import chunks
from traces_app.models import Trace
from traces_app.runner import run_trace
from traces_app.tools import Arguments, ToolContext, tool

Serve = Callable[[Script], ModelServer]


@pytest.fixture(autouse=True)
def with_a_database(transactional_db: None) -> None:
    pass


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[ModelServer] = []

    def started(script: Script) -> ModelServer:
        server = ModelServer(script).__enter__()
        servers.append(server)
        return server

    yield started
    for server in servers:
        server.__exit__()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The chunk frames that were sent, in order."""
    frames: list[dict[str, Any]] = []
    monkeypatch.setattr(chunks, "send_frame", lambda fields: frames.append(msgspec.json.decode(fields["frame"])))
    return frames


def text_of(frames: list[dict[str, Any]], stream_id: str) -> str:
    return "".join(frame["text"] for frame in frames if frame["stream_id"] == stream_id)


def configure(agent_id: str, server: ModelServer, **config: Any) -> None:
    """Make an agent a model of this server's."""
    Agent.objects.filter(agent_id=agent_id).update(
        executor="llm", executor_config={"model": "scripted", "base_url": server.base_url, "tools": [], **config}
    )


def last_role(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["role"])


def run(trace: Trace) -> Trace:
    assert run_trace(trace.pk)
    trace.refresh_from_db()
    return trace


def run_beside(trace: Trace) -> threading.Thread:
    def work() -> None:
        try:
            run_trace(trace.pk)
        finally:
            connection.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def says(*pieces: str, **more: Any) -> Script:
    return lambda body: Answer(pieces, **more)


JOURNAL: list[dict[str, Any]] = []


@tool(
    "add",
    "Adds two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
def add(arguments: Arguments, context: ToolContext) -> Any:
    JOURNAL.append(dict(arguments))
    return {"sum": arguments["a"] + arguments["b"]}


@tool("breaks", "Fails.", {"type": "object", "properties": {}})
def breaks(arguments: Arguments, context: ToolContext) -> Any:
    raise ValueError("a secret inside")


@pytest.fixture
def tools(settings: Any) -> list[dict[str, Any]]:
    """The tools `add` and `breaks` are registered; returns what `add` was called with."""
    settings.HUB_TOOLS = [f"{__name__}.add", f"{__name__}.breaks"]
    JOURNAL.clear()
    return JOURNAL


__all__ = ["Talk", "profiles"]
