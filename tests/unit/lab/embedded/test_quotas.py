"""ResourceQuotas of the embedded cluster, in the words of kube-apiserver."""

import asyncio
from typing import Any

import pytest

from bireme_lab.embedded.amounts import Amount, total
from bireme_lab.embedded.api import patches
from bireme_lab.embedded.api.errors import Object
from bireme_lab.embedded.cluster import EmbeddedCluster
from tests.unit.lab.embedded.requests import PODS, a_pod, an_api, ask, done

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
MAPS = "/api/v1/namespaces/default/configmaps"
GPU = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000Ki", "1000Ki"),
        ("1e3", "1e3"),
        ("1000", "1k"),
        ("1e15", "1e15"),
        ("1E", "1E"),
        ("0.1Ki", "102400m"),
        ("0Gi", "0"),
    ],
)
def test_amount_is_written_as_the_api_server_does(text: str, canonical: str) -> None:
    assert str(Amount.parse(text)) == canonical


def test_sum_has_the_form_of_its_first_amount() -> None:
    sums = total({"memory": Amount.parse(text)} for text in ("0", "512Mi", "536870912"))
    assert str(sums["memory"]) == "1Gi"


def with_resources(name: str, **resources: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": resources}
    return a_pod(name, containers=[container], schedulingGates=[{"name": "a/b"}])


def run(hard: dict[str, str], course: Any, **spec: Any) -> None:
    """Run a course of requests on a cluster with one quota, which has been counted."""

    async def runs() -> None:
        async with EmbeddedCluster() as cluster:
            quota = {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
            done(cluster.api, "POST", QUOTAS, quota)
            await asyncio.sleep(0.02)
            for step in course(cluster):
                assert step is None
                await asyncio.sleep(0.02)

    asyncio.run(runs())


def used(cluster: EmbeddedCluster) -> Object:
    status = done(cluster.api, "GET", f"{QUOTAS}/q")["status"]
    amounts: Object = status["used"]
    return amounts


def test_pods_are_refused_above_the_quota_and_give_it_back_when_they_end_or_go() -> None:
    limits = {"cpu": "500m", GPU: "1"}

    def course(cluster: EmbeddedCluster) -> Any:
        for name in ("a", "b"):
            yield done(cluster.api, "POST", PODS, with_resources(name, limits=limits)) and None
        refused = ask(cluster.api, "POST", PODS, with_resources("c", limits=limits))
        assert (refused.code, refused.body["message"]) == (
            403,
            (
                'pods "c" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=1,'
                " used: requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=2"
            ),
        )
        assert used(cluster) == {"requests.cpu": "1", f"requests.{GPU}": "2", "pods": "2"}
        ended = {"status": {"phase": "Failed"}}
        path = f"{PODS}/a/status"
        yield done(cluster.api, "PATCH", path, ended, content_type=patches.MERGE_PATCH) and None
        assert used(cluster) == {"requests.cpu": "500m", f"requests.{GPU}": "1", "pods": "1"}
        yield done(cluster.api, "DELETE", f"{PODS}/b") and None
        assert used(cluster) == {"requests.cpu": "0", f"requests.{GPU}": "0", "pods": "0"}

    run({"requests.cpu": "4", f"requests.{GPU}": "2", "pods": "9"}, course)


def test_dry_run_and_a_name_that_is_taken_charge_nothing() -> None:
    def course(cluster: EmbeddedCluster) -> Any:
        yield done(cluster.api, "POST", PODS, with_resources("a"), dryRun="All") and None
        assert used(cluster) == {"pods": "0"}
        yield done(cluster.api, "POST", PODS, with_resources("a")) and None
        yield None if ask(cluster.api, "POST", PODS, with_resources("a")).code == 409 else False
        assert used(cluster) == {"pods": "1"}

    run({"pods": "2"}, course)


def test_every_container_must_state_what_a_quota_limits() -> None:
    def course(cluster: EmbeddedCluster) -> Any:
        refused = ask(cluster.api, "POST", PODS, with_resources("a", requests={"cpu": "1"}))
        assert refused.body["message"] == (
            'pods "a" is forbidden: failed quota: q: must specify limits.cpu for: c;'
            " requests.memory for: c"
        )
        yield None

    run({"requests.cpu": "4", "requests.memory": "1Gi", "limits.cpu": "4"}, course)


def test_objects_are_counted_by_their_kind() -> None:
    def course(cluster: EmbeddedCluster) -> Any:
        yield done(cluster.api, "POST", MAPS, {"metadata": {"name": "a"}}) and None
        refused = ask(cluster.api, "POST", MAPS, {"metadata": {"name": "b"}})
        assert refused.body["message"] == (
            'configmaps "b" is forbidden: exceeded quota: q, requested: count/configmaps=1,'
            " used: count/configmaps=1, limited: count/configmaps=1"
        )
        yield done(cluster.api, "DELETE", f"{MAPS}/a") and None
        assert used(cluster) == {"count/configmaps": "0"}

    run({"count/configmaps": "1"}, course)


@pytest.mark.parametrize(
    ("scopes", "pod", "is_counted"),
    [
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 9}, True),
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["NotTerminating", "BestEffort"]}, {}, True),
        ({"scopes": ["NotBestEffort"]}, {}, False),
        ({"scopeSelector": ("PriorityClass", "Exists")}, {}, False),
        ({"scopeSelector": ("PriorityClass", "DoesNotExist")}, {}, True),
        (
            {"scopeSelector": ("PriorityClass", "In", "system-node-critical")},
            {"priorityClassName": "system-node-critical"},
            True,
        ),
    ],
)
def test_quota_counts_the_pods_of_its_scopes(
    scopes: Any, pod: dict[str, Any], is_counted: bool
) -> None:
    def course(cluster: EmbeddedCluster) -> Any:
        gated = {**pod, "schedulingGates": [{"name": "a/b"}]}
        yield done(cluster.api, "POST", PODS, a_pod(**gated)) and None
        assert used(cluster) == {"pods": str(int(is_counted))}

    if isinstance(scopes.get("scopeSelector"), tuple):
        scope, operator, *values = scopes["scopeSelector"]
        requirement = {"scopeName": scope, "operator": operator, "values": values}
        scopes = {"scopeSelector": {"matchExpressions": [requirement]}}
    run({"pods": "5"}, course, **scopes)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"hard": {"pods": "1"}, "scopes": ["CrossNamespacePodAffinity"]},
            "the embedded cluster has no quotas of this scope",
        ),
        (
            {"hard": {"gold.storageclass.storage.k8s.io/requests.storage": "1Gi"}},
            "the embedded cluster counts no amounts of this name",
        ),
        ({"hard": {"pods": "1.5"}}, 'spec.hard[pods]: Invalid value: "1500m": must be an integer'),
    ],
)
def test_quota_that_cannot_be_counted_is_refused_by_name(spec: Object, message: str) -> None:
    answer = ask(an_api(), "POST", QUOTAS, {"metadata": {"name": "q"}, "spec": spec})
    assert answer.code == 422
    assert message in answer.body["message"]
