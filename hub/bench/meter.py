"""CPU and memory of the server's process tree, of this process, and of everybody else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psutil
from msgspec import Struct


class Spent(Struct, frozen=True):
    """A span of time and the cores that were busy in it (1.0 is one core)."""

    seconds: float
    generator_cpu: float
    server_cpu: float
    foreign_cpu: float


def start(*server_pids: int) -> Callable[[], Spent]:
    """Begin a span; the returned function ends it. The server is these processes and their children."""
    began, own, server, machine = time.perf_counter(), time.process_time(), _cpu(*server_pids), _machine_cpu()

    def stop() -> Spent:
        seconds = time.perf_counter() - began
        own_cpu = time.process_time() - own
        server_cpu = _cpu(*server_pids) - server
        foreign = _machine_cpu() - machine - own_cpu - server_cpu
        return Spent(seconds, own_cpu / seconds, server_cpu / seconds, max(0.0, foreign) / seconds)

    return stop


def resident_kilobytes(server_pid: int) -> float:
    """Resident memory of the server and its children."""
    return sum(process.memory_info().rss for process in _tree(server_pid)) / 1024


def _cpu(*pids: int) -> float:
    processes = [process for pid in pids for process in _tree(pid)]
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


def _machine_cpu() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal")))


def _tree(pid: int) -> Iterator[psutil.Process]:
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in processes:
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            yield process
