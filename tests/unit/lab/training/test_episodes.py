"""Episodes and rollouts: who is asked, what is kept, what an interrupted one is restored from."""

import numpy as np
import pytest
import torch

from bireme.core.errors import SettingError
from bireme_lab.training.networks import ActorCritic, predict
from bireme_lab.training.rollouts import Episodes, Rollout, collect, play
from bireme_lab.training.vec_env import Observation
from testbed.toys.cartpole import Balancing, CartPole
from testbed.toys.envs import Echo, Late, Pair
from testbed.toys.policies import Echoing, Paired

ALWAYS_2 = np.full(8, 2)


def repeated(observation: Observation) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Repeats what is asked."""
    return np.asarray(observation["asked"].argmax(axis=1))


def rollout(policy: ActorCritic, episodes: Episodes, n_steps: int | None = None) -> Rollout:
    return collect(policy, episodes, torch.Generator().manual_seed(0), n_steps=n_steps)


def test_a_world_that_is_over_is_not_asked_again() -> None:
    """Its mask forbids everything, so a network that was asked would fail."""
    found = rollout(Echoing(), Episodes(Echo(ragged=3), seed=0))
    lengths = 2 + found.seeds % 3
    assert len(set(lengths)) > 1
    assert found.is_active.sum(axis=0).tolist() == lengths.tolist()
    assert len(found) == lengths.sum() == len(found.observations["asked"]) == len(found.actions)


def test_flat_rows_follow_steps_then_worlds() -> None:
    found = rollout(Echoing(), Episodes(Echo(ragged=3), seed=0))
    paid = found.flat(found.rewards)
    assert isinstance(found.actions, torch.Tensor)
    was_right = found.observations["asked"].argmax(1) == found.actions
    assert torch.equal(paid, was_right.float())


def test_rollout_ends_with_the_episode_and_the_next_one_begins_anew() -> None:
    episodes = Episodes(Echo(steps=5), seed=0)
    assert [len(rollout(Echoing(), episodes, 3).rewards) for _ in range(4)] == [3, 2, 3, 2]


def test_rollout_that_is_broken_off_goes_on_with_the_critic() -> None:
    policy = Echoing(hidden=4)
    episodes = Episodes(Echo(steps=5), seed=0)
    found = rollout(policy, episodes, 3)
    seen = torch.from_numpy(episodes.observation()["asked"]).float()
    expected = policy.values({"asked": seen}).detach().numpy()
    assert found.next_values[-1] == pytest.approx(expected)
    assert (found.next_values[:-1] == found.values[1:]).all()


def test_a_world_that_ends_of_its_own_has_nothing_to_come() -> None:
    found = rollout(Echoing(hidden=4), Episodes(Echo(ragged=3), seed=0))
    assert (found.next_values[found.is_over] == 0).all()
    assert (found.next_values[~found.is_over] != 0).all()


def test_a_cart_that_fell_has_nothing_to_come() -> None:
    found = rollout(Balancing(0), Episodes(CartPole(40), seed=1))
    assert (found.next_values[found.is_over.argmax(axis=0), np.arange(40)] == 0).all()


def test_a_cart_that_is_cut_off_is_worth_its_last_state() -> None:
    """No cart falls within 4 steps."""
    policy, env = Balancing(0), CartPole(3, longest=4)
    found = rollout(policy, Episodes(env, seed=0))
    with torch.no_grad():
        expected = policy.values({"state": torch.from_numpy(env.state).float()})
    assert found.next_values[-1] == pytest.approx(expected.numpy())


def test_replicas_share_a_seed_with_their_neighbours() -> None:
    episodes = Episodes(Echo(count=6), seed=3, replicas=3)
    episodes.begin()
    first, second = episodes.seeds[0], episodes.seeds[3]
    assert episodes.seeds.tolist() == [first] * 3 + [second] * 3
    assert first != second


@pytest.mark.parametrize("replicas", [0, 3])
def test_worlds_that_cannot_be_shared_out_are_an_error(replicas: int) -> None:
    with pytest.raises(SettingError, match=f"8 envs are not a multiple of {replicas} replicas"):
        Episodes(Echo(count=8), seed=0, replicas=replicas)


def test_episode_broken_off_in_the_middle_is_restored_by_its_actions() -> None:
    first, second = Episodes(Late(), seed=0), Episodes(Late(), seed=99)
    first.begin()
    first.step(repeated(first.observation()))
    second.load_state_dict(first.state_dict())
    assert (second.observation()["asked"] == first.observation()["asked"]).all()
    assert (second.step(ALWAYS_2).rewards == 1).all()
    assert (first.step(ALWAYS_2).rewards == 1).all()
    first.begin()
    second.begin()
    assert second.seeds.tolist() == first.seeds.tolist()


def test_episode_of_several_agents_is_restored() -> None:
    policy = Paired()
    first, second = Episodes(Pair(steps=4), seed=0), Episodes(Pair(steps=4), seed=1)
    rollout(policy, first, 2)
    second.load_state_dict(first.state_dict())
    assert (second.observation()["asked"] == first.observation()["asked"]).all()
    assert second.times.tolist() == first.times.tolist() == [2.0] * 8


def test_play_adds_up_the_rewards_of_one_episode() -> None:
    assert play(Echo(ragged=3), range(8), repeated).tolist() == [2, 3, 4, 2, 3, 4, 2, 3]


def test_last_return_is_that_of_the_last_whole_episode() -> None:
    episodes = Episodes(Echo(steps=2), seed=0)
    assert episodes.last_return is None
    for _ in range(2):
        episodes.begin()
        episodes.step(repeated(episodes.observation()))
    assert episodes.last_return == 2


def test_an_episode_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bireme_lab.training.rollouts.MAX_EPISODE", 3)
    with pytest.raises(SettingError, match="env 0 is not over after 3 steps"):
        play(Echo(steps=5), range(8), repeated)
    with pytest.raises(SettingError, match="env 0 is not over after 3 steps"):
        rollout(Echoing(), Episodes(Echo(steps=5), seed=0))


def test_predict_takes_the_mode() -> None:
    policy = Echoing(hidden=4)
    asked = {"asked": np.tile(np.eye(4)[1], (200, 1)), "mask": np.ones((200, 4), dtype=bool)}
    assert len(np.unique(np.asarray(predict(policy, asked)))) == 1


def test_a_policy_without_a_critic_says_what_it_lacks() -> None:
    class Mute(Echoing):
        values = ActorCritic.values

    with pytest.raises(SettingError, match=r'Mute has no critic.*baseline="replicas"'):
        rollout(Mute(), Episodes(Echo(), seed=0))
