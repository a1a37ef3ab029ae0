"""Families and their split: what is trained on, what is kept, and that the latter stays shut."""

import ast
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from bireme.core.errors import SettingError
from bireme_lab.contest import families, sealed
from bireme_lab.contest.families import FAMILIES, HELD_OUT_CLUSTERS, PHILLY_DAYS, tuning_worlds
from bireme_lab.contest.tuning import tune
from bireme_lab.contest.worlds import Part
from bireme_lab.simulator.loads import DAY
from bireme_lab.training.index import environment

ROOT = Path(__file__).parents[4]
DATA = ROOT.parent / "shared/data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the public traces, not shipped")


@pytest.mark.parametrize("family", FAMILIES)
def test_no_reader_of_training_opens_the_test_part(family: str) -> None:
    with pytest.raises(SettingError, match="'test', which nothing is trained, tuned or chosen by"):
        tuning_worlds(Path(), family, "test", 1)


def test_the_recipe_cannot_read_philly_beyond_its_validation() -> None:
    with pytest.raises(SettingError, match="nothing is trained by"):
        environment.philly_days(DATA, "test", 0)


def test_worlds_that_the_benchmark_opened_are_refused_by_tuning() -> None:
    opened = sealed.test_worlds(Path(), "failing", 1)
    with pytest.raises(SettingError, match="is kept for the test"):
        tune([*families.find("failing").rules[0].candidates()], opened)


def test_only_the_benchmark_and_one_evaluation_import_the_sealed_part() -> None:
    importers = set()
    for path in (ROOT / "policies/bireme_lab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom | ast.Import):
                of = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                if any("contest.sealed" in f"{of}{alias.name}" for alias in node.names):
                    importers.add(path.relative_to(ROOT / "policies/bireme_lab").as_posix())
    assert importers == {"contest/benchmark.py", "training/index/evaluation.py"}


@pytest.mark.parametrize("family", [name for name, f in FAMILIES.items() if not f.needs_data])
def test_parts_of_a_generated_family_share_no_job(family: str) -> None:
    parts = [list(FAMILIES[family].build(Path(), part, 2)) for part in get_args(Part)]
    seen = Counter(
        job.duration_seconds
        for worlds in parts
        for job in {job.duration_seconds: job for w in worlds for job in w.trace.jobs}.values()
    )
    assert max(seen.values()) == 1
    assert len({world.name for worlds in parts for world in worlds}) == 3 * 2 * 3


def test_the_first_blocks_lie_all_over_a_part() -> None:
    spread = families._spread(list(range(16)))
    assert spread[:4] == [0, 8, 4, 12]
    assert sorted(families._spread(list(range(11)))) == list(range(11))


def test_days_of_philly_follow_each_other() -> None:
    days = [PHILLY_DAYS[part] for part in get_args(Part)]
    assert days[0].stop <= days[1].start < days[1].stop <= days[2].start


@needs_data
def test_training_sees_neither_later_days_of_philly_nor_clusters_that_are_held_out() -> None:
    for part in get_args(Part)[:2]:
        jobs = families.philly_jobs(DATA, part).jobs
        assert max(job.submitted for job in jobs) < PHILLY_DAYS[part].stop * DAY
        assert not HELD_OUT_CLUSTERS & {job.queue for job in jobs}
    opened = sealed.test_worlds(DATA, "philly", 2)
    clusters = [{job.queue for job in world.trace.jobs} for world in opened]
    apart = [own <= HELD_OUT_CLUSTERS for own in clusters]
    assert True in apart
    assert False in apart
    # Most of their jobs are those of the whole day: drawn as two, intervals would be too narrow.
    assert len({world.block for world in opened}) == 2


def test_a_folder_without_the_trace_is_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"there is no philly/.*name the folder"):
        tuning_worlds(tmp_path, "philly", "training", 1)
