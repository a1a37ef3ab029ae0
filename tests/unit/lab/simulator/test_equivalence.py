"""Which of equal gangs a cycle sees: cases that random simulations rarely meet."""

import pytest

from bireme.core.decision import Decision, Hold
from bireme.core.reasons import Reason
from bireme.testing import a_gang
from bireme_lab.simulator.equivalence import FIRST_DEPTH, WaitingGangs


def waiting(*names: str) -> WaitingGangs:
    """Equal gangs that came one after the other."""
    made = WaitingGangs()
    for at, name in enumerate(names):
        made.add(a_gang(name, arrived=float(at)), now=float(at))
    return made


def test_of_parked_gangs_those_with_the_longest_wait_are_shown() -> None:
    gangs = waiting("b")
    gangs.park("b", now=0.0)
    gangs.add(a_gang("a", arrived=5.0), now=5.0)
    gangs.add(a_gang("c", arrived=6.0), now=9.0)
    assert [gang.uid for gang in gangs.first_of_each({})] == ["c", "a"]
    lined_up = sorted(gangs.line_up("a", now=20.0), key=lambda gang: (gang.arrived, gang.uid))
    assert [gang.uid for gang in lined_up] == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("reason", "is_overdue", "shows_more"),
    [
        (Reason.WAITING_FOR_CAPACITY, True, False),
        (Reason.WAITING_BEHIND, False, False),
        (Reason.WAITING_BEHIND, True, True),
        (Reason.WAITING_FOR_PREEMPTION, False, True),
    ],
)
def test_more_is_shown_of_a_class_whose_last_one_shown_decides_nothing_for_the_rest(
    reason: Reason, is_overdue: bool, shows_more: bool
) -> None:
    gangs = waiting("a", "b", "c")
    shown = gangs.first_of_each({})
    assert len(shown) == FIRST_DEPTH
    decision = Decision(tuple(Hold(gang, reason, "") for gang in shown))
    assert bool(gangs.classes_to_extend(decision, {}, lambda _: is_overdue)) == shows_more
    assert gangs.heads() == {"a"}


def test_more_is_shown_of_a_class_until_one_is_not_in_the_line_of_the_overdue() -> None:
    """Those behind it may be in the line as well, and take the room of other classes in it."""
    gangs = waiting("a", "b", "c")
    holds = tuple(Hold(g, Reason.WAITING_FOR_CAPACITY, "") for g in gangs.first_of_each({}))
    for line, shows_more in (({"a", "b"}, True), ({"a"}, False)):
        decision = Decision(holds, overdue=frozenset(line))
        assert bool(gangs.classes_to_extend(decision, {}, lambda _: True)) == shows_more
