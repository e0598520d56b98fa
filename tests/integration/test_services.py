"""The services that the other tests stand on do what those tests believe of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest
import redis

from tests.processes import Process, ServiceFailed, free_port, wait_until
from tests.services import HubProcess, PostgresServer, RedisServer

HEALTHY = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/healthz" else 404)
        self.end_headers()
    def log_message(self, *arguments):
        pass
print("started with", __import__("os").environ.get("HUB_LOG_LEVEL"), flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Script(Process):
    """A Python text as a process."""

    def __init__(self, directory: Path, text: str, ready: str = "") -> None:
        super().__init__("script", directory=directory)
        self.text = text
        self.ready = ready

    def command(self) -> Sequence[str]:
        return (sys.executable, "-c", self.text)

    def is_ready(self) -> bool:
        return self.ready in self.log_text()


def test_redis_comes_back_on_its_port_with_its_data_or_empty(redis_server: RedisServer) -> None:
    client = redis.Redis.from_url(redis_server.url_of(15))
    client.set("name", "value")
    redis_server.stop_server()
    with pytest.raises(redis.ConnectionError):
        client.get("name")
    redis_server.start()
    assert client.get("name") == b"value"
    redis_server.kill9()
    redis_server.start()
    assert client.get("name") == b"value"


def test_redis_may_lose_its_data(tmp_path: Path, redis_server: RedisServer) -> None:
    with RedisServer(tmp_path) as server:
        client = redis.Redis.from_url(server.url_of(0))
        client.set("name", "value")
        server.stop_server(lose_data=True)
        server.start()
        assert client.get("name") is None


def test_postgres_recovers_what_was_committed_before_a_crash(postgres_server: PostgresServer) -> None:
    url = postgres_server.create_database("crash")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t (n int)")
        connection.execute("INSERT INTO t VALUES (7)")
    postgres_server.crash()
    postgres_server.start()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT n FROM t").fetchall() == [(7,)]
    copy = postgres_server.create_database("copy_of_crash", template="crash")
    with psycopg.connect(copy) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        assert connection.execute("SELECT n FROM t").fetchall() == [(7,)]
    postgres_server.drop_database("copy_of_crash")


def test_a_hub_process_is_ready_when_it_is_healthy_and_comes_back_on_its_port(tmp_path: Path) -> None:
    web = HubProcess(tmp_path, {"HUB_LOG_LEVEL": "DEBUG"}, argv=("-c", HEALTHY, "{port}"))
    with web:
        first, port = web.pid, web.port
        assert "started with DEBUG" in web.log_text()
        web.kill9()
        assert not web.running
        web.start()
        assert (web.port, web.running) == (port, True)
        assert web.pid != first
        assert web.terminate() == -15


def test_a_process_that_ends_at_once_is_a_failure_that_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServiceFailed, match="no such setting"):
        Script(tmp_path, "raise SystemExit('no such setting')", ready="never").start()


def test_stop_ends_what_the_process_started_and_nothing_else(tmp_path: Path) -> None:
    text = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *a: sys.exit(0))\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('child', child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    script = Script(tmp_path, text, ready="child").start()
    child = int(script.log_text().split()[1])
    script.stop()
    wait_until(lambda: _gone(child), timeout=10, what="the child ends")
    assert not script.running


def test_the_environment_of_a_hub_is_not_the_developers_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "sqlite:////home/somebody/hub.sqlite3")
    monkeypatch.setenv("HUB_ROOTS", "/home/somebody")
    environment = HubProcess(tmp_path, {"HUB_DEBUG": "1"}).environment()
    assert "DATABASE_URL" not in environment
    assert "HUB_ROOTS" not in environment
    assert environment["HUB_DEBUG"] == "1"


def test_free_ports_are_outside_the_range_for_clients() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_port() < low for _ in range(20))


def _gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has reaped yet counts as ended."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True
