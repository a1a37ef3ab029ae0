"""The index as a network: falling with service, rising with nothing, in steps."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.resources import FloatArray
from bireme_lab.training.index.networks import FIRST_SECONDS, START, START_SCALES, IndexNetwork

PARAMETERS = ("unknown", "trust", "margin", "fresh", "tail", "least", "size", "step")
"""w0 to w6, and what the step is made of."""


def scores(*rows: tuple[float, float, float, float], **values: float) -> list[float]:
    """Of gangs by log2 of service, log2 of the estimate, whether it is known, log2 of devices."""
    chosen = START.copy()
    for name, value in values.items():
        chosen[PARAMETERS.index(name)] = value
    found: list[float] = IndexNetwork(chosen)(torch.tensor(rows)).tolist()
    return found


powers = st.floats(0, 30, width=32)
values = st.lists(st.floats(-15, 15), min_size=len(PARAMETERS), max_size=len(PARAMETERS))


@given(values, powers, powers, powers, st.floats(0, 12, width=32), st.booleans())
def test_more_service_never_raises_a_score_whatever_was_learned(
    learned: list[float],
    less: float,
    more: float,
    estimate: float,
    devices: float,
    is_known: bool,
) -> None:
    network = IndexNetwork(np.array(learned))
    rows = [(a, estimate, float(is_known), devices) for a in sorted((less, more))]
    before, after = network(torch.tensor(rows)).tolist()
    assert after <= before


def test_a_gang_expected_to_run_longer_comes_later() -> None:
    short, long = scores((0.0, 9.0, 1.0, 0.0), (0.0, 18.0, 1.0, 0.0), trust=1.0, fresh=0.0)
    assert short > long


def test_a_gang_of_which_nothing_is_known_counts_as_a_typical_one() -> None:
    unknown, typical = scores((0.0, 0.0, 0.0, 0.0), (0.0, START[0], 1.0, 0.0))
    assert unknown == typical


def test_a_large_gang_comes_later_than_a_small_one_of_the_same_run_time() -> None:
    small, large = scores((0.0, 10.0, 1.0, 0.0), (0.0, 10.0, 1.0, 6.0))
    assert small > large


def test_a_new_gang_is_tried_before_its_estimate_counts_in_full() -> None:
    first = float(np.log2(FIRST_SECONDS))
    rows = [(first + over, 18.0, 1.0, 0.0) for over in (-0.1, 0.1)]
    tried, known = scores(*rows, fresh=8.0)
    assert tried > known
    assert len(set(scores(*rows, fresh=0.0))) == 1


def test_it_is_least_attained_service_where_estimates_are_not_trusted() -> None:
    attained = [(float(a), 25.0, 1.0, 0.0) for a in range(9, 24)]
    found = scores(*attained, trust=0.0, unknown=0.0, margin=0.0, step=0.0)
    assert found == sorted(found, reverse=True)
    assert len(set(found)) > 10


@given(values)
def test_scores_are_whole_numbers_so_that_near_gangs_leave_each_other_alone(
    learned: list[float],
) -> None:
    rows: FloatArray = np.random.default_rng(0).uniform(0, 20, (50, 4))
    found = IndexNetwork(np.array(learned))(torch.from_numpy(rows.astype(np.float32)))
    assert torch.equal(found, found.round())


def test_every_parameter_has_a_start_and_a_scale() -> None:
    assert len(PARAMETERS) == len(START) == len(START_SCALES)
    assert (START_SCALES > 0).all()
