"""Orderers that answer wrongly, for tests of what becomes of their answers."""

from collections.abc import Callable, Sequence
from typing import Any

from bireme.core.decision import Decision
from bireme.core.gangs import Gang
from bireme.core.policy import Policy, Ranked
from bireme.core.snapshot import ClusterSnapshot
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_node

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
