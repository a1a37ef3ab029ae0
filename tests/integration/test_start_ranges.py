"""A leading operator learns how starts come, and tells it; the core says the same of its cycles."""

from functools import partial
from pathlib import Path
from typing import Any

from bireme.core.cycle import run_cycle
from bireme.core.decision import Decision
from bireme.core.eta import StartRange, StartRanges
from bireme.core.snapshot import ClusterSnapshot
from bireme.kube import quantities
from bireme.registry import make_policy
from bireme_operator.status import start_estimate
from testbed.fakeapi import FakeApi
from testbed.kubelets import FakeKubelets, runs
from testbed.operator_term.term import furnish, leading, status, submit, until
from testbed.scenario.manifests import Manifest, task, training_job

FEWEST = 19
"""So many starts must have come before a range is learned."""


class Heard(StartRanges):
    """Keeps its questions and its answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[ClusterSnapshot, dict[str, StartRange]]] = []

    def update(self, snapshot: ClusterSnapshot, decision: Decision) -> dict[str, StartRange]:
        ranges = super().update(snapshot, decision)
        self.answers.append((snapshot, ranges))
        return ranges


def whole(number: int) -> Manifest:
    """A job that fills the node and says it runs for an hour, which it does not."""
    return training_job(f"job{number:02}", task("worker", 8), estimatedDuration="1h")


def estimate_of(api: FakeApi, number: int) -> dict[str, Any]:
    """The estimated start in a job's status; empty without one."""
    return status(api, f"job{number:02}").get("estimatedStart") or {}


def is_running(api: FakeApi, number: int) -> bool:
    return status(api, f"job{number:02}").get("phase") == "Running"


async def test_a_range_is_learned_from_starts_and_forgotten_with_the_leader(
    api: FakeApi, tmp_path: Path
) -> None:
    furnish(api, 1)
    heard = Heard()
    async with FakeKubelets(api, runs) as kubelets:
        async with leading(api, tmp_path, status_refresh_seconds=0.1) as term:
            term.executor.start_ranges = heard
            submit(api, whole(0))
            for number in range(FEWEST + 1):
                await until(partial(is_running, api, number))
                submit(api, whole(number + 1))
                await until(partial(estimate_of, api, number + 1))
                assert ("coveragePercent" in estimate_of(api, number + 1)) == (number == FEWEST)
                if number < FEWEST:
                    for worker in range(8):
                        kubelets.end(f"job{number:02}-worker-{worker}")
            learned = estimate_of(api, FEWEST + 1)
        hour = (
            quantities.parse_timestamp(estimate_of(api, FEWEST + 1)["latest"]) or 0.0
        ) - heard.answers[-1][0].now
        assert hour < 600, "nobody ran for the hour that everybody stated"
        async with leading(api, tmp_path, epoch=2, status_refresh_seconds=0.1):
            await until(lambda: "coveragePercent" not in estimate_of(api, FEWEST + 1))
    assert learned in [start_estimate(r) for _, ranges in heard.answers for r in ranges.values()]
    again, policy = StartRanges(), make_policy(heard.answers[0][0].settings)
    for snapshot, ranges in heard.answers:
        assert again.update(snapshot, run_cycle(snapshot, policy)) == ranges
