"""The worker: what every one does besides its tasks, and how `manage.py serve` keeps one as its child.

Without a broker the child feeds its own queue in memory: SQLite's `data_version` rings, and what may be run is looked up.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from django.conf import settings
from django.db import connection

from sessions_app.changes import add_publisher
from sessions_app.db import is_outage
from sessions_app.models import Agent
from sessions_app.protocol.errors import HubError
from sessions_app.realtime.hints import Doorbell
from traces_app import bell, chunks, leases
from traces_app.attempts import attempts
from traces_app.executors import registry
from traces_app.executors.llm import asking
from traces_app.keeper import Keeper, ring_celery
from traces_app.publisher import publisher

log = logging.getLogger("hub.worker")

PARENT_VARIABLE = "HUB_PARENT_PID"
FEED_SECONDS = 0.5
FEED_SHARE = 4  # the feeder rests so many times as long as a look took it
FEED_AGAIN_SECONDS = 20.0
PARENT_SECONDS = 0.5
BACKOFF_SECONDS = (0.2, 10.0)
HEALTHY_SECONDS = 5.0


# In the worker


def prepare() -> None:
    """Before the pool forks: what its processes inherit."""
    if settings.HUB_EMBEDDED:
        add_publisher(chunks.send_changes)
    elif not settings.HUB_BROKERLESS:
        add_publisher(publisher)
        if settings.HUB_LLM_MODEL or settings.HUB_CLASSIFIER_MODEL:
            asking.preload()


def begin(app: Any) -> None:
    """The worker takes tasks from now on."""
    Keeper(None if settings.HUB_BROKERLESS else ring_celery, sweeps=True).start()
    threading.Thread(target=_look_for_executors, name="hub-executors", daemon=True).start()
    if settings.HUB_BROKERLESS:
        feeder = Feeder()
        feeder.start()
        if Doorbell.fits():
            Doorbell(feeder.ring).start()
    if parent := os.environ.get(PARENT_VARIABLE):
        threading.Thread(target=_watch_parent, args=(int(parent),), name="hub-parent", daemon=True).start()


def _look_for_executors() -> None:
    """Say which agents' work this worker can't run; imports nothing, so that no plug-in runs before it is asked for."""
    try:
        agents = Agent.objects.filter(is_active=True).exclude(executor=None).order_by("agent_id")
        for agent_id, executor in agents.values_list("agent_id", "executor"):
            try:
                remark = registry.check_name(executor or "")
            except HubError as error:
                remark = error.message
            if remark is not None:
                log.warning("agent %s: %s", agent_id, remark)
    except Exception as error:  # each of its traces would say so, too
        log.warning("the agents' executors can't be looked at: %r", error)
    finally:
        connection.close()


def hand_back_soon() -> None:
    """An orderly stop has begun: traces get a while to finish, what still runs then is handed back and not lost."""
    if settings.HUB_BROKERLESS:
        threading.Thread(target=_hand_back, name="hub-stop", daemon=True).start()


def _hand_back() -> None:
    deadline = time.monotonic() + settings.HUB_TRACE_STOP_SECONDS
    while attempts.running and time.monotonic() < deadline:
        time.sleep(0.05)
    attempts.release_all()


def _watch_parent(parent: int) -> None:
    """Without its web process the child is of no use, and a second one would come up beside it: end."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    log.warning("the web process has gone; the worker ends")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(settings.HUB_TRACE_STOP_SECONDS + 2)
    os._exit(1)


class Feeder(threading.Thread):
    """Puts what may be run into this worker's own queue."""

    def __init__(self) -> None:
        super().__init__(name="hub-feeder", daemon=True)
        self._wake = threading.Event()
        self._fed: dict[int, float] = {}

    def ring(self) -> None:
        """Somebody has committed something."""
        attempts.look_now()
        self._wake.set()

    def run(self) -> None:
        bell.listen(self._wake.set)
        while True:
            self._wake.wait(FEED_SECONDS)
            self._wake.clear()
            try:
                looked = self._feed()
                # Each commit rings, and a look costs the more the more traces wait: it may not take the worker's time.
                time.sleep(min(FEED_SHARE * looked, FEED_SECONDS))
            except Exception as error:
                if is_outage(error):
                    log.warning("the queue can't be fed: %s", type(error).__name__)
                else:
                    log.exception("the queue can't be fed")
                connection.close()
                time.sleep(FEED_SECONDS)

    def _feed(self) -> float:
        """How long the look has taken, in seconds."""
        now = time.monotonic()
        waiting = set(leases.claimable_keys())
        looked = time.monotonic() - now
        # What is not waiting any more may be fed again when it waits again.
        self._fed = {pk: at for pk, at in self._fed.items() if pk in waiting and now - at < FEED_AGAIN_SECONDS}
        for pk in sorted(waiting - self._fed.keys()):
            if ring_celery(pk):
                self._fed[pk] = now
        return looked


# In the web process


class WorkerChild:
    """`celery worker` as a child of `manage.py serve`: started again when it ends, stopped with us."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="hub-worker-child", daemon=True)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end, and end it when it does not."""
        self._stopping.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(settings.HUB_TRACE_STOP_SECONDS + 3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)
        self._thread.join(5)

    def _keep(self) -> None:
        pause = BACKOFF_SECONDS[0]
        while not self._stopping.is_set():
            begun = time.monotonic()
            self._process = subprocess.Popen(
                self._command(),
                env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent, which then asks the child to end
            )
            if self._stopping.is_set():
                self._process.terminate()
            code = self._process.wait()
            if self._stopping.is_set():
                return
            log.warning("the worker ended with %s, starting another one", code)
            healthy = time.monotonic() - begun >= HEALTHY_SECONDS
            pause = BACKOFF_SECONDS[0] if healthy else min(pause * 2, BACKOFF_SECONDS[1])
            self._stopping.wait(pause)

    @staticmethod
    def _command() -> list[str]:
        no_root = "ignore:You're running the worker with superuser"
        return [
            sys.executable, "-W", no_root, "-m", "celery", "--quiet", "-A", "hub", "worker", "--pool", "threads",
            "--concurrency", str(settings.HUB_WORKER_THREADS), "--loglevel", "WARNING", "--without-gossip",
            "--without-mingle", "--without-heartbeat", "-n", f"embedded-{os.getpid()}@localhost",
        ]  # fmt: skip
