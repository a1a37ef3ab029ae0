"""The tables on elastic sizes: means by load with their intervals, and what they amount to."""

import numpy as np
import pytest

from benchmarks.simulations import beside

ROWS = {
    "ours": {"1.0": np.array([10.0, 20.0]), "2.0": np.array([40.0, 40.0])},
    "rival": {"1.0": np.array([20.0, 40.0]), "2.0": np.array([20.0, 40.0])},
    "goal": {"1.0": np.array([10.0, 20.0]), "2.0": np.array([20.0, 20.0])},
}
LOADS = ("1.0", "2.0")


def test_the_overview_has_means_with_their_intervals() -> None:
    table = beside.overview(ROWS, LOADS)
    assert table.rows[0] == ("ours", "15 [10, 20]", "40 [40, 40]")


def test_ratios_are_paired_by_workload() -> None:
    """Every workload takes ours half as long, however the workloads are drawn."""
    table = beside.against("ours", ROWS, LOADS)
    assert table.rows[0][:2] == ("rival", "0.500 [0.500, 0.500]")


def test_the_finding_counts_the_loads_at_which_the_bars_are_kept() -> None:
    text = beside.finding("ours", ["rival"], "goal", ROWS, LOADS)
    assert "sooner than our rival at 1 of 2 loads" in text
    assert "1.000 of it at load 1.0, 2.000 of it at load 2.0" in text


def test_one_workload_gives_no_interval_and_is_refused() -> None:
    alone = {"ours": {"1.0": np.array([1.0])}}
    with pytest.raises(ValueError, match="at least two workloads"):
        beside.overview(alone, ("1.0",))
