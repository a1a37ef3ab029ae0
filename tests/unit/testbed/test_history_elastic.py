"""Freedoms of elastic gangs, whose replicas come and go, in the history checker."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed.history.builder import HistoryBuilder
from testbed.history.observer import check


@pytest.fixture
def history() -> HistoryBuilder:
    history = HistoryBuilder()
    history.node("n0")
    history.node("n1")
    return history


ELASTIC: dict[str, Any] = {
    "rendezvous": "torch",
    "tasks": [{"name": "worker", "replicas": 2, "maxReplicas": 3}],
}


def test_elastic_gang_that_grows_shrinks_and_grows_again_breaks_no_promise(
    history: HistoryBuilder,
) -> None:
    history.gang("n0", "n0")
    history.job("Running", **ELASTIC)
    for epoch in (1, 2):  # a new leader resizes the plan of the old one
        history.plan({"0": "n0", "1": "n0", "2": "n1"})
        history.pod("2", "n1", "Running", uid=f"third-{epoch}")
        history.wait(60)
        history.plan({"0": "n0", "1": "n0"})
        history.pod("2", "n1", "Running", uid=f"third-{epoch}", leaving=True)
        history.pod("2", "n1", "Running", uid=f"third-{epoch}", change="DELETED")
        history.plan({"0": "n1", "1": "n1"}, name="another", epoch=epoch + 1)
        history.wait(60)
    assert check(history.records) == []


def elastic_gang_below_its_minimum(history: HistoryBuilder) -> None:
    history.gang("n0", "n0")
    history.job("Running", **ELASTIC)
    history.pod("1", "n0", "Running", change="DELETED")
    history.wait(60)


def elastic_twin(history: HistoryBuilder) -> None:
    history.gang("n0", "n0")
    history.job("Running", **ELASTIC)
    history.pod("1", "n0", "Running", uid="twin", name="j-worker-1-b")


def first_replica_of_an_elastic_gang_made_again(history: HistoryBuilder) -> None:
    history.gang("n0", "n0")
    history.job("Running", **ELASTIC)
    history.pod("0", "n0", "Running", change="DELETED")
    history.pod("0", "n0", "Running", uid="again", change="ADDED")


@pytest.mark.parametrize(
    ("tell", "invariant"),
    [
        (elastic_gang_below_its_minimum, "gang-partial"),
        (elastic_twin, "replica-twice"),
        (first_replica_of_an_elastic_gang_made_again, "replica-twice"),
    ],
)
def test_promise_that_elastic_gangs_make_too_is_checked(
    history: HistoryBuilder, tell: Callable[[HistoryBuilder], None], invariant: str
) -> None:
    tell(history)
    assert history.broken() == {invariant}
