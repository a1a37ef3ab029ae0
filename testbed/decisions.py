"""Short answers about orders and decisions."""

from collections.abc import Iterable

from bireme.core.decision import Decision, Hold
from bireme.core.gangs import Gang
from bireme.core.policy import Orderer, Ranked
from bireme.testing import a_node, a_running_gang, a_snapshot, with_running


def hold_of(decision: Decision, uid: str = "job") -> Hold:
    return next(hold for hold in decision.held if hold.gang.uid == uid)


def ranked(
    orderer: Orderer, *waiting: Gang, running: dict[Gang, float] | None = None, now: float = 0.0
) -> list[Ranked]:
    """Rank all gangs together; ``running`` maps gangs to their start."""
    snapshot = a_snapshot([a_node("n", 64)], *waiting, now=now)
    held = [
        a_running_gang(gang, snapshot.nodes, started=started)
        for gang, started in (running or {}).items()
    ]
    snapshot = with_running(snapshot, *held)
    return orderer.order([*waiting, *(running or {})], snapshot)


def uids(entries: Iterable[Ranked]) -> list[str]:
    return [entry.gang.uid for entry in entries]
