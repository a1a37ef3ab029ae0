"""The table of running gangs: kept up step by step, it is what it would be if made anew."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.running import RunningGang, RunningTable
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task

NODES = a_snapshot([a_node(f"node-{number}") for number in range(4)]).nodes
NOW, SINCE = 100.0, 50.0


def running(number: int) -> RunningGang:
    """Every fact differs from the neighbours' in some of the gangs."""
    gang = a_gang(
        f"gang-{number}",
        a_task(1 + number % 2),
        estimated_seconds=None if number % 3 == 0 else 10.0 * number,
        is_elastic=number % 4 == 0,
    )
    least_seconds = None if number % 2 else 5.0
    gang = replace(gang, min_runtime_seconds=least_seconds, is_preemptible=number % 5 > 0)
    is_leaving = number % 6 == 1
    return a_running_gang(gang, NODES, row=number % 4, started=7.0 * number, is_leaving=is_leaving)


def same(one: RunningTable, other: RunningTable) -> bool:
    arrays = [(getattr(one, n), getattr(other, n)) for n in ("lengths", "rows", "usage", "owner")]
    facts = np.array_equal(one.facts, other.facts, equal_nan=True)
    return one.gangs == other.gangs and facts and all(np.array_equal(a, b) for a, b in arrays)


@given(steps=st.lists(st.integers(0, 12), max_size=30))
def test_gangs_that_come_and_go_leave_the_table_of_those_that_stay(steps: list[int]) -> None:
    held: dict[int, RunningGang] = {}
    table = RunningTable.of((), NODES.axis)
    for number in steps:
        if number in held:
            table = table.minus(held.pop(number).gang.uid)
        else:
            held[number] = running(number)
            table = table.plus(held[number], NODES.axis)
        assert same(table, RunningTable.of(held.values(), NODES.axis))


def test_expected_ends_are_those_of_each_gang() -> None:
    held = [running(number) for number in range(13)]
    table = RunningTable.of(held, NODES.axis)
    ends = table.expected_ends(NOW, SINCE).tolist()
    assert ends == [gang.expected_end(NOW, SINCE) for gang in table.gangs]
    assert len(set(ends)) > 3
