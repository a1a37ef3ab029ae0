"""Inputs of a learned index about a gang: nothing of its wait, of others, or of the clock."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.gangs import Gang
from bireme.onnx.sessions import Array
from bireme.rl.encoders.index import ATTAINED, DEVICES, IS_KNOWN, WHOLE, IndexGangs
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, a_task, with_running

ENCODER = IndexGangs()
HOUR = 3600.0


def shown(gang: Gang, *others: Gang, now: float = HOUR, started: float | None = None) -> Array:
    """The row of ``gang``, which waits or has run since ``started``."""
    snapshot = a_snapshot([a_node("n0")], gang, *others, now=now)
    if started is not None:
        snapshot = with_running(snapshot, a_running_gang(gang, snapshot.nodes, started=started))
    row: Array = ENCODER.encode([gang, *others], snapshot)["gangs"][0]
    return row


def test_times_and_sizes_are_encoded_as_powers_of_two() -> None:
    gang = replace(a_gang("g", a_task(4)), estimated_seconds=1024.0, attained_seconds=0.0)
    row = shown(gang, started=HOUR - 256.0)
    assert row[ATTAINED] == pytest.approx(8.0)
    assert row[WHOLE] == pytest.approx(10.0)
    assert row[IS_KNOWN] == 1.0
    assert row[DEVICES] == pytest.approx(2.0)


def test_an_unknown_run_time_is_shown_as_unknown() -> None:
    assert shown(a_gang())[[WHOLE, IS_KNOWN]].tolist() == [0.0, 0.0]


@given(st.floats(0, 1e7), st.floats(0, 1e6))
def test_waiting_changes_nothing(arrived: float, later: float) -> None:
    gang = replace(a_gang(arrived=arrived), estimated_seconds=500.0, attained_seconds=60.0)
    assert np.array_equal(shown(gang, now=arrived), shown(gang, now=arrived + later))


def test_who_else_is_there_changes_nothing() -> None:
    others = [replace(a_gang(f"o{n}", a_task(8)), estimated_seconds=9.0) for n in range(5)]
    assert np.array_equal(shown(a_gang()), shown(a_gang(), *others))


@given(st.floats(0, 1e6), st.floats(0, 1e5), st.floats(1, 1e6))
def test_being_stopped_makes_no_gang_look_shorter(
    before: float, ran: float, estimate: float
) -> None:
    """In a simulation what is left shrinks by what was done; in a cluster it stays."""
    running = replace(a_gang(), attained_seconds=before, estimated_seconds=estimate)
    row = shown(running, started=0.0, now=ran)
    for left in (max(0.1 * estimate, estimate - ran), estimate):
        stopped = replace(running, attained_seconds=before + ran, estimated_seconds=left)
        after = shown(stopped, now=ran)
        assert after[ATTAINED] == pytest.approx(row[ATTAINED])
        assert after[WHOLE] >= row[WHOLE] - 1e-5
