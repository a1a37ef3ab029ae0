"""On the real control plane: what like runs took lets a job pass a blocked one, and it says so.

Before anything is known of it, it runs in the reserved places all the same, for as long as they are
not needed.
"""

from collections.abc import Iterator

import pytest

from bireme.core.estimates import MIN_RUNS
from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import Manifest, annotations, task, training_job
from testbed.scenario.tenant import Tenant

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    folder = tmp_path_factory.mktemp("stack")
    with gpu_stack("history", folder) as stack:
        yield stack


def short(name: str) -> Manifest:
    """A job that runs for two seconds, does not say so, and can resume."""
    worker = task("worker", 2, fake=annotations("2s"))
    return training_job(name, worker, runPolicy={"resumable": True})


def admitted(tenant: Tenant, name: str) -> str:
    """The message of the job's condition Admitted."""
    conditions = tenant.status(name)["conditions"]
    return next(str(c["message"]) for c in conditions if c["type"] == "Admitted")


def test_short_job_passes_the_blocked_one_after_a_few_runs_like_it(tenant: Tenant) -> None:
    holder = training_job("holder", task("worker", 8), estimatedDuration="2h")
    whole = training_job("whole", task("worker", 16))
    tenant.create(holder)
    tenant.await_phase("holder", "Running")
    tenant.create(whole)
    tenant.eventually(lambda: tenant.status("whole"), lambda seen: "estimatedStart" in seen)
    tenant.create(short("unknown"))
    tenant.await_phase("unknown", "Succeeded")
    assert admitted(tenant, "unknown").endswith(
        f"in places reserved for {tenant.namespace}/whole; stops when that gang fits"
    ), "nobody knows yet how long it runs"
    tenant.delete("TrainingJob", "whole")

    for number in range(MIN_RUNS):
        tenant.create(short(f"run{number}"))
    for number in range(MIN_RUNS):
        tenant.await_phase(f"run{number}", "Succeeded")
    tenant.create(whole)
    kept = tenant.eventually(lambda: tenant.status("whole"), lambda seen: "estimatedStart" in seen)
    tenant.create(short("known"))
    tenant.await_phase("known", "Succeeded")
    message = admitted(tenant, "known")
    passed = f"ahead of {tenant.namespace}/whole without delaying it; expected to run "
    assert passed in message
    assert message.endswith(" s, like 90 % of similar runs")
    assert tenant.status("whole")["phase"] == "Pending"
    assert tenant.status("whole")["estimatedStart"] == kept["estimatedStart"]
