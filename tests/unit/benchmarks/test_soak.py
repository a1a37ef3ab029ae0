"""The soak's verdict: what grows is seen, what only moves is not, whatever life is looked at."""

import random
from pathlib import Path

import pytest

from benchmarks.soak.page import MAX_MIB_PER_DAY, longest_lives
from benchmarks.soak.samples import ProgramSample, read_programs
from benchmarks.soak.slopes import DAY_SECONDS, Slope, slope_of

HOUR = 3600
WINDOW = 120.0


def grown(per_day: float, *, noise: float = 0.0, step: float = 0.0, hours: float = 1.5) -> Slope:
    """The slope of memory that grows by so much, in steps, with noise on every sample."""
    chance = random.Random(1)  # noqa: S311  # noise, no secret
    seconds = [10.0 * number for number in range(int(hours * HOUR / 10))]
    true = [80 + per_day * at / DAY_SECONDS for at in seconds]
    stepped = [round(value / step) * step if step else value for value in true]
    values = [value + chance.gauss(0, noise) for value in stepped]
    found = slope_of(seconds, values, window_seconds=WINDOW)
    assert found is not None
    return found


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_a_leak_is_seen_whatever_the_noise(noise: float) -> None:
    found = grown(4 * MAX_MIB_PER_DAY, noise=noise)
    assert found.low <= found.per_day <= found.high
    assert found.low <= 4 * MAX_MIB_PER_DAY <= found.high or noise == 0
    assert not found.is_below(MAX_MIB_PER_DAY)


def test_a_leak_in_steps_is_seen() -> None:
    assert not grown(4 * MAX_MIB_PER_DAY, step=2.0).is_below(MAX_MIB_PER_DAY)


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_memory_that_only_moves_is_no_leak(noise: float) -> None:
    assert grown(0.0, noise=noise).is_below(MAX_MIB_PER_DAY)


def test_a_few_moments_tell_nothing_of_a_day() -> None:
    assert slope_of([], [], window_seconds=WINDOW) is None
    assert slope_of([0.0, 10.0, 20.0], [1.0, 2.0, 3.0], window_seconds=WINDOW) is None


def test_of_a_program_that_was_killed_the_longest_life_counts_without_its_beginning() -> None:
    lives = {1: range(0, 100, 10), 2: range(100, 900, 10), 3: range(900, 1000, 10)}
    samples = [
        ProgramSample(float(at), "operator-a", pid, 80.0, 20, 6, 0.1)
        for pid, times in lives.items()
        for at in times
    ]
    (life,) = longest_lives(samples)
    assert {sample.pid for sample in life.samples} == {2}
    assert (life.samples[0].seconds, life.samples[-1].seconds) == (300.0, 890.0)


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    header = "seconds,program,pid,resident_mib,descriptors,threads,processor_seconds"
    (tmp_path / "programs.csv").write_text(f"{header}\n10.0,etcd,7,45.19,89,9,0.42\n")
    assert read_programs(tmp_path) == [ProgramSample(10.0, "etcd", 7, 45.19, 89, 9, 0.42)]
