"""The experiments of RLPTO: how many nodes and servers there are, and which tasks come when.

A cluster of parameter servers runs one task per server; the other nodes are workers. The paper's
12 nodes make 3 servers and 10 workers, as its rows of FS, (3, 3, 4), and FCFS, 10, say; 12 less 3
would be 9. Its 16 nodes make 4 servers and 12 workers. All nodes are containers of one machine, so
that with more of them each is slower.

Lu et al., "RLPTO", IEEE TPDS 2023, section VII; tables II, III and V.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf, log
from types import MappingProxyType
from typing import Final

import numpy as np

from bireme.core.errors import SettingError
from bireme.core.resources import FloatArray, IntArray
from bireme.simulator.physics.laws import DL2_LAWS, OptimusLaw
from bireme.simulator.traces.papers import RLPTO_IMAGES, RLPTO_PRIORITIES

# How fast a task trains, and how good it gets: closed forms, each number with its source.
#
#     seconds of a step    Optimus' law of synchronous training with one server
#     loss                 1 / (b e + c) + d
#     accuracy yet to come SPAN / (1 + e / pace)^2, and each iteration loses a share of what it
#                          would bring, PER_WORKER for every worker
#
# ``e`` counts iterations: passes over the data. RLPTO publishes neither curves nor speeds, only
# final accuracies and total times (tables II and III), which these forms are calibrated to.
#
# * Speed (measured, DL2): ``dssm``, the one of eight fitted laws by which more workers still help
#   beside a single server, as figure 9 has it. The batch of 1024 is assumed; with it FS and FCFS
#   take 8807 and 14700 s, published 8498 and 14333.
# * Shape (measured, Pollux): validation accuracy of ResNet-18 on CIFAR-10 over epochs, batches 128
#   to 1024, fits ``top - span / (1 + e / pace)^2`` to 1.4 to 1.8 points, span 0.48 to 0.58.
# * Pace (calibrated): so that accuracy between beta 1e-3 and 1e-4 differs by about a point, most
#   with small data (figure 8). Large data needs fewer passes.
# * Accuracy lost per worker (paper): FCFS with 10 workers is 1.1 points under FS with 3 or 4, with
#   12 it is 1.7 points under (tables II and III): 0.16 to 0.19 points each. That it is lost as a
#   share of every iteration's gain is assumed: a worker sees a part of the data only.
# * Tops (calibrated) to FS' 87.6 %; how they differ by size is assumed. With all of
#   this the simple rule for RLPTO has 88.05 to 87.18 % in 9306 to 4482 s, published for RLPTO are
#   88.13 to 87.23 % in 8882 to 4515 s. SLAQ is 0.8 points lower than published, Dolphin 17 %
#   slower.
# * Loss (form: Optimus, EuroSys 2018, section 3.1; assumed numbers): from ln 10 towards 0.3.

BATCH: Final = 1024
"""Images of a step over all workers."""
LAW: Final = OptimusLaw(DL2_LAWS["dssm"].theta, BATCH)
MOST_WORKERS: Final = 64
_STEP_SECONDS: Final[FloatArray] = np.array(
    [1 / LAW.steps_per_second({"worker": n, "ps": 1}, 1) for n in range(1, MOST_WORKERS + 1)]
)
SPAN: Final = 0.5
"""Accuracy from before the first iteration to the best."""
PER_WORKER: Final = 0.0018 / SPAN
TOPS: Final = {120_000: 0.901, 60_000: 0.887, 40_000: 0.873}
PACES: Final = {120_000: 2.0, 60_000: 4.0, 40_000: 9.0}
"""Iterations, by the number of images."""
FIRST_LOSS: Final = log(10)
"""Of a guess among ten classes."""
LAST_LOSS: Final = 0.3


def step_seconds(workers: IntArray) -> FloatArray:
    """Seconds of a step with so many workers, any shape; that of one where there is none."""
    return np.asarray(_STEP_SECONDS[np.maximum(workers, 1) - 1])


def to_come(pace: FloatArray, iterations: FloatArray) -> FloatArray:
    """Accuracy yet to come, from SPAN to 0, were each iteration done by one worker; any shape."""
    return np.asarray(SPAN / (1 + iterations / pace) ** 2)


def to_come_at(pace: FloatArray, gain: FloatArray) -> FloatArray:
    """Accuracy yet to come when an iteration brings ``gain``, by one worker; any one shape."""
    return np.asarray(SPAN * (pace * gain / (2 * SPAN)) ** (2 / 3))


def added(pace: FloatArray, since: FloatArray, until: FloatArray, workers: IntArray) -> FloatArray:
    """Accuracy that iterations ``since`` to ``until`` bring with so many workers; any one shape."""
    brought = to_come(pace, since) - to_come(pace, until)
    return np.asarray(brought * (1 - PER_WORKER * workers))


def loss_rate(pace: FloatArray) -> FloatArray:
    """The ``b`` of the loss, per iteration, any shape: halfway down after ``pace`` iterations."""
    return 1 / ((FIRST_LOSS - LAST_LOSS) * pace)


def loss(pace: FloatArray, iterations: FloatArray) -> FloatArray:
    """Training loss, any one shape."""
    first = 1 / (FIRST_LOSS - LAST_LOSS)
    return np.asarray(1 / (loss_rate(pace) * iterations + first) + LAST_LOSS)


BETAS: Final = (1e-4, 2e-4, 3e-4, 5e-4, 1e-3)
"""Least gains of accuracy per iteration, from 0 to 1, that are judged (tables II and III)."""
MIX_BETA: Final = 3e-4
"""That of the priority mixes (section VII.B.4)."""
MOST_SERVERS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One experiment.

    Attributes:
        servers: Parameter servers; as many tasks run at a time.
        nodes: Workers of all tasks together.
        slowdown: How much longer a step takes than where there are few nodes.
        priorities: Of each task, 1 to 5, in the order of ``RLPTO_IMAGES``; without any, all have 1
            and come in an order that the seed draws.
        spread_seconds: Tasks arrive at times drawn from the first so many seconds.
        request_seconds: How often the owner of a waiting task may ask for another priority;
            whether it asks, and for more or less, is drawn.
    """

    servers: int = 3
    nodes: int = 10
    slowdown: float = 1.0
    priorities: tuple[int, ...] = ()
    spread_seconds: float = 0.0
    request_seconds: float = inf

    def __post_init__(self) -> None:
        if not 1 <= self.servers <= min(self.nodes, MOST_SERVERS) or self.nodes > MOST_WORKERS:
            raise SettingError(
                f"servers is {self.servers}, nodes {self.nodes}; give at least a node for each of "
                f"1 to {MOST_SERVERS} servers, and at most {MOST_WORKERS} nodes"
            )


_TWELVE: Final = Setting()
SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        "table-2": _TWELVE,
        # 1.12 lies between what the rows of FS (1.18) and of FCFS (1.06) say.
        "table-3": Setting(servers=4, nodes=12, slowdown=1.12),
        **{
            f"mix-{number}": replace(_TWELVE, priorities=mix)
            for number, mix in enumerate(RLPTO_PRIORITIES, 1)
        },
        "arrivals": replace(
            _TWELVE, priorities=RLPTO_PRIORITIES[3], spread_seconds=3600.0, request_seconds=600.0
        ),
    }
)
"""By name. ``arrivals`` is not in the paper: there tasks are interrupted and change queues."""


# The twelve tasks of a run, as drawn by its seed.
#
# Tasks of one size differ a little in how fast and how far they train; a published row is the mean
# of 20 runs, and this is what makes runs differ.

TOP_SPREAD: Final = 0.002
"""Standard deviation of the best accuracy among tasks of one size (assumed)."""
PACE_SPREAD: Final = 0.1
"""Standard deviation of the logarithm of the pace among tasks of one size (assumed)."""
_ASKED: Final = (-1.0, 0.0, 1.0, 1.0)
"""What owners of waiting tasks ask for at every turn: one of these, each as likely (assumed)."""


@dataclass(frozen=True, slots=True, eq=False)
class Tasks:
    """Tasks by number, the order in which they are submitted; shapes (worlds, tasks).

    Attributes:
        images: Of the data.
        top, pace: As in :mod:`~bireme.training.rlpto.settings`.
        arrived: Seconds.
        priority: What it was submitted with, 1 to 5.
        asked: Requests for a higher priority, or a lower one (-1), at each turn of its owner.
    """

    images: IntArray
    top: FloatArray
    pace: FloatArray
    arrived: FloatArray
    priority: FloatArray
    asked: FloatArray


def draw(settings: Sequence[Setting], seeds: Sequence[int]) -> Tasks:
    """Those of one world per setting and seed."""
    drawn = [_draw(setting, seed) for setting, seed in zip(settings, seeds, strict=True)]
    return Tasks(*(np.stack([getattr(one, each.name) for one in drawn]) for each in fields(Tasks)))


def _draw(setting: Setting, seed: int) -> Tasks:
    chance = np.random.default_rng(seed)
    count = len(RLPTO_IMAGES)
    mixed = chance.permutation(count)
    images = np.array(RLPTO_IMAGES)[np.arange(count) if setting.priorities else mixed]
    tops = np.array([TOPS[size] for size in images.tolist()])
    paces = np.array([PACES[size] for size in images.tolist()])
    return Tasks(
        images=images,
        top=tops + TOP_SPREAD * chance.standard_normal(count),
        pace=paces * np.exp(PACE_SPREAD * chance.standard_normal(count)),
        arrived=np.sort(chance.random(count)) * setting.spread_seconds,
        priority=np.array(setting.priorities or [1] * count, dtype=np.float64),
        asked=chance.choice(_ASKED, count),
    )
