"""How fast a task trains, and how good it gets: closed forms, each number with its source.

    seconds of a step    Optimus' law of synchronous training with one server
    loss                 1 / (b e + c) + d
    accuracy yet to come SPAN / (1 + e / pace)^2, and each iteration loses a share of what it
                         would bring, PER_WORKER for every worker

``e`` counts iterations: passes over the data. RLPTO publishes neither curves nor speeds, only
final accuracies and total times (tables II and III), which these forms are calibrated to.

* Speed (measured, DL2): ``dssm``, the one of eight fitted laws by which more workers still help
  beside a single server, as figure 9 has it. The batch of 1024 is assumed; with it FS and FCFS
  take 8807 and 14700 s, published 8498 and 14333.
* Shape (measured, Pollux): validation accuracy of ResNet-18 on CIFAR-10 over epochs, batches 128
  to 1024, fits ``top - span / (1 + e / pace)^2`` to 1.4 to 1.8 points, span 0.48 to 0.58.
* Pace (calibrated): so that accuracy between beta 1e-3 and 1e-4 differs by about a point, most
  with small data (figure 8). Large data needs fewer passes.
* Accuracy lost per worker (paper): FCFS with 10 workers is 1.1 points under FS with 3 or 4, with
  12 it is 1.7 points under (tables II and III): 0.16 to 0.19 points each. That it is lost as a
  share of every iteration's gain is assumed: a worker sees a part of the data only.
* Tops (calibrated) to FS' 87.6 %; how they differ by size is assumed. With all of
  this the simple rule for RLPTO has 88.05 to 87.18 % in 9306 to 4482 s, published for RLPTO are
  88.13 to 87.23 % in 8882 to 4515 s. SLAQ is 0.8 points lower than published, Dolphin 17 % slower.
* Loss (form: Optimus, EuroSys 2018, section 3.1; assumed numbers): from ln 10 towards 0.3.
"""

from math import log
from typing import Final

import numpy as np

from bireme.core.resources import FloatArray, IntArray
from bireme.simulator.physics.optimus import DL2_LAWS, OptimusLaw

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
