"""Both recipes of DeepRM's env, from the first step to a checkpoint that is served and judged."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bireme.core.errors import SettingError
from bireme.rl import lookup
from bireme.rl.checkpoint import Checkpoint, load
from bireme.rl.components import LearnedOrderer
from bireme.testing import a_gang, a_node, a_snapshot, a_task
from bireme_lab.training.deeprm.environment import DeepRmEnv, DeepRmEnvConfig, as_image, as_set
from bireme_lab.training.deeprm.networks import ImagePolicy, QueueScorer, SetPolicy
from bireme_lab.training.deeprm.recipe import DeepRmRecipe, ImageRecipe, ScorerRecipe
from bireme_lab.training.networks import predict, tensors
from bireme_lab.training.recipes import load_recipe
from bireme_lab.training.runs import TrainingRun

SEEDS = range(12)


def trained(recipe: DeepRmRecipe, folder: Path) -> Checkpoint:
    run = TrainingRun(recipe.name, folder, seed=1, scale="smoke")
    return load(recipe.train(run))


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return trained(ScorerRecipe(), tmp_path_factory.mktemp("a2c"))


def means(
    recipe: DeepRmRecipe, checkpoint: Checkpoint, seeds: range = SEEDS, **options: str
) -> dict[str, float]:
    """Return the slowdown at rate 0.7 by contender."""
    found = [recipe.evaluate(checkpoint, "rate-0.7", seed, options) for seed in seeds]
    return {name: float(np.mean([one[name]["slowdown"] for one in found])) for name in found[0]}


def test_a_scorer_trained_for_seconds_is_far_better_than_chance(scorer: Checkpoint) -> None:
    found = means(ScorerRecipe(), scorer)
    assert set(found) == {"a2c", "random", "sjf", "tetris"}
    assert found["a2c"] < 0.7 * found["random"]


def test_it_may_be_judged_as_a_cluster_is_ordered_by_it() -> None:
    recipe, shipped = ScorerRecipe(), lookup.load_named("a2c")
    assert means(recipe, shipped)["a2c"] < 0.8 * means(recipe, shipped, waits="no")["a2c"]
    with pytest.raises(SettingError, match="there are waits=yes and waits=no"):
        means(recipe, shipped, waits="perhaps")


def test_its_checkpoint_orders_the_gangs_of_a_cluster(scorer: Checkpoint) -> None:
    gangs = [a_gang(f"g{n}", a_task(1 + n % 3), estimated_seconds=60.0 * n) for n in range(1, 9)]
    snapshot = a_snapshot([a_node("n0"), a_node("n1")], *gangs, now=100.0)
    ranked = LearnedOrderer(scorer).order(gangs, snapshot)
    assert sorted(entry.gang.uid for entry in ranked) == sorted(gang.uid for gang in gangs)
    assert all(entry.preemption_priority is None for entry in ranked)


def test_the_papers_networks_are_trained_exported_and_judged(tmp_path: Path) -> None:
    recipe = ImageRecipe()
    found = means(recipe, trained(recipe, tmp_path), range(2))
    assert set(found) == {"a2c-cnn", "random", "sjf", "tetris"}
    assert all(value >= 1 for value in found.values())


def test_the_papers_networks_at_stride_1_have_a_recipe_of_their_own(tmp_path: Path) -> None:
    recipe = load_recipe("a2c-paper")
    assert isinstance(recipe, ImageRecipe)
    assert recipe.config.completion_weight == 0  # the paper's reward is all
    checkpoint = trained(recipe, tmp_path)
    seen = as_image(a_world(as_image, 10).state)["image"]
    part = checkpoint.orderer
    assert part is not None
    weights = sum(math.prod(w.shape) for w in ImagePolicy(recipe.config).actor.parameters())
    assert checkpoint.card.parts.orderer is not None
    assert checkpoint.card.parts.orderer.bytes > 4 * weights
    assert part.session.answer({"image": seen[:1], "slot": np.eye(10, dtype=np.float32)[:1]}, 1, 5)


def a_world(view: object, queue_slots: int) -> DeepRmEnv:
    return DeepRmEnv(4, DeepRmEnvConfig(queue_slots=queue_slots), view)  # type: ignore[arg-type]


def test_the_scorer_is_indifferent_to_the_order_of_the_queue_and_to_empty_slots() -> None:
    torch.manual_seed(0)
    scorer, seen = QueueScorer(), tensors(as_set(a_world(as_set, 10).state))
    jobs, context = seen["jobs"], seen["context"]
    some = torch.tensor([1.0] * 6 + [0.0] * 4).expand(4, 10)
    jobs = torch.randn(jobs.shape, generator=torch.Generator().manual_seed(1))
    scores = scorer(jobs, context, some)[:, :6]
    order = [3, 1, 0, 5, 2, 4]
    shuffled = scorer(jobs[:, order], context, torch.ones(4, 6))
    assert shuffled.detach() == pytest.approx(scores[:, order].detach(), abs=1e-5)


@pytest.mark.parametrize(("queue_slots", "stride"), [(5, 1), (5, 2), (10, 2)])
def test_the_papers_networks_take_images_of_any_queue(queue_slots: int, stride: int) -> None:
    env = a_world(as_image, queue_slots)
    policy = ImagePolicy(env.config, stride)
    seen = as_image(env.state)
    assert predict(policy, seen).shape == (4,)  # type: ignore[union-attr]
    assert policy.values(tensors(seen)).shape == (4,)


def test_the_sizes_of_the_networks_are_the_stated_ones() -> None:
    def size(module: torch.nn.Module) -> int:
        return sum(part.numel() for part in module.parameters())

    assert size(SetPolicy()) < 4_000
    paper = ImagePolicy(DeepRmEnvConfig(queue_slots=5))
    assert size(paper.actor) == (9 + 1) * 16 + (16 * 9 + 1) * 32 + (32 * 20 * 124 + 1) * 6
    assert not set(map(id, paper.actor.parameters())) & set(map(id, paper.critic.parameters()))
