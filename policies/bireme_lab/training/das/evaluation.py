"""Evaluation of DAS in the simulator: completion time and fee on equal samples beside baselines.

The baselines are the paper's, by their names in :mod:`bireme.registry`, and three more rules:
shortest job first, the default placement of Bireme, which keeps gangs together, and the first rule
of training. All decide on the same noisy estimates.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bireme import registry
from bireme.core.decision import Action, Admit, Decision
from bireme.core.errors import SettingError
from bireme.core.finished_runs import NO_RUNS
from bireme.core.gangs import Gang
from bireme.core.gpus import GPU
from bireme.core.placement import FreeCapacity
from bireme.core.policy import Orderer, Policy, placer_on
from bireme.core.resources import FloatArray, IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.rl.checkpoint import Checkpoint, load
from bireme.rl.components import LearnedOrderer, LearnedPlacer
from bireme_lab.heuristics.search_orderers import Malo, Mosa, Rifling
from bireme_lab.simulator import metrics
from bireme_lab.simulator.metrics import fee_dollars
from bireme_lab.simulator.simulation import CYCLE, Decide, SimulationConfig, simulate
from bireme_lab.training.das import environment
from bireme_lab.training.das.baselines import BestSite, best_site
from bireme_lab.training.das.environment import DasSample, DasTurnEnv
from bireme_lab.training.evaluation import check_finished
from bireme_lab.training.networks import ActorCritic, predict
from bireme_lab.training.rollouts import play
from bireme_lab.training.vec_env import Actions, Observation

# --- the paper's way to schedule, instead of the cycle ------------------------------------------


def start_now(snapshot: ClusterSnapshot, policy: Policy) -> Decision:
    """Start every waiting gang that fits, in the policy's order.

    DAS and its baselines reserve nothing: they go through the queue once and start every fitting
    job. The option ``cycle=guardrails`` runs the operator's cycle instead.
    """
    capacity = FreeCapacity(snapshot.nodes, snapshot.used)  # shrinks with every start
    column = snapshot.nodes.axis.names.index(GPU)
    placer = placer_on(policy.placer, snapshot)
    waiting = [gang for gang in snapshot.waiting if _fits(gang, capacity.free[:, column])]
    if not waiting:
        return Decision()
    actions: list[Action] = []
    for entry in policy.orderer.order(snapshot.waiting, snapshot):
        if not _fits(entry.gang, capacity.free[:, column]):
            continue
        placement = placer.place(entry.gang, capacity)
        if placement is not None:
            capacity.take(entry.gang, placement)
            actions.append(Admit(entry.gang, placement, entry, message=""))
    return Decision(tuple(actions))


def _fits(gang: Gang, free_gpus: IntArray) -> bool:
    # A cheap check of the free GPUs saves the policy long, hopeless searches.
    return gang.demand.get(GPU, 0) <= int(free_gpus.sum())


START_NOW: Final = SimulationConfig(decide=start_now, takes_shortcuts=False)
"""Without shortcuts a cycle runs at every event, so that it sees every end of a run at once."""


SETTINGS: Final[Mapping[str, str]] = {
    name: f"{config.machines} machines of {environment.GPUS_PER_MACHINE} GPUs, load {config.load}"
    for name, config in environment.SETTINGS.items()
}
JOBS: Final = 200
"""The default of the option ``jobs``, per run."""
EVALUATION_SEEDS: Final = 2**31
"""The offset of every seed of an evaluation; trainings draw lower seeds."""
CYCLES: Final[Mapping[str, Decide]] = {"start-now": start_now, "guardrails": CYCLE}
"""Option ``cycle``: the paper's way to schedule, or Bireme's own, with reservations."""

_SEARCHES: Final[Mapping[str, Callable[[], Orderer]]] = {
    "malo": partial(Malo, generations=5),
    "mosa": partial(Mosa, generations=5),
    "rifling": partial(Rifling, episodes=3),
}
"""Searches of about 10 ms a decision. With the default 50 generations (100 ms) MALO's and MOSA's
completion times on small are 3 % and 12 % better, still behind shortest job first."""
PAPERS_RULES: Final = (
    "fifo/first-fit",
    "fifo/load-balance",
    "drf/first-fit",
    "drf/load-balance",
    "tetris/tetris",
    "rifling/first-fit",
    "malo/first-fit",
    "mosa/first-fit",
)
RULES: Final = (
    *PAPERS_RULES,
    "fifo/packing",
    "mosa/packing",
    "sjf/first-fit",
    "sjf/packing",
    "srtf/packing",
)


def evaluate(
    checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Return the metrics of every policy with ``seed``: JCT and wait in minutes, fee in dollars.

    Options: ``jobs``, ``cycle``, ``only`` (policies, commas between), ``beside`` (folders of
    more checkpoints, commas between), and ``reports`` (no: finished runs are not reported).
    """
    unknown = set(options) - {"jobs", "cycle", "only", "beside", "reports"}
    cycle, reports = options.get("cycle", "start-now"), options.get("reports", "yes")
    if unknown or cycle not in CYCLES or reports not in ("yes", "no"):
        raise SettingError(
            f"options are {dict(options)}; known are jobs, only, beside, reports, which is yes or "
            f"no, and cycle, which is one of {', '.join(CYCLES)}"
        )
    # no training draws such a seed
    sample = environment.draw(setting, int(options.get("jobs", JOBS)), EVALUATION_SEEDS + seed)
    checkpoints = [load(Path(folder)) for folder in options.get("beside", "").split(",") if folder]
    makers = {**dict(_policies_of([checkpoint, *checkpoints])), **baselines()}
    if reports == "no":
        del makers["best-site-told"]
    decide = CYCLES[cycle] if reports == "yes" else partial(_unaware, CYCLES[cycle])
    only = options.get("only")
    names = makers if only is None else [checkpoint.card.name, *only.split(",")]
    for name in names:
        if name not in makers:
            raise SettingError(f"no policy is called {name!r}; known: {', '.join(makers)}")
    return {name: evaluate_policy(sample, makers[name], decide) for name in names}


def _unaware(cycle: Decide, snapshot: ClusterSnapshot, policy: Policy) -> Decision:
    return cycle(replace(snapshot, finished_runs=NO_RUNS), policy)


PolicyMaker = Callable[[], Policy]


def baselines() -> dict[str, PolicyMaker]:
    """Return policies by name: orderer/placer, and best-site, without and with finished runs."""
    return {
        **{name: partial(_rule, name) for name in RULES},
        "best-site": lambda: Policy(BestSite(), BestSite()),
        "best-site-told": lambda: Policy(BestSite(), BestSite(is_told=True)),
    }


def _rule(name: str) -> Policy:
    orderer, placer = name.split("/")
    make = _SEARCHES.get(orderer, partial(registry.make_orderer, orderer))
    return Policy(make(), registry.make_placer(placer))


def _policies_of(checkpoints: list[Checkpoint]) -> Iterator[tuple[str, PolicyMaker]]:
    """Yield policies by card name; a checkpoint without placer gets both plain placements."""
    for checkpoint in checkpoints:
        name = checkpoint.card.name
        if checkpoint.placer is not None:
            yield name, partial(_both, checkpoint)
        else:
            yield name, partial(_order_alone, checkpoint, "load-balance")
            yield f"{name}/first-fit", partial(_order_alone, checkpoint, "first-fit")


def _both(checkpoint: Checkpoint) -> Policy:
    return Policy(LearnedOrderer(checkpoint), LearnedPlacer(checkpoint))


def _order_alone(checkpoint: Checkpoint, placer: str) -> Policy:
    return Policy(LearnedOrderer(checkpoint), registry.make_placer(placer))


def evaluate_policy(sample: DasSample, make_policy: PolicyMaker, cycle: Decide) -> dict[str, float]:
    """Return mean completion time (min), fee ($) and wait (min) of one policy on one sample.

    Raises:
        EvaluationError: a job did not finish, or the policy gave an invalid answer.
    """
    policy, nodes = make_policy(), environment.nodes_of(sample)
    config = replace(START_NOW, decide=cycle)
    outcome = simulate(
        environment.trace_of(sample),
        nodes,
        policy,
        physics=environment.physics_of(sample),
        config=config,
    )
    jct = metrics.completion_seconds(outcome)
    check_finished(outcome.policy, len(outcome.jobs) - len(jct), outcome.counts["fallbacks"])
    return {
        "mean_jct_minutes": float(jct.mean()) / 60,
        "mean_fee_dollars": float(fee_dollars(outcome, nodes).mean()),
        "mean_wait_minutes": float(metrics.wait_seconds(outcome).mean()) / 60,
        "decision_milliseconds": 1000 * outcome.decision_seconds / outcome.counts["cycles"],
    }


# --- validation while learning ------------------------------------------------------------------

VALIDATION_SEED: Final = 500_000
"""The first seed: trainings draw at random from 2^31 seeds, evaluations begin there."""
METRICS: Final = ("mean_jct_minutes", "mean_fee_dollars")


class DasValidation:
    """Scores a policy by ratios to the rule: completion time and fee on the same environments."""

    def __init__(
        self,
        policy: ActorCritic,
        envs: Mapping[str, int],
        jobs: int,
        note: Callable[[str, float], None],
    ) -> None:
        """Make ``envs[setting]`` environments of each setting; ``note`` gets every ratio."""
        self._policy, self._note = policy, note
        self._envs = {
            setting: DasTurnEnv(count, (setting,), jobs=jobs) for setting, count in envs.items()
        }
        self._of_rule = {
            setting: _play_summary(env, best_site) for setting, env in self._envs.items()
        }

    def __call__(self) -> float:
        """Return the mean of all ratios; the rule has 1."""
        ratios = []
        for setting, env in self._envs.items():
            summary = _play_summary(env, partial(predict, self._policy))
            for metric in METRICS:
                logs = np.log(summary[metric] / self._of_rule[setting][metric])
                ratio = float(np.exp(logs.mean()))  # robust to a few crowded environments
                self._note(f"{setting}_{metric.split('_')[1]}_ratio", ratio)
                ratios.append(ratio)
        return sum(ratios) / len(ratios)


def _play_summary(env: DasTurnEnv, act: Callable[[Observation], Actions]) -> dict[str, FloatArray]:
    play(env, range(VALIDATION_SEED, VALIDATION_SEED + env.count), act)
    return env.summary()
