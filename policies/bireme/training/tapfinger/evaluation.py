"""TapFinger beside its rivals: completion times in steps, all with the same arrivals.

The rivals of the paper are Optimus, Tiresias, Random and Min; beside them stand rules that it does
not have: the greedy one with one tuned constant, a frugal one, shortest first where sizes do not
matter, and Optimus with exact speeds. Seeds of evaluation are never drawn in training.

The paper's own figures are from one sequence of arrivals each, and from another one for each
method, since in the authors' program arrivals and noise are drawn from one stream.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from bireme.core.errors import SettingError
from bireme.onnx.sessions import Session
from bireme.rl.checkpoint import Checkpoint, load
from bireme.rl.encoders.tapfinger import decided, question
from bireme.training.judgement import check_ended, session_of
from bireme.training.tapfinger.baselines import DIVISIONS, Rule, divide_always, rules, teacher_of
from bireme.training.tapfinger.environment import Pools, TapWorld
from bireme.training.tapfinger.settings import SETTINGS, Setting, make_setting
from bireme.training.tapfinger.turns import SIZE, SLOT, Sight
from bireme.training.worlds import Array, Observation, take

__all__ = ["EVALUATION_SEEDS", "PRIMARY", "PUBLISHED", "SETTINGS", "Contender", "evaluate"]

PRIMARY: Final = ("mean_jct_steps", True)
EVALUATION_SEEDS: Final = 2**31
"""Added to every seed of an evaluation; trainings draw theirs below it."""

Contender: TypeAlias = Callable[[Setting, Sequence[int]], Pools]
"""Plays whole episodes, one world per seed; the state at their end."""

PUBLISHED: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "single-3-noisy": {
            "tapfinger": 6.417,
            "optimus": 8.562,
            "min": 12.745,
            "random": 12.839,
            "tiresias": 14.661,
            "vanilla": 16.234,
        },
        "single-6-noisy": {
            "tapfinger": 7.312,
            "optimus": 9.203,
            "random": 13.990,
            "tiresias": 15.047,
            "min": 15.201,
        },
        "multi-3": {
            "tapfinger": 4.292,
            "no-attention": 5.875,
            "tiresias": 7.552,
            "optimus": 7.734,
            "random": 15.120,
            "min": 28.818,
        },
        "hetero-6": {
            "tapfinger": 4.870,
            "optimus": 8.125,
            "tiresias": 10.792,
            "random": 23.573,
            "min": 33.456,
        },
        "pointer": {
            "tapfinger": 8.057,
            "min": 12.604,
            "no-pointer": 13.229,
            "optimus": 13.333,
            "tiresias": 35.786,
            "random": 52.974,
        },
        "trace-3": {
            "tapfinger": 4.658,
            "min": 4.917,
            "random": 5.033,
            "optimus": 5.395,
            "tiresias": 5.574,
        },
        "trace-6": {
            "tapfinger": 4.732,
            "min": 4.830,
            "random": 4.965,
            "optimus": 5.280,
            "tiresias": 5.576,
        },
    }
)
"""Mean completion times in steps of Li et al. (figures 5, 8, 9, 11 to 14), as the authors published
them with their program. Those of the trace are with 1000 jobs on 3 pools and 2000 on 6."""


def evaluate(
    setting: str, seed: int, others: Mapping[str, Contender], options: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Metrics of ``others`` and all rivals with ``seed``, in steps.

    Options: ``data``, the folder with the published measurements, which trace settings need;
    ``jobs``, how many; ``only``, contenders with commas between.
    """
    if unknown := set(options) - {"data", "jobs", "only"}:
        raise SettingError(f"option {min(unknown)!r} is not known; known: data, jobs, only")
    data, jobs = options.get("data"), options.get("jobs")
    made = make_setting(setting, Path(data) if data else None, int(jobs) if jobs else None)
    contenders = {**others, **rivals(made, seed)}
    only = options.get("only")
    names = list(contenders) if only is None else [*others, *only.split(",")]
    for name in names:
        if name not in contenders:
            raise SettingError(f"no contender is called {name!r}; known: {', '.join(contenders)}")
    seeds = EVALUATION_SEEDS + seed
    return {name: judged(name, made, seeds, contenders[name]) for name in names}


def rivals(setting: Setting, seed: int) -> dict[str, Contender]:
    """All rules by name; ``seed`` is for what they draw at random."""
    followed = rules(setting.law, seed)
    return {
        **{name: partial(follow, rule) for name, rule in followed.items()},
        **{name: partial(divide_always, rule) for name, rule in DIVISIONS.items()},
    }


def follow(rule: Rule, setting: Setting, seeds: Sequence[int], *, retries: bool = False) -> Pools:
    """Let ``rule`` decide until all worlds are over; ``retries`` as in :class:`TapWorld`."""
    world = TapWorld(len(seeds), setting, retries=retries)
    seen = world.reset(seeds)
    while not world.pools.is_over.all():
        seen = world.step(rule(seen)).observation
    return world.pools


def judged(name: str, setting: Setting, seed: int, contender: Contender) -> dict[str, float]:
    """Mean and 95th percentile of completion times, and when the last job ended, in steps.

    EvaluationError where a job did not finish.
    """
    pools = contender(setting, [seed])
    check_ended(name, unfinished=int((pools.ended < 0).sum()))
    steps = (pools.ended - pools.jobs.arrival).astype(np.float64)
    return {
        "mean_jct_steps": float(steps.mean()),
        "p95_jct_steps": float(np.percentile(steps, 95)),
        "makespan_steps": float(pools.ended.max()),
    }


# The trained agents and the rule they start from, as choosers in TapFinger's world.

_LIMIT_SECONDS: Final = 5.0


def contenders(checkpoint: Checkpoint, options: Mapping[str, str]) -> dict[str, Contender]:
    """``checkpoint`` under its own name, those in the folders of option ``beside``, and the rule.

    All choose again where they lost a job to another pool.
    """
    folders = [Path(folder) for folder in options.get("beside", "").split(",") if folder]
    found: dict[str, Contender] = {}
    for each in (checkpoint, *map(load, folders)):
        found[each.card.name] = partial(_by_network, session_of(each, "sizer"))
    return found | {"look-ahead": look_ahead}


def _by_network(session: Session, setting: Setting, seeds: Sequence[int]) -> Pools:
    return follow(served(session, Sight(setting)), setting, seeds, retries=True)


def look_ahead(setting: Setting, seeds: Sequence[int]) -> Pools:
    """The rule that training starts from."""
    sight, teacher = Sight(setting), teacher_of(setting)

    def choose(raw: Observation) -> dict[str, Array]:
        return sight.actions(raw, teacher(sight.look(raw)))

    return follow(choose, setting, seeds, retries=True)


def served(session: Session, sight: Sight) -> Rule:
    """The network of a checkpoint, asked about one world after the other, as a cluster asks it."""

    def choose(raw: Observation) -> dict[str, Array]:
        seen = sight.look(raw).seen()
        chosen = []
        for world in range(len(raw["job"])):
            one = take(seen, np.asarray(world))
            arrays, count = question(one)
            logits = session.answer(arrays, count, _LIMIT_SECONDS)
            chosen.append(decided(one, arrays["sizes"], logits))
        slot, size = (np.stack(part) for part in zip(*chosen, strict=True))
        return sight.actions(raw, {SLOT: slot, SIZE: size})

    return choose
