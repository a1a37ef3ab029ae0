"""Calibration: what the authors of Pollux published, simulated anew."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.simulations.beside import STRETCH, ratio
from benchmarks.simulations.pollux import (
    ARCHIVE,
    CONTENDERS,
    ELASTIC,
    Contender,
    carry_out,
    published,
)
from benchmarks.simulations.store import run_of

DATA = Path(__file__).parents[4] / "shared/data"
pytestmark = pytest.mark.skipif(
    not (DATA / ARCHIVE).exists(), reason="needs the archive of Pollux' authors, not shipped"
)
WORKLOAD = 3


@pytest.mark.parametrize("contender", CONTENDERS[:2], ids=lambda one: one.name)
def test_tiresias_completes_the_jobs_of_a_workload_when_the_authors_say(
    contender: Contender,
) -> None:
    ours = {WORKLOAD: run_of(carry_out(DATA / ARCHIVE, contender, "0.5", WORKLOAD))}
    theirs = published(DATA / ARCHIVE, "tiresias", "0.5")
    assert ratio(ours, theirs) == pytest.approx(1.0, abs=0.005)
    single = [ours[WORKLOAD].completions[job] / s for job, s in theirs[WORKLOAD].items()]
    assert np.median(single) == pytest.approx(1.0, abs=0.01)


def test_goodput_completes_the_jobs_of_a_workload_about_as_soon_as_pollux_did() -> None:
    ours = {WORKLOAD: run_of(carry_out(DATA / ARCHIVE, ELASTIC, "0.5", WORKLOAD))}
    assert ratio(ours, published(DATA / ARCHIVE, "pollux", "0.5")) < STRETCH
