"""The program in miniature: a cache that lags, a decision of the core, conditional writes.

The cache listens to each kind of thing by itself, so nodes, queues and jobs may be of different
age; its own writes it knows at once. A crash loses everything kept in memory: the next start lists
anew.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

from bireme.core.cycle import run_cycle
from bireme.core.nodes import NodeTable
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from tests.support.model.truth import KINDS, Thing, Things, Truth
from tests.support.model.views import Move, moves_of, node_of, snapshot_of


@dataclass(eq=False)
class Decider:
    """Looks at ``truth`` as far as it has heard of it, and changes it.

    Attributes:
        cache: What it believes.
        heard: By kind, how many changes it has heard of.
    """

    truth: Truth
    policy: Policy
    settings: SchedulingSettings
    cache: Things = field(init=False)
    heard: dict[str, int] = field(init=False)
    _table: NodeTable | None = None

    def __post_init__(self) -> None:
        self.crash()

    def crash(self) -> None:
        """Forget everything, and start again."""
        self.cache, self.heard = {}, {}
        for kind in KINDS:
            self.relist(kind)

    def relist(self, kind: str) -> None:
        """List one kind anew: its watch was too old (410), or there was none."""
        self.cache[kind] = copy.deepcopy(self.truth.things[kind])
        self.heard[kind] = len(self.truth.log[kind])
        self._forget_table(kind)

    def listen(self, kind: str, most: int) -> None:
        """Hear of the next ``most`` changes of a kind; those it knows already are old news."""
        start = self.heard[kind]
        for name, version, thing in self.truth.log[kind][start : start + most]:
            self.heard[kind] += 1
            self._hear(kind, name, version, thing)

    def catch_up(self) -> None:
        """Hear of everything."""
        for kind in KINDS:
            self.listen(kind, len(self.truth.log[kind]))

    def _hear(self, kind: str, name: str, version: int, thing: Thing | None) -> None:
        known = self.cache[kind].get(name)
        if known is not None and known["version"] >= version:
            return
        self.cache[kind].pop(name, None)
        if thing is not None:
            self.cache[kind][name] = copy.deepcopy(thing)
        self._forget_table(kind)

    def _forget_table(self, kind: str) -> None:
        if kind == "node":
            self._table = None

    @property
    def is_up_to_date(self) -> bool:
        """Whether it knows everything there is."""
        return self.cache == self.truth.things

    @property
    def table(self) -> NodeTable:
        """All nodes it knows as arrays; kept until one changes."""
        if self._table is None:
            self._table = self.fresh_table()
        return self._table

    def fresh_table(self) -> NodeTable:
        """The same, without anything remembered."""
        nodes = [node_of(name, node) for name, node in self.cache["node"].items()]
        return NodeTable(nodes, self.settings.topology_levels)

    def snapshot(self) -> ClusterSnapshot:
        """What a decision may depend on."""
        return snapshot_of(self.cache, self.table, self.truth.now, self.settings)

    def decide(self) -> list[Move]:
        """One cycle over what it believes."""
        return moves_of(run_cycle(self.snapshot(), self.policy), self.table)

    def carry_out(self, moves: Sequence[Move]) -> list[str]:
        """Write what was decided on the cache as it is; what was refused, in words.

        Whoever is stopped for one job is stopped only while that job still waits.
        """
        versions = {name: job["version"] for name, job in self.cache["job"].items()}
        refused = []
        for move in moves:
            answer = self._write(move, versions)
            if answer != "ok":
                refused.append(f"{move['do']} {move['job']}: {answer}")
        return refused

    def _write(self, move: Move, versions: dict[str, int]) -> str:
        name, truth = move["job"], self.truth
        if move["do"] == "hold":
            return "ok"
        if move["do"] == "start":
            answer = truth.start(name, versions[name], move["places"], truth.now)
        elif move["do"] == "resize":
            answer = truth.resize(name, versions[name], move["places"], truth.now)
        else:
            answer = truth.stop(name, versions[name])
        if answer != "conflict":
            job = truth.things["job"][name]
            self._hear("job", name, job["version"], job)
        return answer
