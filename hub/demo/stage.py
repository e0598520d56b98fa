"""Puts the demo on: a hub, a terminal agent and a cloud agent, each a process; prints what is said, and judges it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from hub.demo.facts import check, named_modules
from hub.demo.lines import SCRIPTS, counted

SECONDS = 120.0
_ASKED = re.compile(r"[:：]\s*([A-Za-z_][\w./-]*(?:,\s*[A-Za-z_][\w./-]*)*)")

Say = Callable[[str], None]


class DemoFailed(Exception):
    """Something that belongs to the conversation did not happen or was not true; the text says what."""


@dataclass
class Heard:
    """What the watcher has seen."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    goals: dict[str, str] = field(default_factory=dict)
    tool_calls: int = 0
    ended: str | None = None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def perform(root: Path, language: str, base: Path, say: Say) -> Heard:
    """Run the whole conversation about `root`; raises `DemoFailed`. Leaves no process and no file behind."""
    with tempfile.TemporaryDirectory(prefix="hub-demo-") as directory:
        data, port = Path(directory), free_port()
        async with contextlib.AsyncExitStack() as stack:
            url = f"http://127.0.0.1:{port}"
            serve = [
                sys.executable,
                "manage.py",
                "serve",
                "--port",
                str(port),
                "--data",
                str(data),
                "--root",
                str(root),
            ]
            hub = await stack.enter_async_context(process(serve, data / "hub.log", cwd=base))
            await ready(url, hub, data / "hub.log")
            keys = make_agents(base, data)
            say(f"hub        {url}, a process of its own, on SQLite; built-in tools may read {root} and nothing else")
            terminal = [sys.executable, "-m", "hub.cli", "agent", "workspace", "--root", str(root)]
            await stack.enter_async_context(
                process(terminal, data / "terminal.log", env=who(url, "terminal-agent-456", keys), cwd=base)
            )
            say("terminal   terminal-agent-456 is connected from a second process and knows that directory")
            cloud_env = who(url, "cloud-agent-123", keys) | {"DEMO_LANG": language}
            cloud = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hub.demo.cloud_agent", env=cloud_env, cwd=base, stdout=asyncio.subprocess.PIPE
            )
            try:
                assert cloud.stdout is not None
                async with asyncio.timeout(SECONDS):
                    session_id = (await cloud.stdout.readline()).decode().strip()
                    if not session_id:
                        raise DemoFailed("the cloud agent opened no session")
                    say(f"cloud      cloud-agent-123 opened {session_id} from a third process\n")
                    heard = await watch(url, keys["demo-watcher"], session_id, say)
                    code = await cloud.wait()
            except TimeoutError:
                raise DemoFailed(f"the conversation did not end within {SECONDS:.0f} s") from None
            finally:
                if cloud.returncode is None:
                    cloud.kill()
                    await cloud.wait()
            if code != 0:
                raise DemoFailed(f"the cloud agent ended with {code}")
    return heard


def who(url: str, agent_id: str, keys: dict[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HUB_", "DATABASE_URL"))}
    return clean | {"HUB_URL": url, "HUB_AGENT": agent_id, "HUB_API_KEY": keys[agent_id], "PYTHONUTF8": "1"}


@contextlib.asynccontextmanager
async def process(
    command: list[str], log: Path, *, cwd: Path, env: dict[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that ends with the block; what it printed is shown when something went wrong."""
    with log.open("wb") as output:
        running = await asyncio.create_subprocess_exec(
            *command, cwd=cwd, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            yield running
        except DemoFailed as failed:
            printed = await asyncio.to_thread(log.read_text, errors="replace")
            raise DemoFailed(f"{failed}\n--- {log.name}\n{printed[-2000:]}") from None
        finally:
            if running.returncode is None:
                running.terminate()
                try:
                    await asyncio.wait_for(running.wait(), 15)
                except TimeoutError:
                    running.kill()
                    await running.wait()


async def ready(url: str, hub: asyncio.subprocess.Process, log: Path) -> None:
    deadline = time.monotonic() + 60
    async with httpx.AsyncClient() as client:
        while time.monotonic() < deadline:
            if hub.returncode is not None:
                raise DemoFailed("the hub did not start")
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(f"{url}/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
    raise DemoFailed(f"the hub was not ready in time, see {log}")


def make_agents(base: Path, data: Path) -> dict[str, str]:
    """Fresh keys for the two agents that the first start made, and an operator that watches."""
    env = os.environ | {"DATABASE_URL": f"sqlite:///{data / 'hub.sqlite3'}", "HUB_DATA_DIR": str(data)}
    keys = {}
    for command in (
        ["key", "cloud-agent-123"],
        ["key", "terminal-agent-456"],
        ["create", "demo-watcher", "--scope", "operator"],
    ):
        done = subprocess.run(
            [sys.executable, "manage.py", "agent", *command, "--json"],
            cwd=base,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        if done.returncode != 0:
            raise DemoFailed(f"agent {' '.join(command)}: {done.stderr.strip()}")
        made = json.loads(done.stdout)
        keys[made["agent_id"]] = made["api_key"]
    return keys


async def watch(url: str, key: str, session_id: str, say: Say) -> Heard:
    """Follow the session as an operator, from its first message to its end, and each trace that it opens."""
    heard = Heard()
    traces: set[asyncio.Task[None]] = set()
    headers = {"Authorization": f"Bearer {key}"}
    timeout = httpx.Timeout(10, read=60)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout) as client:
        async for kind, frame in events(client, f"/api/a2a/sessions/{session_id}/events?after=0"):
            if kind == "message":
                heard.messages.append(frame)
                say(spoken(frame))
                if frame["trace_id"] and frame["kind"] in ("task", "tool_call"):
                    traces.add(asyncio.create_task(watch_trace(client, frame["trace_id"], heard, say)))
            elif kind == "session" and frame["status"] in ("completed", "timeout"):
                heard.ended = frame["status"]
        for task in traces:
            await task
    return heard


async def watch_trace(client: httpx.AsyncClient, trace_id: str, heard: Heard, say: Say) -> None:
    """Print a trace's goals and tool calls as they happen."""
    async for kind, event in events(client, f"/api/a2a/traces/{trace_id}/stream"):
        data = event.get("data", {})
        if kind == "goal":
            heard.goals[str(data.get("goal_id", data.get("id")))] = str(data.get("status"))
            say(f"    [trace] goal {data.get('status', ''):9} {data.get('title', '')}")
        elif kind == "tool_call":
            heard.tool_calls += 1
            arguments = json.dumps(data.get("arguments", {}), ensure_ascii=False)
            say(f"    [trace] tool {data.get('name', '')} {arguments[:100]}")
        elif kind == "status":
            say(f"    [trace] {data.get('status', data.get('to', ''))}")


async def events(client: httpx.AsyncClient, path: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Server-sent events of `path` until it ends."""
    async with client.stream("GET", path) as answer:
        if answer.status_code != 200:
            raise DemoFailed(f"GET {path}: {answer.status_code}")
        kind, data = "message", ""
        async for line in answer.aiter_lines():
            if line.startswith("event:"):
                kind = line[6:].strip()
            elif line.startswith("data:"):
                data += line[5:].strip()
            elif not line and data:
                yield kind, json.loads(data)
                kind, data = "message", ""


def spoken(frame: dict[str, Any]) -> str:
    mark = "" if frame["kind"] == "chat" else f"  ({frame['kind']})"
    body = "\n".join("    " + line for line in frame["content"].splitlines())
    return f"{frame['sequence']:>2}  {frame['from']}{mark}\n{body}\n"


def judge(heard: Heard, root: Path, language: str) -> list[str]:
    """Hold the conversation against the seed's and the directory; returns what was found good, raises `DemoFailed`."""
    script = SCRIPTS[language]
    spoken_kinds = [m for m in heard.messages if m["kind"] != "system"]

    def first(what: str, test: Callable[[dict[str, Any]], bool], after: int) -> dict[str, Any]:
        for message in spoken_kinds:
            if message["sequence"] > after and test(message):
                return message
        raise DemoFailed(f"missing from the conversation: {what}")

    def asks(message: dict[str, Any]) -> bool:
        return any(words in message["content"] for words in script.asks_which)

    opening = first("the cloud agent's request", lambda m: m["content"] == script.opening, 0)
    which = first("the question which module", asks, opening["sequence"])
    names_found = _ASKED.search(which["content"].splitlines()[-1])
    names = [name.strip() for name in names_found[1].split(",")] if names_found else []
    if not names:
        raise DemoFailed(f"the terminal agent named no modules of {root}")
    if missing := named_modules(root, names):
        raise DemoFailed(f"modules that are not there: {', '.join(missing)}")
    module = "core" if "core" in names else names[0]
    choice = first("the choice", lambda m: m["content"] == script.choice.format(module=module), which["sequence"])
    offer = first(
        "the report with its offer of details",
        lambda m: any(words in m["content"] for words in script.offers_details) and module in m["content"],
        choice["sequence"],
    )
    accepted = first(
        "the request for details", lambda m: m["content"] == script.accepts.format(module=module), offer["sequence"]
    )
    details = first(
        "the details", lambda m: m["from"] != "cloud-agent-123" and module in m["content"], accepted["sequence"]
    )
    first("the goodbye", lambda m: m["content"] == script.goodbye, details["sequence"])
    if heard.ended != "completed":
        raise DemoFailed(f"the session ended as {heard.ended}")
    if [m["sequence"] for m in heard.messages] != list(range(1, len(heard.messages) + 1)):
        raise DemoFailed("the sequence has gaps")
    facts = check(root, "\n".join(m["content"] for m in (which, offer, details)))
    if facts.wrong:
        raise DemoFailed("untrue: " + "; ".join(facts.wrong))
    if not facts.places:
        raise DemoFailed("the reports name no place in the project")
    good = [
        f"{counted(len(names), 'module')} named and found there: {', '.join(names[:8])}",
        f"{module} was reported on; {counted(facts.places, 'place')} and {counted(facts.components, 'component')} looked up, "
        "all true",
        f"{counted(len(heard.messages), 'message')}, numbered without a gap; the session is {heard.ended}",
    ]
    if accepted["trace_id"] is not None:
        if details["kind"] != "result" or not heard.goals:
            raise DemoFailed("the trace showed no goals or left no result")
        good.append(
            f"the request for details ran as a trace: {counted(len(heard.goals), 'goal')}, "
            f"{counted(heard.tool_calls, 'tool call')}, one result"
        )
    return good
