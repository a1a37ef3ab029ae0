"""The recipe of the learned index: cases that it may learn from, a smoke run, its result."""

from pathlib import Path

import numpy as np
import pytest

from bireme.core.errors import SettingError
from bireme.registry import make_orderer
from bireme.rl.checkpoint import Checkpoint, load
from bireme_lab.contest.worlds import CHARGED
from bireme_lab.simulator.loads import offered_gpus
from bireme_lab.training.index import environment, evaluation
from bireme_lab.training.index.evaluation import baselines
from bireme_lab.training.index.recipe import FamilyCases, GeneralIndexRecipe, IndexRecipe
from bireme_lab.training.runs import TrainingRun

DATA = Path(__file__).parents[5] / "shared/data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="needs the public traces, not shipped")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("index")
    run = TrainingRun("learned-index", folder, seed=1, scale="smoke", data=DATA)
    return load(IndexRecipe().train(run))


def test_it_learns_from_traces_only(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="give their folder with --data"):
        IndexRecipe().train(TrainingRun("learned-index", tmp_path, scale="smoke"))


def test_a_folder_without_the_trace_is_refused_by_the_name_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"there is no philly/.*name the folder"):
        evaluation.test_case(tmp_path, "philly-0.9", 0)


def test_rivals_are_the_rules_that_are_quick_to_ask() -> None:
    assert {"fifo", "tiresias-las", "tiresias-gittins", "srtf"} <= set(baselines())
    assert not {"learned-index", "a2c", "das", "malo", "fcfs"} & set(baselines())


def test_a_generated_case_is_loaded_as_its_setting_says() -> None:
    case = evaluation.test_case(Path(), "poisson-0.9-charged", 3)
    gpus = sum(node.allocatable["nvidia.com/gpu"] for node in case.nodes)
    assert offered_gpus(case.trace) / gpus == pytest.approx(0.9, rel=0.01)
    assert case.physics.restart_seconds > 0


@needs_data
def test_the_general_index_learns_from_every_family_and_from_no_test_part() -> None:
    cases = FamilyCases(DATA, GeneralIndexRecipe.schedules["full"])
    drawn, validated = cases.draw(np.random.default_rng(0)), cases.validation_cases()
    assert [world.name.split(",")[0] for world in drawn] == [
        drawn[0].trace.name.split(",")[0],
        *("rigid", "heterogeneous", "failing", "openb"),
    ]
    assert "philly" in drawn[0].name
    assert {world.part for world in drawn} == {"training"}
    assert {world.part for world in validated} == {"validation"}
    assert len(validated) == 5 + 4 * 2 * 3


@needs_data
def test_what_ran_before_a_case_is_all_that_its_history_knows() -> None:
    early = environment.case(DATA, "training", 30.0, slice(0, None, 10), 0.9, CHARGED)
    late = environment.case(DATA, "validation", 45.0, slice(0, None, 10), 0.9, CHARGED)
    assert early.history is not None
    assert late.history is not None
    assert 0 < len(early.history._groups) < len(late.history._groups)
    environment.play(late, make_orderer("fifo"))
    again = environment.case(DATA, "validation", 45.0, slice(0, None, 10), 0.9, CHARGED)
    assert again.history is not None
    assert again.history._groups == late.history._groups, "playing teaches a copy"


@needs_data
def test_a_job_that_is_wider_than_the_whole_thinned_cluster_is_no_part_of_the_case() -> None:
    # One of these 340 jobs asks for four nodes. The load asks for three with it, for one without.
    world = environment.case(DATA, "training", 30.0, slice(9, None, 10), 1.1, CHARGED)
    assert (len(world.nodes), len(world.trace.jobs)) == (1, 339)
    assert offered_gpus(world.trace) == pytest.approx(1.1 * 8), "by those that stay"
    assert environment.play(world, make_orderer("fifo")).unfinished == 0


@needs_data
def test_a_smoke_run_writes_a_checkpoint_that_beats_fifo_on_later_days(
    trained: Checkpoint,
) -> None:
    options = {"data": str(DATA), "only": "fifo"}
    found = [IndexRecipe().evaluate(trained, "philly-1.1", seed, options) for seed in (3, 12)]
    assert all(set(one) == {"fifo", "learned-index"} for one in found)
    assert not any(one["learned-index"]["fallbacks"] for one in found)
    for metric in ("mean_jct_minutes", "mean_wait_minutes"):
        means = {name: sum(one[name][metric] for one in found) for name in found[0]}
        assert means["learned-index"] < 0.9 * means["fifo"]


@needs_data
def test_an_option_that_is_none_is_refused(trained: Checkpoint) -> None:
    with pytest.raises(SettingError, match="no option 'baselines'; there are data and only"):
        IndexRecipe().evaluate(trained, "philly-0.9", 0, {"baselines": "fifo"})
