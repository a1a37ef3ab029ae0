"""RLPTO from the first step to a checkpoint that is judged in its env and sizes gangs."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bireme.core.errors import SettingError
from bireme.rl.checkpoint import Checkpoint, load
from bireme.rl.components import LearnedSizer
from bireme_lab.training.networks import tensors
from bireme_lab.training.recipes import load_recipe
from bireme_lab.training.rlpto.baselines import expert, share_among_gaining
from bireme_lab.training.rlpto.environment import BETAS, CONFIGS, PAPER_BETAS, SLOTS, RlptoEnv
from bireme_lab.training.rlpto.evaluation import (
    RlptoValidation,
    elastic_trace,
    evaluate_sizer,
    served_choice,
)
from bireme_lab.training.rlpto.networks import Allocator, PaperPolicy, RlptoPolicy
from bireme_lab.training.rlpto.recipe import SMOKE, RlptoPaperRecipe, RlptoRecipe
from bireme_lab.training.runs import TrainingRun


@pytest.fixture(scope="module")
def rlpto(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("rlpto")
    return load(RlptoRecipe().train(TrainingRun("rlpto", folder, seed=1, scale="smoke")))


def test_a_policy_trained_for_seconds_is_about_as_good_as_the_rule_it_copied(
    rlpto: Checkpoint,
) -> None:
    found = [RlptoRecipe().evaluate(rlpto, "table-2", seed, {}) for seed in range(2)]

    def mean(name: str, metric: str) -> float:
        return float(np.mean([one[name][metric] for one in found]))

    for metric in ("mean_accuracy", "total_seconds"):
        assert mean("rlpto", metric) == pytest.approx(mean("simple-rule-0.0003", metric), rel=0.25)
    assert mean("rlpto-0.001", "total_seconds") < mean("rlpto-0.0001", "total_seconds")


def test_its_checkpoint_sizes_jobs_that_report_on_a_simulated_cluster(rlpto: Checkpoint) -> None:
    trace = elastic_trace(0, jobs=6)
    found = evaluate_sizer(trace, LearnedSizer(rlpto))
    assert 0 < found["mean_minutes_to_accuracy"] <= found["mean_jct_minutes"]


def test_the_served_network_plays_a_whole_world_by_moves_that_are_allowed(
    rlpto: Checkpoint,
) -> None:
    assert rlpto.sizer is not None
    env = RlptoEnv(1, [CONFIGS["table-2"]], BETAS)
    shown = env.reset([3])
    while not env.clusters.is_over.all():
        move = served_choice(rlpto.sizer.session, shown)
        assert shown["mask"][0, move[0]]
        shown = env.step(move).observation


def test_options_and_checkpoints_without_a_sizer_are_refused(rlpto: Checkpoint) -> None:
    with pytest.raises(SettingError, match="there are none"):
        RlptoRecipe().evaluate(rlpto, "table-2", 0, {"beta": "1"})


def test_an_untrained_policy_is_judged_worse_than_the_rule() -> None:
    torch.manual_seed(0)
    notes: dict[str, float] = {}
    assert RlptoValidation(RlptoPolicy(), SMOKE.validated, notes.__setitem__)() < -0.5
    assert set(notes) == {"points_above_the_rule", "time_ratio", "reward", "reward_of_the_rule"}


def test_the_network_is_indifferent_to_the_order_of_tasks_and_to_empty_slots() -> None:
    torch.manual_seed(0)
    env = RlptoEnv(6, [CONFIGS["table-3"]], BETAS)
    shown = tensors(env.seen)
    network = Allocator()
    padded = network(shown["tasks"], shown["context"], shown["present"]).detach()
    order = [2, 0, 3, 1]
    for row in range(6):
        found = network(shown["tasks"][row, order], shown["context"][row]).detach()
        moves = [0, *(1 + slot for slot in order), *(1 + SLOTS + slot for slot in order)]
        assert found == pytest.approx(padded[row, moves], abs=1e-5)


def test_the_copied_rule_gives_to_who_is_nearly_done_where_all_have_as_many() -> None:
    shown = {
        "nodes": np.array([[2, 2, 2]]),
        "gain": np.array([[1e-1, 4e-4, 1e-2]]),
        "beta": np.array([3e-4]),
        "present": np.ones((1, 3), dtype=np.bool_),
        "free": np.array([1]),
    }
    assert expert(shown).tolist() == [2]
    assert share_among_gaining(shown).tolist() == [1]


def test_the_paper_has_a_critic_of_its_own_a_discount_and_one_more_beta(tmp_path: Path) -> None:
    recipe = load_recipe("rlpto-paper")
    assert isinstance(recipe, RlptoPaperRecipe)
    assert recipe.config.has_critic
    assert (recipe.config.gamma, recipe.config.gae_lambda) == (0.99, 0.0)
    policy = PaperPolicy()
    env = RlptoEnv(6, [CONFIGS["table-3"]], PAPER_BETAS, "equation-5")
    assert policy.values(tensors(env.seen)).shape == (6,)
    assert not set(policy.allocator.parameters()) & set(policy.critic.parameters())
    checkpoint = load(recipe.train(TrainingRun(recipe.name, tmp_path, scale="smoke")))
    found = recipe.evaluate(checkpoint, "table-2", 0, {})
    assert {f"rlpto-paper-{beta}" for beta in PAPER_BETAS} <= set(found)
    assert found["slaq"]["mean_accuracy"] > 80
