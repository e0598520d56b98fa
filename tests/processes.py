"""One program under a test's control: start it, wait until it is ready, stop it, kill it, by its own pid.

No pytest in here, so that the benchmark and a shell can use it too.
"""

from __future__ import annotations

import os
import pwd
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
LOOPBACK = "127.0.0.1"
_marks: list[socket.socket] = []


class Missing(Exception):
    """A program that a service needs is not on this machine. `str()` says which, and how to get it."""


class ServiceFailed(Exception):
    """A service did not start, or ended by itself. `str()` ends with the tail of its log."""


def free_port() -> int:
    """A port that nobody listens on, below the range from which the kernel takes clients' ports.

    A test may stop a service and start it on the same port again; a port from the kernel's own range could meanwhile
    have become the local end of some client's connection. It stays ours until we end, also while nobody listens there:
    the UDP port of the same number, which nobody uses, says so to other runs of the tests.
    """
    for _ in range(200):
        port = random.randint(18_000, 31_999)
        with socket.socket() as probe:
            mark = socket.socket(type=socket.SOCK_DGRAM)
            try:
                mark.bind((LOOPBACK, port))
                probe.bind((LOOPBACK, port))
            except OSError:
                mark.close()
                continue
            _marks.append(mark)
            return port
    raise ServiceFailed("no free port between 18000 and 31999")


def wait_until(condition: Callable[[], bool], *, timeout: float, what: str, interval: float = 0.02) -> None:
    """Poll until the condition holds; `ServiceFailed` naming `what` when it does not within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise ServiceFailed(f"not within {timeout:g} s: {what}")
        time.sleep(interval)


def accepts_connections(port: int) -> bool:
    """Whether somebody listens on this port of the loopback address."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


class Process:
    """One program under our control, in a process group of its own, writing to a log that is kept across restarts.

    `start()` returns when `is_ready()` holds; a process that ends before that is a `ServiceFailed` with its log.
    """

    # A busy machine is slow; what takes longer than this hangs.
    ready_timeout = 60.0
    stop_timeout = 30.0

    def __init__(self, name: str, *, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.log_path = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    # What a subclass says about its program.
    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return clean_environment()

    def is_ready(self) -> bool:
        return True

    def user(self) -> int | None:
        """The uid to run as, None for our own."""
        return None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServiceFailed(f"{self.name} was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        if self.running:
            return self
        account = pwd.getpwuid(uid) if (uid := self.user()) is not None else None
        with self.log_path.open("ab") as log:
            log.write(f"--- {self.name} starts\n".encode())
            log.flush()
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                list(self.command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT if account is None else self.directory,
                env=self.environment(),
                start_new_session=True,
                user=None if account is None else account.pw_uid,
                group=None if account is None else account.pw_gid,
                extra_groups=None if account is None else [],
            )
        try:
            wait_until(
                lambda: not self.running or self.is_ready(), timeout=self.ready_timeout, what=f"{self.name} is ready"
            )
        except ServiceFailed as error:
            self.kill9()
            raise ServiceFailed(f"{error}\n{self.log_tail()}") from None
        if (code := self._process.poll()) is not None:
            raise ServiceFailed(f"{self.name} ended with {code}\n{self.log_tail()}")
        return self

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process itself, not to its children."""
        if self.running:
            os.kill(self.pid, number)

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit code (negative: the signal that ended it)."""
        assert self._process is not None
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ServiceFailed(f"{self.name} did not end within {timeout:g} s\n{self.log_tail()}") from None

    def terminate(self, timeout: float | None = None) -> int | None:
        """Ask for an orderly end and wait for it; the exit code, None if it was not running."""
        if not self.running:
            return None
        self.send_signal(signal.SIGTERM)
        return self.wait(self.stop_timeout if timeout is None else timeout)

    def kill9(self) -> None:
        """Kill the process alone, as a crash would: its children must notice by themselves."""
        if self.running:
            self.send_signal(signal.SIGKILL)
            self.wait(10)

    def restart(self) -> Self:
        """Orderly end, then a start with the same port and data."""
        self.terminate()
        return self.start()

    def stop(self) -> None:
        """End it for certain, with everything it started: for the end of a test."""
        if self._process is None:
            return
        try:
            self.terminate()
        except ServiceFailed:
            self.kill9()
        # Its group is its own (start_new_session), so only what it started can be in there.
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def log_text(self) -> str:
        """What it has written since its latest start."""
        try:
            return self.log_path.read_bytes()[self._log_start :].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def log_tail(self, lines: int = 60) -> str:
        """The last lines of the whole log, earlier starts included, for a failure's report."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return f"--- the last lines of {self.name}'s log:\n" + "\n".join(text.splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without the developer's own hub settings, and with `extra` on top."""
    dropped = ("HUB_", "DJANGO_", "DATABASE_URL", "REDIS_URL", "CELERY_", "PYTEST_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    env |= {"DJANGO_SETTINGS_MODULE": "hub.settings", "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
    return env | dict(extra or {})
