"""A scenario on the real control plane, from the first submission to the last rest.

One cluster serves one scenario after another. The first moment is a whole second of the wall clock,
because Kubernetes writes times in whole seconds and fake kubelets end pods at them. Jobs come a
little after their second, so that what ended at it is known.
"""

import math
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.differential.course import Course, of_history
from benchmarks.differential.scenarios import CLASSES, DEBOUNCE_SECONDS, ENVIRONMENT, Scenario
from testbed.controlplane.cluster import Cluster
from testbed.controlplane.stack import BiremeStack
from testbed.history.recorder import Recorder
from testbed.scenario.clusters import install_api
from testbed.scenario.manifests import priority_class
from testbed.scenario.promises import judged
from testbed.scenario.tenant import ENDED, Tenant

AFTER_THE_SECOND: Final = 0.1
"""Place of a submission in its second."""
PATIENCE_SECONDS: Final = 30.0
"""After the moment at which all should be done, a slow machine gets so long."""
INTERNALS: Final = {
    "cycle_debounce_seconds": DEBOUNCE_SECONDS,
    # Rules that only time triggers apply at once.
    "sweep_interval_seconds": 0.25,
    "lease_duration_seconds": 5,
}
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Seen:
    course: Course
    until_seconds: float


@contextmanager
def ground(folder: Path) -> Iterator[BiremeStack]:
    """Run Bireme on a cluster without nodes for the block; logs go to ``folder``."""
    name = f"differential-{os.getpid()}-{secrets.token_hex(2)}"
    with Cluster.start(name) as cluster:
        install_api(cluster)
        for class_name, value in CLASSES.items():
            manifest = priority_class(class_name, value)
            cluster.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", manifest)
        with (
            judged(cluster),
            BiremeStack(cluster, folder, ENVIRONMENT, internals=INTERNALS) as stack,
        ):
            yield stack.start()


def carry_out(scenario: Scenario, stack: BiremeStack, folder: Path) -> Seen:
    """Run ``scenario``; its history goes to ``folder``."""
    cluster, path = stack.cluster, folder / f"seed-{scenario.seed}.jsonl"
    with (
        _furnished(cluster, scenario),
        Tenant.staying(cluster, stack.log_tails) as tenant,
        Recorder(cluster.kubeconfig, path) as recorder,
    ):
        now = time.time()  # noqa: TID251  # whose whole seconds the API server writes
        # Half a second ahead at least: the first submission must not be late.
        began = recorder.elapsed_seconds + math.ceil(now + 0.5) - now
        for submission in scenario.submissions:
            due = began + submission.seconds + AFTER_THE_SECOND
            time.sleep(max(0.0, due - recorder.elapsed_seconds))
            tenant.create(submission.manifest)
        _await_rest(scenario, recorder, began)
        until = recorder.elapsed_seconds - began
        recorder.settle()
        return Seen(of_history(recorder.records(), tenant.namespace, began), until)


@contextmanager
def _furnished(cluster: Cluster, scenario: Scenario) -> Iterator[None]:
    queues = "/apis/bireme.dev/v1alpha1/queues"
    cluster.add_nodes(scenario.nodes)
    for manifest in scenario.queues:
        cluster.api.post(queues, manifest)
    yield
    cluster.kubectl("delete", "queues.bireme.dev", "--all")
    cluster.kubectl("delete", "nodes", "--all")


def _await_rest(scenario: Scenario, recorder: Recorder, began: float) -> None:
    """Return when all that ends has ended and nothing more is to come, or the time is over."""
    ending = {s.name for s in scenario.submissions if s.run_seconds is not None}

    def are_done() -> bool:
        jobs = {job["metadata"]["name"]: job for job in recorder.objects("TrainingJob")}
        done = {name for name, job in jobs.items() if job.get("status", {}).get("phase") in ENDED}
        return ending <= done

    patience = began + scenario.until_seconds + PATIENCE_SECONDS
    _poll(are_done, lambda: recorder.elapsed_seconds > patience)
    rest = max(began + scenario.until_seconds, recorder.elapsed_seconds + scenario.rest_seconds)
    _poll(lambda: recorder.elapsed_seconds > rest)


def _poll(*conditions: Callable[[], bool]) -> None:
    while not any(condition() for condition in conditions):
        time.sleep(_POLL_SECONDS)
