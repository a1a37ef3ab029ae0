"""Episodes and rollouts: the actions of a policy in its environments, and their advantages.

A rollout has ``steps`` rows and ``envs`` columns. Environments end at different times. The entries
of an environment after its end are not active, are zeros, and never reach a network. Inputs of
networks are stored flat, one row per active entry, in the order of ``is_active``.

Advantages come from a critic (:func:`gae`) or from replicas, copies of the same arrivals
(:func:`replica_advantages`). In scheduling the arrivals decide most of the return, and the mean
over copies removes exactly that part.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from bireme.core.errors import SettingError
from bireme.core.resources import BoolArray, FloatArray, IntArray
from bireme_lab.training.distributions import Action
from bireme_lab.training.networks import ActorCritic, arrays, tensors
from bireme_lab.training.vec_env import Actions, Array, EnvStep, Observation, VecEnv, by_agent, take

# --- episodes -----------------------------------------------------------------------------------

MAX_EPISODE: Final = 100_000
"""The maximum steps of an episode; a longer one is an error."""
_MAX_SEEDS: Final = 2**31


class Episodes:
    """The episodes of one VecEnv, one after the other.

    All environments start together. When the last one is over, the next episode begins with new
    seeds, each for ``replicas`` neighbouring environments.

    Attributes:
        seeds: Seeds of the envs in this episode, shape (envs,).
        is_over: Shape (envs,); all true before the first episode.
        times: The envs' clocks, shape (envs,).
        last_return: Sum of rewards of the last whole episode, mean over the envs.

    Raises:
        SettingError: the number of envs is not a multiple of ``replicas``.
    """

    def __init__(self, env: VecEnv, seed: int, replicas: int = 1) -> None:
        if replicas < 1 or env.count % replicas:
            raise SettingError(
                f"replicas: {env.count} envs are not a multiple of {replicas} replicas; change "
                "one of the numbers"
            )
        self.env, self.replicas = env, replicas
        self._draws = np.random.default_rng(seed)
        self.seeds: IntArray = np.zeros(env.count, np.int64)
        self.is_over = np.ones(env.count, np.bool_)
        self.times = np.zeros(env.count)
        self.last_return: float | None = None
        self._seen: Observation = {}
        # Seeds and actions restore an episode exactly, and most environments cannot save a state.
        self._history: list[Actions] = []
        self._returns = np.zeros(env.count)

    def begin(self) -> None:
        """Start the next episode, if this one is over."""
        if self.is_over.all():
            distinct = self._draws.integers(_MAX_SEEDS, size=self.env.count // self.replicas)
            self._start(np.repeat(distinct, self.replicas))

    @property
    def rows(self) -> IntArray:
        """The environments that are not over."""
        return np.flatnonzero(~self.is_over)

    def observation(self, rows: IntArray | None = None) -> Observation:
        """Return the observation of ``rows``, by default of the unfinished environments."""
        rows = self.rows if rows is None else rows
        return self._seen if len(rows) == self.env.count else take(self._seen, rows)

    def step(self, actions: Actions) -> EnvStep:
        """Act in the environments that are not over, in the order of :attr:`rows`."""
        rows, count = self.rows, self.env.count

        def spread(action: Array) -> Array:
            if len(rows) == count:
                return action
            whole = np.zeros((count, *action.shape[1:]), action.dtype)
            whole[rows] = action
            return whole

        return self._step(by_agent(spread, actions))

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "draws": self._draws.bit_generator.state,
            "last_return": self.last_return,
        }
        if self._history:
            history = by_agent(lambda *steps: torch.from_numpy(np.stack(steps)), *self._history)
            state |= {"seeds": self.seeds.tolist(), "history": history}
            state["steps"] = len(self._history)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned, by playing the same actions."""
        self._draws.bit_generator.state = state["draws"]
        self.last_return = state["last_return"]
        self.is_over[:] = True
        if "seeds" in state:
            self._start(np.array(state["seeds"], np.int64))
            history = by_agent(np.asarray, state["history"])
            for step in range(state["steps"]):
                self._step(by_agent(itemgetter(step), history))

    def _start(self, seeds: IntArray) -> None:
        self._seen = self.env.reset(seeds.tolist())
        self.seeds, self._history, self._returns = seeds, [], np.zeros(len(seeds))
        self.is_over, self.times = np.zeros_like(self.is_over), np.zeros_like(self.times)

    def _step(self, actions: Actions) -> EnvStep:
        step = self.env.step(actions)
        self._seen, self.times = step.observation, step.times
        self.is_over = step.is_over.copy()
        self._returns += step.rewards
        self._history.append(actions)
        if self.is_over.all():
            self._history, self.last_return = [], float(self._returns.mean())
        return step


def play(env: VecEnv, seeds: Sequence[int], act: Callable[[Observation], Actions]) -> FloatArray:
    """Play one whole episode; return the sum of rewards, shape (envs,).

    ``act`` gets the observation of the environments that are not over, and returns their actions.
    """
    episodes = Episodes(env, 0)
    episodes._start(np.array(seeds, np.int64))
    for _ in range(MAX_EPISODE):
        episodes.step(act(episodes.observation()))
        if episodes.is_over.all():
            return episodes._returns
    raise never_ends(episodes)


def never_ends(episodes: Episodes) -> SettingError:
    """Return the error for an episode without an end after the maximum steps."""
    return SettingError(
        f"env {int(episodes.rows[0])} is not over after {MAX_EPISODE} steps; let the env forbid "
        "actions without effect"
    )


# --- rollouts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rollout:
    """The played steps; arrays have shape (steps, envs) unless stated otherwise.

    Attributes:
        observations: Observations of the n active entries by name, shape (n, ...).
        actions: Shape (n, ...); a dict by agent for several agents.
        log_probs: Log-probabilities of the actions when taken, by agent, shape (n, agents).
        values: The critic's values before each step.
        next_values: The critic's values after each step; 0 if the env ended by itself.
        is_active, is_over: Whether the env was unfinished before the step, and over after it.
        times: The envs' clocks, shape (steps + 1, envs), before the first step and after each.
        seeds: Seeds of the envs, shape (envs,).
    """

    observations: dict[str, Tensor]
    actions: Action
    log_probs: Tensor
    rewards: FloatArray
    values: FloatArray
    next_values: FloatArray
    is_active: BoolArray
    is_over: BoolArray
    times: FloatArray
    seeds: IntArray

    def __len__(self) -> int:
        return len(self.log_probs)

    def flat(self, entries: FloatArray) -> Tensor:
        """Return the active ``entries``, (steps, envs), as a tensor of shape (n,)."""
        active = torch.from_numpy(entries[self.is_active].astype(np.float32))
        return active.to(self.log_probs.device)


@torch.no_grad()
def collect(
    policy: ActorCritic,
    episodes: Episodes,
    generator: torch.Generator,
    *,
    n_steps: int | None,
    has_critic: bool = True,
) -> Rollout:
    """Play up to ``n_steps`` steps of the current episode, or all of it (None).

    A rollout never reaches into the next episode, so it may be shorter than ``n_steps``.

    Raises:
        SettingError: the episode does not end.
    """

    def values_of(rows: IntArray) -> FloatArray:
        """Return the critic's values of ``rows``, 0 for other envs and without a critic."""
        values = np.zeros(episodes.env.count)
        if has_critic and len(rows):
            observation = tensors(episodes.observation(rows), policy.device)
            values[rows] = np.asarray(policy.values(observation).cpu())
        return values

    episodes.begin()
    observations: list[dict[str, Tensor]] = []
    actions: list[Action] = []
    log_probs: list[Tensor] = []
    steps: list[tuple[Array, ...]] = []
    times = [episodes.times.copy()]
    while not episodes.is_over.all() and len(actions) != n_steps:
        if len(actions) == MAX_EPISODE:
            raise never_ends(episodes)
        was_over, values = episodes.is_over.copy(), values_of(episodes.rows)
        # Copy, because an env may write into its arrays again.
        on_device = tensors(episodes.observation(), policy.device)
        inputs = {name: part.clone() for name, part in on_device.items()}
        distribution = policy.distribution(inputs)
        actions.append(distribution.sample(generator))
        step = episodes.step(arrays(actions[-1]))
        # An env cut off by a limit on length would have continued: its last state has a value.
        cut = np.zeros_like(was_over) if step.is_cut is None else step.is_cut & ~was_over
        observations.append(inputs)
        log_probs.append(distribution.log_probs(actions[-1]))
        times.append(step.times.astype(np.float64))
        paid, over = np.where(was_over, 0.0, step.rewards), step.is_over.copy()
        steps.append((paid, values, values_of(np.flatnonzero(cut)), ~was_over, over))
    rewards, critic, cut_values, is_active, is_over = map(np.stack, zip(*steps, strict=True))
    following = np.concatenate([critic[1:], values_of(episodes.rows)[None]])
    return Rollout(
        observations={name: torch.cat([o[name] for o in observations]) for name in observations[0]},
        actions=concatenate(actions),
        log_probs=torch.cat(log_probs),
        rewards=rewards,
        values=critic,
        next_values=following + cut_values,
        is_active=is_active,
        is_over=is_over,
        times=np.stack(times),
        seeds=episodes.seeds,
    )


def concatenate(actions: Sequence[Action]) -> Action:
    """Return the rows of several actions, one after the other."""
    return by_agent(lambda *parts: torch.cat(parts), *actions)


def take_rows(actions: Action, rows: Tensor | slice) -> Action:
    return by_agent(itemgetter(rows), actions)


# --- advantages ---------------------------------------------------------------------------------


def gae(
    rewards: FloatArray,
    values: FloatArray,
    next_values: FloatArray,
    is_over: BoolArray,
    gamma: float | FloatArray,
    gae_lambda: float,
) -> FloatArray:
    """Return generalised advantage estimates (Schulman et al., ICLR 2016, equation 16).

    Args:
        rewards, values, next_values, is_over: As in :class:`Rollout`, shape (steps, envs). An env
            that ended by itself has next value 0, a cut one the value of its last state. So ends
            and cuts need no special treatment.
        gamma: The discount per step, or of each step, shape (steps, envs).
        gae_lambda: 0 trusts the critic one step ahead, 1 trusts rewards only.
    """
    errors = rewards + gamma * next_values - values
    passed_on = np.broadcast_to(gamma, rewards.shape) * gae_lambda * ~is_over
    advantages = np.zeros_like(errors)
    following = np.zeros(rewards.shape[1])
    for step in reversed(range(len(rewards))):
        following = advantages[step] = errors[step] + passed_on[step] * following
    return advantages


def replica_advantages(
    rewards: FloatArray,
    times: FloatArray,
    is_active: BoolArray,
    seeds: IntArray,
    gamma: float | FloatArray = 1.0,
) -> FloatArray:
    """Return rewards to go minus their mean over the replicas at the same time, (steps, envs).

    Source: Mao et al., Decima, SIGCOMM 2019, section 5.3 (input-dependent baselines, with all
    replicas in the mean). The rollout must hold whole episodes.

    Args:
        times: The envs' clocks, shape (steps + 1, envs).
        gamma: The discount per step, or of each step, shape (steps, envs).
    """
    none = np.zeros_like(rewards)
    to_go = gae(rewards, none, none, np.zeros_like(is_active), gamma, gae_lambda=1.0)
    advantages = np.zeros_like(to_go)
    for seed in np.unique(seeds):
        group = np.flatnonzero(seeds == seed)
        curves = [_curve(to_go[:, w], times[:, w], is_active[:, w]) for w in group]
        for env in group:
            # Replicas decide at different moments. Interpolate the rewards to go of another one
            # between two of its decisions; they are 0 after its end.
            own_times = times[:-1, env]
            expected = np.mean(
                [np.interp(own_times, curve_times, height) for curve_times, height in curves],
                axis=0,
            )
            advantages[:, env] = (to_go[:, env] - expected) * is_active[:, env]
    return advantages


def _curve(
    to_go: FloatArray, times: FloatArray, is_active: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return an env's times and rewards to go, the first of several decisions at one time."""
    decisions = int(is_active.sum())
    curve_times, first = np.unique(times[: decisions + 1], return_index=True)
    return curve_times, np.append(to_go[:decisions], 0.0)[first]
