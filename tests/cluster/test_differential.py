"""The simulator and the operator do the same with the same scenarios; 50 of them run by `make`.

A machine under load may be late, and then the same rules may decide otherwise; the verdict knows
that from a difference.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.differential.drawing import scenario_of
from benchmarks.differential.runner import carry_out, ground
from benchmarks.differential.scenarios import Scenario, Submission
from benchmarks.differential.verdicts import Verdict, line_of, verdict_on
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.manifests import annotations, queue, task, training_job

pytestmark = pytest.mark.cluster
SEEDS = (0,)


def a_submission(name: str, at: float, run_seconds: float, **spec: str) -> Submission:
    workers = task(replicas=4, fake=annotations(f"{run_seconds:g}s"))
    return Submission(at, run_seconds, training_job(name, workers, queue="one", **spec))


STOP = Scenario(
    seed=-1,
    nodes=tuple(fake_nodes(2, gpus=4, racks=1)),
    queues=(queue("one"),),
    submissions=(
        a_submission("first", 0, 12, estimatedDuration="12s"),
        a_submission("second", 1, 8, estimatedDuration="8s"),
        a_submission("urgent", 3, 5, estimatedDuration="5s", priorityClassName="urgent"),
        a_submission("third", 7, 3, estimatedDuration="3s"),
    ),
    until_seconds=17.0,
)
"""Each takes one of two nodes. The urgent one stops the second, which starts again when it ends."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    with ground(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


@pytest.mark.parametrize("seed", SEEDS)
def test_cluster_starts_stops_and_resizes_as_the_simulator_does(
    stack: BiremeStack, tmp_path: Path, seed: int
) -> None:
    assert_same(scenario_of(seed), stack, tmp_path)


def test_cluster_stops_the_gang_that_the_simulator_stops(
    stack: BiremeStack, tmp_path: Path
) -> None:
    verdict = assert_same(STOP, stack, tmp_path)
    assert [change.gang for change in verdict.seen.changes if change.kind == "stop"] == ["second"]


def assert_same(scenario: Scenario, stack: BiremeStack, folder: Path) -> Verdict:
    verdict = verdict_on(scenario, carry_out(scenario, stack, folder))
    assert verdict.word != "differs", line_of(verdict)
    assert len(verdict.seen.starts) >= len(scenario.submissions), "every gang was started"
    return verdict
