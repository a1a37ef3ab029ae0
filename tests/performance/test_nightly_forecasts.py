"""The job of the night at its bar: 20 pools in 2 minutes of one core, in 500 MB."""

from pathlib import Path

from benchmarks.timings.cases import Run
from benchmarks.timings.nightly import measure_nightly


async def test_a_pool_takes_its_part_of_two_minutes_and_the_job_its_memory(tmp_path: Path) -> None:
    """Two of the pools, so the program's start counts against them ten times over."""
    found = await measure_nightly(Run(tmp_path, is_quick=True, repetitions=1, say=print))
    time, memory = found.rows
    assert time.bireme.median <= 120 / 10
    assert memory.is_reached
    assert sum(int(pools) for _, pools in found.tables[0].rows) == 2
