"""First in, first out."""

from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_gang, a_snapshot


def test_the_first_to_arrive_goes_first_and_ties_go_by_uid() -> None:
    gangs = [a_gang("c", arrived=1), a_gang("b", arrived=0), a_gang("a", arrived=1)]
    ranked = Fifo().order(gangs, a_snapshot([], now=5.0))
    assert [(entry.gang.uid, entry.score) for entry in ranked] == [
        ("b", 5.0),
        ("a", 4.0),
        ("c", 4.0),
    ]


def test_nothing_but_the_arrival_counts() -> None:
    gangs = [a_gang("urgent", arrived=1, priority=10**9, interrupted=True), a_gang("old")]
    assert [entry.gang.uid for entry in Fifo().order(gangs, a_snapshot([]))] == ["old", "urgent"]
