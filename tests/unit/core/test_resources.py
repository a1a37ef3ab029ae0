"""Amounts and their vectors: exact below the ceilings, saturated and unwrapped above."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.resources import (
    OFFER_CEILING,
    REQUEST_CEILING,
    STANDARD,
    ResourceAxis,
    add,
    request_of,
)

AXIS = ResourceAxis.of([{"cpu": 1, "b/gpu": 1}, {"a/gpu": 1}])
AMOUNTS = st.dictionaries(st.sampled_from(("cpu", "memory", "b/gpu")), st.integers(0, 2**70))


def test_standard_resources_come_first_and_the_others_by_name() -> None:
    assert AXIS.names == (*STANDARD, "a/gpu", "b/gpu")
    assert len(AXIS) == 6
    assert [AXIS.column(name) for name in ("cpu", "b/gpu", "c/gpu")] == [0, 5, None]


def test_a_request_for_what_no_node_offers_has_no_vector() -> None:
    assert AXIS.request(request_of({"cpu": 1, "c/gpu": 1})) is None


def test_usage_leaves_out_what_no_node_offers() -> None:
    usage = AXIS.usage({"cpu": 7, "c/gpu": 5})
    assert usage.tolist() == [7, 0, 0, 0, 0, 0]
    assert AXIS.usage((("cpu", 7),)).tolist() == usage.tolist()


@pytest.mark.parametrize(
    ("amount", "offered", "asked"),
    [
        pytest.param(-5, 0, 0, id="negative"),
        pytest.param(0, 0, 0, id="zero"),
        pytest.param(5, 5, 5, id="exact"),
        pytest.param(OFFER_CEILING, OFFER_CEILING, OFFER_CEILING, id="at-the-offer-ceiling"),
        pytest.param(2**100, OFFER_CEILING, REQUEST_CEILING, id="absurd"),
    ],
)
def test_amounts_saturate_so_that_an_absurd_request_exceeds_any_offer(
    amount: int, offered: int, asked: int
) -> None:
    assert AXIS.offer({"cpu": amount})[0] == offered
    request = AXIS.request((("cpu", amount),))
    assert request is not None
    assert request[0] == AXIS.usage({"cpu": amount})[0] == asked


def test_saturated_usage_of_many_pods_does_not_wrap() -> None:
    total = sum((AXIS.usage({"cpu": 2**80}) for _ in range(2**15)), np.zeros(6, dtype=np.int64))
    assert total[0] == 2**62


def test_a_request_is_sorted_and_drops_what_is_not_asked() -> None:
    assert request_of({"pods": 1, "cpu": 2, "memory": 0, "x": -1}) == (("cpu", 2), ("pods", 1))


@given(AMOUNTS, AMOUNTS, st.integers(0, 10**9))
def test_adding_is_exact_in_any_size(
    left: dict[str, int], right: dict[str, int], times: int
) -> None:
    before = dict(left)
    total = add(left, right, times)
    for name in left.keys() | right.keys():
        assert total.get(name, 0) == left.get(name, 0) + times * right.get(name, 0)
    assert left == before
    assert add(left, request_of(right), 1) == {
        name: left.get(name, 0) + right.get(name, 0)
        for name in left.keys() | {name for name, amount in right.items() if amount}
    }
