"""An operator on the real control plane records what it does, and a replay does the same again."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.controlplane.stack import BiremeStack
from testbed.scenario.clusters import gpu_stack
from testbed.scenario.manifests import Manifest, priority_class, task, training_job
from testbed.scenario.tenant import Tenant

pytestmark = [pytest.mark.cluster, pytest.mark.embedded]


@pytest.fixture
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest.fixture
def stack(records: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    """Sixteen GPUs on two nodes, anew for each try: the test ends its operator."""
    env = {"BIREME_MIN_RUNTIME_SECONDS": "0", "BIREME_RECORD_DIRECTORY": str(records)}
    with gpu_stack("records", tmp_path_factory.mktemp("stack"), env) as stack:
        yield stack


def gang(name: str, workers: int, **spec: Any) -> Manifest:
    return training_job(name, task("worker", workers), estimatedDuration="10m", **spec)


def replayed(records: Path, *arguments: str) -> dict[str, Any]:
    """The findings of ``bireme replay``, run from the command line."""
    command = [sys.executable, "-m", "bireme.cli", "replay", str(records), "--json", "-"]
    done = subprocess.run(
        [*command, *arguments], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_replay_of_a_real_cluster_decides_every_cycle_as_its_operator_did(
    tenant: Tenant, stack: BiremeStack, records: Path
) -> None:
    tenant.create(priority_class("records-high", 1000))
    tenant.create(gang("first", 8), gang("second", 8))
    for name in ("first", "second"):
        tenant.await_phase(name, "Running")
    tenant.create(gang("wide", 16), gang("urgent", 4, priorityClassName="records-high"))
    tenant.await_phase("urgent", "Running")
    tenant.await_reason("wide", "WaitingForCapacity")
    for name in ("wide", "urgent"):
        tenant.delete("TrainingJob", name)
    tenant.eventually(
        lambda: [tenant.status(name)["phase"] for name in ("first", "second")],
        lambda phases: phases == ["Running", "Running"],
    )
    # Nobody counts them after it: at the end of the test the queue must say what holds places.
    tenant.eventually(lambda: tenant.status("default", "Queue").get("admitted"), lambda n: n == 2)
    stack.operator().kill()

    found = replayed(records, "--policy", "fifo")
    own = found["decisions"]["combined-priority/packing"]
    assert own["same"] == own["cycles"] >= 5
    assert found["record"]["lost_cycles"] == 0
    assert found["record"]["nodes"] == 2
    fifo = found["decisions"]["fifo"]["differences"]
    assert fifo["missing_stops"] >= 1, "fifo stops nobody"
    waits = {run["policy"]: run for run in found["waits"]["runs"]}
    assert [run["finished"] for run in waits.values()] == [3, 3]
    assert waits["combined-priority/packing"]["preemptions"] >= 1
    assert waits["fifo"]["preemptions"] == 0
