"""The load generator's process: reads a `Plan` from its standard input, prints each `Sample` as one JSON line.

`python -m hub.bench.generator < plan.json`. It imports no Django.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from importlib.util import find_spec

import msgspec

from hub.bench import growth, traces
from hub.bench.figures import Sample
from hub.bench.targets import Baseline, Hub, Target
from hub.bench.workloads import RUNNERS, W4_MESSAGES, W5_SOCKETS, W8_HISTORIES, Run


class RowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table and the workloads to run for it, in order."""

    row: str
    workloads: list[str]
    batched: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run against one running server. With an `operator_key` the server is a hub, else a baseline."""

    port: int
    server_pid: int
    helper_pids: list[int] = []
    rows: list[RowPlan]
    operator_key: str | None = None
    seconds: float = 1.2
    warm_seconds: float = 0.3
    backlog: int = W4_MESSAGES
    idle_sockets: int = W5_SOCKETS
    histories: tuple[int, int] = W8_HISTORIES
    database: str | None = None
    time_limit: float = 120.0


async def generate(plan: Plan) -> None:
    for row in plan.rows:
        target = _target(plan, row)
        run = Run(
            row=row.row,
            target=target,
            server_pid=plan.server_pid,
            helper_pids=plan.helper_pids,
            batched=row.batched,
            seconds=plan.seconds,
            warm_seconds=plan.warm_seconds,
            backlog=plan.backlog,
            idle_sockets=plan.idle_sockets,
            histories=plan.histories,
            database=plan.database,
        )
        for workload in row.workloads:
            sample = await _measured(run, workload, plan.time_limit)
            print(msgspec.json.encode(sample).decode(), flush=True)
        await target.aclose()


async def _measured(run: Run, workload: str, time_limit: float) -> Sample:
    try:
        async with asyncio.timeout(time_limit):
            return await {**RUNNERS, **traces.RUNNERS, **growth.RUNNERS}[workload](run)
    except Exception as error:  # one workload that breaks must not take the others' figures with it
        problem = f"{type(error).__name__}: {error}"[:500]
        return Sample(row=run.row, workload=workload, values={}, problems=(problem,))


def _target(plan: Plan, row: RowPlan) -> Target:
    if plan.operator_key is None:
        return Baseline(plan.port)
    return Hub(plan.port, plan.operator_key, batched=row.batched)


def _allow_many_sockets() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    _allow_many_sockets()
    if find_spec("uvloop") is None:
        asyncio.run(generate(plan))
    else:
        import uvloop  # type: ignore[import-not-found,unused-ignore]

        uvloop.run(generate(plan))


if __name__ == "__main__":
    main()
