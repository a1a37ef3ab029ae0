"""TapFinger from the first step to a checkpoint that is evaluated, and its ablations."""

from pathlib import Path

import numpy as np
import pytest

from bireme import rl
from bireme.core.resources import IntArray
from bireme.onnx.errors import CheckpointError
from bireme.rl.checkpoint import Checkpoint, load
from bireme_lab.encoders.tapfinger import LOST
from bireme_lab.training.networks import predict
from bireme_lab.training.recipes import RECIPES, load_recipe
from bireme_lab.training.runs import TrainingRun
from bireme_lab.training.tapfinger.baselines import expert_for
from bireme_lab.training.tapfinger.environment import TapFingerAgentEnv, TapFingerEnv, make_config
from bireme_lab.training.tapfinger.evaluation import (
    PAPER,
    Conditions,
    TapFingerValidation,
    agent_env,
)
from bireme_lab.training.tapfinger.networks import TapAgents
from bireme_lab.training.tapfinger.recipe import TapfingerRecipe
from bireme_lab.training.vec_env import Observation

SEEDS = range(3)
DESIGNS = [name for name in RECIPES if name.startswith("tapfinger-")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("tapfinger")
    return load(TapfingerRecipe().train(TrainingRun("tapfinger", folder, seed=1, scale="smoke")))


def steps(checkpoint: Checkpoint, setting: str, *others: str) -> dict[str, float]:
    """Mean completion time by contender."""
    options = {"jobs": "40", "only": ",".join(others)}
    recipe = TapfingerRecipe()
    found = [recipe.evaluate(checkpoint, setting, seed, options) for seed in SEEDS]
    return {n: float(np.mean([one[n]["mean_jct_steps"] for one in found])) for n in found[0]}


@pytest.mark.long
@pytest.mark.parametrize("setting", ["multi-3", "hetero-6"])
def test_agents_trained_for_seconds_beat_the_baselines_of_the_paper(
    checkpoint: Checkpoint, setting: str
) -> None:
    found = steps(checkpoint, setting, "random", "min", "optimus", "tiresias")
    assert found.pop("look-ahead") < min(found.values())
    assert found.pop("tapfinger") < min(found.values())


def test_a_checkpoint_without_a_sizer_is_refused() -> None:
    learned = load(Path(rl.__path__[0]) / "checkpoints" / "learned-index")
    bare = Checkpoint(learned.card, learned.sha256, None, None, None)
    with pytest.raises(CheckpointError, match="has no sizer to be evaluated; name one that has"):
        TapfingerRecipe().evaluate(bare, "multi-3", 0, {})


@pytest.mark.parametrize("name", DESIGNS)
def test_every_design_plays_its_world_to_the_end(name: str) -> None:
    recipe = load_recipe(name)
    assert isinstance(recipe, TapfingerRecipe)
    env = agent_env(1, make_config("multi-3", jobs=4), recipe.conditions)
    agents, seen, is_over = TapAgents(recipe.design), env.reset([0]), False
    for _ in range(200):
        if is_over:
            break
        step = env.step(predict(agents, seen))
        seen, is_over = step.observation, bool(step.is_over.all())
    assert is_over


def test_a_policy_is_scored_as_a_ratio_to_the_rule_that_it_starts_from() -> None:
    setting, notes = make_config("multi-3", jobs=20), dict[str, float]()
    env = TapFingerAgentEnv(TapFingerEnv(2, setting), expert_for(setting))
    ratio = TapFingerValidation(TapAgents(), {"multi-3": env}, notes.__setitem__)()
    assert ratio > 1
    assert notes["multi-3_jct_steps"] > 2


def test_agents_that_draw_are_scored_alike_every_time_and_not_as_if_they_did_not() -> None:
    """Else the weights that are kept would be those with the luckiest draws."""
    setting = make_config("single-3", jobs=20)
    agents, beside = TapAgents(), {"single-3": TapFingerAgentEnv(TapFingerEnv(2, setting))}
    experts = {"single-3": TapFingerAgentEnv(TapFingerEnv(2, setting), expert_for(setting))}
    scores = []
    for draws in (True, True, False):
        score = TapFingerValidation(agents, beside, lambda *_: None, experts, draws=draws)
        scores += [score(), score()]
    assert len(set(scores[:4])) == 1
    assert scores[4] == scores[5] != scores[0]


def test_by_the_papers_rules_agents_see_types_and_nothing_of_speeds() -> None:
    """Jobs of both kinds look alike but for their type, whatever the law says of them."""
    config = make_config("single-3-noisy", jobs=30)
    env = agent_env(2, config, PAPER)
    seen = env.reset([0, 1])
    for _ in range(3):
        kinds = seen["pending"][..., -3:]
        for kind in (0, 1):
            assert (kinds[..., kind] == (seen["kind"] == kind)).all()
        sizes = seen["sizes"]
        np.testing.assert_array_equal(sizes[..., 0, :, :], sizes[..., 1, :, :])
        assert (seen["pending"][..., 13:16] == 0).all() or (seen["pending"][..., 13] == 0).all()
        seen = env.step(any_start(seen)).observation
    running = seen["running"]
    assert running[..., 0].any()
    ran = np.expm1(running[..., 3])[running[..., 0] > 0]
    assert np.rint(ran).max() >= 1  # how long, not how much longer


def any_start(seen: Observation) -> dict[str, IntArray]:
    """The first slot of every pool in its smallest size; of equal jobs the first pool wins."""
    fits = np.take_along_axis(seen["sizes"][..., 0, 0], np.maximum(seen["kind"], 0), axis=-1) > 0
    able = fits & (seen["kind"] >= 0)
    slot = able.argmax(axis=-1)
    job = np.take_along_axis(seen["job"], slot[..., None], axis=-1)[..., 0]
    size = np.where(able.any(axis=-1), 1, LOST)
    for pool in range(1, job.shape[1]):
        taken = (job[:, :pool] == job[:, pool : pool + 1]) & (size[:, :pool] == 1)
        size[:, pool] = np.where(taken.any(axis=1), LOST, size[:, pool])
    return {"slot": slot, "size": size}


def test_a_loser_starts_nothing_in_the_step_by_the_papers_rules() -> None:
    config = make_config("single-3", jobs=30)
    steps = {}
    for retries in (True, False):
        env = agent_env(1, config, Conditions(retries=retries))
        seen = env.reset([5])
        steps[retries] = float(env.step(any_start(seen)).times[0])
    assert steps[True] == 0
    assert steps[False] >= 1
