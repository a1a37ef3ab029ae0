"""The case ``training``: its numbers from a run's curves."""

from pathlib import Path

import pytest

from benchmarks.timings.training import read_curve

HEAD = "stage,step,seconds,validation_slowdown\n"


def written(folder: Path, *rows: str) -> Path:
    file = folder / "curves.csv"
    file.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return file


def test_samples_per_second_are_those_of_the_stage_between_its_first_and_last_row(
    tmp_path: Path,
) -> None:
    rows = ("cloning,900,5,", "ppo,100,10,5.0", "ppo,300,20,", "ppo,500,30,4.0")
    curve = read_curve(written(tmp_path, *rows))
    assert curve.samples_per_second == 20
    assert [curve.score_at(share) for share in (0.0, 0.5, 0.9, 1.0)] == [5.0, 5.0, 5.0, 4.0]


@pytest.mark.parametrize("rows", [(), ("ppo,100,10,5.0",), ("ppo,100,10,", "ppo,200,20,")])
def test_run_that_reported_too_little_is_an_error(tmp_path: Path, rows: tuple[str, ...]) -> None:
    with pytest.raises(RuntimeError, match="rows of ppo"):
        read_curve(written(tmp_path, *rows))
