"""DAS beside its rivals in the simulator: completion time and fee on equal samples.

The paper's rivals, by their names in :mod:`bireme.registry` (searching ones on a budget that a
study of many seeds can pay for), and rules that the paper does not have: shortest job first, the
default placement of Bireme, which keeps gangs together, and the rule that training starts from. All
decide on the same noisy estimates. Seeds of evaluation are never drawn in training.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from bireme import registry
from bireme.core.errors import SettingError
from bireme.core.policy import Orderer, Policy
from bireme.heuristics.malo import Malo
from bireme.heuristics.mosa import Mosa
from bireme.heuristics.rifling import Rifling
from bireme.rl.checkpoints import Checkpoint, load
from bireme.rl.orderers import LearnedOrderer
from bireme.rl.placers import LearnedPlacer
from bireme.simulator import quantities
from bireme.simulator.conduct import CYCLE, Decide
from bireme.simulator.engine import simulate
from bireme.simulator.fees import fee_dollars
from bireme.training.das.best_site import BestSite
from bireme.training.das.conduct import START_NOW, start_now
from bireme.training.das.generator import Sample, draw, nodes_of, physics_of, trace_of
from bireme.training.das.history import FinishedRuns
from bireme.training.judging import check_ended

SETTINGS: Final[Mapping[str, str]] = {
    "small": "8 machines of 4 GPUs, load 1.3",
    "medium": "32 machines of 4 GPUs, load 0.8",
    "large": "64 machines of 4 GPUs, load 0.5",
}
JOBS: Final = 200
"""Jobs per run, unless the option ``jobs`` says otherwise."""
EVALUATION_SEEDS: Final = 2**31
"""Added to every seed of an evaluation; trainings draw theirs below it."""
CYCLES: Final[Mapping[str, Decide]] = {"start-now": start_now, "rails": CYCLE}
"""Option ``cycle``: the paper's way to schedule, or Bireme's own, with reservations and rails."""

_SEARCHES: Final[Mapping[str, Callable[[], Orderer]]] = {
    "malo": partial(Malo, generations=5),
    "mosa": partial(Mosa, generations=5),
    "rifling": partial(Rifling, episodes=3),
}
"""About 10 ms a decision. With the default 50 generations (100 ms) MALO's and MOSA's completion
times on small are 3 % and 12 % better, which is still behind shortest job first."""
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
"""What the slides compare with."""
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
    """Metrics of every contender with ``seed``: JCT and wait in minutes, fee in dollars.

    Options: ``jobs``, ``cycle``, ``only`` (contenders, commas between), ``beside`` (folders of
    more checkpoints, commas between), and ``reports`` (no: nobody tells of finished runs).
    """
    unknown = set(options) - {"jobs", "cycle", "only", "beside", "reports"}
    cycle, reports = options.get("cycle", "start-now"), options.get("reports", "yes")
    if unknown or cycle not in CYCLES or reports not in ("yes", "no"):
        raise SettingError(
            f"options are {dict(options)}; known are jobs, only, beside, reports, which is yes or "
            f"no, and cycle, which is one of {', '.join(CYCLES)}"
        )
    sample = draw(setting, int(options.get("jobs", JOBS)), EVALUATION_SEEDS + seed)
    others = [load(Path(folder)) for folder in options.get("beside", "").split(",") if folder]
    contenders = {**dict(_learned([checkpoint, *others], reports == "yes")), **rivals()}
    if reports == "no":
        del contenders["best-site-told"]
    only = options.get("only")
    names = contenders if only is None else [checkpoint.card.name, *only.split(",")]
    for name in names:
        if name not in contenders:
            raise SettingError(f"no contender is called {name!r}; known: {', '.join(contenders)}")
    return {name: judged(sample, contenders[name], CYCLES[cycle]) for name in names}


Contender = Callable[[FinishedRuns], Policy]
"""Makes a policy, which may look at the runs that have ended."""


def rivals() -> dict[str, Contender]:
    """By name: orderer/placer, and ``best-site``, which is both, also told of finished runs."""
    return {
        **{name: partial(_rule, name) for name in RULES},
        "best-site": lambda _: _best_site(None),
        "best-site-told": _best_site,
    }


def _best_site(finished: FinishedRuns | None) -> Policy:
    rule = BestSite(finished)
    return Policy(rule, rule)


def _rule(name: str, _: FinishedRuns) -> Policy:
    orderer, placer = name.split("/")
    make = _SEARCHES.get(orderer, partial(registry.make_orderer, orderer))
    return Policy(make(), registry.make_placer(placer))


def _learned(checkpoints: list[Checkpoint], reports: bool) -> Iterator[tuple[str, Contender]]:
    """Under the names of their cards; without a placer, beside the two plain placements."""
    for checkpoint in checkpoints:
        name = checkpoint.card.name
        if checkpoint.placer is not None:
            yield name, partial(_both, checkpoint, reports)
        else:
            yield name, partial(_order_alone, checkpoint, "load-balance")
            yield f"{name}/first-fit", partial(_order_alone, checkpoint, "first-fit")


def _both(checkpoint: Checkpoint, reports: bool, finished: FinishedRuns) -> Policy:
    placer = LearnedPlacer(checkpoint)
    if checkpoint.placer is not None and hasattr(checkpoint.placer.encoder, "finished"):
        checkpoint.placer.encoder.finished = finished if reports else None
    return Policy(LearnedOrderer(checkpoint), placer)


def _order_alone(checkpoint: Checkpoint, placer: str, _: FinishedRuns) -> Policy:
    return Policy(LearnedOrderer(checkpoint), registry.make_placer(placer))


def judged(sample: Sample, contender: Contender, cycle: Decide) -> dict[str, float]:
    """Mean completion time (min), fee ($) and wait (min) of one contender on one sample.

    EvaluationError where a job did not finish, or the policy gave no valid answer.
    """
    finished = FinishedRuns()
    policy, nodes = contender(finished), nodes_of(sample)
    conduct = replace(START_NOW, decide=finished.watching(cycle))
    physics = physics_of(sample)
    outcome = simulate(trace_of(sample), nodes, policy, physics=physics, conduct=conduct)
    jct = quantities.completion_seconds(outcome)
    check_ended(outcome.policy, len(outcome.jobs) - len(jct), outcome.counts["fallbacks"])
    return {
        "mean_jct_minutes": float(jct.mean()) / 60,
        "mean_fee_dollars": float(fee_dollars(outcome, nodes).mean()),
        "mean_wait_minutes": float(quantities.waited_seconds(outcome).mean()) / 60,
        "decision_milliseconds": 1000 * outcome.decision_seconds / outcome.counts["cycles"],
    }
