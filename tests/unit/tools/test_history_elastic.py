"""What the history checker lets elastic gangs do, whose replicas come and go."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.history.observer import check
from tests.unit.tools.history_builder import Story


@pytest.fixture
def story() -> Story:
    story = Story()
    story.node("n0")
    story.node("n1")
    return story


ELASTIC: dict[str, Any] = {
    "rendezvous": "torch",
    "tasks": [{"name": "worker", "replicas": 2, "maxReplicas": 3}],
}


def test_elastic_gang_that_grows_shrinks_and_grows_again_breaks_no_promise(story: Story) -> None:
    story.gang("n0", "n0")
    story.job("Running", **ELASTIC)
    for epoch in (1, 2):  # a new leader resizes the plan of the old one
        story.plan({"0": "n0", "1": "n0", "2": "n1"})
        story.pod("2", "n1", "Running", uid=f"third-{epoch}")
        story.wait(60)
        story.plan({"0": "n0", "1": "n0"})
        story.pod("2", "n1", "Running", uid=f"third-{epoch}", leaving=True)
        story.pod("2", "n1", "Running", uid=f"third-{epoch}", change="DELETED")
        story.plan({"0": "n1", "1": "n1"}, name="another", epoch=epoch + 1)
        story.wait(60)
    assert check(story.records) == []


def elastic_gang_below_its_minimum(story: Story) -> None:
    story.gang("n0", "n0")
    story.job("Running", **ELASTIC)
    story.pod("1", "n0", "Running", change="DELETED")
    story.wait(60)


def elastic_twin(story: Story) -> None:
    story.gang("n0", "n0")
    story.job("Running", **ELASTIC)
    story.pod("1", "n0", "Running", uid="twin", name="j-worker-1-b")


def first_replica_of_an_elastic_gang_made_again(story: Story) -> None:
    story.gang("n0", "n0")
    story.job("Running", **ELASTIC)
    story.pod("0", "n0", "Running", change="DELETED")
    story.pod("0", "n0", "Running", uid="again", change="ADDED")


@pytest.mark.parametrize(
    ("tell", "invariant"),
    [
        (elastic_gang_below_its_minimum, "gang-partial"),
        (elastic_twin, "replica-twice"),
        (first_replica_of_an_elastic_gang_made_again, "replica-twice"),
    ],
)
def test_promise_that_elastic_gangs_make_too_is_checked(
    story: Story, tell: Callable[[Story], None], invariant: str
) -> None:
    tell(story)
    assert story.broken() == {invariant}
