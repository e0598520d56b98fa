"""Samples of workload runs and the figures made of them. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

GENERATOR_LIMIT = 0.9
"""From this share of its core on, the generator rather than the server may be what was measured."""

WORKLOADS: dict[str, tuple[str, ...]] = {
    "w1": ("w1x1", "w1x8", "w1x64"),
    "w2": ("w2", "w2steady"),
    "w3": ("w3",),
    "w4": ("w4",),
    "w5": ("w5",),
    "w7": ("w7", "w7full"),
    "w8": ("w8",),
}
"""What may be asked for, and the workloads it stands for."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one workload against one row of the table.

    Shapes: `values` by name, the unit in the name (`p50_ms`, `messages_per_second`). CPU in cores: 1.0 is one busy.
    """

    row: str
    workload: str
    values: dict[str, float]
    generator_cpu: float = 0.0
    server_cpu: float = 0.0
    foreign_cpu: float = 0.0
    problems: tuple[str, ...] = ()


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """The median of a row's samples of one workload; `samples` says of how many."""

    values: dict[str, float]
    samples: int
    generator_bound: bool
    foreign_cpu: float
    problems: tuple[str, ...]


class Figures:
    """All figures of one run, found by row and workload."""

    def __init__(self, samples: Iterable[Sample], *, commit_ms: float | None = None) -> None:
        grouped: dict[tuple[str, str], list[Sample]] = {}
        for sample in samples:
            grouped.setdefault((sample.row, sample.workload), []).append(sample)
        self._figures = {key: _figure(group) for key, group in grouped.items()}
        self.commit_ms = commit_ms

    def rows(self) -> list[str]:
        """The rows that have at least one sample, in the order in which they first came."""
        return list(dict.fromkeys(row for row, _ in self._figures))

    def figure(self, row: str, workload: str) -> Figure | None:
        return self._figures.get((row, workload))

    def value(self, row: str, workload: str, name: str) -> float | None:
        """The median, or None when nothing was measured."""
        figure = self._figures.get((row, workload))
        return None if figure is None else figure.values.get(name)

    def ratio(self, workload: str, name: str, row: str, base: str) -> float | None:
        """`row` divided by `base`, or None when one is missing or the base is zero."""
        return quotient(self.value(row, workload, name), self.value(base, workload, name))

    def problems(self) -> list[str]:
        """What went wrong, one line each, named by row and workload."""
        return [
            f"{row} {workload}: {problem}"
            for (row, workload), figure in self._figures.items()
            for problem in figure.problems
        ]

    def foreign_cpu(self) -> float:
        """The highest median of what other processes took meanwhile, in cores."""
        return max((figure.foreign_cpu for figure in self._figures.values()), default=0.0)


def quotient(value: float | None, base: float | None) -> float | None:
    """`value / base`, or None when either is missing or the base is zero."""
    return None if value is None or not base else value / base


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile (`share` from 0 to 1). Raises ValueError on an empty sequence."""
    if not values:
        raise ValueError("a percentile of nothing")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def expand(names: Sequence[str]) -> list[str]:
    """The workloads that `names` stand for (`w1` and `W1x8` are both names), all when empty. Raises ValueError."""
    known = {workload for group in WORKLOADS.values() for workload in group}
    found: list[str] = []
    for name in [name.lower() for name in names] or list(WORKLOADS):
        if name in WORKLOADS:
            found.extend(WORKLOADS[name])
        elif name in known:
            found.append(name)
        else:
            raise ValueError(f"unknown workload {name!r}: choose from {', '.join([*WORKLOADS, *sorted(known)])}")
    return list(dict.fromkeys(found))


def _figure(samples: Sequence[Sample]) -> Figure:
    # A run that broke has no values; it counts as a problem, not as a zero in the median.
    good = [sample for sample in samples if sample.values]
    names = dict.fromkeys(name for sample in good for name in sample.values)
    return Figure(
        values={name: median([s.values[name] for s in good if name in s.values]) for name in names},
        samples=len(good),
        generator_bound=bool(good) and median([s.generator_cpu for s in good]) >= GENERATOR_LIMIT,
        foreign_cpu=median([s.foreign_cpu for s in samples]),
        problems=tuple(dict.fromkeys(problem for sample in samples for problem in sample.problems)),
    )
