"""The generator against real servers: short runs that show that what is counted was sent, stored and received."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from hub.bench import growth
from hub.bench.disk import commit_milliseconds
from hub.bench.figures import Sample
from hub.bench.systems import SYSTEMS, serving
from hub.bench.targets import Baseline, Hub
from hub.bench.workloads import RUNNERS, Run


def measure(
    system: str, directory: Path, workloads: list[str], *, backlog: int = 0, application: str | None = None
) -> dict[str, Sample]:
    server_of = SYSTEMS[system]
    if application is not None:
        server_of = msgspec.structs.replace(server_of, application=application)
    with serving(server_of, "daphne", directory / system, core=None, backlog=backlog) as server:

        async def run_all() -> dict[str, Sample]:
            run = Run(
                row=system,
                target=Baseline(server.port),
                server_pid=server.pid,
                batched=False,
                seconds=0.2,
                warm_seconds=0.05,
                backlog=backlog,
                idle_sockets=20,
            )
            return {workload: await RUNNERS[workload](run) for workload in workloads}

        return asyncio.run(run_all())


@pytest.mark.parametrize("system", ["raw", "channels"])
def test_a_relay_is_counted_without_a_loss(system: str, tmp_path: Path) -> None:
    samples = measure(system, tmp_path, ["w1x8", "w2", "w2steady", "w3"])
    assert [sample.problems for sample in samples.values()] == [()] * 4
    assert samples["w1x8"].values["messages_per_second"] > 0
    assert samples["w3"].values["deliveries_per_second"] > samples["w3"].values["messages_per_second"] > 0
    assert 0 < samples["w2"].values["p50_ms"] <= samples["w2"].values["p99_ms"]
    assert 0 < samples["w2steady"].values["p50_ms"] <= samples["w2steady"].values["p99_ms"]


def test_frames_that_greet_a_socket_are_not_taken_for_answers(tmp_path: Path) -> None:
    greeting = "tests.integration.bench.greeting_relay:application"
    samples = measure("raw", tmp_path, ["w1x1", "w2", "w2steady"], application=greeting)
    assert [sample.problems for sample in samples.values()] == [()] * 3
    assert all(sample.values for sample in samples.values())


def test_the_tutorial_chat_stores_relays_and_replays(tmp_path: Path) -> None:
    samples = measure("tutorial", tmp_path, ["w1x1", "w4"], backlog=700)
    assert [sample.problems for sample in samples.values()] == [(), ()]
    assert samples["w1x1"].values["messages_per_second"] > 0
    assert samples["w4"].values["messages_per_second"] > 0


def test_idle_sockets_are_all_open_when_they_are_counted(tmp_path: Path) -> None:
    sample = measure("raw", tmp_path, ["w5"])["w5"]
    assert sample.problems == ()
    assert sample.values["connects_per_second"] > 0


def test_beside_a_history_the_hub_numbers_on_and_nothing_of_it_is_unread(tmp_path: Path) -> None:
    with serving(SYSTEMS["hub"], "daphne", tmp_path / "hub", core=None, backlog=0) as server:
        assert server.operator_key is not None
        target = Hub(server.port, server.operator_key, batched=False)

        async def run() -> Sample:
            chosen = Run(
                row="hub",
                target=target,
                server_pid=server.pid,
                batched=False,
                seconds=0.2,
                warm_seconds=0.05,
                histories=(500, 1_000),
                database=server.database,
            )
            try:
                return await growth.growth(chosen)
            finally:
                await target.aclose()

        sample = asyncio.run(run())
    assert sample.problems == ()  # a receiver takes the message after the history for its first
    assert {"short_cpu_us", "long_cpu_us", "cpu_growth", "page_growth"} <= sample.values.keys()


def test_a_server_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    broken = msgspec.structs.replace(SYSTEMS["raw"], application="hub.bench.baselines.missing:application")
    with pytest.raises(RuntimeError, match=r"No module named .*missing"):
        with serving(broken, "daphne", tmp_path / "broken", core=None, backlog=0):
            pass


def test_a_commit_is_measured_and_leaves_nothing_behind(tmp_path: Path) -> None:
    assert commit_milliseconds(tmp_path, commits=5) > 0
    assert not list(tmp_path.iterdir())
