"""What-if: it agrees with the outlook, its advice comes true, and it names nobody it should not."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.gangs import Gang
from bireme.core.nodes import MaintenanceWindow
from bireme.core.outlook import look_ahead
from bireme.core.play import Bounds, Cut
from bireme.core.policy import Policy
from bireme.core.queues import Queue
from bireme.core.reasons import Reason
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.what_if import (
    MAX_NAMED,
    Answer,
    Begins,
    GangChange,
    Others,
    PriorityClass,
    WhatIfError,
    apply_change,
    ask,
    find_waiting,
    with_gang,
)
from bireme.heuristics.combined_priority import CombinedPriority
from bireme.heuristics.packing import Packing
from bireme.heuristics.simple_orderers import Fifo
from bireme.testing import (
    GPU,
    a_gang,
    a_node,
    a_running,
    a_running_gang,
    a_snapshot,
    a_task,
    racks,
    with_running,
)
from testbed.examples import examples

FIFO = Policy(Fifo(), Packing())
COMBINED = Policy(CombinedPriority(), Packing())
EXACT = Bounds(coarseness=0.0)
PATIENT = SchedulingSettings(preemption=False, wait_bound_seconds=86_400 * 300)
NOW = 1000.0
QUEUES = (Queue("default"), Queue("small", limit={GPU: 8}))
HIGH = PriorityClass("high", 1000)


def lasting(name: str, seconds: float | None, replicas: int = 8, **facts: Any) -> Gang:
    return a_gang(name, a_task(replicas), estimated_seconds=seconds, **facts)


def cluster(
    *waiting: Gang, ends: Sequence[float | None], settings: SchedulingSettings = PATIENT
) -> ClusterSnapshot:
    """As many nodes of 8 GPUs as ``ends``, each filled since ``NOW`` by a gang that lasts so."""
    empty = a_snapshot(racks(1, len(ends)), *waiting, queues=QUEUES, now=NOW, settings=settings)
    running = [
        a_running_gang(
            lasting(f"r{row}", end, namespace=f"team-{row}"), empty.nodes, row=row, started=NOW
        )
        for row, end in enumerate(ends)
    ]
    return with_running(empty, *running)


def outlook_of(
    snapshot: ClusterSnapshot, gang: Gang, policy: Policy, bounds: Bounds
) -> float | None:
    """When ``gang``, which waits in ``snapshot``, starts in it; its outlook if not at once."""
    decision = run_cycle(snapshot, policy)
    if any(admit.gang.uid == gang.uid for admit in decision.admitted):
        return snapshot.now
    prospects = look_ahead(snapshot, decision, policy, bounds).prospects
    return next(each.start for each in prospects if each.gang.uid == gang.uid)


jobs = st.lists(
    st.tuples(st.integers(1, 20), st.one_of(st.none(), st.integers(1, 4000))), max_size=8
)
ends = st.lists(st.one_of(st.none(), st.integers(1, 5000)), min_size=1, max_size=4)
changes = st.builds(
    GangChange,
    replicas=st.one_of(st.just({}), st.integers(1, 20).map(lambda n: {"": n})),
    queue=st.sampled_from(["", "small"]),
    priority_class=st.sampled_from([None, HIGH]),
    estimated_seconds=st.one_of(st.none(), st.integers(1, 4000).map(float)),
)


@examples(40)
@given(
    others=jobs,
    ends=ends,
    size=st.integers(1, 20),
    change=changes,
    tries=st.lists(changes, max_size=2),
    policy=st.sampled_from([FIFO, COMBINED]),
    bounds=st.sampled_from([EXACT, Bounds()]),
    preempts=st.booleans(),
)
def test_the_answer_is_the_outlook_and_its_advice_comes_true(
    others: list[tuple[int, int | None]],
    ends: list[float | None],
    size: int,
    change: GangChange,
    tries: list[GangChange],
    policy: Policy,
    bounds: Bounds,
    preempts: bool,
) -> None:
    line = [
        lasting(f"w{n}", None if run is None else float(run), gpus, arrived=float(n))
        for n, (gpus, run) in enumerate(others)
    ]
    rules = replace(PATIENT, preemption=preempts)
    snapshot = cluster(*line, ends=ends, settings=rules)
    gang = lasting("new", 500.0, size, arrived=NOW)
    found = ask(snapshot, policy, gang, change, tries, bounds=bounds)
    asked = apply_change(gang, change, snapshot)
    assert found.foreseen.start == outlook_of(with_gang(snapshot, asked), asked, policy, bounds)
    for each in found.sooner:
        tried = apply_change(asked, each.change, snapshot)
        came = outlook_of(with_gang(snapshot, tried), tried, policy, bounds)
        assert came == each.foreseen.start
        assert came is not None
        if found.foreseen.start is not None and found.foreseen.start > NOW:
            assert came < found.foreseen.start
        else:  # at once instead of as soon as others have left, or at all instead of never
            assert found.foreseen.begins is not Begins.AT_ONCE


# --- what is said ------------------------------------------------------------------------------


def asked(
    snapshot: ClusterSnapshot, gang: Gang, *tries: GangChange, policy: Policy = FIFO, **facts: Any
) -> Answer:
    return ask(snapshot, policy, gang, tries=tries, bounds=EXACT, **facts)


def test_where_there_is_room_it_starts_at_once_on_named_nodes() -> None:
    snapshot = a_snapshot(racks(1, 2), now=NOW)
    found = asked(snapshot, lasting("new", 60.0, 9))
    assert (found.foreseen.begins, found.foreseen.start) == (Begins.AT_ONCE, NOW)
    places = found.foreseen.nodes["worker"]
    assert sum(places.values()) == 9
    assert set(places) == {"r0-n0", "r0-n1"}
    assert (found.sooner, found.no_sooner, found.foreseen.ahead.count) == ((), (), 0)


def test_behind_others_it_says_when_where_and_for_what() -> None:
    first = lasting("first", 100.0, arrived=1.0)
    found = asked(cluster(first, ends=[600.0]), lasting("new", 60.0, arrived=NOW)).foreseen
    assert (found.begins, found.start) == (Begins.LATER, NOW + 700)
    assert found.nodes == {"worker": {"r0-n0": 8}}
    assert (found.position, found.ahead) == (2, Others(1, ("default/first",)))
    assert found.reason is Reason.WAITING_FOR_CAPACITY
    assert found.message.startswith("asks 8 nvidia.com/gpu as 8 worker")


def test_fewer_replicas_are_proposed_where_they_start_sooner() -> None:
    snapshot = a_snapshot(racks(1, 2), queues=QUEUES, now=NOW, settings=PATIENT)
    held = a_running_gang(lasting("r", 600.0, 6), snapshot.nodes, started=NOW)
    found = asked(with_running(snapshot, held), lasting("new", 60.0, 16, arrived=NOW))
    assert found.foreseen.start == NOW + 600
    (best,) = found.sooner
    assert best.change == GangChange(replicas={"worker": 8})
    assert best.foreseen.begins is Begins.AT_ONCE
    assert GangChange(replicas={"worker": 12}) in found.no_sooner
    # Smaller ones than the largest that starts at once are not sooner.
    assert GangChange(replicas={"worker": 4}) in found.no_sooner


def test_a_gang_that_states_a_minimum_starts_at_it_and_is_not_told_to_shrink() -> None:
    snapshot = cluster(ends=[600.0, 900.0])
    gang = a_gang("new", a_task(16, min_replicas=8), arrived=NOW, estimated_seconds=60.0)
    found = asked(snapshot, gang)
    assert (found.foreseen.start, found.sooner) == (NOW + 600, ())
    assert found.foreseen.nodes == {"worker": {"r0-n0": 8}}


def test_an_estimate_is_proposed_that_lets_it_go_before_a_gang_that_it_does_not_delay() -> None:
    snapshot = a_snapshot(racks(1, 1), queues=QUEUES, now=NOW, settings=PATIENT)
    held = a_running_gang(lasting("r", 600.0, 4), snapshot.nodes, started=NOW)
    first = lasting("first", 100.0, arrived=1.0)
    with_first = replace(with_running(snapshot, held), waiting=(first,))
    found = asked(with_first, lasting("new", 5000.0, 4, arrived=NOW))
    assert found.foreseen.reason is Reason.WAITING_BEHIND
    assert found.sooner[0].change == GangChange(estimated_seconds=600.0)
    assert found.sooner[0].foreseen.begins is Begins.AT_ONCE


def test_another_queue_and_another_class_are_tried_where_the_reader_names_them() -> None:
    limited = lasting("new", 60.0, arrived=NOW, queue="small")
    snapshot = a_snapshot(racks(1, 2), queues=QUEUES, now=NOW, settings=PATIENT)
    held = a_running_gang(lasting("r", 600.0, queue="small"), snapshot.nodes, started=NOW)
    other, vain = GangChange(queue="default"), GangChange(priority_class=HIGH)
    found = asked(with_running(snapshot, held), limited, other, vain)
    assert found.foreseen.reason is Reason.OVER_QUEUE_LIMIT
    assert found.sooner[0].change == other
    assert vain in found.no_sooner


PREEMPTING = SchedulingSettings(min_runtime_seconds=0, service_threshold=0)


def test_a_higher_class_stops_others_and_only_those_the_reader_may_see_are_named() -> None:
    snapshot = cluster(ends=[9000.0, 9000.0], settings=PREEMPTING)
    snapshot = replace(snapshot, now=NOW + 4000)
    gang = lasting("new", 60.0, 16, arrived=NOW + 4000)
    class_ = GangChange(priority_class=HIGH)
    found = asked(snapshot, gang, class_, policy=COMBINED, readable={"default", "team-0"})
    best = next(each.foreseen for each in found.sooner if each.change == class_)
    assert best.begins is Begins.AFTER_STOPS
    assert best.stops == Others(2, ("team-0/r0",))
    every = asked(snapshot, gang, class_, policy=COMBINED).sooner[0].foreseen.stops
    assert every.named == ("team-0/r0", "team-1/r1")
    never = GangChange(priority_class=replace(HIGH, may_preempt=False))
    assert never in asked(snapshot, gang, never, policy=COMBINED).no_sooner


def test_what_service_will_stop_for_the_gang_is_foreseen_at_the_end_of_the_delay() -> None:
    snapshot = replace(cluster(ends=[9e5, 9e5], settings=SchedulingSettings()), now=NOW + 4000)
    gang = lasting("new", 60.0, arrived=NOW + 4000)
    found = asked(snapshot, gang, policy=COMBINED).foreseen
    delay = snapshot.settings.service_preemption_delay_seconds
    assert (found.start, found.stops.count) == (NOW + 4000 + delay, 1)


def test_what_shrinks_for_the_gang_is_told_and_what_a_maintenance_moves_is_not() -> None:
    window = MaintenanceWindow(NOW - 10, NOW + 9000)
    nodes = [replace(a_node("n0"), maintenance=window), a_node("n1"), a_node("n2")]
    empty = a_snapshot(nodes, now=NOW, settings=PREEMPTING)
    old = NOW - 4000
    task = a_task(8, min_replicas=2)
    moved = a_gang("moved", task, is_elastic=True, priority=2000)
    shrinks = a_gang("shrinks", task, is_elastic=True)
    snapshot = with_running(
        empty,
        a_running(moved, empty.nodes, {"n0": 4, "n1": 4}, started=old),
        a_running(shrinks, empty.nodes, {"n2": 8}, started=old),
    )
    gang = lasting("new", 60.0, 6, arrived=NOW, priority=1000)
    found = asked(snapshot, gang, policy=COMBINED).foreseen
    assert found.begins is Begins.AFTER_STOPS
    assert (found.stops, found.shrinks) == (Others(), Others(1, ("default/shrinks",)))


def test_an_estimate_is_proposed_that_ends_before_a_maintenance_begins() -> None:
    node = replace(a_node("n0"), maintenance=MaintenanceWindow(NOW + 7200, NOW + 9000))
    found = asked(a_snapshot([node], now=NOW), lasting("new", None, arrived=NOW))
    assert found.foreseen.reason is Reason.MAINTENANCE_AHEAD
    assert found.foreseen.start == NOW + 9000
    assert found.sooner[0].change == GangChange(estimated_seconds=7200.0)
    assert found.sooner[0].foreseen.begins is Begins.AT_ONCE


def test_no_part_of_an_answer_holds_the_name_of_a_gang_that_may_not_be_read() -> None:
    line = [
        lasting(f"secret{n}", 100.0, arrived=float(n), namespace=f"hidden-{n % 2}")
        for n in range(9)
    ]
    snapshot = cluster(*line, ends=[600.0])
    found = asked(snapshot, lasting("new", 60.0, arrived=NOW), readable={"default"})
    assert found.foreseen.ahead == Others(9, ())
    assert "secret" not in repr(found)
    assert "hidden" not in repr(found)
    assert len(asked(snapshot, lasting("new", 60.0, arrived=NOW)).foreseen.ahead.named) == MAX_NAMED


def test_nothing_is_answered_about_a_namespace_that_may_not_be_read() -> None:
    # Its messages name the gangs of that namespace, and its name may be taken there.
    gang = lasting("r0", 60.0, arrived=NOW, namespace="team-0")
    with pytest.raises(WhatIfError, match="namespace: you may not read 'team-0'"):
        asked(cluster(ends=[600.0]), gang, readable={"default"})


def test_an_answer_can_be_sent_and_read_again() -> None:
    class_ = GangChange(priority_class=HIGH)
    snapshot = cluster(lasting("first", 100.0, arrived=1.0), ends=[600.0])
    found = asked(snapshot, lasting("new", 5000.0, 16, arrived=NOW), class_)
    assert found.sooner
    assert class_ in found.no_sooner
    assert msgspec.json.decode(msgspec.json.encode(found), type=Answer) == found


def test_where_nothing_says_when_it_ends_no_time_is_promised() -> None:
    found = asked(cluster(ends=[None]), lasting("new", 60.0, arrived=NOW))
    assert found.foreseen.begins is Begins.AFTER_ENDS
    assert found.sooner == ()  # fewer replicas would also start nobody knows when


def test_what_never_fits_has_no_start_and_fewer_replicas_help() -> None:
    found = asked(cluster(ends=[600.0]), lasting("new", 60.0, 9, arrived=NOW))
    assert (found.foreseen.begins, found.foreseen.position) == (Begins.NOT_FORESEEN, None)
    assert found.foreseen.cut is Cut.NOTHING_ENDS
    assert found.sooner[0].change == GangChange(replicas={"worker": 6})


def test_without_time_the_answer_says_that_it_is_cut_short() -> None:
    left = iter([True, False])
    found = asked(
        cluster(ends=[600.0]),
        lasting("new", 60.0, 8, arrived=NOW),
        is_time_left=lambda: next(left, False),
    )
    assert found.foreseen.start == NOW + 600
    assert found.is_cut_short
    assert found.sooner == ()
    assert found.no_sooner == ()


# --- what cannot be asked ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            GangChange(replicas={"wroker": 2}),
            "replicas: job has no task 'wroker'; did you mean 'wo",
        ),
        (GangChange(replicas={"worker": 0}), "task 'worker' cannot have 0; name from 2 to 6"),
        (GangChange(replicas={"": 7}), "task 'worker' cannot have 7; name from 2 to 6"),
        (GangChange(queue="reserach"), "queue: there is no queue 'reserach'"),
        (GangChange(estimated_seconds=math.inf), "estimate: inf s is no run time"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_with_its_field(
    change: GangChange, words: str
) -> None:
    snapshot = cluster(ends=[600.0])
    gang = a_gang("job", a_task(4, min_replicas=2, max_replicas=6))
    with pytest.raises(WhatIfError) as raised:
        ask(snapshot, FIFO, gang, change)
    assert words in str(raised.value)


def test_a_size_needs_the_name_of_its_task_where_several_could_be_meant() -> None:
    workers = a_task(4), a_task(2, name="other")
    with pytest.raises(WhatIfError, match="has tasks worker, other; name one"):
        apply_change(a_gang("job", *workers), GangChange(replicas={"": 1}), cluster(ends=[600.0]))


def test_replicas_of_pods_that_others_make_are_not_asked_about() -> None:
    group = lasting("g", 60.0, 16, arrived=NOW, kind="PodGroup")
    snapshot = cluster(ends=[600.0, 900.0])
    found = asked(snapshot, group)
    assert not any(each.change.replicas for each in found.sooner)
    assert not any(each.replicas for each in found.no_sooner)
    with pytest.raises(WhatIfError, match="replicas: the pods of PodGroup g are made by another"):
        asked(snapshot, group, GangChange(replicas={"worker": 8}))


def test_only_gangs_that_wait_and_may_be_read_are_found() -> None:
    waits = lasting("w", 1.0)
    snapshot = cluster(waits, ends=[600.0])
    assert find_waiting(snapshot, ("default", "w"), "TrainingJob") is waits
    with pytest.raises(WhatIfError, match="has its places already"):
        find_waiting(snapshot, ("team-0", "r0"), "TrainingJob")
    for key in [("team-0", "r0"), ("team-0", "none")]:  # no word on which of them is there
        with pytest.raises(WhatIfError, match=r"^no TrainingJob team-0/.* waits; name one"):
            find_waiting(snapshot, key, "TrainingJob", readable={"default"})


def test_a_new_gang_takes_no_name_that_is_in_use() -> None:
    snapshot = cluster(ends=[600.0])
    other = replace(lasting("r0", 1.0, namespace="team-0"), uid="new")
    with pytest.raises(
        WhatIfError, match=r"metadata\.name: a TrainingJob team-0/r0 exists already"
    ):
        with_gang(snapshot, other)


def test_what_asks_for_more_waits_anew() -> None:
    snapshot = a_snapshot([a_node("n0")], now=NOW)
    gang = lasting("w", 1.0, 4, arrived=5.0, parked=7.0)
    more = apply_change(gang, GangChange(replicas={"": 5}), snapshot)
    assert (more.arrived, more.parked) == (NOW, None)
    less = apply_change(gang, GangChange(replicas={"": 3}), snapshot)
    assert (less.arrived, less.parked) == (5.0, 7.0)
