"""Seeded workloads: their laws, checked on large samples, and their determinism."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from bireme.core.gpus import GPU
from bireme_lab.simulator.errors import TraceError
from bireme_lab.simulator.traces.generators import adversarial, diurnal, poisson
from bireme_lab.simulator.workload import Trace, TraceJob

MANY = 20_000


def gpus(job: TraceJob) -> int:
    return sum(dict(task.request).get(GPU, 0) * task.replicas for task in job.tasks)


def submitted(trace: Trace) -> list[float]:
    return [job.submitted for job in trace.jobs]


def runs(trace: Trace) -> list[float]:
    return [job.duration_seconds for job in trace.jobs]


@pytest.mark.parametrize("generate", [poisson, diurnal])
def test_equal_arguments_give_the_same_trace_and_another_seed_another(
    generate: Callable[..., Trace],
) -> None:
    assert generate(jobs=50, seed=3) == generate(jobs=50, seed=3)
    assert generate(jobs=50, seed=3) != generate(jobs=50, seed=4)


def test_poisson_gaps_are_exponential_with_the_mean_of_the_rate() -> None:
    gaps = np.diff(submitted(poisson(jobs=MANY, rate=120.0)))
    assert gaps.mean() == pytest.approx(30.0, rel=0.03)
    assert gaps.std() == pytest.approx(30.0, rel=0.05)


@pytest.mark.parametrize("law", ["exponential", "lognormal"])
def test_durations_have_the_mean_asked_for(law: str) -> None:
    trace = poisson(jobs=MANY, durations=law, mean_seconds=100.0, spread=1.0)
    assert np.mean(runs(trace)) == pytest.approx(100.0, rel=0.05)
    assert min(runs(trace)) > 0


def test_a_lognormal_has_the_spread_asked_for() -> None:
    logs = np.log(runs(poisson(jobs=MANY, spread=0.7)))
    assert logs.std() == pytest.approx(0.7, rel=0.03)


def test_sizes_come_in_the_shares_asked_for() -> None:
    sizes = [gpus(job) for job in poisson(jobs=MANY, sizes="1:3,8:0.5,12:0.5").jobs]
    assert {size: round(sizes.count(size) / MANY, 2) for size in set(sizes)} == pytest.approx(
        {1: 0.75, 8: 0.125, 12: 0.125}, abs=0.015
    )


def test_gangs_fit_the_nodes_asked_for() -> None:
    (task,) = poisson(jobs=1, sizes="16:1", gpus_per_node=4).jobs[0].tasks
    assert (task.replicas, dict(task.request)[GPU]) == (4, 4)


def test_users_are_as_many_as_asked_for() -> None:
    assert len({job.user for job in poisson(jobs=500, users=7).jobs}) == 7


def test_the_day_has_its_peak_where_asked_and_the_mean_rate_stays() -> None:
    trace = diurnal(jobs=MANY, rate=100.0, swing=0.9, peak_hour=6.0, burst_chance=0.0)
    hours = np.array(submitted(trace)) / 3600
    days = int(hours[-1] // 24)
    counts = np.bincount((hours[hours < 24 * days] % 24).astype(int), minlength=24) / days
    assert counts.mean() == pytest.approx(100.0, rel=0.05)
    assert counts[4:8].mean() == pytest.approx(190.0, rel=0.1)
    assert counts[16:20].mean() == pytest.approx(10.0, abs=5.0)


def test_without_swing_a_day_is_even() -> None:
    gaps = np.diff(submitted(diurnal(jobs=MANY, rate=120.0, swing=0.0, burst_chance=0.0)))
    assert gaps.mean() == pytest.approx(30.0, rel=0.03)


def test_a_burst_is_many_jobs_at_once_of_one_user_and_size() -> None:
    trace = diurnal(jobs=2000, burst_chance=0.2, burst_jobs=10.0)
    bursts: dict[float, list[TraceJob]] = {}
    for job in trace.jobs:
        bursts.setdefault(job.submitted, []).append(job)
    assert len(trace.jobs) == 2000
    assert all(len({(job.user, job.tasks) for job in jobs}) == 1 for jobs in bursts.values())
    assert np.mean([len(jobs) for jobs in bursts.values()]) == pytest.approx(
        0.8 + 0.2 * 10, rel=0.2
    )


def test_the_small_jobs_never_leave_a_hole_and_the_large_one_comes_once() -> None:
    trace = adversarial(jobs=500, cluster_gpus=16, load=1.25, small_seconds=100.0, large_gpus=8)
    (large,) = (job for job in trace.jobs if job.name == "large")
    small = [job for job in trace.jobs if job.name != "large"]
    assert (gpus(large), large.submitted) == (8, 100.0)
    assert {after - before for before, after in pairwise(job.submitted for job in small)} == {5.0}
    assert 100.0 / 5.0 == 16 * 1.25


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"jobs": 0}, "jobs is 0; it must be above 0"),
        ({"rate": -1.0}, "rate is -1.0; it must be above 0"),
        ({"mean_seconds": float("inf")}, "mean_seconds is inf"),
        ({"durations": "weibull"}, "durations is 'weibull'.* write exponential, or lognormal"),
        ({"spread": -0.1}, "spread -0.1"),
        ({"sizes": "8"}, "sizes is '8'; write GPUs and shares such as"),
        ({"sizes": "0:1"}, "sizes is '0:1'"),
        ({"sizes": "1:-1,2:3"}, "sizes is '1:-1,2:3'"),
        ({"sizes": "1:0"}, "sizes is '1:0'"),
        ({"sizes": "1:nan"}, "sizes is '1:nan'"),
    ],
)
def test_arguments_without_sense_are_refused(arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(TraceError, match=problem):
        poisson(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["swing", "burst_chance"])
def test_a_share_above_one_is_refused(name: str) -> None:
    with pytest.raises(TraceError, match=f"{name} is 1.5; it must be from 0 to 1"):
        diurnal(**{name: 1.5})  # type: ignore[arg-type]
