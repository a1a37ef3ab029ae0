"""Saving and loading: a resumed run is an uninterrupted one; what is no such file is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from bireme.core.errors import SettingError
from bireme_lab.training import algorithm as algorithms
from bireme_lab.training import distributed, storage
from bireme_lab.training.a2c import A2C, A2CConfig
from bireme_lab.training.algorithm import Algorithm
from bireme_lab.training.cloning import Cloning, CloningConfig
from bireme_lab.training.ppo import MAPPO, PPO, PPOConfig
from testbed.toys.envs import Echo, Pair
from testbed.toys.policies import Echoing, Paired

Maker = Callable[[], Algorithm[Any]]


def in_the_middle_of_episodes() -> A2C:
    return A2C(Echoing(1, hidden=4), Echo(steps=7, ragged=3), A2CConfig(n_steps=3))


def penalised() -> PPO:
    config = PPOConfig(objective="kl", target_kl=0.01, baseline="replicas", replicas=2)
    return PPO(Echoing(1, hidden=4), Echo(ragged=3), config)


def agents() -> MAPPO:
    return MAPPO(Paired(1), Pair(steps=5), PPOConfig(n_steps=2))


def cloning() -> Cloning:
    return Cloning(
        Echoing(1, hidden=4), Echo(ragged=3), CloningConfig(batch_size=16),
        expert=lambda seen: seen["asked"].argmax(axis=1),
    )  # fmt: skip


def weights(algorithm: Algorithm[Any]) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in algorithm.policy.parameters()])


@pytest.mark.parametrize("make", [in_the_middle_of_episodes, penalised, agents, cloning])
def test_resumed_run_equals_an_uninterrupted_one(make: Maker, tmp_path: Path) -> None:
    whole = make().learn(200)
    storage.save(tmp_path / "half", make().learn(90))
    resumed = make()
    storage.load(tmp_path / "half", resumed)
    resumed.learn(200)
    assert torch.equal(weights(resumed), weights(whole))
    assert (resumed.updates, resumed.steps) == (whole.updates, whole.steps)
    assert resumed.episodes.last_return == whole.episodes.last_return
    assert torch.equal(resumed.generator.get_state(), whole.generator.get_state())


def test_a_run_resumed_from_before_its_first_update_is_a_new_one(tmp_path: Path) -> None:
    storage.save(tmp_path / "new", penalised())
    resumed = penalised()
    storage.load(tmp_path / "new", resumed)
    assert torch.equal(weights(resumed.learn(60)), weights(penalised().learn(60)))


def test_the_adapted_penalty_is_kept(tmp_path: Path) -> None:
    algorithm, other = penalised(), penalised()
    algorithm.kl_coef = 4.0
    storage.save(tmp_path / "one", algorithm)
    storage.load(tmp_path / "one", other)
    assert other.kl_coef == 4.0


def test_other_processes_take_the_weights_but_not_the_chances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = penalised()
    storage.save(tmp_path / "first", first.learn(60))
    monkeypatch.setattr(distributed, "rank", lambda: 1)
    monkeypatch.setattr(algorithms, "rank", lambda: 1)
    second = penalised()
    storage.load(tmp_path / "first", second)
    assert torch.equal(weights(second), weights(first))
    assert not torch.equal(second.generator.get_state(), first.generator.get_state())
    first.episodes.begin()
    second.episodes.begin()
    assert second.episodes.seeds.tolist() != first.episodes.seeds.tolist()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (Echoing(hidden=4), "tensor 'policy/actor.0.bias' is float32(4,) there and missing here"),
        (
            Echoing().double(),
            "tensor 'policy/actor.bias' is float32(4,) there and float64(4,) here",
        ),
        (Paired(), "tensor 'policy/level.bias' is missing there and float32(1,) here"),
    ],
)
def test_another_policy_is_refused_by_the_tensor_that_differs(
    other: Echoing, message: str, tmp_path: Path
) -> None:
    is_deeper = "missing here" in message
    saved, mine = (other, Echoing()) if is_deeper else (Echoing(), other)
    storage.save(tmp_path / "policy", PPO(saved, Echo(), PPOConfig()))
    with pytest.raises(SettingError) as raised:
        storage.load(tmp_path / "policy", PPO(mine, Echo(), PPOConfig()))
    assert message in str(raised.value)
    assert "start anew" in str(raised.value)


def test_a_file_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    storage.save(tmp_path / "a2c", in_the_middle_of_episodes())
    with pytest.raises(SettingError, match="was saved from a A2C, not from a PPO"):
        storage.load(tmp_path / "a2c", penalised())


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("weights")
    save_file({"x": torch.zeros(1)}, tmp_path / "foreign")
    for name, message in [
        ("missing", "cannot be read as safetensors"),
        ("text", "cannot be read as safetensors"),
        ("foreign", "has format None, not 'bireme-training/1'"),
    ]:
        with pytest.raises(SettingError, match=message):
            storage.load(tmp_path / name, penalised())


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    storage.save(tmp_path / "run", penalised())
    before = (tmp_path / "run").read_bytes()
    broken = penalised()
    broken.kl_coef = object()  # type: ignore[assignment]
    with pytest.raises(TypeError, match="not JSON serializable"):
        storage.save(tmp_path / "run", broken)
    assert (tmp_path / "run").read_bytes() == before
