from __future__ import annotations

import pytest

from hub.bench.runner import Options, row_plans, visits
from hub.bench.systems import SYSTEMS, clean_environment, command


def plan(*workloads: str, systems: list[str], repetitions: int = 1) -> list[tuple[int, str, list[str]]]:
    options = Options(workloads=list(workloads), systems=systems, repetitions=repetitions)
    return [(visit.repetition, visit.system.name, visit.workloads) for visit in visits(options)]


def test_repetitions_take_turns_in_an_order_that_rotates() -> None:
    assert [name for _, name, _ in plan("w1x8", systems=["raw", "channels", "hub"], repetitions=3)] == [
        "raw", "channels", "hub",
        "channels", "hub", "raw",
        "hub", "raw", "channels",
    ]  # fmt: skip


def test_idle_sockets_get_a_server_of_their_own() -> None:
    assert plan("w1x8", "w3", "w5", systems=["raw"]) == [(0, "raw", ["w1x8", "w3"]), (0, "raw", ["w5"])]


def test_a_system_is_not_asked_for_what_it_has_not() -> None:
    assert plan("w4", systems=["raw", "tutorial"]) == [(0, "tutorial", ["w4"])]


def test_the_hub_fills_a_batched_row_too_except_for_idle_sockets() -> None:
    assert [(each.row, each.batched) for each in row_plans(SYSTEMS["hub"], ["w1x8"])] == [
        ("hub", False),
        ("hub+batch", True),
    ]
    assert [each.row for each in row_plans(SYSTEMS["hub"], ["w5"])] == ["hub"]


def test_nothing_configures_a_server_by_accident(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"DJANGO_SETTINGS_MODULE", "DATABASE_URL", "REDIS_URL", "HUB_RATE_MESSAGES", "BENCH_BACKLOG"}
    for name in names:
        monkeypatch.setenv(name, "x")
    assert not names & clean_environment().keys()


def test_both_servers_are_started_without_compression_and_access_log() -> None:
    assert command("daphne", "a:b", 1)[-3:] == ["-v", "0", "a:b"]
    uvicorn = command("uvicorn", "a:b", 1)
    assert uvicorn[uvicorn.index("--ws-per-message-deflate") + 1] == "false"
    assert "--no-access-log" in uvicorn
