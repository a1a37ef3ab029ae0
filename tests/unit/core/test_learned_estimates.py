"""A gang whose run time comes from the history says so where that matters."""

from dataclasses import replace

import pytest

from bireme.core import times
from bireme.core.cycle import run_cycle
from bireme.core.policy import Policy
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import a_gang, a_node, a_running, a_snapshot, a_task, with_running


def message_of(seconds: float, is_learned: bool) -> str:
    """The message of a gang of that estimate: n0 is free, n1 for long not, and one wants both."""
    wide = a_gang("wide", a_task(2, 6), arrived=0.0)
    gang = a_gang("gang", a_task(8), arrived=1.0, estimated_seconds=seconds)
    gang = replace(gang, is_learned_estimate=is_learned)
    snapshot = a_snapshot([a_node("n0"), a_node("n1")], wide, gang, now=10.0)
    busy = a_gang("busy", a_task(8), estimated_seconds=10_000.0)
    snapshot = with_running(snapshot, a_running(busy, snapshot.nodes, {"n1": 8}))
    actions = run_cycle(snapshot, Policy(Fifo(), Packing())).actions
    return next(a.message for a in actions if getattr(a, "gang", None) == gang)


def test_a_gang_that_passes_another_by_the_history_says_so() -> None:
    passes = "8 worker planned on node n0, ahead of default/wide without delaying it"
    assert message_of(2500.0, is_learned=False) == passes
    assert message_of(2500.0, is_learned=True) == (
        f"{passes}; expected to run at most 42 min, like 90 % of similar runs"
    )


def test_a_gang_that_must_wait_because_of_the_history_says_so() -> None:
    waits = "fits now, but would take places kept for default/wide from 1970-01-01T02:46:40Z on; "
    remedy = "it may start with a spec.estimatedDuration that ends before then; 1 ahead"
    assert message_of(20_000.0, is_learned=False) == f"{waits}{remedy}"
    assert message_of(20_000.0, is_learned=True) == (
        f"{waits}expected to run at most 6 h, like 90 % of similar runs; {remedy}"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.3, "1 s"),
        (120.0, "120 s"),
        (121.0, "3 min"),
        (2500.0, "42 min"),
        (7200.0, "120 min"),
        (7201.0, "3 h"),
        (432_000.0, "120 h"),
        (440_000.0, "6 days"),
        (3.2e8, "3704 days"),
    ],
)
def test_a_span_of_time_is_shown_in_a_unit_that_suits_it(seconds: float, words: str) -> None:
    assert times.duration(seconds) == words
