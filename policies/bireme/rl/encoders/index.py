"""Encoder of the learned index: ``index-gangs/1``.

The index is also the preemption priority. So a gang's features depend only on that gang, not on its
wait, and on the clock only through its service. Times and sizes are logarithms to base 2: run times
spread over five powers of ten, and only their order of magnitude is predictable.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.ranking import devices
from bireme.onnx.sessions import Array, Shape
from bireme.rl.protocols import GANGS

ATTAINED, WHOLE, IS_KNOWN, DEVICES = range(4)
"""Columns: seconds of service, estimated seconds in all, whether the estimate exists, devices."""
FEATURES: Final = 4


class IndexGangs:
    """Service, estimate and size of each gang, as float32 of shape (gangs, FEATURES)."""

    inputs: Mapping[str, Shape] = {"gangs": (GANGS, FEATURES)}
    keeps_equal_gangs_in_order = True

    def encode(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> dict[str, Array]:
        """Encode gangs; an unknown run time is 0."""
        running = snapshot.running_by_uid
        rows = []
        for gang in gangs:
            estimate, run = gang.estimated_seconds, running.get(gang.uid)
            attained = gang.attained_seconds
            now = attained if run is None else attained + run.elapsed_seconds(snapshot.now)
            # An estimate is for one start; a stop must not make a gang look shorter.
            whole = 0.0 if estimate is None else estimate + attained
            rows.append((now, whole, estimate is not None, devices(gang, snapshot)))
        features = np.array(rows, dtype=np.float64)
        for column in (ATTAINED, WHOLE, DEVICES):
            features[:, column] = np.log2(np.maximum(features[:, column], 1.0))
        return {"gangs": features.astype(np.float32)}
