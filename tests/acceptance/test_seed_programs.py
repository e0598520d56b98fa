"""The seed's own programs, as two processes, against the hub that one command starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from hub.client import Message
from hub.client.calls import Calls
from tests.acceptance.conftest import embedded_hub
from tests.hubs import Backends, Hub
from tests.processes import ROOT, clean_environment


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real little project with a module called core."""
    root = tmp_path_factory.mktemp("project")
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
        (root / name).mkdir()
        for file, text in files.items():
            (root / name / file).write_text(text)
    return root


@pytest.fixture(scope="module")
def embedded(backends: Backends, project: Path) -> Iterator[Hub]:
    """As `make run DIR=…` starts it: what nobody else executes, the hub's own planner does, and may read the project."""
    yield from embedded_hub(backends, "--root", str(project))


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


CLOUD, TERMINAL, HUB = "cloud-agent", "terminal-agent-456", "hub"
OPENING, DETAILS = "请分析本地项目", "是的，请详细说明架构设计和关键组件"


@pytest.fixture(scope="module")
def keys(embedded: Hub) -> dict[str, str]:
    """Keys of the seed's two agents."""
    return embedded.create_agents([CLOUD, TERMINAL])


class Talk:
    """The session that a program began, as the cloud agent reads it."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.session_id = ""

    async def begun(self, known: set[str]) -> None:
        """Until a session is there that was not known."""

        async def there() -> bool:
            self.session_id = next((s.session_id for s in await self.calls.sessions() if s.session_id not in known), "")
            return bool(self.session_id)

        await eventually(there)

    async def said(self, count: int) -> list[tuple[str, str]]:
        """What the two agents have said, when so many messages are there; what the hub did and said is left out."""
        found: list[Message] = []

        async def enough() -> bool:
            found[:] = [m async for m in self.calls.history(self.session_id) if m.sender != HUB]
            return len(found) >= count

        await eventually(enough)
        return [(message.sender, message.content) for message in found]

    async def result(self) -> Message:
        """The result of what the cloud program wanted to have executed. (Programs that begin anew may want it once more.)"""
        wanted = (await self.sent(DETAILS)).message_id
        found: list[Message] = []

        async def there() -> bool:
            found[:] = [m async for m in self.calls.history(self.session_id) if m.reply_to == wanted]
            found[:] = [m for m in found if m.kind == "result"]
            return bool(found)

        await eventually(there)
        (result,) = found
        return result

    async def sent(self, text: str) -> Message:
        return next(iter([m async for m in self.calls.history(self.session_id) if m.content == text]))


@contextlib.asynccontextmanager
async def talk_of(serve: Hub, keys: dict[str, str], terminal: tuple[str, ...], project: Path) -> AsyncIterator[Talk]:
    """The seed's cloud program and a terminal agent at work; in the end the session is closed and the program with it."""
    calls = Calls(serve.url, CLOUD, keys[CLOUD])
    known = {session.session_id for session in await calls.sessions()}
    there = {"HUB_URL": serve.url, "HUB_API_KEY": keys[TERMINAL], "PROJECT": str(project)}
    here = {"HUB_URL": serve.url, "HUB_API_KEY": keys[CLOUD]}

    async def at_work(wanted: bool) -> bool:
        return (await calls.agent(TERMINAL)).online is wanted

    async with contextlib.AsyncExitStack() as stack:
        await eventually(lambda: at_work(False))
        await stack.enter_async_context(program(*terminal, env=there))
        await eventually(lambda: at_work(True))
        cloud = await stack.enter_async_context(program("-m", SEED, "cloud", env=here))
        talk = Talk(calls)
        await talk.begun(known)
        yield talk
        await calls.end_session(talk.session_id)
        _, err = await asyncio.wait_for(cloud.communicate(), 30)
        assert cloud.returncode == 0, err.decode()
        # It may have been about to say more when the session ended.
        assert not err or b"SessionClosed" in err, err.decode()
    await calls.rest.aclose()


SEED = "tests.acceptance.programs.seed"


async def test_both_programs_of_the_seed_run_as_they_are_written(
    serve: Hub, keys: dict[str, str], project: Path
) -> None:
    """The seed's cloud program waits for 哪个模块, which its terminal agent never says in one word ("你想重点分析哪个？").

    So a person says that one line, in the cloud agent's name, and notes the module in the session's context, where the
    hub's planner looks for it; all the rest the two programs say to each other.
    """
    async with talk_of(serve, keys, ("-m", SEED, "terminal"), project) as talk:
        assert await talk.said(2) == [
            (CLOUD, OPENING),
            (TERMINAL, "我看到有3个模块：core, api, utils，你想重点分析哪个？"),
        ]
        await talk.calls.update_context(talk.session_id, {"focus_module": "core"})
        me = {"HUB_URL": serve.url, "HUB_API_KEY": keys[CLOUD]}
        async with program(
            "-m", "hub.cli", "send", talk.session_id, "重点分析core模块", "--no-execute", env=me
        ) as person:
            assert await asyncio.wait_for(person.wait(), 30) == 0
        # The hub's result names the module, too, so the terminal program begins anew: what comes after is not looked at.
        said = await talk.said(6)
        assert said[2:6] == [
            (CLOUD, "重点分析core模块"),
            (TERMINAL, "core模块使用了roles架构，需要我详细说明吗？"),
            (CLOUD, DETAILS),
            (TERMINAL, "详细架构：\nOrder core/models.py:1"),
        ]
        result = await talk.result()
        assert result.sender == HUB, "the seed's terminal agent executes nothing; the hub's own planner did"
        assert "core/models.py:1" in result.content


async def test_the_cloud_program_of_the_seed_and_our_terminal_agent_need_nobody(
    serve: Hub, keys: dict[str, str], project: Path
) -> None:
    terminal = ("-m", "hub.cli", "agent", "workspace", "--root", str(project))
    async with talk_of(serve, keys, terminal, project) as talk:
        said = await talk.said(5)
        assert [who for who, _ in said[:5]] == [CLOUD, TERMINAL, CLOUD, TERMINAL, CLOUD]
        assert said[1][1].splitlines()[-1].startswith("我看到有3个模块：core, api, utils，你想重点分析哪个？")
        assert said[2][1] == "重点分析core模块"
        assert said[3][1].endswith("需要我详细说明吗？")
        assert said[4][1] == DETAILS
        result = await talk.result()
        assert result.sender == TERMINAL, "delegated: the one with the directory does the work"
        assert "core/models.py:1" in result.content


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
