"""etcd restored from a backup: Bireme's programs find out, and go on from what is there."""

import os
import secrets
from pathlib import Path

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack, Keeper
from testbed.scenario.clusters import PATIENT, install_api
from testbed.scenario.manifests import queue, torch_job
from testbed.scenario.promises import judged
from testbed.scenario.tenant import Tenant, uids_of

pytestmark = pytest.mark.cluster

RECOVERY_SECONDS = 90.0
BEGUN = {"off-plan": "the record begins when gangs run already"}
LOST = "etcd was restored from a backup"
LISTS_ANEW = "410 Expired: too old resource version"


def test_operator_and_extender_start_afresh_from_a_restored_backup(tmp_path: Path) -> None:
    """The API server goes back to versions that both have passed, under their open watches."""
    backup = tmp_path / "backup"
    with Cluster.start(f"restore-{os.getpid()}-{secrets.token_hex(2)}") as cluster:
        cluster.add_nodes(fake_nodes(2, racks=1))
        install_api(cluster)
        cluster.api.post("/apis/bireme.dev/v1alpha1/queues", queue("default"))
        with BiremeStack(cluster, tmp_path / "stack", internals=PATIENT) as stack:
            tenant = Tenant(cluster, cluster.create_namespace("tenant"), stack.log_tails)
            with judged(cluster):
                stack.start()
                tenant.create(torch_job("old", gpus=2))
                tenant.await_phase("old", "Running")
                kept, plan = uids_of(tenant.pods("old")), tenant.plan("old")
                cluster.backup(backup)
                tenant.create(torch_job("lost", gpus=2))
                tenant.await_phase("lost", "Running", RECOVERY_SECONDS)
                tenant.create(torch_job("waiting", gpus=2))
                tenant.await_reason("waiting", "WaitingForCapacity")
            programs = [stack.operator(), stack.extender]
            first = [program.pid for program in programs]
            with Keeper(programs):
                cluster.restore(backup)
                # What Kubernetes asks of an administrator; Bireme's own programs are left alone.
                stack.scheduler.kill()
                stack.scheduler.start()
                with judged(cluster, not_judged=BEGUN):
                    tenant.create(torch_job("new", gpus=2))
                    tenant.await_phase("new", "Running", RECOVERY_SECONDS)
                    tenant.create(torch_job("next", gpus=2))
                    tenant.await_reason("next", "WaitingForCapacity")
                    assert tenant.find("TrainingJob", "lost") is None
                    assert (uids_of(tenant.pods("old")), tenant.plan("old")) == (kept, plan)
            # A program that comes back when its version has been passed again is told that it is
            # too old, and lists anew; one that comes back before that ends.
            for pid, program in zip(first, programs, strict=True):
                said = program.log_path.read_text()
                assert LOST in said or LISTS_ANEW in said
                assert (LOST in said) == (program.pid != pid)
