"""How the learned index is trained and judged: ``learned-index``.

Judged beside every orderer of the registry that is quick to ask, all with the same jobs, rails,
placement and history. The traces are not shipped: ``--data FOLDER``, ``--opt data=FOLDER``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from bireme import registry
from bireme.core.errors import SettingError
from bireme.rl.checkpoint import Checkpoint
from bireme.rl.components import LearnedOrderer
from bireme.simulator.metrics import SimulationMetrics
from bireme.training.export import Trained, export_run
from bireme.training.index.network import START, IndexNetwork
from bireme.training.index.search import CASE_LOADS, IndexSearch, Plan, judged_case
from bireme.training.recipes import Results
from bireme.training.runs import EarlyStopping, TrainingRun

SEARCHING: Final = ("malo", "mosa", "rifling")
"""Seconds per decision: not beside the others."""
ORACLE: Final = "-knowing"
"""What the name of a rule ends in that is told the true run times."""
_ALIASES: Final = ("fcfs",)
_CHARGED: Final = "; a stop costs 30 s and the work of up to half an hour"
_WHAT: Final = {
    "philly": "days of Philly's last three weeks, every sixth job",
    "muri": "quarters of Muri's trace, every sixth job",
    "poisson": "200 generated jobs",
}


class IndexRecipe:
    """``learned-index``: an index of service, estimate and size, by evolution strategies."""

    name = "learned-index"
    summary = "Orders a cluster's gangs by a learned index of service so far, estimate and size"
    paper = ""
    split = (
        "trained on days 3 to 41 of Philly, validated with days 42 to 48, evaluated on days 49 to "
        "70 and on Muri's traces, which it has never seen"
    )
    settings: Mapping[str, str] = {
        f"{trace}-{load}{charged}": f"{what}, offered load {load}{_CHARGED if charged else ''}"
        for trace, what in _WHAT.items()
        for load in CASE_LOADS
        for charged in ("", "-charged")
    }
    primary = ("mean_jct_minutes", True)
    plans: Final = {"full": Plan(8, 6, 60, 14), "smoke": Plan(4, 1, 1, 1, 60)}

    def train(self, run: TrainingRun) -> Path:
        """Learn and export; raises SettingError without data."""
        if run.data is None:
            raise SettingError("learned-index learns from traces; give their folder with --data")
        plan = self.plans[run.scale]
        torch.manual_seed(run.seed)
        network = IndexNetwork()
        search = IndexSearch(network, START.scales, run.data, plan, run.world_seed)
        every = 3 if run.scale == "full" else 1
        best = EarlyStopping(
            network, search.validation(), every=every, patience=6, is_less_better=True
        )
        if run.scale == "full":
            best.judge()
        run.learn("evolution", search, plan.population * plan.cases * plan.generations, best)
        best.restore()
        self._export(run, network, search)
        return run.checkpoint_folder

    def _export(self, run: TrainingRun, network: IndexNetwork, search: IndexSearch) -> None:
        plan = self.plans[run.scale]
        part = Trained(network, "index-gangs/1", stops_others=True)
        data = "Philly (Microsoft, 2017), weeks 1 to 6 of 10; week 7 to stop in time"
        weights = {f"w{n}": round(w, 4) for n, w in enumerate(network.values.tolist())}
        steps = search.updates * plan.population * plan.cases
        export_run(run, self, {"orderer": part}, data, steps=steps, **weights)

    def evaluate(
        self, checkpoint: Checkpoint, setting: str, seed: int, options: Mapping[str, str]
    ) -> Results:
        """Beside all rules, or ``only`` those that this option names, with + between.

        ``NAME-knowing`` is a rule whom every owner tells the true run time: what could be had.
        """
        if unknown := sorted(set(options) - {"data", "only"}):
            raise SettingError(f"there is no option {unknown[0]!r}; there are data and only")
        case = judged_case(Path(options.get("data", "data")), setting, seed)
        names = options["only"].split("+") if "only" in options else rivals()
        orderers = {
            name: registry.make_orderer(name.removesuffix(ORACLE)) for name in names if name
        }
        orderers[checkpoint.card.name] = LearnedOrderer(checkpoint)
        alone = case.mean_run_seconds
        return {
            name: _numbers(case.play(each, name.endswith(ORACLE)), alone)
            for name, each in orderers.items()
        }


def rivals() -> list[str]:
    """Rule-based orderers of the registry that are quick to ask."""
    return [
        name
        for name, path in registry.ORDERERS.items()
        if path.startswith("bireme.heuristics") and name not in (*SEARCHING, *_ALIASES)
    ]


def _numbers(metrics: SimulationMetrics, alone_seconds: float) -> dict[str, float]:
    waits, mean = metrics.wait_seconds, metrics.jct_seconds.mean or 0.0
    return {
        "mean_jct_minutes": mean / 60,
        "mean_jct_to_run_time": mean / alone_seconds,
        "mean_wait_minutes": (waits.mean or 0.0) / 60,
        "p99_wait_minutes": (waits.p99 or 0.0) / 60,
        "past_the_bound": float(metrics.wait_bound_violations),
        "preemptions": float(metrics.preemptions),
        "fallbacks": float(metrics.fallbacks),
    }
