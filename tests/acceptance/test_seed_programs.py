"""The seed's own programs, as two processes, against the hub that one command starts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from hub.client import NotFound
from hub.client.calls import Calls
from tests.hubs import Backend, Hub
from tests.processes import ROOT, clean_environment
from tests.services import HubProcess

pytestmark = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@pytest.fixture
def serve(backend: Backend) -> Iterator[Hub]:
    """The embedded hub: web process and worker under one command."""
    hub = Hub(backend, backend.env)
    hub.add_web(argv=(*HubProcess.SERVE, "--data", str(backend.directory)))
    yield hub
    hub.stop()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A real little project with a module called core."""
    root = tmp_path / "project"
    for name, files in {
        "core": {
            "__init__.py": "",
            "views.py": "from core import services\n",
            "services.py": "from core import models\n",
            "models.py": "class Order:\n    def total(self):\n        return 0\n",
        },
        "api": {"__init__.py": "from core import views\n"},
        "utils": {"__init__.py": "X = 1\n"},
    }.items():
        (root / name).mkdir(parents=True)
        for file, text in files.items():
            (root / name / file).write_text(text)
    return root


@contextlib.asynccontextmanager
async def program(
    *words: str, stdin: int = asyncio.subprocess.DEVNULL, env: dict[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *words),
        cwd=ROOT,
        env=clean_environment({"PYTHONPATH": str(ROOT), **env}),
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()


async def eventually(condition: Callable[[], Awaitable[bool]], timeout: float = 60) -> None:
    """Look again and again: what is awaited happens in other processes."""
    async with asyncio.timeout(timeout):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def until_said(calls: Calls, session_id: str, count: int) -> list[tuple[str, str]]:
    """The first `count` chat messages, when they are there."""
    async with asyncio.timeout(60):
        while True:
            said = [
                (m.sender, m.content) async for m in calls.history(session_id) if m.kind not in ("system", "result")
            ]
            if len(said) >= count:
                return said
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("executes", [False, True])
async def test_both_programs_hold_the_seeds_conversation(serve: Hub, project: Path, executes: bool) -> None:
    # The hub has made both on its first start; these are further keys of theirs.
    terminal_key, cloud_key = (
        str(json.loads(serve.manage("agent", "key", name, "--json"))["api_key"])
        for name in ("terminal-agent-456", "cloud-agent-123")
    )
    calls = Calls(serve.url, "cloud-agent-123", cloud_key)
    where = {"HUB_URL": serve.url}
    terminal = program(
        *("-m", "tests.acceptance.programs.seed_terminal"),
        env=where | {"HUB_API_KEY": terminal_key, "PROJECT": str(project)},
    )
    cloud = program(
        *("-m", "tests.acceptance.programs.seed_cloud"),
        env=where | {"HUB_API_KEY": cloud_key, "EXECUTE": "1" if executes else "0"},
    )
    async with terminal, cloud as cloud_process:

        async def begun() -> bool:
            return bool(await calls.sessions())

        await eventually(begun)
        session_id = (await calls.sessions())[0].session_id
        said = await until_said(calls, session_id, 6)
        assert [sender for sender, _ in said] == ["cloud-agent-123", "terminal-agent-456"] * 3
        assert [text for _, text in said[:4]] == [
            "请分析本地项目",
            "我看到有3个模块：core, api, utils，你想重点分析哪个？",
            "重点分析core模块",
            "core模块使用了roles架构，需要我详细说明吗？",
        ]
        assert said[4][1] == "是的，请详细说明架构设计和关键组件"
        assert said[5][1] == "详细架构：\nOrder core/models.py:1"
        if executes:
            try:
                await calls.traces(session_id)
            except NotFound:
                pytest.skip("this hub has no traces yet")

            async def executed() -> bool:
                return bool([m async for m in calls.history(session_id) if m.kind == "result"])

            await eventually(executed)
        await calls.end_session(session_id)
        out, err = await asyncio.wait_for(cloud_process.communicate(), 30)
        assert cloud_process.returncode == 0
        assert out.decode().splitlines()[-1] == "ended: completed"
        assert err == b""
    await calls.rest.aclose()


async def test_a_newcomer_gets_an_answer_with_the_command_alone(serve: Hub, project: Path, tmp_path: Path) -> None:
    keys = serve.create_agents(["helper", "me-agent"])
    home = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}

    async def hub(*words: str, stdin: str = "") -> tuple[int, str, str]:
        async with program("-m", "hub.cli", *words, stdin=asyncio.subprocess.PIPE, env=home) as process:
            out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
            return process.returncode or 0, out.decode(), err.decode()

    assert (await hub("login", "--url", serve.url, "--key-stdin", stdin=keys["me-agent"]))[0] == 0
    code, out, _ = await hub("doctor")
    assert code == 0, out
    settings = {**home, "HUB_URL": serve.url, "HUB_API_KEY": keys["helper"]}
    async with program("-m", "hub.cli", "agent", "workspace", "--root", str(project), env=settings):
        code, out, err = await hub("chat", "helper", stdin="请分析本地项目\n重点分析core模块\n是的，请详细说明\n")
        assert code == 0, err
        assert "我看到有3个模块：core, api, utils" in out
        assert "core模块使用了" in out
        assert "core/models.py:1" in out
    code, out, _ = await hub("sessions", "--json")
    assert code == 0
    assert os.linesep in out


async def test_the_hub_keeps_its_contract(serve: Hub) -> None:
    keys = serve.create_agents(["check-a", "check-b", "check-c"])
    async with program(
        "-m", "hub.client.conformance", serve.url, env={"HUB_CHECK_KEYS": ",".join(keys.values())}
    ) as process:
        out, err = await asyncio.wait_for(process.communicate(), 110)
        assert process.returncode == 0, out.decode() + err.decode()
