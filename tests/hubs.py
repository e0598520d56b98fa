"""Whole hubs for tests, on SQLite or on PostgreSQL with Redis: a migrated database, web processes, workers, keys."""

from __future__ import annotations

import itertools
import json
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import ROOT, Process, ServiceFailed, clean_environment
from tests.services import CeleryWorker, HubProcess, PostgresServer, RedisServer

_numbers = itertools.count(1)


@dataclass
class Backend:
    """Where one hub keeps its rows. `env` goes into the environment of each of its processes.

    sqlite: `DATABASE_URL` names a file, there is no `REDIS_URL`. postgres: a database of its own, and one of Redis's
    sixteen. Both have a directory of their own, and an operator, whose key is `operator`.
    """

    name: str
    env: dict[str, str]
    directory: Path
    operator: str
    postgres: PostgresServer | None = None
    redis: RedisServer | None = None


def manage(*arguments: str, env: Mapping[str, str], timeout: float = 120) -> str:
    """Run `manage.py …` to its end and return what it printed; `ServiceFailed` with its output if it exits non-zero."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=clean_environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    if done.returncode != 0:
        raise ServiceFailed(f"manage.py {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@dataclass
class Backends:
    """Makes backends; migrates once for each kind of database and registers an operator, and copies that for each test."""

    directory: Path
    _sqlite_template: tuple[Path, str] | None = None
    _postgres_template: tuple[str, str] | None = None

    def sqlite(self) -> Backend:
        if self._sqlite_template is None:
            file = self._home() / "hub.sqlite3"
            self._sqlite_template = file, self._prepare(self._env(file.parent, f"sqlite:///{file}"))
        template, operator = self._sqlite_template
        home = self._home()
        # By the backup interface, so that what is still in the write-ahead log comes along.
        source, target = sqlite3.connect(template), sqlite3.connect(home / "hub.sqlite3")
        source.backup(target)
        source.close()
        target.close()
        return Backend("sqlite", self._env(home, f"sqlite:///{home / 'hub.sqlite3'}"), home, operator)

    def postgres(self, postgres: PostgresServer, redis: RedisServer) -> Backend:
        if self._postgres_template is None:
            name = f"template_{secrets.token_hex(4)}"
            self._postgres_template = name, self._prepare(self._env(self._home(), postgres.create_database(name)))
        template, operator = self._postgres_template
        home, number = self._home(), next(_numbers)
        url = postgres.create_database(f"hub_{secrets.token_hex(4)}", template=template)
        env = self._env(home, url) | {"REDIS_URL": redis.url_of(number % 16)}
        return Backend("postgres", env, home, operator, postgres=postgres, redis=redis)

    def chosen(self, request: pytest.FixtureRequest) -> Backend:
        """The one that a fixture's parameter names: `postgres` (with Redis), or SQLite alone whatever else that is called."""
        if request.param != "postgres":
            return self.sqlite()
        postgres, redis = request.getfixturevalue("postgres_server"), request.getfixturevalue("redis_server")
        # A test before may have left one of them stopped.
        return self.postgres(postgres.start(), redis.start())

    @staticmethod
    def _prepare(env: Mapping[str, str]) -> str:
        """Migrate, and register an operator; its key."""
        manage("migrate", "--skip-checks", "--verbosity", "0", env=env)
        made = manage("agent", "create", "registrar", "--scope", "operator", "--json", env=env)
        return str(json.loads(made)["api_key"])

    def _home(self) -> Path:
        home = self.directory / f"backend-{next(_numbers)}"
        home.mkdir(parents=True)
        return home

    @staticmethod
    def _env(home: Path, database_url: str) -> dict[str, str]:
        return {"DATABASE_URL": database_url, "HUB_DATA_DIR": str(home), "HUB_SECRET_KEY": "tests-" + "0" * 50}


@dataclass
class Hub:
    """One hub: its backend, and the processes that a test started for it.

    `url` and `ws_url` are those of the first web process; `webs[i].url` of the others.
    """

    backend: Backend
    env: dict[str, str]
    webs: list[HubProcess] = field(default_factory=list)
    workers: list[CeleryWorker] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.webs[0].url

    @property
    def ws_url(self) -> str:
        return self.webs[0].ws_url

    @property
    def processes(self) -> list[Process]:
        return [*self.webs, *self.workers]

    def add_web(
        self, *, argv: Sequence[str] = HubProcess.DAPHNE, env: Mapping[str, str] | None = None, start: bool = True
    ) -> HubProcess:
        """Start one more web process (with `env` on top of the hub's own) and return it when it is ready."""
        name = f"web-{len(self.webs) + 1}"
        web = HubProcess(self.backend.directory, self.env | dict(env or {}), argv=argv, name=name)
        self.webs.append(web)
        return web.start() if start else web

    def add_worker(self, *arguments: str, env: Mapping[str, str] | None = None, start: bool = True) -> CeleryWorker:
        """Start a Celery worker and return it when it is ready."""
        name = f"worker-{len(self.workers) + 1}"
        worker = CeleryWorker(self.backend.directory, self.env | dict(env or {}), name=name, arguments=arguments)
        self.workers.append(worker)
        return worker.start() if start else worker

    def add_webs(self, number: int, *, argv: Sequence[str] = HubProcess.DAPHNE) -> None:
        """Start so many at once: each spends seconds on its imports."""
        for _ in range(number):
            self.add_web(argv=argv, start=False)
        self.start()

    def start(self) -> None:
        """All at once that do not run."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(Process.start, self.processes))

    def manage(self, *arguments: str, timeout: float = 120) -> str:
        """Run a management command on this hub's database."""
        return manage(*arguments, env=self.env, timeout=timeout)

    def create_agent(self, agent_id: str, scope: str = "agent", **fields: Any) -> str:
        """Register an agent, with these fields, and return its API key."""
        with self._registry() as registry:
            registry.post("agents", json={"agent_id": agent_id, **fields}).raise_for_status()
            key = registry.post(f"agents/{agent_id}/keys", json={"scope": scope}).raise_for_status()
        return str(key.json()["api_key"])

    def create_agents(self, agent_ids: Iterable[str]) -> dict[str, str]:
        """Register several; their keys by their ids."""
        return {agent_id: self.create_agent(agent_id) for agent_id in agent_ids}

    def _registry(self) -> httpx.Client:
        """What the operator calls at the first web process. A command would cost a process for each."""
        headers = {"Authorization": f"Bearer {self.backend.operator}"}
        return httpx.Client(base_url=f"{self.url}/api/a2a/", headers=headers, timeout=60, verify=False)

    def stop(self) -> None:
        """Stop every process that was started for it."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(Process.stop, self.processes))
