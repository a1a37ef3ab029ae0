"""Behaviour cloning with DAgger (Ross, Gordon and Bagnell, AISTATS 2011).

A round plays one episode. In each step and env, either the expert acts (with a share that falls
linearly to 0 over ``expert_rounds``) or the learner. The expert labels every visited state, and the
learner trains on all states so far. So it also learns the expert's actions in states that only its
own mistakes reach.

The loss is the negative log-likelihood of the expert's actions. A rule's actions have no spread, so
a Gaussian policy with a learned spread shrinks it: bound it in the network.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from bireme_lab.training.algorithm import Algorithm, Config
from bireme_lab.training.distributed import least
from bireme_lab.training.distributions import Action
from bireme_lab.training.networks import ActorCritic, arrays, tensor, tensors
from bireme_lab.training.rollouts import MAX_EPISODE, concatenate, never_ends, take_rows
from bireme_lab.training.vec_env import Actions, Array, Observation, VecEnv, by_agent

Expert: TypeAlias = Callable[[Observation], Actions]
"""Maps the observation of n envs to the right action in each, shape (n, ...)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloningConfig(Config):
    """The settings of cloning.

    Attributes:
        expert_rounds: The expert always acts in the first round and never after this many.
        n_epochs: Passes over all states so far in every round, in parts of ``batch_size``.
        ent_coef: Weight of the entropy; a copy without entropy learns slowly later.
        most_states: The maximum number of states; the oldest are dropped.
    """

    learning_rate: float = 1e-3
    expert_rounds: int = 5
    n_epochs: int = 2
    batch_size: int = 512
    ent_coef: float = 0.0
    most_states: int = 200_000


class Cloning(Algorithm[CloningConfig]):
    """Learns to act like an expert.

    Its rounds are the updates of :meth:`learn`; its saved state contains the visited states.
    """

    def __init__(
        self,
        policy: ActorCritic,
        env: VecEnv,
        config: CloningConfig,
        seed: int = 0,
        *,
        expert: Expert,
    ) -> None:
        super().__init__(policy, env, config, seed)
        self.expert = expert
        self._seen: dict[str, Tensor] = {}
        self._labels: Action = {}

    def update(self) -> tuple[int, dict[str, float]]:
        """Play and label, then train on all states so far."""
        share = max(0.0, 1 - self.updates / max(1, self.config.expert_rounds))
        states = self._play(share)
        size = len(next(iter(self._seen.values())))
        # Equal numbers of parts in every process: the others wait for each gradient.
        parts = max(1, int(least(size // self.config.batch_size)))
        losses: list[float] = []
        for _ in range(self.config.n_epochs):
            shuffled = torch.randperm(size, generator=self.generator).to(self.policy.device)
            losses += [self._improve(rows) for rows in shuffled.tensor_split(parts)]
        metrics = {"loss": float(np.mean(losses)), "expert_share": share, "states": float(size)}
        return states, metrics

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"states": {"seen": self._seen, "labels": self._labels}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        states, device = state["states"], self.policy.device
        self._seen = {name: part.to(device) for name, part in states["seen"].items()}
        # A run interrupted before its first round has no labels.
        labels = states["labels"]
        self._labels = by_agent(lambda label: label.to(device), labels) if self._seen else labels

    @torch.no_grad()
    def _play(self, share: float) -> int:
        """Play up to ``n_steps`` steps; return the number of labelled states."""
        self.episodes.begin()
        states: list[dict[str, Tensor]] = []
        labels: list[Action] = []
        while not self.episodes.is_over.all() and len(states) != self.config.n_steps:
            if len(states) == MAX_EPISODE:
                raise never_ends(self.episodes)
            observation = self.episodes.observation()
            # Copy, because an env may write into its arrays again.
            on_device = tensors(observation, self.policy.device)
            states.append({name: part.clone() for name, part in on_device.items()})
            expert_actions = self.expert(observation)
            labels.append(by_agent(partial(_to_device, self.policy.device), expert_actions))
            learner_actions = arrays(self.policy.distribution(states[-1]).sample(self.generator))
            rows = len(self.episodes.rows)
            heeds = np.asarray(torch.rand(rows, generator=self.generator) < share)
            self.episodes.step(
                by_agent(partial(_select_rows, heeds), learner_actions, expert_actions)
            )
        self._remember(states, labels)
        return sum(len(next(iter(part.values()))) for part in states)

    def _remember(self, states: list[dict[str, Tensor]], labels: list[Action]) -> None:
        if self._seen:
            states, labels = [self._seen, *states], [self._labels, *labels]
        newest = slice(-self.config.most_states, None)
        self._seen = {name: torch.cat([one[name] for one in states])[newest] for name in states[0]}
        self._labels = take_rows(concatenate(labels), newest)

    def _improve(self, rows: Tensor) -> float:
        distribution = self.policy.distribution(
            {name: part[rows] for name, part in self._seen.items()}
        )
        loss = -distribution.log_prob(take_rows(self._labels, rows)).mean()
        self.descend(loss - self.config.ent_coef * distribution.entropy().mean())
        return float(loss.detach())


def _to_device(device: torch.device, label: Array) -> Tensor:
    return tensor(label).clone().to(device)


def _select_rows(heeds: Array, learner_actions: Array, expert_actions: Array) -> Array:
    """Return the expert's actions in the rows where ``heeds``, the learner's in others."""
    by_row = heeds.reshape(-1, *[1] * (learner_actions.ndim - 1))
    return np.where(by_row, expert_actions, learner_actions).astype(learner_actions.dtype)
