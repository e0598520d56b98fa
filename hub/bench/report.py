"""From figures to the printed report. Pure. Tables are Markdown, so that they can be pasted into the README."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from hub.bench.figures import Figures, quotient

HUB, BATCHED, RAW, CHANNELS, TUTORIAL, KEPT = "hub", "hub+batch", "raw", "channels", "tutorial", "tutorial-kept"
EMBEDDED, WORKERS = "embedded", "workers"
MISSING = "–"
NOISY_CORES = 0.15


class Column(Struct, frozen=True, kw_only=True):
    """One measured value. `digits` after the point; `ratio` is False where a quotient says nothing."""

    title: str
    workload: str
    value: str
    digits: int = 0
    ratio: bool = True


COLUMNS = (
    Column(title="W1 ×1 msg/s", workload="w1x1", value="messages_per_second"),
    Column(title="W1 ×8 msg/s", workload="w1x8", value="messages_per_second"),
    Column(title="W1 ×64 msg/s", workload="w1x64", value="messages_per_second"),
    Column(title="×8 CPU µs/msg", workload="w1x8", value="cpu_us_per_message"),
    Column(title="W2 p50 ms", workload="w2", value="p50_ms", digits=2),
    Column(title="p99 ms", workload="w2", value="p99_ms", digits=2),
    Column(title="W2 300/s p50 ms", workload="w2steady", value="p50_ms", digits=2),
    Column(title="p99 ms", workload="w2steady", value="p99_ms", digits=2),
    Column(title="W3 deliveries/s", workload="w3", value="deliveries_per_second"),
    Column(title="W4 ms", workload="w4", value="milliseconds"),
    Column(title="W4 msg/s", workload="w4", value="messages_per_second"),
    Column(title="W5 KB/socket", workload="w5", value="kilobytes_per_socket", digits=1),
    Column(title="W5 connects/s", workload="w5", value="connects_per_second"),
    Column(title="W5 idle CPU %", workload="w5", value="idle_cpu_percent", digits=1, ratio=False),
    Column(title="W7 ack→running p50 ms", workload="w7", value="running_p50_ms", digits=1, ratio=False),
    Column(title="p99 ms", workload="w7", value="running_p99_ms", digits=1, ratio=False),
    Column(title="ack→result p50 ms", workload="w7", value="result_p50_ms", digits=1, ratio=False),
    Column(title="W7 traces/s", workload="w7full", value="traces_per_second", ratio=False),
    Column(title="CPU ms/trace", workload="w7full", value="cpu_ms_per_trace", digits=1, ratio=False),
    Column(title="W8 10⁴ CPU µs/msg", workload="w8", value="short_cpu_us", ratio=False),
    Column(title="10⁶ CPU µs/msg", workload="w8", value="long_cpu_us", ratio=False),
    Column(title="W8 10⁴ page ms", workload="w8", value="short_page_ms", digits=2, ratio=False),
    Column(title="10⁶ page ms", workload="w8", value="long_page_ms", digits=2, ratio=False),
)

Measure = Callable[[Figures], float | None]


class Goal(Struct, frozen=True, kw_only=True):
    """One goal of the design: a figure or a ratio of this run, and its bound."""

    title: str
    measure: Measure
    bound: float
    sense: Literal["at least", "at most"]

    def met(self, measured: float) -> bool:
        return measured >= self.bound if self.sense == "at least" else measured <= self.bound


def _ratio(workload: str, value: str, row: str, base: str) -> Measure:
    return lambda figures: figures.ratio(workload, value, row, base)


def _value(workload: str, value: str, row: str) -> Measure:
    return lambda figures: figures.value(row, workload, value)


def _latency_floor(figures: Figures) -> float | None:
    ping = figures.value(RAW, "w2", "p50_ms")
    floor = None if ping is None or figures.commit_ms is None else ping + figures.commit_ms
    return quotient(figures.value(HUB, "w2", "p50_ms"), floor)


def goals(server: str) -> tuple[Goal, ...]:
    """The goals for W1–W5, W7 and W8 on this ASGI server."""
    messages, deliveries = "messages_per_second", "deliveries_per_second"
    return (
        Goal(title="W1 ×8 ÷ raw relay", measure=_ratio("w1x8", messages, HUB, RAW),
             bound=0.7 if server == "daphne" else 0.6, sense="at least"),
        Goal(title="W1 ×8 ÷ Channels relay", measure=_ratio("w1x8", messages, HUB, CHANNELS),
             bound=10, sense="at least"),
        Goal(title="W1 ×8 ÷ tutorial chat", measure=_ratio("w1x8", messages, HUB, TUTORIAL),
             bound=60, sense="at least"),
        Goal(title="W1 ×8 ÷ tutorial chat, `CONN_MAX_AGE=None`", measure=_ratio("w1x8", messages, HUB, KEPT),
             bound=25, sense="at least"),
        Goal(title="W1 ×64 `batch=1` ÷ raw relay", measure=_ratio("w1x64", messages, BATCHED, RAW),
             bound=1.0, sense="at least"),
        Goal(title="W2 p50 ÷ (raw relay's p50 + one commit)", measure=_latency_floor, bound=2.0, sense="at most"),
        Goal(title="W3 ÷ raw relay", measure=_ratio("w3", deliveries, HUB, RAW), bound=0.8, sense="at least"),
        Goal(title="W3 `batch=1` ÷ raw relay", measure=_ratio("w3", deliveries, BATCHED, RAW),
             bound=2, sense="at least"),
        Goal(title="W3 ÷ Channels relay", measure=_ratio("w3", deliveries, HUB, CHANNELS), bound=15, sense="at least"),
        Goal(title="W4 `batch=1`, ms", measure=_value("w4", "milliseconds", BATCHED), bound=150, sense="at most"),
        Goal(title="W4 `batch=1` ÷ tutorial chat", measure=_ratio("w4", "messages_per_second", BATCHED, TUTORIAL),
             bound=8, sense="at least"),
        Goal(title="W5 KB per socket", measure=_value("w5", "kilobytes_per_socket", HUB), bound=25, sense="at most"),
        Goal(title="W5 KB ÷ raw relay", measure=_ratio("w5", "kilobytes_per_socket", HUB, RAW),
             bound=1.25, sense="at most"),
        Goal(title="W5 idle CPU, %", measure=_value("w5", "idle_cpu_percent", HUB), bound=2.0, sense="at most"),
        Goal(title="W7 ack → running p50, ms, embedded", measure=_value("w7", "running_p50_ms", EMBEDDED),
             bound=50, sense="at most"),
        Goal(title="W7 ack → running p50, ms, Redis", measure=_value("w7", "running_p50_ms", WORKERS),
             bound=50, sense="at most"),
        Goal(title="W7 traces/s, Redis, 2 workers", measure=_value("w7full", "traces_per_second", WORKERS),
             bound=200, sense="at least"),
        Goal(title="W8 CPU per message, 10⁶ ÷ 10⁴", measure=_value("w8", "cpu_growth", HUB), bound=1.1, sense="at most"),
        Goal(title="W8 page of 50, 10⁶ ÷ 10⁴", measure=_value("w8", "page_growth", HUB), bound=1.1, sense="at most"),
    )  # fmt: skip


def render(figures: Figures, titles: dict[str, str], server: str, *, with_goals: bool = True) -> str:
    """The whole report: absolute figures, ratios within this run, goals, and what was wrong or doubtful."""
    columns = [column for column in COLUMNS if any(_cell(figures, row, column) != MISSING for row in figures.rows())]
    parts = [_table(["system", *(column.title for column in columns)], _absolute(figures, titles, columns))]
    ratios = _ratios(figures, titles, columns)
    if ratios:
        parts.append(_table(["ratio", *(column.title for column in columns if column.ratio)], ratios))
    reached = _goals(figures, server) if with_goals else []
    if reached:
        parts.append(_table(["goal", "bound", "measured", ""], reached))
    parts.append("\n".join(_remarks(figures)))
    return "\n\n".join(part for part in parts if part)


def _absolute(figures: Figures, titles: dict[str, str], columns: Sequence[Column]) -> list[list[str]]:
    return [[titles.get(row, row), *(_cell(figures, row, column) for column in columns)] for row in figures.rows()]


def _ratios(figures: Figures, titles: dict[str, str], columns: Sequence[Column]) -> list[list[str]]:
    found = []
    for row in (HUB, BATCHED):
        for base in (RAW, CHANNELS, TUTORIAL, KEPT):
            cells = [
                _number(figures.ratio(column.workload, column.value, row, base), 2)
                for column in columns
                if column.ratio
            ]
            if any(cell != MISSING for cell in cells):
                found.append([f"{row} ÷ {titles.get(base, base).split(',')[0]}", *cells])
    return found


def _goals(figures: Figures, server: str) -> list[list[str]]:
    found = []
    for goal in goals(server):
        measured = goal.measure(figures)
        if measured is not None:
            verdict = "met" if goal.met(measured) else "missed"
            found.append([goal.title, f"{goal.sense} {goal.bound:g}", _number(measured, 2), verdict])
    return found


def _remarks(figures: Figures) -> list[str]:
    remarks = []
    if figures.commit_ms is not None:
        remarks.append(f"One commit of this disk, alone: {figures.commit_ms:.2f} ms.")
    if any(_is_bound(figures, row, column) for row in figures.rows() for column in COLUMNS):
        remarks.append("≥: the load generator was at its limit, the server may reach more.")
    if figures.foreign_cpu() >= NOISY_CORES:
        remarks.append(
            f"Other processes took up to {figures.foreign_cpu():.2f} cores meanwhile: trust no rate or latency, "
            "and of the ratios most that of CPU per message."
        )
    return [*remarks, *(f"PROBLEM {problem}" for problem in figures.problems())]


def _cell(figures: Figures, row: str, column: Column) -> str:
    text = _number(figures.value(row, column.workload, column.value), column.digits)
    return f"≥ {text}" if text != MISSING and _is_bound(figures, row, column) else text


def _is_bound(figures: Figures, row: str, column: Column) -> bool:
    figure = figures.figure(row, column.workload)
    return figure is not None and figure.generator_bound and column.value.endswith("_per_second")


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:,.{digits}f}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]

    def drawn(cells: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(width) if not index else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join([first, *rest]) + " |"

    rule = "| " + " | ".join(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]) + " |"
    return "\n".join([drawn(header), rule, *(drawn(row) for row in rows)])
