"""Records made without an operator: a small world decides, and every cycle is written down."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.nodes import Node
from bireme.core.policy import Policy
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.registry import make_policy
from bireme.replay.reader import open_record
from bireme.replay.writer import RecordWriter
from bireme_lab.replay.simulated import SimulationRecorder
from bireme_lab.simulator.outcome import Outcome
from bireme_lab.simulator.simulation import simulate
from bireme_lab.simulator.workload import Trace
from testbed.small_cluster import SmallCluster

PLENTY = 2**24


def a_writer(
    folder: Path, settings: SchedulingSettings | None = None, *, run: str = "test", **limits: int
) -> RecordWriter:
    """Return a writer of three files at most, each of more bytes than a test writes."""
    limits = {"file_bytes": PLENTY, "most_files": 3, **limits}
    return RecordWriter(folder, run, settings or SchedulingSettings(), **limits)


def record(folder: Path, *snapshots: ClusterSnapshot, **options: Any) -> list[Decision]:
    """Record the decisions on ``snapshots`` of the policy of their settings; return them."""
    settings = snapshots[0].settings
    writer = a_writer(folder, settings=settings, **options)
    policy = make_policy(settings)
    decisions = [run_cycle(snapshot, policy) for snapshot in snapshots]
    for snapshot, decision in zip(snapshots, decisions, strict=True):
        writer.write(snapshot, decision)
    writer.close()
    return decisions


def snapshots_in(folder: Path) -> list[ClusterSnapshot]:
    return [moment.snapshot for moment in open_record([folder]).cycles()]


@dataclass
class RecordedCluster(SmallCluster):
    """A cluster whose cycles are recorded in ``folder``, with the policy that ``settings`` name."""

    folder: Path = field(kw_only=True)
    policy: Policy = field(init=False)

    def __post_init__(self) -> None:
        self.policy = make_policy(self.settings)
        self.writer = a_writer(self.folder, settings=self.settings)

    def decide(self) -> Decision:
        snapshot = self.snapshot()
        decision = super().decide()
        self.writer.write(snapshot, decision)
        return decision


def content(snapshot: ClusterSnapshot) -> dict[str, object]:
    """Return all of a snapshot as comparable values, gangs by uid, pools by name.

    Without the domain of a placement, which follows from the nodes.
    """
    nodes = snapshot.nodes
    found = {field.name: getattr(snapshot, field.name) for field in fields(ClusterSnapshot)}
    return found | {
        "nodes": (nodes.nodes, nodes.axis.names, nodes.topology_levels),
        "used": snapshot.used.tolist(),
        "waiting": {gang.uid: gang for gang in snapshot.waiting},
        "growable": {pool.name: pool for pool in snapshot.growable},
        "occupants": [
            (pods.kind, pods.rows.tolist(), pods.owner, pods.are_fixed)
            for pods in snapshot.occupants.groups
        ],
        "running": {running.gang.uid: _held(running) for running in snapshot.running},
    }


def _held(running: RunningGang) -> dict[str, object]:
    found = {one.name: getattr(running, one.name) for one in fields(running) if one.repr}
    tasks = running.placement.tasks
    return found | {"placement": [(t.task, t.rows.tolist(), t.counts.tolist()) for t in tasks]}


def simulated_record(
    folder: Path, trace: Trace, nodes: Sequence[Node], settings: SchedulingSettings
) -> Outcome:
    """Record a simulation of ``trace`` by the policy of ``settings``; return its outcome."""
    with SimulationRecorder(folder, settings) as recorder:
        return simulate(trace, nodes, make_policy(settings), settings, config=recorder.config)
