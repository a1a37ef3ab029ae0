"""What the API server does with the requests of an installed release where it limits requests."""

import re
from collections import Counter
from pathlib import Path

import pytest

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.kwokctl import FAIRNESS
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.waiting import wait_until
from testbed.scenario.helm import Helm, installed, running
from testbed.scenario.manifests import task, training_job

pytestmark = pytest.mark.cluster

DISPATCHED = re.compile(
    r'^apiserver_flowcontrol_dispatched_requests_total\{flow_schema="([^"]+)",'
    r'priority_level="([^"]+)"\} ([0-9.e+]+)$',
    re.MULTILINE,
)


def dispatched(cluster: Cluster) -> Counter[tuple[str, str]]:
    """Requests served so far, by flow schema and priority level."""
    found = DISPATCHED.findall(cluster.kubectl("get", "--raw", "/metrics"))
    return Counter({(schema, level): int(float(count)) for schema, level, count in found})


def test_requests_of_a_release_are_of_its_own_level_and_its_leases_of_that_for_leases(
    tmp_path: Path,
) -> None:
    helm = Helm(tmp_path / "helm")
    with installed("fairness", fake_nodes(4), helm, arguments=FAIRNESS) as cluster:
        before = dispatched(cluster)
        with running(cluster, tmp_path / "programs"):
            path = "/apis/bireme.dev/v1alpha1/namespaces/default/trainingjobs"
            cluster.api.post(path, training_job("gang", task("worker", 4)))

            def runs() -> bool:
                job = cluster.api.get(f"{path}/gang")
                return bool(job.get("status", {}).get("phase") == "Running")

            wait_until(runs, 60, "the gang to run")
            spent = dispatched(cluster) - before
        # Lists and watches of three programs, and at least create, bind and status of the gang.
        assert spent["bireme", "bireme"] > 30
        assert spent["bireme-leases", "leader-election"] > 0
        assert spent["service-accounts", "workload-low"] == 0
