"""Bars of learned policies, by page: numbers stated before they were trained.

A bar with baselines is on the ratio to the best of them by the same metric. The checkpoint is held
to it, or another contender that is its own: RLPTO at another beta, say.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from benchmarks.simulations.intervals import mean_of, paired_ratio
from bireme.core.resources import FloatArray
from bireme_lab.simulator.comparison import Estimate
from bireme_lab.training.das import evaluation
from bireme_lab.training.evaluation import EvaluationResult
from bireme_lab.training.rlpto.evaluation import EVALUATED_BETAS


@dataclass(frozen=True, slots=True)
class Bar:
    """``metric`` in ``setting`` must be at most ``limit``, at least where more is better."""

    setting: str
    metric: str
    limit: float
    baselines: tuple[str, ...] = ()
    among: str = "the best baseline"
    """Name of the one of the ratio."""
    own: str = ""
    """Contender that is held to it; empty for the checkpoint."""
    is_less_better: bool = True


@dataclass(frozen=True, slots=True)
class Reached:
    """Outcome of a bar; ``baseline`` is the one of the ratio, empty for a value."""

    bar: Bar
    found: Estimate
    baseline: str

    @property
    def is_reached(self) -> bool:
        if self.bar.is_less_better:
            return self.found.mean <= self.bar.limit
        return self.found.mean >= self.bar.limit


def measured(bar: Bar, result: EvaluationResult) -> Reached:
    own = _values(result, bar.own or result.checkpoint, bar.metric)
    if not bar.baselines:
        return Reached(bar, mean_of(own), "")
    tables = {name: _values(result, name, bar.metric) for name in bar.baselines}
    sign = 1 if bar.is_less_better else -1
    best = min(tables, key=lambda name: sign * float(tables[name].mean()))
    return Reached(bar, paired_ratio(own, tables[best]), best)


def _values(result: EvaluationResult, contender: str, metric: str) -> FloatArray:
    """Return the metric by seed."""
    return np.array([result.runs[seed][contender][metric] for seed in result.seeds])


_DL2: Final = ("dl2", "dl2/first-fit")
_DAS_RIVALS: Final = (*evaluation.PAPERS_RULES, *_DL2)
_DAS_RULES: Final = (*evaluation.RULES, *_DL2)
_DAS: Final = {"small": (0.90, 0.987), "medium": (0.97, 0.982), "large": (0.99, 0.987)}
_DAS_GROUPS: Final = (
    (_DAS_RIVALS, "the best of the slides' baselines", None),
    (_DAS_RULES, "the best of all rules of Bireme", None),
    (("best-site",), "its expert, without finished runs,", (1.0, 1.0)),
    (("best-site-told",), "its expert, with finished runs,", (1.0, 1.0)),
)

_A2C: Final = {"rate-0.7": 3.2, "rate-0.9": 4.15}

_INDEX: Final = (
    "philly-0.7",
    "philly-0.9",
    "philly-1.1",
    "philly-0.9-charged",
    "philly-1.1-charged",
)
_INDEX_RIVALS: Final = ("srtf", "tiresias-gittins", "tiresias-las")
"""The best rules on Philly; the tables have all."""

_RLPTO_TABLES: Final = ("table-2", "table-3")
_RLPTO_MIXES: Final = ("mix-1", "mix-2", "mix-3", "mix-4")
_RULE: Final = ("simple-rule-0.0003",)
_RLPTO_BETAS: Final = {**dict.fromkeys(("fs", "fcfs", "slaq", "dolphin"), 0.0003), "tradl": 0.0007}
"""The beta at which each baseline is to be dominated: of the tables', the one nearest to it."""


def _rlpto() -> Iterator[Bar]:
    for table in _RLPTO_TABLES:
        for baseline, beta in _RLPTO_BETAS.items():
            own = f"rlpto-{beta}"
            yield Bar(table, "total_seconds", 1.0, (baseline,), baseline, own)
            yield Bar(table, "mean_accuracy", 1.0, (baseline,), baseline, own, is_less_better=False)
        for less, more in pairwise(EVALUATED_BETAS):
            for metric in ("total_seconds", "mean_accuracy"):
                baseline = f"rlpto-{less}"
                yield Bar(table, metric, 1.0, (baseline,), "the next smaller beta", f"rlpto-{more}")
    for mix in _RLPTO_MIXES:
        for baselines, among in ((tuple(_RLPTO_BETAS), "the best baseline"), (_RULE, "the rule")):
            yield Bar(mix, "mean_reward", 1.0, baselines, among, is_less_better=False)


_TAPFINGER: Final = {
    "single-3": 3.7,
    "single-6": 3.4,
    "multi-3": 3.75,
    "hetero-6": 3.4,
    "pointer": 8.06,
    "trace-3": 4.658,
    "trace-6": 4.732,
}
_TAPFINGER_MIN: Final = ("trace-3", "trace-6")
_TAPFINGER_RULES: Final = (("tuned", "the tuned rule"), ("look-ahead", "the rule it starts from"))


def _tapfinger() -> Iterator[Bar]:
    metric = "mean_jct_steps"
    for setting, limit in _TAPFINGER.items():
        yield Bar(setting, metric, limit)
    yield Bar("pointer", metric, 1.03, ("sjf",), "shortest first")
    for setting in _TAPFINGER_MIN:
        yield Bar(setting, metric, 0.98, ("min",), "Min")
    for baseline, among in _TAPFINGER_RULES:
        for setting in _TAPFINGER:
            yield Bar(setting, metric, 1.0, (baseline,), among)


BARS: Final[Mapping[str, tuple[Bar, ...]]] = {
    "a2c": tuple(
        bar
        for setting, slowdown in _A2C.items()
        for bar in (
            Bar(setting, "slowdown", slowdown),
            Bar(setting, "completion_steps", 1.0, ("sjf",)),
            Bar(setting, "waiting_steps", 1.0, ("sjf",)),
        )
    ),
    "learned-index": tuple(
        Bar(setting, metric, limit, _INDEX_RIVALS, "rules")
        for setting in _INDEX
        for metric, limit in (("mean_jct_minutes", 0.9), ("p99_wait_minutes", 1.0))
    ),
    "das": tuple(
        Bar(setting, metric, limit, baselines, among)
        for baselines, among, least in _DAS_GROUPS
        for setting, limits in _DAS.items()
        for metric, limit in zip(
            ("mean_jct_minutes", "mean_fee_dollars"), least or limits, strict=True
        )
    ),
    "rlpto": tuple(_rlpto()),
    "tapfinger": tuple(_tapfinger()),
}
"""By page. A2cScheduler, whose tables are lost: what a first program for its env reached. DAS:
the ratios of the slides' table 1, to the best of the slides' baselines, and, which the slides do
not ask for, to the best of all rules; and no worse than what it started from. RLPTO: as its tables
II and III and figure 11 have it, at some beta better than each baseline in both measures, at each
larger beta quicker and less accurate, and most points in every mix; also than the simple rule.
TapFinger: below what rules reach in its synthetic envs, on the trace below the paper's figures
and Min; and no worse than the rules."""
