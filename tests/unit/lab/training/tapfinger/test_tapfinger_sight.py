"""Observations of TapFinger's agents, and the rule that they start from."""

import numpy as np
import pytest
import torch

from bireme_lab.training.networks import tensors
from bireme_lab.training.tapfinger.baselines import Greedy, expert_for
from bireme_lab.training.tapfinger.environment import (
    MixedEnv,
    TapFingerAgentEnv,
    TapFingerEnv,
    efficient_sizes,
    expert_actions,
    make_config,
)
from bireme_lab.training.tapfinger.evaluation import follow, look_ahead
from bireme_lab.training.tapfinger.networks import TapAgents

SEEDS = range(12)


def turns(name: str, count: int = 4, jobs: int = 30) -> TapFingerAgentEnv:
    setting = make_config(name, jobs=jobs)
    return TapFingerAgentEnv(TapFingerEnv(count, setting, retries=True), expert_for(setting))


def test_sizes_than_which_smaller_ones_are_as_fast_are_left_out() -> None:
    times = np.array([[np.inf, np.inf, np.inf], [np.inf, 5.0, 5.0], [np.inf, 5.0, 3.0]])
    sizes, taken = efficient_sizes(times)
    assert sizes.tolist() == [[1, 1], [2, 2]]
    assert taken.tolist() == [5.0, 3.0]


def test_sensitive_jobs_may_have_the_sizes_that_save_a_step_and_others_only_the_least() -> None:
    observer = TapFingerAgentEnv(TapFingerEnv(1, make_config("multi-3")))
    exists = np.isfinite(observer.steps)
    assert observer.sizes[0][exists[0]].tolist() == [[2, 1]]
    assert observer.sizes[1][exists[1]][:, 1].tolist() == [1, 2, 3, 4, 5, 7, 10]
    assert observer.steps[1][exists[1]].tolist() == sorted(
        observer.steps[1][exists[1]], reverse=True
    )


def test_what_agents_see_is_finite_and_of_the_order_of_one() -> None:
    env = turns("multi-3")
    seen = env.reset(range(4))
    for _ in range(12):
        seen = env.step(expert_actions(seen)).observation
        assert all(np.isfinite(seen[name]).all() for name in ("pending", "running", "pools"))
        assert all(np.abs(seen[name]).max() < 20 for name in ("pending", "running", "sizes"))


@pytest.mark.parametrize("name", ["multi-3", "hetero-6", "single-6"])
def test_looking_ahead_beats_the_greedy_rule(name: str) -> None:
    setting = make_config(name, jobs=100)
    ahead, greedy = look_ahead(setting, SEEDS), follow(Greedy(setting.law), setting, SEEDS)
    taken = [(pools.ended - pools.jobs.arrival).mean() for pools in (ahead, greedy)]
    assert taken[0] < taken[1]


def test_what_the_teacher_does_is_always_possible_for_agents() -> None:
    agents = TapAgents()
    for name in ("multi-3", "single-3", "hetero-6", "pointer"):
        env = turns(name)
        seen = env.reset(range(4))
        for _ in range(15):
            with torch.no_grad():
                found = agents.distribution(tensors(seen))
            shown = expert_actions(seen)
            assert isinstance(shown, dict)
            labels = {key: torch.from_numpy(part) for key, part in shown.items()}
            assert found.log_probs(labels).isfinite().all()
            seen = env.step(expert_actions(seen)).observation


def test_worlds_side_by_side_go_on_as_each_would_alone() -> None:
    scales = {"multi-3": 1.0, "hetero-6": 2.0, "pointer": 4.0}
    alone = [turns(name) for name in scales]
    mixture = MixedEnv([(turns(name), scale) for name, scale in scales.items()])
    seeds = list(range(4)) * 3
    seen, own = mixture.reset(seeds), [env.reset(range(4)) for env in alone]
    for _ in range(20):
        step = mixture.step(expert_actions(seen))
        steps = [env.step(expert_actions(each)) for env, each in zip(alone, own, strict=True)]
        pairs = zip(steps, scales.values(), strict=True)
        expected = [one.rewards * scale for one, scale in pairs]
        assert np.allclose(step.rewards, np.concatenate(expected))
        assert step.times.tolist() == np.concatenate([one.times for one in steps]).tolist()
        seen, own = step.observation, [one.observation for one in steps]


def test_padding_of_worlds_side_by_side_changes_no_choice_and_no_value() -> None:
    torch.manual_seed(0)
    agents, alone = TapAgents(), turns("multi-3")
    mixture = MixedEnv([(turns("multi-3"), 1.0), (turns("hetero-6"), 1.0)])
    padded, own = mixture.reset(list(range(4)) * 2), alone.reset(range(4))
    with torch.no_grad():
        wide = agents.distribution(tensors(padded)).mode()
        narrow = agents.distribution(tensors(own)).mode()
        values = agents.values(tensors(padded))[:4], agents.values(tensors(own))
    for name, part in narrow.items():
        assert torch.equal(wide[name][:4, :3], part)
    assert torch.allclose(*values, atol=1e-5)
