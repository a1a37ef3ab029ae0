"""Past runs, told from what a scheduling cycle sees: for policies that learn from them in service.

Whoever ran in the last snapshot, and neither runs nor waits in this one, has ended in between. What
is remembered of it is what :mod:`bireme.training.das.memory` remembers in training.
"""

from collections import deque

import numpy as np

from bireme.core.decision import Decision
from bireme.core.policy import Policy
from bireme.core.resources import FloatArray
from bireme.core.running import RunningGang
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube.gpu_models import GPU_MODEL_LABEL, gpu_model
from bireme.simulator.conduct import Decide
from bireme.training.das.memory import normalised_speed


class FinishedRuns:
    """The last runs that ended; call it for their shares and speeds."""

    def __init__(self, runs: int = 256) -> None:
        self._runs: deque[tuple[FloatArray, float]] = deque(maxlen=runs)
        self._present: dict[str, RunningGang] = {}
        self._nodes = 0

    def __call__(self) -> tuple[FloatArray, FloatArray]:
        """Shares of the workers on each node row, (runs, nodes), and normalised speeds, (runs,)."""
        shares = [share for share, _ in self._runs]
        return (
            np.array(shares).reshape(len(shares), self._nodes),
            np.array([speed for _, speed in self._runs]),
        )

    def watching(self, cycle: Decide) -> Decide:
        """``cycle`` under our eyes; it must run at every end of a run (no shortcuts)."""

        def decide(snapshot: ClusterSnapshot, policy: Policy) -> Decision:
            self._see(snapshot)
            decision = cycle(snapshot, policy)
            for start in decision.admitted:  # a run may end before the next cycle looks
                running = RunningGang(start.gang, start.placement, snapshot.now)
                self._present[start.gang.uid] = running
            return decision

        return decide

    def _see(self, snapshot: ClusterSnapshot) -> None:
        self._nodes = len(snapshot.nodes)
        there = dict(snapshot.running_by_uid)
        waiting = {gang.uid for gang in snapshot.waiting}
        for uid, running in self._present.items():
            if uid not in there and uid not in waiting:
                self._remember(running, snapshot)
        self._present = there

    def _remember(self, running: RunningGang, snapshot: ClusterSnapshot) -> None:
        estimate = running.gang.estimated_seconds
        if estimate is None:
            return  # nothing was stated that its time could be compared with
        rows = np.concatenate([task.rows_by_replica() for task in running.placement.tasks])
        share = np.bincount(rows, minlength=self._nodes) / len(rows)
        slowest = min(_speed(snapshot, row) for row in np.unique(rows).tolist())
        elapsed = np.array(running.elapsed_seconds(snapshot.now))
        speed = normalised_speed(np.array(estimate), elapsed, np.array(slowest))
        self._runs.append((share, float(speed)))


def _speed(snapshot: ClusterSnapshot, row: int) -> float:
    labels = snapshot.nodes.nodes[row].labels
    return gpu_model(labels.get(GPU_MODEL_LABEL, "")).speed
