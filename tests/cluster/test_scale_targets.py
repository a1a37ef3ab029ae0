"""Reading, judging and writing scales on a real API server: whose replicas are whose."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from bireme.kube.api.node_pool_scaler import ScaleTarget
from bireme.kube.client import ApiClient, ApiError
from bireme.kube.scale import ReplicaManager, Scale, ScaleFault, ScaleTargets
from testbed.controlplane.cluster import Cluster

T = TypeVar("T")
REPLICAS = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "machines.pools.example.com"},
    "spec": {
        "group": "pools.example.com",
        "scope": "Cluster",
        "names": {"kind": "Machines", "plural": "machines"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    }
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": REPLICAS, "status": REPLICAS},
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module", autouse=True)
def machines(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(DEFINITION))
    name = f"crd/{DEFINITION['metadata']['name']}"
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", name)


@pytest.fixture
def target() -> ScaleTarget:
    """The name of a pool of machines that does not exist yet."""
    name = f"pool-{secrets.token_hex(4)}"
    return ScaleTarget(api_version="pools.example.com/v1", kind="Machines", name=name)


def manifest(target: ScaleTarget, replicas: int | None) -> str:
    spec = {} if replicas is None else {"replicas": replicas}
    kind = {"apiVersion": target.api_version, "kind": target.kind}
    return json.dumps({**kind, "metadata": {"name": target.name}, "spec": spec})


def asked(cluster: Cluster, work: Callable[[ScaleTargets], Awaitable[T]]) -> T:
    """The result of ``work``, with a connection of its own."""

    async def connected() -> T:
        client = await ApiClient.connect(cluster.kubeconfig)
        try:
            return await work(ScaleTargets(client))
        finally:
            await client.close()

    return asyncio.run(connected())


def read(cluster: Cluster, target: ScaleTarget) -> Scale:
    return asked(cluster, lambda targets: targets.read(target))


def owners(cluster: Cluster, target: ScaleTarget) -> tuple[ReplicaManager, ...]:
    """Field managers that one node more would overrule."""

    async def ask(targets: ScaleTargets) -> tuple[ReplicaManager, ...]:
        scale = await targets.read(target)
        return await targets.owners(scale, scale.replicas + 1)

    found = asked(cluster, ask)
    assert read(cluster, target).replicas == 2, "nothing was written"
    return found


def write(cluster: Cluster, target: ScaleTarget, replicas: int) -> Scale:
    """Write as the operator does: again where the target's own controller wrote in between."""

    async def work(targets: ScaleTargets) -> Scale:
        while True:
            try:
                return await targets.write(await targets.read(target), replicas)
            except ApiError as error:
                if not error.is_conflict:
                    raise

    return asked(cluster, work)


def create(cluster: Cluster, target: ScaleTarget) -> None:
    cluster.kubectl("create", "-f", "-", input=manifest(target, 2))


def test_replicas_of_anything_that_has_a_scale_are_read_and_written(
    cluster: Cluster, target: ScaleTarget, namespace: str
) -> None:
    create(cluster, target)
    args = ("create", "deployment", "machines", "--image=machine", "--replicas=2")
    cluster.kubectl(*args, "-n", namespace)
    deployment = ScaleTarget(
        api_version="apps/v1", kind="Deployment", name="machines", namespace=namespace
    )
    for each in (target, deployment):
        assert read(cluster, each).replicas == 2
        assert write(cluster, each, 5).replicas == 5
        assert read(cluster, each).replicas == 5


def test_who_created_the_target_does_not_look_after_its_replicas(
    cluster: Cluster, target: ScaleTarget
) -> None:
    create(cluster, target)
    assert owners(cluster, target) == (
        ReplicaManager("kubectl-create", applied=False, by_scale=False),
    )
    assert not owners(cluster, target)[0].is_lasting


def test_who_applies_the_replicas_looks_after_them(cluster: Cluster, target: ScaleTarget) -> None:
    for manager in ("argocd", "flux"):
        args = ("apply", "--server-side", f"--field-manager={manager}", "-f", "-")
        cluster.kubectl(*args, input=manifest(target, 2))
    assert {owner.manager for owner in owners(cluster, target)} == {"argocd", "flux"}
    assert all(owner.applied and owner.is_lasting for owner in owners(cluster, target))


def test_field_manager_that_scaled_the_target_owns_its_replicas_until_handover(
    cluster: Cluster, target: ScaleTarget
) -> None:
    create(cluster, target)
    cluster.kubectl("scale", f"machines/{target.name}", "--replicas=3")
    cluster.kubectl("scale", f"machines/{target.name}", "--replicas=2")
    assert owners(cluster, target) == (ReplicaManager("kubectl", applied=False, by_scale=True),)
    assert owners(cluster, target)[0].is_lasting
    patch = ("--type=merge", "--field-manager=bireme-operator", "-p", '{"spec":{"replicas":1}}')
    cluster.kubectl("patch", "machines", target.name, "--subresource=scale", *patch)
    write(cluster, target, 2)
    assert not any(owner.is_lasting for owner in owners(cluster, target))


def test_what_the_operator_has_written_is_its_own(cluster: Cluster, target: ScaleTarget) -> None:
    create(cluster, target)
    write(cluster, target, 3)
    write(cluster, target, 2)
    (owner,) = owners(cluster, target)
    assert (owner.manager, owner.by_scale, owner.is_lasting) == ("bireme-operator", True, False)


def test_replicas_that_nobody_is_on_record_for_are_nobodys(
    cluster: Cluster, target: ScaleTarget
) -> None:
    create(cluster, target)
    # The API server forgets who is on record where a scale is set to what it is.
    cluster.kubectl("scale", f"machines/{target.name}", "--replicas=2")
    assert owners(cluster, target) == ()
    assert write(cluster, target, 3).replicas == 3


def test_a_target_without_replicas_cannot_be_read(cluster: Cluster, target: ScaleTarget) -> None:
    cluster.kubectl("create", "-f", "-", input=manifest(target, None))
    with pytest.raises(ApiError, match=r"replicas field .* does not exist"):
        read(cluster, target)


def test_a_target_that_changed_since_it_was_read_is_not_written(
    cluster: Cluster, target: ScaleTarget
) -> None:
    create(cluster, target)
    seen = read(cluster, target)
    write(cluster, target, 7)
    with pytest.raises(ApiError) as refused:
        asked(cluster, lambda targets: targets.write(seen, 3))
    assert refused.value.is_conflict
    assert read(cluster, target).replicas == 7


def test_what_is_no_target_is_named_with_remedy(cluster: Cluster, target: ScaleTarget) -> None:
    with pytest.raises(ApiError) as missing:
        read(cluster, target)
    assert missing.value.is_not_found
    wrong = {
        "name something that can be scaled": {"api_version": "v1", "kind": "Node"},
        "is no kind of apps/v1": {"api_version": "apps/v1", "kind": "Machines"},
        "is not served here": {"api_version": "gone.example.com/v1"},
        "has no namespace": {"namespace": "default"},
        "needs a namespace": {"api_version": "apps/v1", "kind": "Deployment"},
    }
    for words, change in wrong.items():
        with pytest.raises(ScaleFault, match=words):
            read(cluster, target.model_copy(update=change))
