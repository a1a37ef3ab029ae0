"""Evaluation of A2cScheduler in DeepRM's environment, beside the paper's baselines.

A checkpoint is evaluated at each arrival rate of the paper. In training, a policy plays the same
validation environments repeatedly, by its likeliest choices, at the rate of the paper's figure 3
and at a busier one. Their cost decides which weights are kept.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from bireme.core.resources import IntArray
from bireme.onnx.sessions import Array, Session
from bireme_lab.training.deeprm import environment
from bireme_lab.training.deeprm.baselines import Rule, rules, run_rule
from bireme_lab.training.deeprm.environment import DeepRmEnv, DeepRmEnvConfig, DeepRmState, View
from bireme_lab.training.networks import ActorCritic, predict
from bireme_lab.training.recipes import Results
from bireme_lab.training.rollouts import play
from bireme_lab.training.runs import TrainingRun

RATES: Final = (0.6, 0.7, 0.8, 0.9)
SETTINGS: Final[Mapping[str, str]] = {
    f"rate-{rate}": f"a job comes in {100 * rate:.0f} % of 50 steps; then the machine is drained"
    for rate in RATES
}
PRIMARY: Final = ("slowdown", True)
VALIDATION_SEED: Final = 1_000_000
"""First seed of the validation environments, far from the evaluations', which begin at 0."""
RATE: Final = 0.7
"""The arrival rate of the paper's figure 3."""
_VALIDATION_RATES: Final = {"validation": RATE, "busy_validation": 0.9}
_LIMIT_SECONDS: Final = 5.0


def evaluate(policy: str, rule: Rule, setting: str, queue_slots: int, seed: int) -> Results:
    """Return the measures of ``rule``, called ``policy``, and of the paper's baselines."""
    rate = float(setting.removeprefix("rate-"))
    env = DeepRmEnv(1, DeepRmEnvConfig(rates=(rate,), queue_slots=queue_slots))
    results = {}
    for name, decide in {policy: rule, **rules(seed)}.items():
        env.reset([seed])
        measures = environment.measure(run_rule(env, decide))
        results[name] = {metric: float(values[0]) for metric, values in measures.items()}
    return results


def served_choice(
    session: Session, inputs: Mapping[str, Array], state: DeepRmState, *, may_wait: bool = True
) -> IntArray:
    """Return the served network's choice in a single environment: a slot or the void, (1,).

    ``inputs`` have a row per job of the queue. With ``may_wait`` it may choose the void although a
    job fits; a cluster's queue may not.
    """
    jobs = int((state.queue[0] >= 0).sum())
    scores = session.answer(inputs, jobs, _LIMIT_SECONDS)
    fitting = np.where(state.fits[0, :jobs], scores, -np.inf)
    is_void = may_wait and fitting.max() < 0 and state.allowed[0, -1]
    return np.array([state.config.queue_slots if is_void else fitting.argmax()])


class DeepRmValidation:
    """Scores a policy by the mean cost of its episodes at two arrival rates; less is better."""

    def __init__(
        self, policy: ActorCritic, count: int, config: DeepRmEnvConfig, view: View, run: TrainingRun
    ) -> None:
        """Make ``count`` environments of each rate; ``run`` records the measures in its curves."""
        self._policy, self._run = policy, run
        self._envs = {
            name: DeepRmEnv(count, replace(config, rates=(rate,)), view)
            for name, rate in _VALIDATION_RATES.items()
        }

    def __call__(self) -> float:
        """Play an episode in every environment."""
        cost = 0.0
        for name, env in self._envs.items():
            seeds = range(VALIDATION_SEED, VALIDATION_SEED + env.count)
            returns = play(env, seeds, partial(predict, self._policy))
            cost -= float(returns.mean()) / len(self._envs)
            for metric, values in environment.measure(env.state).items():
                self._run.note(f"{name}_{metric}", float(values.mean()))
        return cost
