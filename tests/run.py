"""`make test`: all tests, in two lanes side by side, because whole hubs mostly wait and the others mostly compute.

The first lane begins with the tests that start hubs; they bring both backends themselves. The second begins with the others,
on SQLite. Then those that use pytest's own database come once more, on PostgreSQL with Redis, in pieces: a lane that has
nothing to do takes the next. With arguments it is pytest with these arguments; `python -m tests.run --postgres …` starts
both services and is pytest on them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.processes import ROOT, Missing
from tests.services import PostgresServer, RedisServer

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}


@dataclass(frozen=True)
class Step:
    """One run of pytest; `postgres`: with services that live as long as it."""

    title: str
    arguments: tuple[str, ...]
    postgres: bool = False


WITH_HUBS = ("tests/acceptance", "tests/browser")
DATABASE = "tests/integration"  # nothing below tests/unit uses one: conftest.py sees to it
DATABASE_PIECES = (("rest",), ("admin", "inbound"))  # of about the same length; the last one is what these leave


def on_postgres(what: str, *arguments: str) -> Step:
    title = f"again on PostgreSQL with Redis, where the database is used: {what}"
    return Step(title, ("-m", "database and not processes", *arguments), postgres=True)


def steps() -> list[Step]:
    """Everything, in the order in which it is begun."""
    pieces = [[f"{DATABASE}/{name}" for name in names] for names in DATABASE_PIECES]
    left_out = [f"--ignore={directory}" for piece in pieces for directory in piece]
    return [
        Step("whole hubs, on both backends", WITH_HUBS),
        Step("the others, on SQLite", ("tests", *(f"--ignore={directory}" for directory in WITH_HUBS))),
        on_postgres("all but the following", DATABASE, *left_out),
        *(on_postgres(" and ".join(names), *piece) for names, piece in zip(DATABASE_PIECES, pieces, strict=True)),
    ]


class Lane(threading.Thread):
    """Takes steps from the front, one after the other, until none is left or `stop` is called; lanes may share them.

    `code` is the exit code of the first that failed.
    """

    def __init__(self, steps: deque[Step], output: IO[bytes] | None = None) -> None:
        super().__init__(daemon=True)
        self.code = 0
        self._steps = steps
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        if self._output is None:
            print(text, flush=True)
        else:
            self._output.write(f"{text}\n".encode())
            self._output.flush()

    def run(self) -> None:
        while self._steps and not self._stopped:
            try:
                step = self._steps.popleft()
            except IndexError:  # the other lane was quicker
                return
            began = time.monotonic()
            self.say(f"== {step.title}")
            try:
                code = self._step(step)
            except Missing as missing:
                self.say(f"{'FAILED' if IN_CI else 'skipped'}, missing: {missing}")
                code = 1 if IN_CI else 0
            except Exception as error:
                self.say(f"FAILED: {error!r}")
                code = 1
            self.say(f"== {step.title}: exit {code} after {time.monotonic() - began:.0f} s\n")
            self.code = self.code or code

    def _step(self, step: Step) -> int:
        return (pytest_on_postgres if step.postgres else pytest)(step.arguments, self)

    def call(self, command: Sequence[str], env: Mapping[str, str]) -> int:
        """Run one command to its end."""
        with self._lock:
            if self._stopped:
                return 1
            process = self._process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=self._output, stderr=self._output and subprocess.STDOUT
            )
        return process.wait()

    def stop(self) -> None:
        """Tell what runs to end, and wait until it has stopped what it started."""
        with self._lock:
            self._stopped = True
            if self._process is not None and self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
        self.join(60)


def pytest(arguments: Sequence[str], lane: Lane, env: Mapping[str, str] | None = None) -> int:
    """Pytest in a process of its own. The lanes keep no cache: there is one directory for it."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return lane.call(command, {**os.environ, **(env or {})})


def pytest_on_postgres(arguments: Sequence[str], lane: Lane) -> int:
    """Pytest with `DATABASE_URL` and `REDIS_URL` of services that live as long as it; may raise `Missing`."""
    with (
        tempfile.TemporaryDirectory(prefix="hub-redis-") as directory,
        PostgresServer(durable=False) as postgres,
        RedisServer(Path(directory)) as redis,
    ):
        env = {"DATABASE_URL": postgres.create_database("hub"), "REDIS_URL": redis.url_of(0)}
        return pytest(arguments, lane, env)


def together(*lanes: Lane) -> int:
    """All lanes at once, to their end; the exit code of the first that failed."""
    try:
        for lane in lanes:
            lane.start()
        for lane in lanes:
            while lane.is_alive():
                lane.join(1)  # in pieces: a signal is noticed between them
    except (KeyboardInterrupt, SystemExit):
        for lane in lanes:
            lane.stop()
        raise
    return next((lane.code for lane in lanes if lane.code), 0)


def everything() -> int:
    """Both lanes; what the second says is shown when both have ended."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as said:
        try:
            shared = deque(steps())
            code = together(Lane(shared), Lane(shared, said))
        finally:
            said.seek(0)
            sys.stdout.buffer.write(said.read())
            sys.stdout.flush()
    print(f"== all tests: exit {code} after {time.monotonic() - began:.0f} s", flush=True)
    return code


def main(arguments: Sequence[str]) -> int:
    # The services of the second run are stopped on the way out.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    if not arguments:
        return everything()
    postgres = arguments[0] == "--postgres"
    title = "pytest on PostgreSQL with Redis" if postgres else "pytest"
    return together(Lane(deque([Step(title, tuple(arguments[postgres:]), postgres)])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
