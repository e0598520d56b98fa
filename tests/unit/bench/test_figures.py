from __future__ import annotations

import pytest

from hub.bench.figures import Figures, Sample, expand, percentile, quotient


def sample(row: str = "hub", workload: str = "w1x8", *, generator_cpu: float = 0.2, **values: float) -> Sample:
    return Sample(row=row, workload=workload, values=values, generator_cpu=generator_cpu)


def test_a_figure_is_the_median_of_its_samples() -> None:
    figures = Figures(sample(messages_per_second=rate) for rate in (900.0, 100.0, 300.0))
    assert figures.value("hub", "w1x8", "messages_per_second") == 300.0


def test_a_run_that_broke_is_a_problem_and_not_a_zero_in_the_median() -> None:
    broken = Sample(row="hub", workload="w4", values={}, problems=("RuntimeError: 7 of 20000 replayed",))
    figures = Figures([sample(workload="w4", milliseconds=120.0), broken])
    assert figures.value("hub", "w4", "milliseconds") == 120.0
    assert figures.problems() == ["hub w4: RuntimeError: 7 of 20000 replayed"]


def test_a_ratio_is_none_when_one_side_was_not_measured() -> None:
    figures = Figures([sample(messages_per_second=80.0), sample("raw", messages_per_second=100.0)])
    assert figures.ratio("w1x8", "messages_per_second", "hub", "raw") == pytest.approx(0.8)
    assert figures.ratio("w1x8", "messages_per_second", "hub", "channels") is None
    assert quotient(1.0, 0.0) is None


def test_the_generator_is_the_limit_from_ninety_percent_of_its_core() -> None:
    figures = Figures(
        [
            sample(generator_cpu=0.95, messages_per_second=1.0),
            sample("raw", generator_cpu=0.85, messages_per_second=1.0),
        ]
    )
    limited, free = figures.figure("hub", "w1x8"), figures.figure("raw", "w1x8")
    assert limited is not None
    assert free is not None
    assert limited.generator_bound
    assert not free.generator_bound


def test_percentiles_are_nearest_rank() -> None:
    values = list(map(float, range(1, 101)))
    assert percentile(values, 0.5) == 51.0
    assert percentile(values, 0.99) == 100.0
    assert percentile([7.0], 0.99) == 7.0
    with pytest.raises(ValueError):
        percentile([], 0.5)


def test_names_of_workloads_expand_in_order_and_without_doubles() -> None:
    assert expand(["w3", "W1", "w1x8"]) == ["w3", "w1x1", "w1x8", "w1x64"]
    assert expand([]) == ["w1x1", "w1x8", "w1x64", "w2", "w2steady", "w3", "w4", "w5", "w7", "w7full", "w8"]
    with pytest.raises(ValueError, match="w9"):
        expand(["w9"])
