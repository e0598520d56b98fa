"""Real services for tests: Redis, PostgreSQL, hub processes and Celery workers, each on a free port of its own.

Plain classes without pytest; the fixtures are in `conftest.py`. Each is a context manager: entering starts, leaving
stops it. A program that this machine doesn't have is a `Missing`, which says how to get it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.processes import LOOPBACK, Missing, Process, ServiceFailed, clean_environment, free_port


class RedisServer(Process):
    """A Redis that fsyncs every write, so that `kill9()` and `stop_server()` lose nothing unless told to."""

    def __init__(self, directory: Path, *, port: int | None = None) -> None:
        super().__init__("redis", directory=directory)
        self.port = port or free_port()
        self.data = directory / "redis-data"

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}"

    def url_of(self, database: int) -> str:
        """One of its 16 databases."""
        return f"{self.url}/{database}"

    def command(self) -> Sequence[str]:
        self.data.mkdir(parents=True, exist_ok=True)
        return (
            redis_program(), "--bind", LOOPBACK, "--port", str(self.port), "--dir", str(self.data),
            "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--daemonize", "no",
        )  # fmt: skip

    def is_ready(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    def stop_server(self, *, lose_data: bool = False) -> None:
        """Stop it in the middle of a test; `start()` brings it back on the same port, empty if the data was lost."""
        self.terminate()
        if lose_data:
            shutil.rmtree(self.data, ignore_errors=True)


class PostgresServer(Process):
    """A PostgreSQL cluster with trust authentication on the loopback address, as the user `hub`.

    With fsync on, unless `durable` is false: then a crash may lose it all, which costs a test nothing that kills nothing.

    The server refuses to run as root; then it runs as `postgres` or `nobody` and owns its directory.
    """

    def __init__(self, *, port: int | None = None, max_connections: int = 200, durable: bool = True) -> None:
        # Not under pytest's directory: that one is closed to the other user.
        directory = Path(tempfile.mkdtemp(prefix="hub-postgres-"))
        super().__init__("postgres", directory=directory)
        self.port = port or free_port()
        self.max_connections = max_connections
        self.durable = durable
        self.data = directory / "data"
        self._programs = postgres_programs()
        if (uid := self.user()) is not None:
            directory.chmod(0o755)
            os.chown(directory, uid, pwd.getpwuid(uid).pw_gid)

    def user(self) -> int | None:
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            try:
                return pwd.getpwnam(name).pw_uid
            except KeyError:
                continue
        raise Missing("an unprivileged account for PostgreSQL: `postgres` or `nobody`")

    def environment(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}

    def command(self) -> Sequence[str]:
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        return (
            str(self._programs / "postgres"), "-D", str(self.data), "-p", str(self.port), "-h", LOOPBACK,
            "-k", str(self.directory), "-c", f"fsync={'on' if self.durable else 'off'}",
            "-c", f"max_connections={self.max_connections}", "-c", "log_min_messages=warning",
        )  # fmt: skip

    def _initialise(self) -> None:
        uid = self.user()
        done = subprocess.run(
            [
                str(self._programs / "initdb"),
                "-D",
                str(self.data),
                *("-U", "hub", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync"),
            ],
            cwd=self.directory,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            user=uid,
            group=None if uid is None else pwd.getpwuid(uid).pw_gid,
            extra_groups=None if uid is None else [],
        )
        if done.returncode != 0:
            raise ServiceFailed(f"initdb failed:\n{done.stdout}{done.stderr}")

    def is_ready(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url_of("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url_of(self, database: str) -> str:
        return f"postgresql://hub@{LOOPBACK}:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        """Run one administrative statement outside a transaction."""
        import psycopg

        with psycopg.connect(self.url_of("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """A fresh database, a copy of `template` if given (nobody may be connected to that one); its URL."""
        self.execute(f'CREATE DATABASE "{name}"' + (f' TEMPLATE "{template}"' if template else ""))
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drop it, ending the connections that are still open."""
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def terminate(self, timeout: float | None = None) -> int | None:
        """The fast shutdown: open transactions are rolled back, clients are cut off."""
        if not self.running:
            return None
        self.send_signal(signal.SIGINT)
        return self.wait(self.stop_timeout if timeout is None else timeout)

    def crash(self) -> None:
        """The immediate shutdown: nothing is written any more, the next start recovers from the log.

        (SIGKILL would leave its children alive and the shared memory in use.)
        """
        self.send_signal(signal.SIGQUIT)
        self.wait(self.stop_timeout)

    def stop(self) -> None:
        if self.running:
            self.crash()  # nothing of it is needed any more, so nothing has to be written down
        super().stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class HubProcess(Process):
    """One web process of the hub. Ready when `/healthz` answers 200.

    `argv` follows the interpreter and may contain `{port}`; by default Daphne with the hub's application.
    `env` names the backend (`DATABASE_URL`, `REDIS_URL`) and the `HUB_…` settings.
    """

    DAPHNE = ("-m", "daphne", "-b", LOOPBACK, "-p", "{port}", "hub.asgi:application")
    SERVE = ("manage.py", "serve", "--host", LOOPBACK, "--port", "{port}")

    def __init__(
        self,
        directory: Path,
        env: Mapping[str, str],
        *,
        argv: Sequence[str] = DAPHNE,
        port: int | None = None,
        name: str = "hub",
    ) -> None:
        super().__init__(name, directory=directory)
        self.port = port or free_port()
        self.env = dict(env)
        self.argv = tuple(argv)

    @classmethod
    def embedded(
        cls, directory: Path, *arguments: str, env: Mapping[str, str] | None = None, port: int | None = None
    ) -> HubProcess:
        """`manage.py serve` with its data below `directory`: web process and worker, SQLite, no Redis."""
        data = directory / "hub-data"
        return cls(directory, env or {}, argv=(*cls.SERVE, "--data", str(data), *arguments), port=port, name="serve")

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://{LOOPBACK}:{self.port}"

    def environment(self) -> dict[str, str]:
        return clean_environment(self.env)

    def command(self) -> Sequence[str]:
        return [sys.executable, *(part.format(port=self.port) for part in self.argv)]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


class CeleryWorker(Process):
    """A Celery worker of the hub. Ready when its log says so; `stop()` also ends its pool's processes."""

    def __init__(
        self, directory: Path, env: Mapping[str, str], *, name: str = "worker", arguments: Sequence[str] = ()
    ) -> None:
        super().__init__(name, directory=directory)
        self.env = dict(env)
        self.arguments = tuple(arguments)
        self._starts = 0

    def environment(self) -> dict[str, str]:
        return clean_environment(self.env)

    def command(self) -> Sequence[str]:
        self._starts += 1
        return (
            sys.executable, "-m", "celery", "-A", "hub", "worker", "--loglevel", "INFO", "--concurrency", "2",
            "--without-gossip", "--without-mingle", "-n", f"{self.name}-{os.getpid()}-{self._starts}@localhost",
            *self.arguments,
        )  # fmt: skip

    def is_ready(self) -> bool:
        return " ready." in self.log_text()

    def kill9(self) -> None:
        """Kill the worker with its pool, as a machine that loses power would."""
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait(10)


def redis_program() -> str:
    if program := shutil.which("redis-server") or shutil.which("valkey-server"):
        return program
    raise Missing("redis-server (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis)")


def postgres_programs() -> Path:
    """The directory with initdb and postgres: the newest below /usr/lib/postgresql, else the one in PATH."""
    installed = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if installed:
        return max(installed, key=lambda path: float(path.parent.name))
    if (initdb := shutil.which("initdb")) and shutil.which("postgres"):
        return Path(initdb).resolve().parent
    raise Missing("initdb and postgres (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql)")
