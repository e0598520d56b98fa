"""One benchmark run: start each system, load it, stop it, again and again in turns, and collect the samples."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from hub.bench import disk, systems
from hub.bench.figures import Sample
from hub.bench.generator import Plan, RowPlan
from hub.bench.systems import System
from hub.bench.workloads import W4_MESSAGES, W5_SOCKETS, W8_HISTORIES

ALONE = "w5"
"""This workload gets a server of its own: memory that another one gave back would hide what it measures."""

Say = Callable[[str], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure and for how long. `seconds` is the counted span of each workload."""

    workloads: list[str]
    systems: list[str]
    server: str = "daphne"
    repetitions: int = 3
    seconds: float = 1.2
    warm_seconds: float = 0.3
    backlog: int = W4_MESSAGES
    idle_sockets: int = W5_SOCKETS
    histories: tuple[int, int] = W8_HISTORIES


class Visit(msgspec.Struct, frozen=True):
    """One start of one system, with what is run there."""

    repetition: int
    system: System
    workloads: list[str]


def run(options: Options, say: Say) -> tuple[list[Sample], float]:
    """The samples, and one commit of this disk in ms; `say` gets progress. Raises RuntimeError when a system fails."""
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    pinned = systems.cores()
    server_core, generator_core = pinned or (None, None)
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="hub-bench-") as name:
        directory = Path(name)
        commit_ms = disk.commit_milliseconds(directory)
        for number, visit in enumerate(visits(options)):
            say(f"{visit.repetition + 1}/{options.repetitions} {visit.system.name}: {' '.join(visit.workloads)}")
            backlog = options.backlog if "w4" in visit.workloads else 0
            core = server_core if visit.system.pinned else None
            with systems.serving(
                visit.system, options.server, directory / str(number), core=core, backlog=backlog
            ) as server:
                plan = _plan(options, visit, server)
                samples.extend(_generate(plan, generator_core if visit.system.pinned else None))
    return samples, commit_ms


def visits(options: Options) -> Iterator[Visit]:
    """Each repetition visits every system, in an order that rotates, so that a drift of the machine hits all alike."""
    chosen = [systems.SYSTEMS[name] for name in options.systems]
    for repetition in range(options.repetitions):
        turn = repetition % len(chosen)
        for system in [*chosen[turn:], *chosen[:turn]]:
            wanted = [workload for workload in options.workloads if workload in system.workloads]
            shared = [workload for workload in wanted if workload != ALONE]
            if shared:
                yield Visit(repetition, system, shared)
            if ALONE in wanted:
                yield Visit(repetition, system, [ALONE])


def row_plans(system: System, workloads: Sequence[str]) -> list[RowPlan]:
    """The rows to fill at one visit. Idle sockets send nothing, so batching them would measure the same again."""
    return [
        RowPlan(row=row, batched=batched, workloads=list(workloads))
        for row, batched in system.rows.items()
        if not (batched and list(workloads) == [ALONE])
    ]


def _plan(options: Options, visit: Visit, server: systems.Server) -> Plan:
    return Plan(
        port=server.port,
        server_pid=server.pid,
        helper_pids=list(server.helpers),
        operator_key=server.operator_key,
        rows=row_plans(visit.system, visit.workloads),
        seconds=options.seconds,
        warm_seconds=options.warm_seconds,
        backlog=options.backlog,
        idle_sockets=options.idle_sockets,
        histories=options.histories,
        database=server.database,
    )


def _generate(plan: Plan, core: int | None) -> list[Sample]:
    process = subprocess.Popen(
        [sys.executable, "-m", "hub.bench.generator"],
        cwd=systems.ROOT,
        env=systems.clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    systems.pin(process.pid, core)
    workloads = sum(len(row.workloads) for row in plan.rows)
    try:
        output, _ = process.communicate(msgspec.json.encode(plan), timeout=workloads * plan.time_limit + 60)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError("the load generator did not end") from error
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    samples = [msgspec.json.decode(line, type=Sample) for line in output.splitlines()]
    if process.returncode != 0 or len(samples) != workloads:
        raise RuntimeError(
            f"the load generator ended with {process.returncode} after {len(samples)} of {workloads} workloads"
        )
    return samples


def machine() -> str:
    """One line on what it ran on."""
    pinned = systems.cores()
    where = f"server on core {pinned[0]}, generator on core {pinned[1]}" if pinned else "nothing pinned"
    return f"{os.cpu_count()} cores ({where}), Python {sys.version.split()[0]}"
