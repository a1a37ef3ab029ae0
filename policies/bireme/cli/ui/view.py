"""What the board shows of one moment of a cluster, wherever it comes from.

:mod:`bireme.cli.ui.live` makes a view of the objects of a cluster, :mod:`bireme.cli.ui.recorded` of
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
        used: What its own gangs hold, and those of queues below it.
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
        others: Devices of pods that are of no gang.
        kept_for: Devices by gang that waits, as ``namespace/name``; they may be in use still.
        remarks: What keeps gangs away: not ready, cordoned, maintenance.
    """

    name: str
    pool: str
    model: str
    domain: str
    resource: str
    devices: int
    held: Mapping[str, int]
    others: int
    kept_for: Mapping[str, int]
    remarks: tuple[str, ...] = ()

    @property
    def used(self) -> int:
        return sum(self.held.values()) + self.others

    @property
    def kept(self) -> int:
        """Devices that are free, and kept for a gang that waits."""
        return min(max(0, self.devices - self.used), sum(self.kept_for.values()))


SpanKind = Literal["ran", "runs", "expected"]


@dataclass(frozen=True, slots=True)
class Span:
    """The time in which a gang ran, runs or is expected to run, in POSIX seconds.

    ``end`` is the expected one for gangs that run or are to come; None where nobody knows it.
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
        source: What it is a view of, in words.
        lines: All gangs, those that have ended too.
        policies, pools: Manifests of SchedulingPolicies and NodePoolScalers; None where they may
            not be read or are not recorded.
        version: Number of changes that had come when it was made.
        kept_unknown: Why it is not known which places are kept; empty where it is.
        cycle: Number of the cycle in its record, from 0; None for a cluster.
        remarks: What is not shown, and why.
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
        held = [line for line in self.lines if line.phase not in ENDED_PHASES and not line.waits]
        held = [line for line in held if line.since is not None]
        return sorted(held, key=lambda line: (line.since or 0.0, line.key))

    def line_of(self, key: Key) -> GangLine | None:
        """Return the gang of that namespace and name; a TrainingJob goes before a PodGroup."""
        found = [line for line in self.lines if (line.namespace, line.name) == key]
        return min(found, key=lambda line: line.kind != "TrainingJob", default=None)


def in_tree(
    queues: Iterable[tuple[str, str]], own: Mapping[str, Mapping[str, int]]
) -> Iterator[tuple[str, int, Mapping[str, int]]]:
    """Yield name, depth and use of each queue, those below one directly after it.

    ``queues`` are names with the name of the queue above, or none; ``own`` is what gangs of the
    queue itself hold. A queue whose parent is missing, or above itself, stands at the top.
    """
    parents = dict(queues)
    below: dict[str, list[str]] = {}
    for name in sorted(parents):
        parent = parents[name]
        is_known = parent in parents and name not in _above(parent, parents)
        below.setdefault(parent if is_known else "", []).append(name)

    def branch(name: str, depth: int) -> Iterator[tuple[str, int, Mapping[str, int]]]:
        rows = [row for child in below.get(name, ()) for row in branch(child, depth + 1)]
        used = Counter(own.get(name, {}))
        for _, at, amounts in rows:
            if at == depth + 1:
                used.update(amounts)
        yield name, depth, used
        yield from rows

    for name in below.get("", ()):
        yield from branch(name, 0)


def _above(name: str, parents: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    while name and name not in found:
        found.add(name)
        name = parents.get(name, "")
    return found


def main_device(nodes: NodeTable) -> str:
    """Return the accelerator that most nodes have, GPUs where they are as many; empty for none."""
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
    held: Mapping[int, Mapping[str, int]],
    kept: Mapping[int, Mapping[str, int]],
    labels: tuple[str, str],
) -> Iterator[NodeRow]:
    """Yield every node with its devices of the main kind.

    ``used`` are devices by row of ``nodes``; ``held`` and ``kept`` those of each gang there, the
    latter for gangs that wait. ``labels`` are those of pool and model.
    """
    resource = main_device(nodes)
    column = nodes.axis.names.index(resource) if resource else None
    pools, models = (nodes.label(label) for label in labels)
    for row, node in enumerate(nodes.nodes):
        there = int(nodes.allocatable[row, column]) if column is not None else 0
        of_gangs = {name: amount for name, amount in held.get(row, {}).items() if amount}
        others = max(0, min(used.get(row, 0), there) - sum(of_gangs.values()))
        remarks = [] if node.is_ready else ["not ready"]
        remarks += ["cordoned"] if node.is_cordoned else []
        remarks += ["being deleted"] if node.is_leaving else []
        remarks += ["maintenance"] if node.maintenance is not None else []
        yield NodeRow(
            name=node.name,
            pool=pools.values[pools.codes[row]] if pools.codes[row] >= 0 else "",
            model=models.values[models.codes[row]] if models.codes[row] >= 0 else "",
            domain=_domain(nodes, row),
            resource=resource if there else "",
            devices=there,
            held=of_gangs,
            others=others,
            kept_for={name: amount for name, amount in kept.get(row, {}).items() if amount},
            remarks=tuple(remarks),
        )


def _domain(nodes: NodeTable, row: int) -> str:
    wider = range(len(nodes.topology_levels) - 1, -1, -1)
    names = (nodes.domain_name(level, row) for level in wider)
    return "/".join(name for name in names if name and name != nodes.names[row])
