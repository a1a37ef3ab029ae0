"""Optimus' speed law by hand, against the measurements it was fitted to, and its marginal gains."""

import csv
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.errors import SettingError
from bireme_lab.simulator.physics.laws import DL2_LAWS, OptimusLaw

MEASUREMENTS = Path(__file__).parents[5] / "shared" / "data" / "dl2" / "speed.csv"
SYNC = OptimusLaw((0.1, 0.2, 0.3, 0.04, 0.05), batch=12)
ASYNC = OptimusLaw((0.5, 0.3, 0.04, 0.05))


def speed(law: OptimusLaw, ps: int, workers: int) -> float:
    return law.steps_per_second({"ps": ps, "worker": workers}, 1)


def test_a_synchronous_step_takes_what_the_law_says() -> None:
    # 0.1*12/4 + 0.2 + 0.3*4/2 + 0.04*4 + 0.05*2 = 0.3 + 0.2 + 0.6 + 0.16 + 0.1
    assert speed(SYNC, ps=2, workers=4) == pytest.approx(1 / 1.36)


def test_asynchronous_workers_step_by_themselves() -> None:
    # 4 / (0.5 + 0.3*4/2 + 0.04*4 + 0.05*2)
    assert speed(ASYNC, ps=2, workers=4) == pytest.approx(4 / 1.36)


@pytest.mark.parametrize("law", [SYNC, ASYNC])
@pytest.mark.parametrize("sizes", [{"ps": 1}, {"worker": 1}, {"ps": 0, "worker": 3}, {}])
def test_nothing_runs_without_a_worker_and_a_server(law: OptimusLaw, sizes: dict[str, int]) -> None:
    assert law.steps_per_second(sizes, 1) == 0.0


def test_tasks_may_have_other_names() -> None:
    law = OptimusLaw(SYNC.theta, 12, worker="trainer", ps="server")
    sizes = {"trainer": 4, "server": 2, "worker": 9}
    assert law.steps_per_second(sizes, 3) == speed(SYNC, ps=2, workers=4)


@given(
    st.lists(st.floats(0, 2), min_size=5, max_size=5),
    st.integers(1, 30),
    st.integers(1, 30),
    st.booleans(),
)
def test_gains_of_one_kind_only_shrink(
    theta: list[float], fixed: int, count: int, is_ps: bool
) -> None:
    """A step's time is convex in each count, so greedy growth never gives up too early."""
    law = OptimusLaw((theta[0] + 0.1, *theta[1:]), batch=64)
    seconds = [
        1 / (speed(law, n, fixed) if is_ps else speed(law, fixed, n))
        for n in (count, count + 1, count + 2)
    ]
    assert seconds[0] - seconds[1] >= seconds[1] - seconds[2] - 1e-9


@pytest.mark.parametrize("model", DL2_LAWS)
def test_growing_by_marginal_gain_never_lowers_the_speed_and_ends_at_the_best_size(
    model: str,
) -> None:
    """Optimus' allocation for one job alone, against all sizes up to 12 x 12."""
    law, ps, workers = DL2_LAWS[model], 1, 1
    while True:
        now = speed(law, ps, workers)
        grown = max(
            [(ps + 1, workers), (ps, workers + 1)],
            key=lambda size: speed(law, *size) if max(size) <= 12 else 0.0,
        )
        if max(grown) > 12 or 1 / now - 1 / speed(law, *grown) <= 0:
            break
        assert speed(law, *grown) > now
        ps, workers = grown
    best = max(speed(law, p, w) for p in range(1, 13) for w in range(1, 13))
    assert speed(law, ps, workers) == pytest.approx(best, rel=0.02)


@pytest.mark.skipif(not MEASUREMENTS.exists(), reason="needs DL2's measurements, not shipped")
@pytest.mark.parametrize("model", DL2_LAWS)
def test_the_shipped_numbers_predict_the_testbed(model: str) -> None:
    with MEASUREMENTS.open() as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == model]
    law = DL2_LAWS[model]
    errors = []
    for row in rows:
        samples = float(row["speed_sum"])
        if samples > 0:  # a 0 is a run that failed
            predicted = speed(law, int(row["num_ps"]), int(row["num_worker"])) * (law.batch or 0)
            errors.append(abs(predicted / samples - 1))
    assert len(errors) > 50
    assert mean(errors) < 0.12


@pytest.mark.parametrize(
    ("theta", "batch", "word"),
    [
        ((1.0,) * 5, None, "theta has 5 numbers"),
        ((1.0,) * 4, 32, "theta has 4 numbers"),
        ((1.0, 1.0, -0.1, 1.0), None, "below 0"),
        ((0.0,) * 4, None, "sum of theta"),
        ((1.0,) * 5, 0, "batch is 0"),
    ],
)
def test_numbers_that_make_no_law_are_refused(
    theta: tuple[float, ...], batch: int | None, word: str
) -> None:
    with pytest.raises(SettingError, match=word):
        OptimusLaw(theta, batch)
