"""The systems under test: how each is started on a free loopback port, pinned to one core, and stopped again.

Those of W7 are several processes each, and are left to the machine's scheduler.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
SERVERS = ("daphne", "uvicorn")
TOOLS = ("picows", "psutil")
"""What the generator and the meter are made of; no hub needs them."""
START_SECONDS = 60.0
OPERATOR = "bench-operator"
REDIS = "redis-server"
WORKERS = 2


class System(Struct, frozen=True, kw_only=True):
    """One server to measure. `rows`: the table's rows it fills, and whether that row's frames are batched."""

    name: str
    title: str
    application: str
    rows: dict[str, bool]
    workloads: frozenset[str]
    is_hub: bool = False
    kind: Literal["asgi", "embedded", "workers"] = "asgi"
    environment: Mapping[str, str] = {}

    @property
    def pinned(self) -> bool:
        return self.kind == "asgi"


class Server(Struct, frozen=True):
    """A running server: answering on 127.0.0.1. `helpers` are its further processes, `database` a hub's SQLite file."""

    port: int
    pid: int
    operator_key: str | None
    helpers: Sequence[int] = ()
    database: str | None = None


_ALWAYS = frozenset({"w1x1", "w1x8", "w1x64", "w2", "w2steady", "w3", "w5"})
# The tutorial chat does not reach 300 msg/s, and would need half a minute to work off 64 full windows.
_TRACES = frozenset({"w7", "w7full"})
_TUTORIAL = _ALWAYS - {"w1x64", "w2steady"} | {"w4"}

SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        System(
            name="raw",
            title="raw ASGI relay, stores nothing",
            application="hub.bench.baselines.raw_relay:application",
            rows={"raw": False},
            workloads=_ALWAYS,
        ),
        System(
            name="channels",
            title="Channels consumer + group, stores nothing",
            application="hub.bench.baselines.channels_relay:application",
            rows={"channels": False},
            workloads=_ALWAYS,
        ),
        System(
            name="tutorial",
            title="Channels tutorial chat + `objects.create`, SQLite FULL",
            application="hub.bench.baselines.tutorial_chat:application",
            rows={"tutorial": False},
            workloads=_TUTORIAL,
        ),
        System(
            name="tutorial-kept",
            title="the same with `CONN_MAX_AGE=None`",
            application="hub.bench.baselines.tutorial_chat:application",
            rows={"tutorial-kept": False},
            workloads=_TUTORIAL,
            environment={"BENCH_CONN_MAX_AGE": "none"},
        ),
        System(
            name="hub",
            title="Session Hub, SQLite FULL",
            application="hub.asgi:application",
            rows={"hub": False, "hub+batch": True},
            workloads=_ALWAYS | {"w4", "w8"},
            is_hub=True,
        ),
        System(
            name="embedded",
            title="Session Hub, `manage.py serve`, SQLite FULL, one worker of 4 threads",
            application="hub.asgi:application",
            rows={"embedded": False},
            workloads=_TRACES,
            is_hub=True,
            kind="embedded",
        ),
        System(
            name="workers",
            title="Session Hub, SQLite FULL, Redis, 2 workers of 2 processes",
            application="hub.asgi:application",
            rows={"workers": False},
            workloads=_TRACES,
            is_hub=True,
            kind="workers",
        ),
    )
}


def default_systems() -> list[str]:
    """What is measured unless somebody says otherwise: Redis only where there is one."""
    names = ["raw", "channels", "tutorial", "hub", "embedded"]
    return [*names, "workers"] if shutil.which(REDIS) else names


ROW_TITLES = {
    row: system.title + (", `batch=1`" if batched else "")
    for system in SYSTEMS.values()
    for row, batched in system.rows.items()
}


def cores() -> tuple[int, int] | None:
    """The server's core and the generator's, or None where there are not two to be had."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    return (allowed[0], allowed[-1]) if len(allowed) > 1 else None


def pin(pid: int, core: int | None) -> None:
    """Keep a process that has just been started, and the threads it is going to start, on one core."""
    if core is not None:
        os.sched_setaffinity(pid, {core})


def clean_environment() -> dict[str, str]:
    """This process's environment without what would configure a server under test by accident."""
    unwanted = ("DJANGO_", "HUB_", "BENCH_", "DATABASE_URL", "REDIS_URL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return {**kept, "PYTHONPATH": str(ROOT)}


@contextmanager
def serving(system: System, server: str, directory: Path, *, core: int | None, backlog: int) -> Iterator[Server]:
    """Run `system` with its data in `directory`. Raises RuntimeError, with its log's end, when it does not start."""
    directory.mkdir(parents=True)
    environment = clean_environment() | dict(system.environment) | _settings(system, directory, backlog)
    port, redis_port = free_port(), free_port()
    if system.kind == "workers":
        environment["REDIS_URL"] = f"redis://127.0.0.1:{redis_port}/0"
    operator_key = _prepare_hub(environment, directory) if system.is_hub else None
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, arguments: Sequence[str]) -> Path:
        log = directory / f"{name}.log"
        with log.open("wb") as output:
            processes.append(
                subprocess.Popen(
                    arguments, cwd=ROOT, env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
                )
            )
        return log

    try:
        if system.kind == "workers":
            redis = start("redis", [REDIS, "--port", str(redis_port), "--bind", "127.0.0.1", "--save", ""])
            _await_ready(processes[0], redis_port, None, redis)
            for number in range(WORKERS):
                log = start(f"worker{number}", worker_command(number))
                _await_line(processes[-1], " ready.", log)
        if system.kind == "embedded":
            log = start("server", serve_command(port, directory))
        else:
            log = start("server", command(server, system.application, port))
        pin(processes[-1].pid, core)
        _await_ready(processes[-1], port, "/readyz" if system.is_hub else None, log)
        helpers = [process.pid for process in processes[:-1]]
        database = str(_database(directory)) if system.is_hub else None
        yield Server(port, processes[-1].pid, operator_key, helpers, database)
    finally:
        for process in reversed(processes):
            _stop(process)


def command(server: str, application: str, port: int) -> list[str]:
    """The command line of an ASGI server without access log and without permessage-deflate."""
    if server == "daphne":
        return [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "-v", "0", application]
    return [
        sys.executable, "-m", "uvicorn", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning",
        "--no-access-log", "--ws", "websockets-sansio", "--ws-per-message-deflate", "false", application,
    ]  # fmt: skip


def serve_command(port: int, directory: Path) -> list[str]:
    return [sys.executable, "manage.py", "serve", "--port", str(port), "--data", str(directory)]


def worker_command(number: int) -> list[str]:
    return [
        sys.executable, "-m", "celery", "-A", "hub", "worker", "--loglevel", "INFO", "--concurrency", "2",
        "--without-gossip", "--without-mingle", "-n", f"bench{number}@localhost",
    ]  # fmt: skip


def is_installed(server: str) -> bool:
    return find_spec(server) is not None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _database(directory: Path) -> Path:
    return directory / "hub.sqlite3"


def _settings(system: System, directory: Path, backlog: int) -> dict[str, str]:
    if not system.is_hub:
        return {"BENCH_DATABASE": str(directory / "chat.sqlite3"), "BENCH_BACKLOG": str(backlog)}
    return {
        "DATABASE_URL": f"sqlite:///{_database(directory)}",
        "HUB_DATA_DIR": str(directory),
        "HUB_RATE_MESSAGES": "0",
        "HUB_RATE_SESSIONS": "0",
        "HUB_SECRET_KEY": secrets.token_urlsafe(48),
    }


def _prepare_hub(environment: Mapping[str, str], directory: Path) -> str:
    """Migrate the hub's database and make its operator; the key."""
    _manage(environment, "migrate", "--verbosity", "0")
    made = _manage(environment, "agent", "create", OPERATOR, "--scope", "operator", "--json")
    return str(json.loads(made.strip().splitlines()[-1])["api_key"])


def _manage(environment: Mapping[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT, env=dict(environment), capture_output=True, text=True, timeout=START_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"manage.py {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _await_ready(process: subprocess.Popen[bytes], port: int, path: str | None, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(port, path):
            return
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _await_line(process: subprocess.Popen[bytes], text: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if text in log.read_text(errors="replace"):
            return
        time.sleep(0.05)
    raise RuntimeError(f"a worker did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _answers(port: int, path: str | None) -> bool:
    try:
        if path is None:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
