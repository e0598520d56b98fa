from __future__ import annotations

from hub.bench.figures import Figures, Sample
from hub.bench.report import goals, render
from hub.bench.systems import ROW_TITLES


def rate(row: str, workload: str, value: float, **rest: float) -> Sample:
    return Sample(row=row, workload=workload, values={"messages_per_second": value}, **rest)  # type: ignore[arg-type]


def run() -> Figures:
    return Figures(
        [
            rate("raw", "w1x8", 10_000),
            rate("channels", "w1x8", 500),
            rate("hub", "w1x8", 8_000),
            rate("hub+batch", "w1x64", 9_000),
            rate("raw", "w1x64", 10_000),
            Sample(row="raw", workload="w2", values={"p50_ms": 0.4}),
            Sample(row="hub", workload="w2", values={"p50_ms": 2.0}),
        ],
        commit_ms=0.6,
    )


def line(text: str, start: str) -> list[str]:
    [found] = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_the_table_has_absolute_figures_and_only_columns_that_were_measured() -> None:
    text = render(run(), ROW_TITLES, "daphne")
    assert line(text, "system") == ["system", "W1 ×8 msg/s", "W1 ×64 msg/s", "W2 p50 ms"]
    assert line(text, "raw ASGI relay, stores nothing") == [
        "raw ASGI relay, stores nothing",
        "10,000",
        "10,000",
        "0.40",
    ]
    assert line(text, "Session Hub, SQLite FULL  ")[1:] == ["8,000", "–", "2.00"]


def test_ratios_are_to_each_baseline_of_the_same_run() -> None:
    text = render(run(), ROW_TITLES, "daphne")
    assert line(text, "hub ÷ raw ASGI relay")[1:] == ["0.80", "–", "5.00"]
    assert line(text, "hub ÷ Channels consumer + group")[1:] == ["16.00", "–", "–"]
    assert line(text, "hub+batch ÷ raw ASGI relay")[1:] == ["–", "0.90", "–"]
    assert "hub ÷ Channels tutorial chat" not in text


def test_goals_say_met_or_missed_and_are_left_out_when_not_measured() -> None:
    text = render(run(), ROW_TITLES, "daphne")
    assert line(text, "W1 ×8 ÷ raw relay")[1:] == ["at least 0.7", "0.80", "met"]
    assert line(text, "W1 ×64 `batch=1` ÷ raw relay")[1:] == ["at least 1", "0.90", "missed"]
    assert line(text, "W2 p50 ÷ (raw")[1:] == ["at most 2", "2.00", "met"]
    assert "W5" not in text


def test_a_quick_run_is_not_held_to_the_goals() -> None:
    assert "at least" not in render(run(), ROW_TITLES, "daphne", with_goals=False)


def test_the_goal_on_the_raw_relay_depends_on_the_server() -> None:
    assert [next(iter(goals(server))).bound for server in ("daphne", "uvicorn")] == [0.7, 0.6]


def test_the_report_says_when_the_generator_was_the_limit() -> None:
    text = render(Figures([rate("raw", "w1x8", 10_000, generator_cpu=0.97)]), ROW_TITLES, "daphne")
    assert line(text, "raw ASGI relay")[1] == "≥ 10,000"
    assert "the load generator was at its limit" in text


def test_the_report_names_problems_and_noise() -> None:
    noisy = Sample(
        row="hub",
        workload="w3",
        values={"deliveries_per_second": 1.0},
        foreign_cpu=0.5,
        problems=("2 deliveries missing",),
    )
    text = render(Figures([noisy]), ROW_TITLES, "daphne")
    assert "PROBLEM hub w3: 2 deliveries missing" in text
    assert "0.50 cores" in text
