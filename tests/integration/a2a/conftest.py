"""A remote agent in a process of its own, and sessions with it."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sessions_app.models import Agent
from tests.integration.traces.conftest import Talk
from tests.processes import LOOPBACK, Process, clean_environment, free_port
from traces_app.models import Trace
from traces_app.runner import run_trace


class RemoteProcess(Process):
    """`tests/remote_agent.py` behind Daphne."""

    def __init__(self, directory: Path) -> None:
        super().__init__("remote", directory=directory)
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def environment(self) -> dict[str, str]:
        return clean_environment({"REMOTE_BASE": self.url})

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "daphne", "-b", LOOPBACK, "-p", str(self.port), "tests.remote_agent:application"]

    def is_ready(self) -> bool:
        try:
            self.seen()
        except OSError:
            return False
        return True

    def seen(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/seen", timeout=30) as answer:
            return dict(json.load(answer))


@pytest.fixture(scope="session")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteProcess]:
    process = RemoteProcess(tmp_path_factory.mktemp("remote"))
    process.start()
    yield process
    process.stop()


@pytest.fixture(autouse=True)
def this_machine_is_allowed(settings: Any) -> None:
    settings.HUB_A2A_ALLOW = [LOOPBACK]


class RemoteTalk(Talk):
    """A session of alice and `bob`, whose executor is a remote agent."""

    def __init__(self, card_url: str, *, context: dict[str, Any] | None = None, **config: Any) -> None:
        super().__init__("bob", executor="a2a", **({"context": context} if context else {}))
        Agent.objects.filter(agent_id="bob").update(executor_config={"card_url": card_url, **config})

    def run(self, text: str, **more: Any) -> Trace:
        """Ask, and run what was asked for to the end of its attempt."""
        trace = self.ask(text, **more)
        run_trace(trace.pk)
        trace.refresh_from_db()
        return trace
