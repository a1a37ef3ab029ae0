"""Short answers about orders and decisions, and orderers that answer wrongly."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision, Hold
from bireme.core.gangs import Gang
from bireme.core.nodes import GrowablePool, Node
from bireme.core.policy import Orderer, Policy, Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_node, a_running_gang, a_snapshot, with_running


def hold_of(decision: Decision, uid: str = "job") -> Hold:
    """What a gang that waits is told."""
    return next(hold for hold in decision.held if hold.gang.uid == uid)


def ranked(
    orderer: Orderer, *waiting: Gang, running: dict[Gang, float] | None = None, now: float = 0.0
) -> list[Ranked]:
    """``running`` says since when; all gangs are ranked together."""
    snapshot = a_snapshot([a_node("n", 64)], *waiting, now=now)
    held = [
        a_running_gang(gang, snapshot.nodes, started=started)
        for gang, started in (running or {}).items()
    ]
    snapshot = with_running(snapshot, *held)
    return orderer.order([*waiting, *(running or {})], snapshot)


def uids(entries: Iterable[Ranked]) -> list[str]:
    """Whose place it is, first place first."""
    return [entry.gang.uid for entry in entries]


FIFO = Policy(Fifo(), Packing())


def after(nodes: Sequence[Node], *waiting: Gang, growable: Sequence[GrowablePool]) -> Decision:
    """The decision on ``waiting``, who came in this order."""
    in_order = [replace(gang, arrived=float(at)) for at, gang in enumerate(waiting)]
    return run_cycle(a_snapshot(nodes, *in_order, now=10.0, growable=growable), FIFO)


def asked(decision: Decision) -> list[tuple[str, str, int]]:
    """The nodes to be asked for: gang, pool, number."""
    return [(growth.gang.uid, growth.pool, growth.nodes) for growth in decision.node_requests]


RULES = Policy(Fifo(), Packing())
NODES = [a_node("n0"), a_node("n1", labels={"disk": "ssd"})]

Answer = Callable[[list[Ranked]], Any]


class Wrong:
    """An orderer that makes something of a right order, the last first."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def order(self, gangs: Sequence[Gang], snapshot: ClusterSnapshot) -> list[Ranked]:
        return self.answer(Fifo().order(gangs, snapshot)[::-1])  # type: ignore[no-any-return]


def fails(_: object) -> Any:
    raise ZeroDivisionError("by nought")


def admitted(decision: Decision) -> list[str]:
    return [admit.gang.uid for admit in decision.admitted]
