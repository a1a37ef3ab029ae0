"""The view of one moment of a cluster that the board shows.

:mod:`bireme.cli.ui.live` makes it from the objects of a cluster, :mod:`bireme.cli.ui.recorded` from
an operator's record. Pages read nothing else, so that both look alike.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bireme.cli.arguments import Json
from bireme.cli.gangs import ENDED_PHASES, GangLine
from bireme.core.device_use import DeviceUse
from bireme.core.gangs import Key
from bireme.core.gpus import GPU
from bireme.core.nodes import NodeTable


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue in its tree; amounts by resource, in the units of :mod:`bireme.core.resources`.

    Attributes:
        depth: Number of queues above it.
        used: Use by its own gangs and by those of queues below it.
    """

    name: str
    depth: int
    state: str
    admitted: int
    pending: int
    used: Mapping[str, int]
    guaranteed: Mapping[str, int]
    limit: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node and its devices of one resource; empty ``resource`` where it has none.

    Attributes:
        domain: Names of the wider topology domains, the widest first, with slashes between them.
        held: Devices by gang, as ``namespace/name``.
        other_devices: Devices of pods that belong to no gang.
        kept_for: Reserved devices by waiting gang, as ``namespace/name``; they may still be in use.
        remarks: Obstacles to gangs: not ready, cordoned, maintenance.
    """

    name: str
    pool: str
    model: str
    domain: str
    resource: str
    devices: int
    gang_devices: Mapping[str, int]
    other_devices: int
    kept_for: Mapping[str, int]
    remarks: tuple[str, ...] = ()

    @property
    def used(self) -> int:
        return sum(self.gang_devices.values()) + self.other_devices

    @property
    def idle_reserved(self) -> int:
        """Reserved devices that are free."""
        return min(max(0, self.devices - self.used), sum(self.kept_for.values()))


SpanKind = Literal["ran", "runs", "expected"]


@dataclass(frozen=True, slots=True)
class Span:
    """The time in which a gang ran, runs or is expected to run, in POSIX seconds.

    ``end`` is expected for gangs that run or are to come; None if it is unknown.
    """

    gang: str
    kind: SpanKind
    begin: float
    end: float | None
    devices: float


@dataclass(frozen=True, slots=True)
class View:
    """A cluster at ``now``, POSIX seconds, as far as the reader may see it.

    Attributes:
        source: Name of the cluster or record, as text.
        lines: All gangs, including ended ones.
        policies, pools: Manifests of SchedulingPolicies and NodePoolScalers; None where they may
            not be read or are not recorded.
        version: Number of changes before it was made.
        kept_unknown: Reason why the reserved places are unknown; empty if they are known.
        cycle: Number of the cycle in its record, from 0; None for a cluster.
        remarks: Parts that are not shown, with the reasons.
    """

    source: str
    now: float
    lines: Sequence[GangLine]
    capacity: Sequence[DeviceUse]
    queues: Sequence[QueueRow]
    nodes: Sequence[NodeRow]
    spans: Sequence[Span]
    policies: Sequence[Json] | None = None
    pools: Sequence[Json] | None = None
    queue_manifests: Mapping[str, Json] = field(default_factory=dict)
    version: int = 0
    kept_unknown: str = ""
    cycle: int | None = None
    remarks: tuple[str, ...] = ()

    @property
    def running(self) -> list[GangLine]:
        """Gangs that hold places, the longest first."""
        gangs = [line for line in self.lines if line.phase not in ENDED_PHASES and not line.waits]
        gangs = [line for line in gangs if line.since is not None]
        return sorted(gangs, key=lambda line: (line.since or 0.0, line.key))

    def line_of(self, key: Key) -> GangLine | None:
        """Return the gang of that namespace and name, a TrainingJob before a PodGroup."""
        matches = [line for line in self.lines if (line.namespace, line.name) == key]
        return min(matches, key=lambda line: line.kind != "TrainingJob", default=None)


def in_tree(
    queues: Iterable[tuple[str, str]], own_usage: Mapping[str, Mapping[str, int]]
) -> Iterator[tuple[str, int, Mapping[str, int]]]:
    """Yield name, depth and use of each queue, its children directly after it.

    ``queues`` are pairs of a name and the parent's name, or none; ``own_usage`` is the use by a
    queue's own gangs. A queue whose parent is missing, or in a cycle, is at the top.
    """
    parents = dict(queues)
    children: dict[str, list[str]] = {}
    for name in sorted(parents):
        parent = parents[name]
        is_known = parent in parents and name not in _above(parent, parents)
        children.setdefault(parent if is_known else "", []).append(name)

    def branch(name: str, depth: int) -> Iterator[tuple[str, int, Mapping[str, int]]]:
        rows = [row for child in children.get(name, ()) for row in branch(child, depth + 1)]
        used = Counter(own_usage.get(name, {}))
        for _, row_depth, amounts in rows:
            if row_depth == depth + 1:
                used.update(amounts)
        yield name, depth, used
        yield from rows

    for name in children.get("", ()):
        yield from branch(name, 0)


def _above(name: str, parents: Mapping[str, str]) -> set[str]:
    ancestors: set[str] = set()
    while name and name not in ancestors:
        ancestors.add(name)
        name = parents.get(name, "")
    return ancestors


def main_device(nodes: NodeTable) -> str:
    """Return the accelerator of most nodes, GPUs if as many have them; empty if no node has one."""
    counts = {
        name: int((nodes.allocatable[:, column] > 0).sum())
        for column, name in enumerate(nodes.axis.names)
        if nodes.accelerators.is_accelerator(name)
    }
    best = max(counts, key=lambda name: (counts[name], name == GPU, name), default="")
    return best if counts.get(best) else ""


def node_rows(
    nodes: NodeTable,
    used: Mapping[int, int],
    by_gang: Mapping[int, Mapping[str, int]],
    reserved: Mapping[int, Mapping[str, int]],
    labels: tuple[str, str],
) -> Iterator[NodeRow]:
    """Yield every node with its devices of the main kind.

    ``used`` are devices by row of ``nodes``. ``by_gang`` has those that each gang there uses,
    ``reserved`` those reserved for each waiting gang. ``labels`` are those of pool and model.
    """
    resource = main_device(nodes)
    column = nodes.axis.names.index(resource) if resource else None
    pools, models = (nodes.label(label) for label in labels)
    for row, node in enumerate(nodes.nodes):
        devices = int(nodes.allocatable[row, column]) if column is not None else 0
        of_gangs = {name: amount for name, amount in by_gang.get(row, {}).items() if amount}
        rest = max(0, min(used.get(row, 0), devices) - sum(of_gangs.values()))
        remarks = [] if node.is_ready else ["not ready"]
        remarks += ["cordoned"] if node.is_cordoned else []
        remarks += ["being deleted"] if node.is_leaving else []
        remarks += ["maintenance"] if node.maintenance is not None else []
        yield NodeRow(
            name=node.name,
            pool=pools.values[pools.codes[row]] if pools.codes[row] >= 0 else "",
            model=models.values[models.codes[row]] if models.codes[row] >= 0 else "",
            domain=_domain(nodes, row),
            resource=resource if devices else "",
            devices=devices,
            gang_devices=of_gangs,
            other_devices=rest,
            kept_for={name: amount for name, amount in reserved.get(row, {}).items() if amount},
            remarks=tuple(remarks),
        )


def _domain(nodes: NodeTable, row: int) -> str:
    wider = range(len(nodes.topology_levels) - 1, -1, -1)
    names = (nodes.domain_name(level, row) for level in wider)
    return "/".join(name for name in names if name and name != nodes.names[row])
