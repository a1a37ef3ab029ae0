"""What RLPTO's network sees of tasks that train: the paper's seven vectors, made free of scale.

The vectors of section VI.D are, per task: its id m, iterations e, loss l, largest loss n, accuracy
a, node time c and share of the nodes w. An id says nothing to a network that is shared over tasks:
the rows are the ids. Iterations and node times count by their ratio to the middle task's, the loss
as a share of the largest. The agent is called because a gain in accuracy fell
below beta, so gain and beta are shown too; the paper's agent would have to remember the last state
to know the gain.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.resources import BoolArray, FloatArray

TASK_FEATURES: Final = 11
CONTEXT_FEATURES: Final = 4
MIDDLE_BETA: Final = 3e-4
"""The paper's recommendation where accuracy and time both count (section VII)."""


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Tasks that train at one moment; arrays have shape (..., tasks) unless said otherwise.

    Attributes:
        done: Iterations, or another measure of how far a task is; nan where nobody knows. Only
            ratios count.
        loss: Now, over the largest it ever had; nan where nobody told.
        accuracy: From 0 to 1; nan where nobody told.
        gain: What the last iteration added to the accuracy; nan where there was none.
        seconds: Of an iteration as it is now; nan where nobody knows. Only ratios count.
        nodes: It has now, in whole nodes.
        share: Of the cluster that it has.
        may_grow, may_shrink: Whether a node can be given to it, or taken from it.
        is_there: False for padding.
        free: Share of the cluster that nobody has, shape (...).
        waiting: Tasks that wait, shape (...).
        beta: The least gain that is worth a node, shape (...).
    """

    done: FloatArray
    loss: FloatArray
    accuracy: FloatArray
    gain: FloatArray
    seconds: FloatArray
    nodes: FloatArray
    share: FloatArray
    may_grow: BoolArray
    may_shrink: BoolArray
    is_there: BoolArray
    free: FloatArray
    waiting: FloatArray
    beta: FloatArray


def task_features(facts: Facts) -> NDArray[np.float32]:
    """One row per task, 0 for padding; shape (..., tasks, TASK_FEATURES), all within [-1, 2]."""
    tasks = np.maximum(facts.is_there.sum(axis=-1), 1)[..., None]
    columns = (
        _beside_the_middle(facts.done, facts.is_there),
        np.nan_to_num(facts.loss, nan=0.5),
        np.nan_to_num(facts.accuracy, nan=0.5),
        _gain_over(facts.beta[..., None], facts.gain),
        np.isnan(facts.gain),
        _beside_the_middle(facts.seconds, facts.is_there),
        facts.share,
        np.minimum(facts.share * tasks, 4.0) / 2,
        1.0 / np.maximum(facts.nodes, 1.0),
        facts.may_grow,
        facts.may_shrink,
    )
    features = np.stack([np.asarray(column, np.float64) for column in columns], axis=-1)
    return np.where(facts.is_there[..., None], features, 0.0).astype(np.float32)


def context_features(facts: Facts) -> NDArray[np.float32]:
    """What is the same for all tasks, shape (..., CONTEXT_FEATURES)."""
    tasks = facts.is_there.sum(axis=-1)
    columns = (
        facts.free,
        np.log10(facts.beta / MIDDLE_BETA),
        facts.waiting / np.maximum(facts.waiting + tasks, 1.0),
        1.0 / np.maximum(tasks, 1.0),
    )
    return np.stack(columns, axis=-1).astype(np.float32)


def _gain_over(beta: FloatArray, gain: FloatArray) -> FloatArray:
    """How many powers of ten the gain is above beta, halved, within [-1, 1]; 0 where unknown."""
    ratio = np.maximum(np.nan_to_num(gain, nan=0.0), 0.0) / beta
    powers = np.clip(np.log10(np.maximum(ratio, 1e-2)) / 2, -1.0, 1.0)
    return np.where(np.isnan(gain), 0.0, powers)


def _beside_the_middle(values: FloatArray, is_there: BoolArray) -> FloatArray:
    """How many powers of four each is above the geometric mean, within [-1, 1]; 0: unknown."""
    is_known = is_there & (values > 0)
    logs = np.log2(np.where(is_known, values, 1.0)) / 2
    middle = logs.sum(axis=-1, keepdims=True) / np.maximum(is_known.sum(-1, keepdims=True), 1)
    return np.where(is_known, np.clip(logs - middle, -1.0, 1.0), 0.0)
