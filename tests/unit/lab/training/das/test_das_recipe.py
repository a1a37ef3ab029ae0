"""DAS from the first step to a checkpoint that is evaluated in the simulator."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bireme.core.placement import FreeCapacity
from bireme.rl import encoders
from bireme.rl.checkpoint import Checkpoint, load
from bireme.rl.components import LearnedPlacer
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from bireme_lab.encoders.das import DasMachines
from bireme_lab.training.das.environment import DasTurnEnv
from bireme_lab.training.das.evaluation import DasValidation
from bireme_lab.training.das.networks import DasAgents, DasPaperAgents
from bireme_lab.training.das.recipe import (
    SMOKE,
    Da,
    DasPaperRecipe,
    DasRecipe,
    DaWithCommunication,
    DaWithWalks,
    Dl2Recipe,
)
from bireme_lab.training.networks import tensors
from bireme_lab.training.recipes import load_recipe
from bireme_lab.training.runs import TrainingRun

SEEDS = range(3)


def trained(recipe: DasRecipe, folder: Path) -> Path:
    return recipe.train(TrainingRun(recipe.name, folder, seed=1, scale="smoke"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(DasRecipe(), tmp_path_factory.mktemp("das"))


@pytest.fixture
def das(folder: Path) -> Checkpoint:
    return load(folder)


def minutes(recipe: DasRecipe, checkpoint: Checkpoint, *others: str) -> dict[str, float]:
    """Mean completion time by contender on small clusters."""
    options = {"jobs": "40", "only": ",".join(others)}
    found = [recipe.evaluate(checkpoint, "small", seed, options) for seed in SEEDS]
    return {n: float(np.mean([one[n]["mean_jct_minutes"] for one in found])) for n in found[0]}


def test_agents_trained_for_seconds_are_far_better_than_the_plain_rules(das: Checkpoint) -> None:
    found = minutes(DasRecipe(), das, "fifo/first-fit", "sjf/first-fit")
    assert found["das"] < 0.8 * min(found["fifo/first-fit"], found["sjf/first-fit"])


def test_its_checkpoint_places_a_gang_of_any_cluster(das: Checkpoint) -> None:
    gang = a_gang("job", a_task(3))
    snapshot = a_snapshot([a_node(f"n{row}") for row in range(5)], gang)
    placement = LearnedPlacer(das).place(gang, FreeCapacity(snapshot.nodes, snapshot.used))
    assert placement is not None
    assert sum(int(task.counts.sum()) for task in placement.tasks) == 3


def test_dl2_is_trained_exported_and_judged_with_the_rules_placement(tmp_path: Path) -> None:
    recipe = Dl2Recipe()
    checkpoint = load(trained(recipe, tmp_path))
    assert checkpoint.placer is None
    found = minutes(recipe, checkpoint, "fifo/load-balance", "dl2/first-fit")
    assert found["dl2"] < found["fifo/load-balance"]


def test_ablations_leave_out_what_they_are_named_for() -> None:
    has = {recipe.name: (recipe.communicates, recipe.walks) for recipe in _variants()}
    assert has == {
        "da": (False, False),
        "da-mc": (True, False),
        "da-rwgp": (False, True),
        "das": (True, True),
    }
    for recipe in _variants():
        encoder = encoders.make("placer", recipe.place_encoder)
        assert (type(encoder) is DasMachines) == recipe.walks


def test_untrained_agents_are_judged_worse_than_the_rule() -> None:
    notes: dict[str, float] = {}
    score = DasValidation(DasAgents(), SMOKE.validated, SMOKE.jobs, notes.__setitem__)()
    assert score == pytest.approx(np.mean(list(notes.values())))
    assert set(notes) == {"small_jct_ratio", "small_fee_ratio"}
    assert score > 1.2


def _variants() -> list[DasRecipe]:
    return [Da(), DaWithCommunication(), DaWithWalks(), DasRecipe()]


def test_the_critic_of_the_slides_sees_what_either_agent_does() -> None:
    torch.manual_seed(0)
    agents, env = DasPaperAgents(), DasTurnEnv(4, ("small",), jobs=20, pays="slides")
    seen = env.reset(range(4))
    for turn, agent in ((0, "ordering"), (1, "placement")):
        observation = tensors(seen)
        actions = agents.distribution(observation).sample(torch.Generator().manual_seed(turn))
        assert isinstance(actions, dict)
        other = {name: -part if name == agent else part for name, part in actions.items()}
        idle = {name: part if name == agent else -part for name, part in actions.items()}
        value = agents.action_values(observation, actions)
        assert value.shape == (4,)
        if turn:  # a single job leaves the ordering agent no choice
            assert not torch.allclose(value, agents.action_values(observation, other))
            assert torch.allclose(value, agents.action_values(observation, idle))
        seen = env.step({name: np.asarray(part) for name, part in actions.items()}).observation


def test_das_by_the_slides_own_rules_is_trained_and_evaluated(tmp_path: Path) -> None:
    recipe = load_recipe("das-paper")
    assert isinstance(recipe, DasPaperRecipe)
    assert recipe.config.ent_coef > 0
    found = minutes(recipe, load(trained(recipe, tmp_path)), "fifo/first-fit")
    assert set(found) == {"das-paper", "fifo/first-fit"}
    assert found["das-paper"] > 0
