"""Dividing replicas among bins, against exhaustive search where that is possible."""

import itertools
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bireme.core.resources import IntArray
from bireme.heuristics.packing import beside, pack, spread, spread_beside

ROOMS = st.lists(st.integers(0, 9), min_size=1, max_size=7)


def whole(*values: int) -> IntArray:
    return np.array(values, dtype=np.int64)


@st.composite
def divisions(draw: st.DrawFn) -> tuple[IntArray, IntArray, int]:
    """Room, some other number per bin, and replicas that fit."""
    room = draw(ROOMS)
    other = draw(st.lists(st.integers(0, 5), min_size=len(room), max_size=len(room)))
    return whole(*room), whole(*other), draw(st.integers(0, sum(room)))


@given(divisions())
def test_packing_places_all_in_the_fewest_bins(case: tuple[IntArray, IntArray, int]) -> None:
    room, tightness, replicas = case
    counts = pack(room, replicas, tightness.astype(np.float64))
    assert counts.sum() == replicas
    assert (counts >= 0).all()
    assert (counts <= room).all()
    fewest = next(
        size
        for size in range(len(room) + 1)
        if sum(sorted(room.tolist(), reverse=True)[:size]) >= replicas
    )
    assert np.count_nonzero(counts) == fewest


@given(divisions())
def test_the_remainder_goes_to_the_tightest_bin_that_holds_it(
    case: tuple[IntArray, IntArray, int],
) -> None:
    room, tightness, replicas = case
    counts = pack(room, replicas, tightness.astype(np.float64))
    assume(replicas > 0)
    partly = [bin_ for bin_ in range(len(room)) if 0 < counts[bin_] < room[bin_]]
    assert len(partly) <= 1
    for last in partly:
        holding = [b for b in range(len(room)) if room[b] >= counts[last] and counts[b] == 0]
        assert all((tightness[last], last) < (tightness[b], b) for b in holding)


@pytest.mark.parametrize(
    ("room", "tightness", "replicas", "counts"),
    [
        pytest.param([8, 4, 2], [8, 4, 2], 2, [0, 0, 2], id="small-goes-to-the-small-hole"),
        pytest.param([8, 4, 2], [8, 4, 2], 3, [0, 3, 0], id="tightest-that-holds-it"),
        pytest.param([8, 4, 2], [8, 4, 2], 10, [8, 0, 2], id="remainder-exactly"),
        pytest.param([8, 8, 4], [2, 1, 9], 9, [1, 8, 0], id="tightest-of-equals-first"),
        pytest.param([3, 3, 3], [1, 1, 1], 4, [3, 1, 0], id="ties-to-the-lower-index"),
        pytest.param([0, 5], [0, 1], 0, [0, 0], id="nothing-to-place"),
    ],
)
def test_packing_known_cases(
    room: list[int], tightness: list[float], replicas: int, counts: list[int]
) -> None:
    assert pack(whole(*room), replicas, np.array(tightness, float)).tolist() == counts


@given(divisions())
def test_spreading_is_as_even_as_any_division_can_be(
    case: tuple[IntArray, IntArray, int],
) -> None:
    room, first, replicas = case
    counts = spread(room, replicas, first)
    assert counts.sum() == replicas
    assert (counts >= 0).all()
    assert (counts <= room).all()
    # No replica can move to a bin that would then hold fewer than the one it came from.
    for source, target in itertools.permutations(range(len(room)), 2):
        if counts[source] > 0 and room[target] > counts[target]:
            assert counts[target] + 1 >= counts[source]
            if counts[target] + 1 == counts[source]:  # the odd one went to the preferred bin
                assert (-first[source], source) < (-first[target], target) or (
                    room[source] > room[target] and counts[target] == room[target]
                )


def test_odd_replicas_go_to_the_preferred_bins() -> None:
    assert spread(whole(5, 5, 5), 4, first=whole(1, 9, 9)).tolist() == [1, 2, 1]
    assert spread(whole(5, 5, 5), 5).tolist() == [2, 2, 1]


def test_spreading_fills_small_bins_and_goes_on_with_the_rest() -> None:
    assert spread(whole(1, 9, 0, 9), 8).tolist() == [1, 4, 0, 3]


@given(divisions(), st.booleans())
def test_bins_in_use_are_filled_before_others(
    case: tuple[IntArray, IntArray, int], even: bool
) -> None:
    room, used, replicas = case
    if even:
        counts = spread_beside(room, used, replicas)
    else:
        packed = partial(pack, tightness=used.astype(np.float64))
        counts = beside(room, used, replicas, packed, packed)
    assert counts.sum() == replicas
    assert (counts <= room).all()
    outside = counts[used == 0].sum()
    assert outside == max(0, replicas - room[used > 0].sum())


def test_enormous_room_does_not_wrap() -> None:
    room = np.full(5000, 2**31, dtype=np.int64)
    assert pack(room, 2**40, np.zeros(5000)).sum() == 2**40
    assert spread(room, 2**40).sum() == 2**40
