"""Evaluation of TapFinger: completion times in steps beside baselines, all with the same arrivals.

The baselines of the paper are Optimus, Tiresias, Random and Min. Additional rules are the greedy
one with one tuned constant, a frugal one, shortest first if sizes have no effect, Optimus with
exact speeds, and look-ahead, the first rule of training.

The paper's own figures are from one sequence of arrivals each, and a different one for each method,
because the authors' program draws arrivals and noise from one stream.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import torch

from bireme.core.errors import SettingError
from bireme.onnx.sessions import Session
from bireme.rl.checkpoint import Checkpoint, load
from bireme_lab.encoders.tapfinger import decide, question
from bireme_lab.training.evaluation import check_finished, session_of
from bireme_lab.training.networks import ActorCritic, predict
from bireme_lab.training.rollouts import play
from bireme_lab.training.tapfinger import environment
from bireme_lab.training.tapfinger.baselines import (
    DIVISIONS,
    Rule,
    divide_always,
    expert_for,
    rules,
)
from bireme_lab.training.tapfinger.environment import (
    TapFingerAgentEnv,
    TapFingerEnvConfig,
    TapFingerPools,
)
from bireme_lab.training.vec_env import Actions, Array, Observation, take

PRIMARY: Final = ("mean_jct_steps", True)
EVALUATION_SEEDS: Final = 2**31
"""The offset of every seed of an evaluation; trainings draw lower seeds."""

PlayEpisodes: TypeAlias = Callable[[TapFingerEnvConfig, Sequence[int]], TapFingerPools]
"""Plays whole episodes, one environment per seed; returns the state at their end."""


def evaluate(
    setting: str, seed: int, learned: Mapping[str, PlayEpisodes], options: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Return the metrics of ``learned`` and all baselines with ``seed``, in steps.

    Options: ``data``, the folder with the published measurements, which trace settings need;
    ``jobs``, how many; ``only``, policies with commas between.
    """
    if unknown := set(options) - {"data", "jobs", "only"}:
        raise SettingError(f"option {min(unknown)!r} is not known; known: data, jobs, only")
    data, jobs = options.get("data"), options.get("jobs")
    config = environment.make_config(
        setting, Path(data) if data else None, int(jobs) if jobs else None
    )
    policies = {**learned, **baselines(config, seed)}
    only = options.get("only")
    names = list(policies) if only is None else [*learned, *only.split(",")]
    for name in names:
        if name not in policies:
            raise SettingError(f"no policy is called {name!r}; known: {', '.join(policies)}")
    seeds = EVALUATION_SEEDS + seed  # no training draws such a seed
    return {name: metrics_of(name, config, seeds, policies[name]) for name in names}


def baselines(config: TapFingerEnvConfig, seed: int) -> dict[str, PlayEpisodes]:
    """Return all rules by name; ``seed`` sets their random draws."""
    return {
        **{name: partial(follow, rule) for name, rule in rules(config.law, seed).items()},
        **{name: partial(divide_always, rule) for name, rule in DIVISIONS.items()},
    }


def follow(rule: Rule, config: TapFingerEnvConfig, seeds: Sequence[int]) -> TapFingerPools:
    """Let ``rule`` decide until all envs are over."""
    env = environment.TapFingerEnv(len(seeds), config)
    observation = env.reset(seeds)
    while not env.pools.is_over.all():
        observation = env.step(rule(observation)).observation
    return env.pools


def metrics_of(
    name: str, config: TapFingerEnvConfig, seed: int, policy: PlayEpisodes
) -> dict[str, float]:
    """Return mean and 95th percentile of completion times, and the makespan, in steps.

    Raises:
        EvaluationError: a job did not finish.
    """
    pools = policy(config, [seed])
    check_finished(name, unfinished=int((pools.ended < 0).sum()))
    steps = (pools.ended - pools.jobs.arrival).astype(np.float64)
    return {
        "mean_jct_steps": float(steps.mean()),
        "p95_jct_steps": float(np.percentile(steps, 95)),
        "makespan_steps": float(pools.ended.max()),
    }


# --- learned policies, and their first rule -----------------------------------------------------

_LIMIT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Conditions:
    """The abilities and the knowledge of agents.

    Attributes:
        retries: Pools that lost a job choose again in the same step; the paper's do not.
        knows_speeds: Agents see the speed of jobs; the paper's see only types.
        draws: Agents draw jobs and sizes by their probabilities, as the paper's draw jobs (after
            equation 10), instead of the likeliest. Equal pools with the same jobs would all take
            the same job, and all but one would lose it.
    """

    retries: bool = True
    knows_speeds: bool = True
    draws: bool = False


PAPER: Final = Conditions(retries=False, knows_speeds=False, draws=True)


def policies_of(
    checkpoint: Checkpoint, options: Mapping[str, str], conditions: Conditions = Conditions()
) -> dict[str, PlayEpisodes]:
    """Return ``checkpoint`` by its name, those in the folders of option ``beside``, and the rule.

    The rule always knows speeds.
    """
    folders = [Path(folder) for folder in options.get("beside", "").split(",") if folder]
    learned = (checkpoint, *map(load, folders))
    policies = {
        network.card.name: partial(_play_network, session_of(network, "sizer"), conditions)
        for network in learned
    }
    return {**policies, "look-ahead": partial(look_ahead, retries=conditions.retries)}


def look_ahead(
    config: TapFingerEnvConfig, seeds: Sequence[int], *, retries: bool = True
) -> TapFingerPools:
    """Play the first rule of training."""
    conditions = Conditions(retries=retries)
    return _play(environment.expert_actions, conditions, config, seeds, expert_for(config))


def _play_network(
    session: Session, conditions: Conditions, config: TapFingerEnvConfig, seeds: Sequence[int]
) -> TapFingerPools:
    draws = np.random.default_rng(seeds) if conditions.draws else None

    def choose(observation: Observation) -> dict[str, Array]:
        choices = []
        for env in range(len(observation["job"])):  # one after the other, as a cluster asks
            one = take(observation, np.asarray(env))
            arrays, count = question(one)
            logits = session.answer(arrays, count, _LIMIT_SECONDS)
            choices.append(decide(one, arrays["sizes"], logits, draws=draws))
        slot, size = (np.stack(part) for part in zip(*choices, strict=True))
        return {environment.SLOT: slot, environment.SIZE: size}

    return _play(choose, conditions, config, seeds)


def _play(
    act: Callable[[Observation], Actions],
    conditions: Conditions,
    config: TapFingerEnvConfig,
    seeds: Sequence[int],
    expert: environment.Expert | None = None,
) -> TapFingerPools:
    env = agent_env(len(seeds), config, conditions, expert)
    play(env, seeds, act)
    return env.env.pools


def agent_env(
    count: int,
    config: TapFingerEnvConfig,
    conditions: Conditions,
    expert: environment.Expert | None = None,
) -> TapFingerAgentEnv:
    env = environment.TapFingerEnv(count, config, retries=conditions.retries)
    return TapFingerAgentEnv(env, expert, knows_speeds=conditions.knows_speeds)


# --- validation while learning ------------------------------------------------------------------

VALIDATION_SEED: Final = 500_000
"""The first seed: trainings draw at random from 2^31 seeds, evaluations count from 0."""


class TapFingerValidation:
    """Score of a policy: ratios of mean completion times to those of the environments' experts."""

    def __init__(
        self,
        policy: ActorCritic,
        envs: Mapping[str, TapFingerAgentEnv],
        note: Callable[[str, float], None],
        experts: Mapping[str, TapFingerAgentEnv] | None = None,
        *,
        draws: bool = False,
    ) -> None:
        """Score on ``envs`` by config; ``note`` gets every mean.

        ``experts`` are equal environments with an expert; None: ``envs`` have one. ``draws`` is as
        in :class:`Conditions`, with equal draws every time.
        """
        self._policy, self._envs, self._note, self._draws = policy, envs, note, draws
        self._of_expert = {
            name: _mean_steps(env, environment.expert_actions)
            for name, env in (experts or envs).items()
        }

    def __call__(self) -> float:
        """Return the geometric mean of all ratios; the experts have 1."""
        logs = []
        for name, env in self._envs.items():
            draws = torch.Generator().manual_seed(VALIDATION_SEED) if self._draws else None
            mean_steps = _mean_steps(env, partial(predict, self._policy, draws=draws))
            self._note(f"{name}_jct_steps", mean_steps)
            logs.append(np.log(mean_steps / self._of_expert[name]))
        return float(np.exp(np.mean(logs)))


def _mean_steps(env: TapFingerAgentEnv, act: Callable[[Observation], Actions]) -> float:
    """Return the mean completion time: the reward of a step is minus the number of jobs."""
    seeds = range(VALIDATION_SEED, VALIDATION_SEED + env.count)
    return -float(play(env, seeds, act).mean()) / env.env.config.jobs
