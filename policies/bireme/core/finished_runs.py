"""Finished runs: the nodes of runs that have ended, and their speed against the expectation.

A policy may judge machines by them: a machine that is repeatedly slower than its kind is not
healthy. The simulator and the operator fill the same bounded memory, and every snapshot shows it.

**Speed.** The logarithm of the expected seconds, over the actual seconds, over the speed of the
slowest GPU model of the run (:func:`log_speed`). The owner's statement is the expectation. Without
one, it is the geometric mean of the remembered runs of the same user and template, each times the
speed of its model. The estimate of the history is not used: it is a 90 % quantile
(:mod:`bireme.core.estimates`), drawn towards wider groups, so nearly all runs would look fast,
mostly those of short histories and varied templates.

**Offsets.** Owners exaggerate, each in their own way, and state times for the GPUs they know. Like
runs have no absolute speed at all. So speeds are comparable only within a group
(:attr:`RunsOnNodes.group`: an owner, or a user and template without a statement). A reader has to
allow for an unknown offset of each group.

**Runs that count.** Runs that succeeded in the first start, at their requested size, in at least
:data:`MIN_SECONDS`: start-up times hide the speed of shorter ones. Elastic gangs do not count,
because their expectation is for another size than they may have had. Their measured steps a second
would tell, but are not kept by node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bireme.core.gpus import GPU_MODEL_LABEL, gpu_model
from bireme.core.nodes import NodeTable
from bireme.core.resources import FloatArray, IntArray

MAX_RUNS: Final = 256
"""The limit on remembered runs; the oldest are forgotten first."""
MIN_SECONDS: Final = 60.0
_MAX_LOG: Final = 2.0


def log_speed(
    expected_seconds: FloatArray, elapsed_seconds: FloatArray, slowest: FloatArray
) -> FloatArray:
    """Return log(expected / elapsed / speed of the slowest GPU model), clipped; any one shape."""
    # At least a second: a run of no time has no speed.
    ratio = np.maximum(expected_seconds, 1.0) / np.maximum(elapsed_seconds, 1.0) / slowest
    return np.asarray(np.clip(np.log(ratio), -_MAX_LOG, _MAX_LOG))


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """One run that ended.

    Attributes:
        shares: The fraction of its replicas on each node by name, in order of the names; sum 1.
        elapsed_seconds: From admission to the end.
        slowest: Speed of its slowest GPU model, V100 being 1.
        stated_seconds: Its owner's estimate; None if there was none.
        group: Runs with comparable speeds: ``(user,)`` with an estimate, else ``(user, template)``.
    """

    shares: tuple[tuple[str, float], ...]
    elapsed_seconds: float
    slowest: float
    stated_seconds: float | None
    group: tuple[str, ...]


def make_finished_run(
    replicas: Mapping[str, int],
    nodes: NodeTable,
    elapsed_seconds: float,
    stated_seconds: float | None,
    user: str,
    template: str,
) -> FinishedRun | None:
    """Return the run of a gang that had ``replicas`` by node name; None if it tells nothing.

    A run tells nothing if it was too short, or if ``nodes`` no longer has one of its nodes: the
    GPU model of that is unknown.
    """
    if elapsed_seconds < MIN_SECONDS or not replicas:
        return None
    if not all(name in nodes.row for name in replicas):
        return None
    total = sum(replicas.values())
    labels = [nodes.nodes[nodes.row[name]].labels for name in replicas]
    models = [
        gpu_model(node_labels.get(GPU_MODEL_LABEL, ""), nodes.gpu_models) for node_labels in labels
    ]
    return FinishedRun(
        shares=tuple((name, count / total) for name, count in sorted(replicas.items())),
        elapsed_seconds=elapsed_seconds,
        slowest=min(model.speed for model in models),
        stated_seconds=stated_seconds,
        group=(user, template) if stated_seconds is None else (user,),
    )


@dataclass(frozen=True, slots=True, eq=False)
class RunsOnNodes:
    """Finished runs over the rows of a node table, oldest first.

    Attributes:
        shares: The fraction of each run on each node, float64, shape (runs, nodes). A row sums to
            less than 1 if a node is gone.
        speeds: Values of :func:`log_speed`, shape (runs,).
        group: Equal for runs with comparable speeds, int64 from 0 on, shape (runs,).
    """

    shares: FloatArray
    speeds: FloatArray
    group: IntArray


@dataclass(frozen=True, slots=True)
class FinishedRuns:
    """The last :data:`MAX_RUNS` runs that ended, oldest first; immutable, as snapshots are."""

    runs: tuple[FinishedRun, ...] = ()
    _cache: dict[str, tuple[NodeTable, RunsOnNodes]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def plus(self, run: FinishedRun | None) -> "FinishedRuns":
        """Return the memory with ``run`` as its newest; None is no run."""
        return self if run is None else FinishedRuns((*self.runs, run)[-MAX_RUNS:])

    def on(self, nodes: NodeTable) -> RunsOnNodes:
        """Return the runs over the rows of ``nodes``, without runs whose nodes are all gone.

        The result is computed on the first call, and cached for the same table.
        """
        cached = self._cache.get("last")
        if cached is None or cached[0] is not nodes:
            cached = self._cache["last"] = nodes, self._on(nodes)
        return cached[1]

    def _on(self, nodes: NodeTable) -> RunsOnNodes:
        shares = np.zeros((len(self.runs), len(nodes)))
        for row, run in enumerate(self.runs):
            for name, share in run.shares:
                if name in nodes.row:
                    shares[row, nodes.row[name]] = share
        numbers = {group: n for n, group in enumerate(dict.fromkeys(r.group for r in self.runs))}
        group = np.array([numbers[run.group] for run in self.runs], dtype=np.int64)
        elapsed = np.array([run.elapsed_seconds for run in self.runs])
        slowest = np.array([run.slowest for run in self.runs])
        stated = np.array([run.stated_seconds for run in self.runs], dtype=np.float64)  # NaN: none
        # The time of like runs on a GPU of speed 1, in the mean of logarithms.
        logs = np.log(elapsed * slowest)
        usual = np.bincount(group, logs) / np.maximum(np.bincount(group), 1)
        expected = np.where(np.isnan(stated), np.exp(usual[group]), stated)
        speeds = log_speed(expected, elapsed, slowest)
        is_left = shares.any(axis=1)
        return RunsOnNodes(shares[is_left], speeds[is_left], group[is_left])


NO_RUNS: Final = FinishedRuns()
"""Nothing has ended, or nothing was observed."""
