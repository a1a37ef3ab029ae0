"""Invariance of decisions: inputs they do not depend on, and state they leave as it was."""

import random
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bireme.core.cycle import run_cycle
from bireme.core.decision import Action, Admit, Decision, Hold, Preempt, Resize
from bireme.core.resources import IntArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import a_snapshot
from testbed.small_cluster import SmallCluster
from testbed.workloads import COMBINED, ELASTIC, KINDS, NODES, PATIENT, QUEUES, arrivals


@st.composite
def states(draw: st.DrawFn) -> ClusterSnapshot:
    """A moment in the life of a small cluster, with gangs that leave."""
    todo = draw(arrivals((*KINDS, *ELASTIC), tuple(q.name for q in QUEUES), (1.0, None)))
    hurried = replace(PATIENT, wait_bound_seconds=draw(st.sampled_from((5, 10**6))))
    world = SmallCluster(NODES, COMBINED, hurried, QUEUES, stop_seconds=10.0)
    for at, gang, seconds in todo[:-2]:
        world.advance(float(at))
        world.submit(gang, seconds)
        world.decide()
    for _, gang, seconds in todo[-2:]:
        world.submit(gang, seconds)
    return world.snapshot()


def story(decision: Decision, with_words: bool = True) -> list[object]:
    """A decision as plain values, to compare."""

    def values(action: Action) -> list[object]:
        gang = action.gang if isinstance(action, Admit | Hold) else action.running.gang
        facts: list[object] = [type(action).__name__, gang, action.reason]
        if isinstance(action, Admit | Resize):
            facts.append(repr(action.placement))
        if isinstance(action, Hold):
            kept = action.reservation
            if kept is not None and not with_words:
                kept = replace(kept, sooner=None)  # it is only reported
            facts += [action.position, repr(kept)]
        if isinstance(action, Preempt):
            facts.append(action.beneficiary)
        if isinstance(action, Admit):
            facts.append(action.passed)
        return [*facts, action.message] if with_words else facts

    return [*(values(action) for action in decision.actions), decision.fallback]


@given(states(), st.randoms(use_true_random=False))
def test_the_order_of_gangs_in_a_snapshot_does_not_matter(
    snapshot: ClusterSnapshot, shuffle: random.Random
) -> None:
    waiting, running = list(snapshot.waiting), list(snapshot.running)
    shuffle.shuffle(waiting)
    shuffle.shuffle(running)
    other = replace(snapshot, waiting=tuple(waiting), running=tuple(running))
    assert story(run_cycle(other, COMBINED)) == story(run_cycle(snapshot, COMBINED))


@given(states())
def test_without_words_the_decision_is_the_same(snapshot: ClusterSnapshot) -> None:
    silent = run_cycle(snapshot, COMBINED, explain=False)
    assert story(silent, with_words=False) == story(run_cycle(snapshot, COMBINED), with_words=False)
    assert {action.message for action in silent.actions if isinstance(action, Admit)} <= {""}


@given(states())
def test_a_snapshot_is_only_read_and_equal_ones_are_decided_alike(
    snapshot: ClusterSnapshot,
) -> None:
    for array in _arrays(snapshot):
        array.setflags(write=False)
    usage = repr(snapshot.queue_usage)
    first = story(run_cycle(snapshot, COMBINED))
    assert story(run_cycle(snapshot, COMBINED)) == first
    fresh = a_snapshot(NODES, settings=snapshot.settings).nodes
    assert story(run_cycle(replace(snapshot, nodes=fresh), COMBINED)) == first
    assert repr(snapshot.queue_usage) == usage


def _arrays(snapshot: ClusterSnapshot) -> list[IntArray]:
    placed = [task for running in snapshot.running for task in running.placement.tasks]
    usage = [each for r in snapshot.running for each in r.usage(snapshot.nodes.axis)]
    return [
        snapshot.used,
        snapshot.nodes.allocatable,
        *usage,
        *(np.asarray(task.rows) for task in placed),
        *(np.asarray(task.counts) for task in placed),
    ]
