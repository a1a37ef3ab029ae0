"""Volumes of jobs, and kube-scheduler's filters and bindings for them.

A claim is bound to a volume of one node, or to one of any node where the first pod goes, or it may
be used by one pod at a time in the whole cluster.
"""

from collections.abc import Iterable
from random import Random

from tests.support.fakeapi.store import Key, Object, Refusal, Store
from tests.support.objects.volumes import HOSTNAME, claim, named, storage_class, volume
from tests.support.simcluster import objects

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_ONCE = "ReadWriteOncePod"
_MOST_GPUS = 8
"""GPUs of a node: replicas that share a volume of one node have to fit there."""


def furnish(store: Store, namespace: str) -> None:
    """Create the storage class, and a claim that single pods of all jobs compete for."""
    store.create(CLASSES, ("", "local"), storage_class())
    made = volume("shared", modes=(_ONCE,), claim=f"{namespace}/shared")
    store.create(VOLUMES, ("", "shared"), made)
    store.create(CLAIMS, (namespace, "shared"), claim("shared", bound="shared", mode=_ONCE))


def give(store: Store, job: Object, namespace: str, nodes: list[str], chance: Random) -> None:
    """Have the pods of ``job`` use a claim, where one node has room for all of them."""
    tasks, name = job["spec"]["tasks"], job["metadata"]["name"]
    replicas = max(tasks[0].get("maxReplicas", 0), tasks[0]["replicas"])
    spec = tasks[0]["template"]["spec"]
    limits = spec["containers"][0]["resources"].get("limits", {})
    gpus = sum(map(int, limits.values()))
    if len(tasks) > 1 or gpus * replicas > _MOST_GPUS or objects.host_ports(spec):
        return
    if replicas == 1 and chance.random() < 0.4:
        spec.update(named("shared"))
        return
    spec.update(named(name))
    key = (namespace, name)
    if key in store.collection(CLAIMS).objects:
        return
    if chance.random() < 0.5:
        made = volume(name, host=chance.choice(nodes), claim=f"{namespace}/{name}")
        store.create(VOLUMES, ("", name), made)
        store.create(CLAIMS, key, claim(name, bound=name))
        return
    store.create(CLAIMS, key, claim(name, selector={"matchLabels": {"for": name}}))
    for node in nodes:
        # Of this job alone: what another one took would leave it without a volume for ever.
        made = volume(f"{name}-{node}", host=node, labels={"for": name})
        store.create(VOLUMES, ("", f"{name}-{node}"), made)


def against(store: Store, pod: Object, node: Object, others: Iterable[Object]) -> str:
    """Return the words of the filter that refuses ``node`` for the volumes of ``pod``.

    ``others`` are the specs of pods that are bound, or about to be, in its namespace.
    """
    used = {name for spec in others for name in _names(spec)}
    for name in _names(pod["spec"]):
        found = store.collection(CLAIMS).objects.get((pod["metadata"]["namespace"], name))
        if found is None:
            return f'persistentvolumeclaim "{name}" not found'
        if _ONCE in found["spec"]["accessModes"] and name in used:
            return (
                "node has pod using PersistentVolumeClaim with the same name and "
                "ReadWriteOncePod access mode"
            )
        if bound := found["spec"].get("volumeName"):
            if not _reaches(store.get(VOLUMES, ("", bound)), node):
                return "node(s) had volume node affinity conflict"
        elif _free(store, found, node) is None:
            return "node(s) didn't find available persistent volumes to bind"
    return ""


def bind(store: Store, pod: Object, node_name: str) -> None:
    """Bind the claims of ``pod`` that are not yet, to volumes of its node.

    Raises:
        Refusal: the node has gone, or its volumes are taken.
    """
    for name in _names(pod["spec"]):
        key = (pod["metadata"]["namespace"], name)
        found = store.get(CLAIMS, key)
        if found["spec"].get("volumeName"):
            continue
        free = _free(store, found, store.get("/api/v1/nodes", ("", node_name)))
        if free is None:
            raise Refusal(409, "Conflict", "the volume was taken")
        _bind(store, key, found, free)


def _bind(store: Store, key: Key, found: Object, free: Object) -> None:
    volume_key = ("", free["metadata"]["name"])
    reference = {"kind": "PersistentVolumeClaim", "namespace": key[0], "name": key[1]}
    reference |= {"apiVersion": "v1", "uid": objects.uid(found)}
    store.update(VOLUMES, volume_key, {**free, "spec": {**free["spec"], "claimRef": reference}})
    store.update(VOLUMES, volume_key, {"status": {"phase": "Bound"}}, "status")
    notes = {**found["metadata"].get("annotations", {}), "pv.kubernetes.io/bind-completed": "yes"}
    meta = {**found["metadata"], "annotations": notes}
    spec = {**found["spec"], "volumeName": volume_key[1]}
    store.update(CLAIMS, key, {**found, "metadata": meta, "spec": spec})
    store.update(CLAIMS, key, {"status": {"phase": "Bound"}}, "status")


def _free(store: Store, found: Object, node: Object) -> Object | None:
    volumes = store.collection(VOLUMES).objects.values()
    wanted = found["spec"].get("selector", {}).get("matchLabels", {}).items()
    return next(
        (
            each
            for each in volumes
            if "claimRef" not in each["spec"] and _reaches(each, node)
            if wanted <= each["metadata"].get("labels", {}).items()
        ),
        None,
    )


def _reaches(found: Object, node: Object) -> bool:
    required = found["spec"].get("nodeAffinity", {}).get("required", {})
    labels = node["metadata"]["labels"]
    for term in required.get("nodeSelectorTerms", ()):
        (expression,) = term["matchExpressions"]
        return labels.get(HOSTNAME) in expression["values"]
    return True


def _names(spec: Object) -> list[str]:
    claims = (each.get("persistentVolumeClaim") for each in spec.get("volumes", ()))
    return [each["claimName"] for each in claims if each]
