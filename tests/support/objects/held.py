"""Gangs that hold places in a random world, told by hand: replica by replica, node by node."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bireme.core.gangs import Gang
from bireme.core.nodes import HOSTNAME_LABEL, Node
from bireme.core.placement import CLUSTER_LEVEL, Placement, TaskPlacement
from bireme.core.running import RunningGang


@dataclass
class Held:
    """A gang and the node of each of its replicas; the nodes need not exist."""

    gang: Gang
    started: float
    is_leaving: bool
    anchor: str = ""
    places: dict[str, list[str]] = field(default_factory=dict)
    """Task name to nodes, one entry per replica that holds room."""

    def add_place(self, task: str, node: str) -> None:
        """One more replica of ``task`` holds room on ``node``."""
        self.places.setdefault(task, []).append(node)

    @property
    def nodes(self) -> set[str]:
        """All nodes it holds room on, or would."""
        return {node for nodes in self.places.values() for node in nodes}

    def running(self, nodes: Sequence[Node], levels: Sequence[str]) -> RunningGang | None:
        """What it is in a cluster of ``nodes``; None when it holds nothing there."""
        ordered = sorted(nodes, key=lambda node: node.name)
        row = {node.name: number for number, node in enumerate(ordered)}
        tasks = []
        for task in self.gang.tasks:
            on = [row[name] for name in self.places.get(task.name, ()) if name in row]
            rows = sorted(set(on))
            counts = [on.count(each) for each in rows]
            if on:
                tasks.append(TaskPlacement(task.name, np.array(rows), np.array(counts)))
        if not tasks:
            return None
        there = [ordered[r] for r in sorted({int(r) for task in tasks for r in task.rows})]
        return RunningGang(
            gang=self.gang,
            placement=Placement(tuple(tasks), *_narrowest(there, levels)),
            started=self.started,
            is_leaving=self.is_leaving,
            anchor_row=row.get(self.anchor, -1),
        )


def _narrowest(nodes: Sequence[Node], levels: Sequence[str]) -> tuple[str, str]:
    """The first level at which ``nodes`` share a domain, and the domain's name.

    Equal names are one domain only below equal names, or none, of all wider levels.
    """
    for index, level in enumerate(levels):
        if level == HOSTNAME_LABEL:
            if len(nodes) == 1:
                return level, nodes[0].name
            continue
        wider = [key for key in levels[index:] if key != HOSTNAME_LABEL]
        paths = {tuple(node.labels.get(key) for key in wider) for node in nodes}
        name = nodes[0].labels.get(level)
        if len(paths) == 1 and name is not None:
            return level, name
    return CLUSTER_LEVEL, ""
