"""Sizers that look at no speed."""

import itertools
from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang, Role
from bireme.core.policy import Ranked, Sizer
from bireme.heuristics.simple_sizers import FairSharing, Maximum, Minimum
from bireme.testing import a_gang, a_node, a_snapshot, a_task


def elastic(name: str, low: int, high: int, gpus: int = 1) -> Gang:
    return replace(
        a_gang(name, a_task(low, gpus, min_replicas=low, max_replicas=high)), is_elastic=True
    )


def sized(sizer: Sizer, cluster_gpus: int, *gangs: Gang) -> Mapping[str, Mapping[str, int]]:
    order = [Ranked(gang, 0.0) for gang in gangs]
    return sizer.sizes(order, a_snapshot([a_node("node", cluster_gpus)]))


def workers(sizer: Sizer, cluster_gpus: int, *gangs: Gang) -> dict[str, int]:
    return {uid: size["worker"] for uid, size in sized(sizer, cluster_gpus, *gangs).items()}


def test_minimum_leaves_capacity_unused() -> None:
    assert workers(Minimum(), 10, elastic("a", 1, 8), elastic("b", 2, 8)) == {"a": 1, "b": 2}


def test_gangs_whose_minimum_does_not_fit_are_left_out() -> None:
    assert workers(Minimum(), 5, elastic("a", 4, 8), elastic("b", 2, 8), elastic("c", 1, 1)) == {
        "a": 4,
        "c": 1,
    }


def test_maximum_serves_the_first_in_full_after_all_minima() -> None:
    assert workers(Maximum(), 10, elastic("a", 1, 8), elastic("b", 1, 8)) == {"a": 8, "b": 2}


def test_maximum_raises_the_tasks_of_a_gang_at_one_pace() -> None:
    ps = a_task(1, name="ps", role=Role.PS, max_replicas=4)
    gang = replace(a_gang("job", ps, a_task(2, max_replicas=8)), is_elastic=True)
    assert sized(Maximum(), 6, gang) == {"job": {"ps": 2, "worker": 4}}


def test_fair_sharing_gives_the_odd_replica_to_the_first() -> None:
    gangs = [elastic(name, 1, 8) for name in "abc"]
    assert workers(FairSharing(), 10, *gangs) == {"a": 4, "b": 3, "c": 3}


def test_fair_sharing_equalises_shares_not_replicas() -> None:
    assert workers(FairSharing(), 8, elastic("a", 1, 8), elastic("b", 1, 8, gpus=2)) == {
        "a": 4,
        "b": 2,
    }


def test_fair_sharing_passes_on_what_a_gang_cannot_use() -> None:
    assert workers(FairSharing(), 8, elastic("a", 1, 2), elastic("b", 1, 8)) == {"a": 2, "b": 6}


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 4)), min_size=1, max_size=3))
def test_fair_sharing_is_max_min_fair(bounds: list[tuple[int, int]]) -> None:
    """No other division of six GPUs has a larger least share, then second least, and so on."""
    gangs = [elastic(f"g{n}", low, low + more) for n, (low, more) in enumerate(bounds)]
    ranges = [range(low, low + more + 1) for low, more in bounds]
    best = max(sorted(sizes) for sizes in itertools.product(*ranges) if sum(sizes) <= 6)
    assert sorted(workers(FairSharing(), 6, *gangs).values()) == best
