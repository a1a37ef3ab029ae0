"""The pool that gets a job that several chose."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.resources import BoolArray
from bireme_lab.encoders.tapfinger import room, winners


def won(jobs: list[int], scores: list[float], rooms: list[float]) -> list[bool]:
    found: BoolArray = winners(np.array([jobs]), np.array([scores]), np.array([rooms]))
    return [bool(each) for each in found[0]]


def test_who_chose_alone_gets_the_job() -> None:
    assert won([4, 7], [0.1, 0.9], [1.0, 8.0]) == [True, True]


def test_of_equal_room_who_wants_it_most_wins() -> None:
    assert won([4, 4, 5], [0.2, 0.6, 0.1], [3.0, 3.0, 0.0]) == [False, True, True]


def test_room_outweighs_a_wish_by_its_exponent() -> None:
    """Pr(job | n) e^room: one more place counts as much as being e times as sure."""
    assert won([4, 4], [0.26, 0.1], [2.0, 3.0]) == [False, True]
    assert won([4, 4], [0.28, 0.1], [2.0, 3.0]) == [True, False]


def test_of_equals_the_first_pool_wins_even_where_nobody_was_sure() -> None:
    assert won([4, 4], [0.0, 0.0], [2.0, 2.0]) == [True, False]


def test_who_chose_nothing_wins_nothing() -> None:
    assert won([-1, -1, 3], [1.0, 1.0, 1.0], [9.0, 9.0, 0.0]) == [False, False, True]


def test_room_is_how_often_the_scarcest_resource_fits() -> None:
    free, least = np.array([[16, 3], [4, 16]]), np.array([[2, 1], [2, 0]])
    assert room(free, least).tolist() == [3.0, 2.0]


@given(
    st.lists(
        st.tuples(st.integers(-1, 3), st.floats(0, 1), st.integers(0, 8)), min_size=1, max_size=6
    )
)
def test_every_job_that_was_chosen_has_exactly_one_winner(
    chosen: list[tuple[int, float, int]],
) -> None:
    jobs, scores, rooms = zip(*chosen, strict=True)
    found = won(list(jobs), list(scores), [float(each) for each in rooms])
    gets = [job for job, wins in zip(jobs, found, strict=True) if wins]
    assert sorted(gets) == sorted({job for job in jobs if job >= 0})
