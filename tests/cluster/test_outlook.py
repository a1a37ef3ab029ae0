"""The leader's outlook, its readers judged by the real API server: each their own namespaces."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.support.scenario.clusters import gpu_stack
from tests.support.scenario.helm import Helm
from tests.support.scenario.manifests import task, training_job
from tests.support.scenario.tenant import Tenant
from tests.support.scenario.waiting import eventually
from tools.controlplane.stack import BiremeStack

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BiremeStack]:
    env = {"BIREME_OUTLOOK": "true", "BIREME_OUTLOOK_INTERVAL_SECONDS": "0"}
    with gpu_stack("outlook", tmp_path_factory.mktemp("stack"), env) as stack:
        yield stack


def asked(stack: BiremeStack, token: str, namespace: str = "") -> tuple[int, list[str], str]:
    """Return the status of an answer, the gangs that it tells of, and why it is none."""
    port = stack.operator().env["BIREME_METRICS_PORT"]
    query = f"?namespace={namespace}" if namespace else ""
    url = f"http://127.0.0.1:{port}/outlook{query}"
    request = urllib.request.Request(url, headers={"Bireme-Token": token})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # of the test
            gangs = json.loads(answer.read())["gangs"]
            return answer.status, sorted(f"{g['namespace']}/{g['name']}" for g in gangs), ""
    except urllib.error.HTTPError as error:
        return error.code, [], json.loads(error.read())["message"]


def test_a_reader_of_one_namespace_sees_that_one_and_no_other(
    stack: BiremeStack, tenant: Tenant
) -> None:
    kubectl, where = stack.cluster.kubectl, ("-n", tenant.namespace)
    reads = f"reads-{tenant.namespace}"
    lists = ("--verb=list", "--resource=trainingjobs.bireme.dev")
    kubectl("create", "clusterrole", reads, *lists)
    tokens = {}
    for name in ("ann", "root", "nobody"):
        kubectl("create", "serviceaccount", name, *where)
        tokens[name] = kubectl("create", "token", name, *where).strip()
    ann, root = (f"--serviceaccount={tenant.namespace}:{name}" for name in ("ann", "root"))
    kubectl("create", "rolebinding", reads, f"--clusterrole={reads}", *where, ann)
    kubectl("create", "clusterrolebinding", reads, f"--clusterrole={reads}", root)

    with Tenant.staying(stack.cluster, stack.log_tails) as other:
        tenant.create(training_job("runs", task(replicas=16), estimatedDuration="1h"))
        tenant.await_phase("runs", "Running")
        tenant.create(training_job("mine", task(replicas=16)))
        other.create(training_job("theirs", task(replicas=16)))
        mine, theirs = f"{tenant.namespace}/mine", f"{other.namespace}/theirs"
        both = sorted([mine, theirs])
        eventually(lambda: asked(stack, tokens["root"]), lambda found: found[1] == both)
        assert asked(stack, tokens["ann"]) == (200, [mine], "")
        assert asked(stack, tokens["root"], other.namespace) == (200, [theirs], "")
        status, _, why = asked(stack, tokens["ann"], other.namespace)
        assert (status, f"in namespace '{other.namespace}'" in why) == (403, True)
        assert asked(stack, tokens["nobody"]) == (200, [], "")
        assert asked(stack, "no.token.atall")[0] == 401


def test_the_chart_has_the_way_to_it_and_grants_reviews_where_it_is_served_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    helm = Helm(tmp_path_factory.mktemp("helm"))
    assert "bireme-outlook" not in helm.template()
    text = helm.template("--set=operator.settings.outlook=true")
    assert "resources: [subjectaccessreviews]" in text
    assert "outlook: true" in text
    assert 'resourceNames: ["bireme-outlook:outlook"]' in text
