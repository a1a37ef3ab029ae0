"""Two releases of the chart in one cluster, each with its policies: one leads, the other waits.

Programs of both run with the accounts and settings that their pods would have. A tenant with the
cluster's own role ``edit`` tries to be a third leader.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest
import yaml

from testbed.controlplane.cluster import Cluster
from testbed.controlplane.nodes import fake_nodes
from testbed.controlplane.stack import BiremeStack
from testbed.scenario import helm as scenario_helm
from testbed.scenario.helm import BIREME, Helm, Release, install, programs, uninstall
from testbed.scenario.manifests import Manifest, task, training_job
from testbed.scenario.operators import answer_of
from testbed.scenario.tenant import Tenant, uids_of

pytestmark = pytest.mark.cluster

ANN: Final = ("--as=ann", "--as-group=system:authenticated")
"""A user of one namespace, with the cluster's own role ``edit`` there."""
SECOND: Final = Release("second", "second-system")
DRY_RUN: Final = "--dry-run=server"


@dataclass(frozen=True)
class Both:
    """A cluster with two releases; the programs of the first run, and the second's operator."""

    cluster: Cluster
    helm: Helm
    first: BiremeStack
    second: BiremeStack

    def log_tails(self) -> str:
        return f"{self.first.log_tails()}\n{self.second.log_tails()}"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    helm = Helm(tmp_path_factory.mktemp("helm"))
    with ExitStack() as open_until_end:
        enter = open_until_end.enter_context
        nodes = fake_nodes(2, gpus=8, racks=2)
        cluster = enter(scenario_helm.installed("two-releases", nodes, helm))
        first = enter(programs(cluster, tmp_path_factory.mktemp("first"))).start()
        notes = install(cluster, helm, release=SECOND)
        assert "already has a release of Bireme, bireme in namespace bireme-system" in notes
        second = enter(programs(cluster, tmp_path_factory.mktemp("second"), SECOND))
        for program in (second.operator(), second.extender, second.scheduler):
            program.start()
        yield Both(cluster, helm, first, second)


@pytest.fixture
def tenant(both: Both) -> Iterator[Tenant]:
    cluster = both.cluster
    with Tenant.staying(cluster, both.log_tails) as tenant:
        where = f"--namespace={tenant.namespace}"
        cluster.kubectl("create", "rolebinding", "ann", "--clusterrole=edit", "--user=ann", where)
        question = ("auth", "can-i", "create", "leases", where, *ANN)
        tenant.eventually(
            lambda: cluster.kubectl(*question, check=False), lambda answer: answer[:3] == "yes"
        )
        yield tenant


def words_of(tenant: Tenant, *arguments: str, manifest: Manifest | None = None) -> str:
    """Return what kubectl prints, however it ends."""
    text = json.dumps(manifest) if manifest is not None else ""
    return tenant.cluster.kubectl(*arguments, input=text, check=False)


def test_a_second_release_owns_no_definition_and_shares_no_name_with_the_first(both: Both) -> None:
    kinds = (
        *("clusterroles", "clusterrolebindings", "validatingadmissionpolicies"),
        *("validatingadmissionpolicybindings", "flowschemas", "prioritylevelconfigurations"),
        "customresourcedefinitions",
    )
    listed = both.cluster.kubectl("get", ",".join(kinds), "-o=json")
    owners: dict[str, str] = {}
    for each in json.loads(listed)["items"]:
        annotations = each["metadata"].get("annotations", {})
        if owner := annotations.get("meta.helm.sh/release-name"):
            owners[f"{each['kind']}/{each['metadata']['name']}"] = owner
    of_second = {name for name, owner in owners.items() if owner == SECOND.name}
    assert of_second
    assert not {name for name in of_second if name.startswith("CustomResourceDefinition")}
    assert all("/second-bireme" in name for name in of_second)


def test_the_first_release_leads_with_the_policies_of_both_and_the_second_says_that_it_waits(
    both: Both, tenant: Tenant
) -> None:
    tenant.create(training_job("job", task("worker", 2, gpus=4)))
    tenant.await_phase("job", "Running")
    words = "of the release in namespace bireme-system leads in this cluster: uninstall one"
    tenant.eventually(lambda: words in answer_of(both.second.operator().ready_url))
    assert "another release leads in this cluster" in both.second.operator().log_path.read_text()


def test_a_tenant_with_edit_may_forge_a_lease_and_nothing_that_counts(
    both: Both, tenant: Tenant
) -> None:
    spec = {"holderIdentity": "x", "leaseDurationSeconds": 2**31 - 1, "leaseTransitions": 2**31 - 1}
    about = {"name": "bireme-operator", "namespace": tenant.namespace}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about}
    answer = words_of(tenant, "create", "-f", "-", *ANN, manifest={**lease, "spec": spec})
    assert "created" in answer
    change = json.dumps({"spec": {"holder": "x"}})
    patch = ("patch", "clusterclaim", "bireme", "--type=merge", "-p", change, DRY_RUN)
    for verb in ("get", "create", "update", "patch", "delete", "operate"):
        question = ("auth", "can-i", verb, "clusterclaims.bireme.dev", *ANN)
        assert "no" in words_of(tenant, *question).split(), verb
    assert 'User "ann" cannot' in words_of(tenant, *patch, *ANN)
    # A role with every verb is no operator's, and neither is an administrator.
    assert "is written by the operator alone" in words_of(tenant, *patch)
    # A new leader is there at once all the same, and its epoch is the next one.
    first, second = both.first.operator(), both.second.operator()
    for leader, heir in ((first, second), (second, first)):
        before = claim_of(both)["transitions"]
        assert leader.terminate() == 0
        heir.wait_ready()
        assert claim_of(both)["transitions"] == before + 1
        leader.start()


def claim_of(both: Both) -> Manifest:
    text = both.cluster.kubectl("get", "clusterclaim", "bireme", "-o=json")
    spec: Manifest = json.loads(text)["spec"]
    return spec


def test_marker_of_an_operator_is_known_to_the_policies_of_every_release(
    both: Both, tenant: Tenant
) -> None:
    tenant.create(training_job("job", task("worker", 1), runPolicy={"suspend": True}))
    change = json.dumps({"status": {"message": "written"}})
    patch = ("patch", "trainingjob", "job", "--subresource=status", "--type=merge", "-p", change)
    where = (f"--namespace={tenant.namespace}", DRY_RUN)
    # The role of an operator has update alone: the question is what admission says after it.
    manifest = json.loads(tenant.cluster.kubectl("get", "trainingjob", "job", "-o=json", where[0]))
    manifest["status"] = {**manifest.get("status", {}), "message": "written"}
    path = f"/apis/bireme.dev/v1alpha1/namespaces/{tenant.namespace}/trainingjobs/job/status"
    replace = ("replace", f"--raw={path}?dryRun=All", "-f", "-")
    for release in (BIREME, SECOND):
        account = f"--as=system:serviceaccount:{release.namespace}:{release.accounts['operator-a']}"
        answer = words_of(tenant, *replace, account, manifest=manifest)
        assert '"message":"written"' in answer, release
    assert "is written by the operator" in words_of(tenant, *patch, *where)


def test_the_second_release_takes_over_within_a_lease_once_the_first_is_uninstalled(
    both: Both, tenant: Tenant
) -> None:
    tenant.create(training_job("before", task("worker", 2, gpus=4)))
    tenant.await_phase("before", "Running")
    pods = uids_of(tenant.pods("before"))
    uninstall(both.cluster, both.helm)
    both.first.stop()  # as its pods would be
    both.second.operator().wait_ready(20)
    assert claim_of(both)["namespace"] == SECOND.namespace
    tenant.create(training_job("after", task("worker", 2, gpus=4)))
    tenant.await_phase("after", "Running")
    assert uids_of(tenant.pods("before")) == pods
    assert yaml.safe_load(both.cluster.kubectl("get", "crd", "trainingjobs.bireme.dev", "-o=yaml"))
