"""Inputs of TapFinger's network as in its paper, ``tapfinger-types/1``: speeds are unknown.

A task shows its type as a one-hot vector. A running task also shows its allocation and its elapsed
time (Li et al., section 4.2). Agents learn the speed of a type at each size from rewards alone. All
other features are those of :mod:`bireme_lab.encoders.tapfinger_scene` with one step per task at
every size, so they do not show its speed.

No cluster has the paper's types. So a network of this encoder is evaluated in the paper's
environment; in a cluster the rules decide on every gang.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bireme.core.gangs import Gang
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.onnx.sessions import Ask, Shape
from bireme.rl.protocols import Choices
from bireme_lab.encoders import tapfinger
from bireme_lab.encoders.tapfinger_scene import NONE, PENDING_FEATURES, RUNNING_FEATURES, Scene

TYPES: Final = 3
"""The maximum number of types in the paper's environments."""
_ELAPSED: Final = slice(3, 5)
"""Features of running tasks; with known speeds they hold the remaining time."""
_MAX_TENS: Final = 4.0

INPUTS: Final[Mapping[str, Shape]] = dict(tapfinger.INPUTS) | {
    "pending": ("pools", "slots", PENDING_FEATURES + TYPES),
    "running": ("pools", "runs", RUNNING_FEATURES + TYPES),
}


def type_inputs(
    scene: Scene, run_kind: IntArray, run_steps: IntArray
) -> dict[str, NDArray[np.float32]]:
    """Return the inputs of ``scene``, of whose times nothing is shown.

    ``run_kind`` is the type of each running task, NONE where nothing runs, and ``run_steps`` how
    long it has run, int64, both (..., pools, runs).
    """
    runs = run_kind != NONE
    blind = replace(
        scene, times=np.ones_like(scene.times), run_left=np.where(runs, 1.0, float(NONE))
    )
    # With equal times for all sizes, the smallest size gives the same inputs with less work.
    smallest = replace(
        blind, shares=blind.shares[..., :1, :], fits=blind.fits[..., :1], times=blind.times[..., :1]
    )
    inputs = smallest.inputs()
    inputs["sizes"] = blind.size_features(blind.times[..., 0].mean(-1)).astype(np.float32)
    elapsed = np.where(runs, run_steps, 0)
    inputs["running"][..., _ELAPSED] = np.stack(
        [np.log1p(elapsed), np.minimum(elapsed / 10, _MAX_TENS)], axis=-1
    )
    kinds = {"pending": scene.kind, "running": run_kind}
    for name, kind in kinds.items():
        is_kind = (kind[..., None] == np.arange(TYPES)).astype(np.float32)
        inputs[name] = np.concatenate([inputs[name], is_kind], axis=-1)
    return inputs


class TapfingerTypes:
    """``tapfinger-types/1``; see the module."""

    inputs: Mapping[str, Shape] = INPUTS

    def chooses(self, ask: Ask, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> Choices:
        """Choose nothing, so that the rules decide: gangs have no type."""
        del ask, gangs, snapshot
        return Choices((), {}, {})
