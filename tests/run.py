"""`make test`: all tests on SQLite, then those that use pytest's own database again on PostgreSQL with Redis.

Tests that start hubs bring both backends themselves (fixture `backend`) and run once. With arguments it is pytest with
these arguments; `python -m tests.run --postgres …` starts both services and is pytest on them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.processes import ROOT, Missing
from tests.services import PostgresServer, RedisServer

NO_TESTS = 5  # pytest's exit code when nothing was collected
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def pytest(arguments: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run pytest to its end. Told to end ourselves we tell it, and wait until it has stopped what it started."""
    command = [sys.executable, "-m", "pytest", *arguments]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(env or {})}) as process:
        try:
            return process.wait()
        except (KeyboardInterrupt, SystemExit):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(60)
            raise


def pytest_on_postgres(arguments: Sequence[str]) -> int:
    """Pytest with `DATABASE_URL` and `REDIS_URL` of services that live as long as it; may raise `Missing`."""
    with (
        tempfile.TemporaryDirectory(prefix="hub-redis-") as directory,
        PostgresServer(durable=False) as postgres,
        RedisServer(Path(directory)) as redis,
    ):
        env = {"DATABASE_URL": postgres.create_database("hub"), "REDIS_URL": redis.url_of(0)}
        return pytest(arguments, env)


def everything() -> int:
    """Both runs; the exit code of the first that failed."""
    print("== on SQLite, and whole hubs on both backends", flush=True)
    first = pytest([])
    print("\n== again on PostgreSQL with Redis: the tests that use the database", flush=True)
    try:
        second = pytest_on_postgres(["-m", "database and not processes"])
    except Missing as missing:
        print(f"{'FAILED' if IN_CI else 'skipped'}, missing: {missing}")
        second = 1 if IN_CI else 0
    if second == NO_TESTS:
        print("No test uses the database.")
        second = 0
    return first or second


def main(arguments: Sequence[str]) -> int:
    # The services of the second run are stopped on the way out.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    if not arguments:
        return everything()
    if arguments[0] == "--postgres":
        try:
            return pytest_on_postgres(arguments[1:])
        except Missing as missing:
            print(f"missing: {missing}")
            return 1
    return pytest(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
