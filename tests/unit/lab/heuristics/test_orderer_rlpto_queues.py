"""RLPTO's queues: who is urgent, what waiting changes, and what it does not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.errors import SettingError
from bireme.core.gangs import Gang
from bireme.core.policy import Policy
from bireme.core.settings import SchedulingSettings
from bireme.heuristics.packing import Packing
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, with_running
from bireme_lab.heuristics.rlpto_queues import CHANGE, DEMOTED, URGENT, RlptoQueues, apply_requests

NOW = 100_000.0
LONG_AGO = NOW - 50_000.0
EVEN = SchedulingSettings(min_runtime_seconds=0)


def ranks(*gangs: Gang) -> list[str]:
    snapshot = a_snapshot([a_node("n")], *gangs, now=NOW)
    return [entry.gang.uid for entry in RlptoQueues().order(gangs, snapshot)]


def test_urgent_classes_go_first_then_interrupted_gangs_then_by_priority() -> None:
    normal, urgent = a_gang("normal", arrived=NOW), a_gang("urgent", arrived=NOW, priority=500)
    stopped = a_gang("stopped", arrived=NOW, interrupted=True)
    waited = a_gang("waited", arrived=LONG_AGO)
    assert ranks(normal, waited, stopped, urgent) == ["urgent", "stopped", "waited", "normal"]


def test_the_higher_class_goes_first_within_a_queue() -> None:
    gangs = [a_gang(str(value), arrived=NOW, priority=value) for value in (10, 490, 0, 400)]
    assert ranks(*gangs) == ["490", "400", "10", "0"]


def test_a_request_for_every_ten_minutes_of_waiting_raises_the_priority() -> None:
    gang = a_gang("g", arrived=NOW - 6 * 600.0)
    (entry,) = RlptoQueues().order([gang], a_snapshot([a_node("n")], gang, now=NOW))
    assert entry.score == pytest.approx(1 + 6 * CHANGE)


def test_waiting_long_enough_makes_a_gang_urgent_with_the_lowest_urgent_priority() -> None:
    waited, classy = a_gang("waited", arrived=LONG_AGO), a_gang("classy", arrived=NOW, priority=499)
    snapshot = a_snapshot([a_node("n")], waited, classy, now=NOW)
    first, second = RlptoQueues().order([classy, waited], snapshot)
    assert (first.gang.uid, first.score) == ("waited", URGENT)
    assert second.score < URGENT


def test_only_gangs_urgent_by_their_class_have_a_claim_to_the_places_of_others() -> None:
    waited, urgent = (
        a_gang("waited", arrived=LONG_AGO),
        a_gang("urgent", arrived=NOW, priority=500),
    )
    snapshot = a_snapshot([a_node("n")], waited, urgent, now=NOW)
    claims = {
        entry.gang.uid: entry.preemption_priority
        for entry in RlptoQueues().order([waited, urgent], snapshot)
    }
    assert claims == {"waited": 0.0, "urgent": 1.0}


def stopped_for(newcomer: Gang, *running: tuple[Gang, float]) -> list[str]:
    """The gangs that stop for ``newcomer`` on a node that is full."""
    snapshot = a_snapshot([a_node("n", len(running))], newcomer, now=NOW, settings=EVEN)
    runs = [a_running_gang(gang, snapshot.nodes, started=since) for gang, since in running]
    decision = run_cycle(with_running(snapshot, *runs), Policy(RlptoQueues(), Packing()))
    return [each.running.gang.uid for each in decision.preempted]


def test_an_urgent_gang_stops_the_normal_one_that_started_last() -> None:
    urgent = a_gang("urgent", arrived=NOW, priority=500)
    old, new = a_gang("old"), a_gang("new")
    assert stopped_for(urgent, (old, 10.0), (new, 20.0)) == ["new"]


def test_neither_urgent_gangs_nor_those_stopped_before_make_room() -> None:
    urgent = a_gang("urgent", arrived=NOW, priority=500)
    other, before = a_gang("other", priority=500), a_gang("before", interrupted=True)
    assert stopped_for(urgent, (other, 10.0), (before, 20.0)) == []


def test_a_gang_that_waited_itself_urgent_stops_nobody() -> None:
    assert stopped_for(a_gang("waited", arrived=LONG_AGO), (a_gang("running"), NOW - 1)) == []


@given(st.floats(1, 9), st.booleans(), st.integers(-60, 60))
def test_a_job_that_crosses_the_threshold_changes_queue_with_a_new_priority(
    priority: float, is_urgent: bool, requests: int
) -> None:
    after, now_urgent = apply_requests(
        np.array([priority]), np.array([is_urgent]), np.array([float(requests)])
    )
    wanted = priority + CHANGE * requests
    if not is_urgent and wanted > URGENT:
        assert (now_urgent[0], after[0]) == (True, URGENT)
    elif is_urgent and wanted < URGENT:
        assert (now_urgent[0], after[0]) == (False, DEMOTED)
    else:
        assert (now_urgent[0], after[0]) == (is_urgent, pytest.approx(wanted))


@pytest.mark.parametrize("wrong", [{"urgent_priority": 0}, {"request_seconds": 0.5}])
def test_a_parameter_out_of_its_range_is_named(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(SettingError, match=name):
        RlptoQueues(**wrong)  # type: ignore[arg-type]
