"""The simulation is tested itself: bugs put into the programs on purpose do not go unnoticed."""

import pytest

from tests.support.simcluster.bugs import BUGS
from tests.support.simcluster.simulation import run

MOST_SEEDS = 40
CALM_SECONDS = 200.0
"""Shorter than for sound programs: some bugs keep the operator busy for ever."""


def run_briefly(seed: int) -> tuple[str, ...]:
    return run(seed, calm_seconds=CALM_SECONDS).violations


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found_within_a_few_seeds(name: str) -> None:
    found: set[str] = set()
    with BUGS[name].planted():
        for seed in range(MOST_SEEDS):
            found |= {broken.partition(":")[0] for broken in run_briefly(seed)}
            if found:
                break
    assert found & set(BUGS[name].breaks), f"found {found or 'nothing'} in {MOST_SEEDS} seeds"
