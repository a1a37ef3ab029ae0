"""Gangs that count as jobs that a pool has finished."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bireme.core.gangs import Gang
from bireme.core.resources import BoolArray
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import a_gang, a_node, a_running_gang, a_snapshot, with_running
from bireme_operator.node_pools import CompletionCounter

TRAIN, OTHER = a_gang("train"), replace(a_gang("other"), kind="PodGroup")
KEY = ("default", "train")


@pytest.fixture
def state() -> Any:
    """The known jobs and groups; nothing has finished."""
    job = SimpleNamespace(uid="train", is_finished=False)
    group = SimpleNamespace(uid="other", plan="a plan")
    objects = SimpleNamespace(jobs={KEY: job}, groups={("default", "other"): group})
    return SimpleNamespace(objects=objects)


def cluster(*running: Gang, waiting: tuple[Gang, ...] = (), row: int = 1) -> ClusterSnapshot:
    """Two nodes; ``running`` are on one of them."""
    seen = a_snapshot([a_node("n0"), a_node("n1")], *waiting)
    return with_running(seen, *(a_running_gang(gang, seen.nodes, row=row) for gang in running))


def pools() -> dict[str, BoolArray]:
    """The second node is the pool's."""
    return {"pool": np.array([False, True])}


def test_a_job_counts_once_when_it_has_left_its_nodes(state: Any) -> None:
    finishes = CompletionCounter(state)
    assert finishes.observe(cluster(TRAIN), pools()) == {}
    state.objects.jobs[KEY].is_finished = True
    assert finishes.observe(cluster(), pools()) == {"pool": 1}
    assert finishes.observe(cluster(), pools()) == {}


def test_a_gang_of_others_counts_when_its_plan_is_gone(state: Any) -> None:
    finishes = CompletionCounter(state)
    finishes.observe(cluster(OTHER), pools())
    state.objects.groups["default", "other"].plan = None
    assert finishes.observe(cluster(), pools()) == {"pool": 1}


def test_a_gang_that_waits_again_has_not_finished(state: Any) -> None:
    finishes = CompletionCounter(state)
    finishes.observe(cluster(OTHER), pools())
    state.objects.groups["default", "other"].plan = None
    assert finishes.observe(cluster(waiting=(OTHER,)), pools()) == {}


def test_a_job_that_starts_again_or_was_deleted_has_not_finished(state: Any) -> None:
    finishes = CompletionCounter(state)
    finishes.observe(cluster(TRAIN), pools())
    assert finishes.observe(cluster(), pools()) == {}
    finishes.observe(cluster(TRAIN), pools())
    del state.objects.jobs[KEY]
    assert finishes.observe(cluster(), pools()) == {}


def test_a_job_on_other_nodes_is_no_pools(state: Any) -> None:
    finishes = CompletionCounter(state)
    finishes.observe(cluster(TRAIN, row=0), pools())
    state.objects.jobs[KEY].is_finished = True
    assert finishes.observe(cluster(), pools()) == {}
