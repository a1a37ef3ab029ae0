"""Volumes of jobs, and kube-scheduler's filters and bindings for them.

A claim is bound to a volume of one node, or to one of any node where the first pod goes, or it may
be used by one pod at a time in the whole cluster. Where nodes attach few volumes of a driver, jobs
share some of these, or have one that is made for the first of their pods.
"""

from collections.abc import Iterable
from random import Random

from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.store import Key, Object, Store
from testbed.objects.volumes import (
    HOSTNAME,
    claim,
    csi_node,
    named,
    storage_class,
    volume,
)
from testbed.simcluster import objects

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
_DRIVER = "disks.example.com"
_SETS = ("set-0", "set-1", "set-2")
"""Claims that any pod may use, of volumes of the driver."""
_ONCE, _MANY = "ReadWriteOncePod", "ReadWriteMany"
_MAX_GPUS = 8
"""GPUs of a node: replicas that share a volume of one node have to fit there."""


def furnish(store: Store, namespace: str) -> None:
    """Create the storage class, and a claim that single pods of all jobs compete for."""
    store.create(CLASSES, ("", "local"), storage_class())
    made = volume("shared", modes=(_ONCE,), claim=f"{namespace}/shared")
    store.create(VOLUMES, ("", "shared"), made)
    store.create(CLAIMS, (namespace, "shared"), claim("shared", bound="shared", mode=_ONCE))


def furnish_limits(store: Store, namespace: str, nodes: list[str], most: int) -> None:
    """Let every node have ``most`` volumes of a driver attached, and create claims of them."""
    store.create(CLASSES, ("", "made"), storage_class("made", _DRIVER))
    for node in nodes:
        store.create(CSI_NODES, ("", node), csi_node(node, disks_example_com=most))
    for name in _SETS:
        made = volume(name, "made", modes=(_MANY,), driver=_DRIVER, claim=f"{namespace}/{name}")
        store.create(VOLUMES, ("", name), made)
        store.create(CLAIMS, (namespace, name), claim(name, "made", bound=name, mode=_MANY))


def of_other(store: Store, chance: Random) -> Object:
    """Return fields of the spec of a pod of no gang, which may use a claim of all."""
    if _most_attached(store) is None or chance.random() < 0.5:
        return {}
    return named(chance.choice(_SETS))


def give(store: Store, job: Object, namespace: str, nodes: list[str], chance: Random) -> None:
    """Have the pods of ``job`` use a claim; of one node, where that has room for all of them."""
    tasks, name = job["spec"]["tasks"], job["metadata"]["name"]
    most = _most_attached(store)
    if most is not None and chance.random() < 0.7:
        names = chance.sample(_SETS, chance.randint(1, most))
        before = store.collection(CLAIMS).objects.get((namespace, name))
        # With the first pod it gets its volume, which all can reach; an earlier job of its name may
        # have left one of a single node.
        if chance.random() < 0.2 and (before is None or _is_made(before)):
            names = [name]
            if before is None:
                store.create(CLAIMS, (namespace, name), claim(name, "made", mode=_MANY))
        for each in tasks:
            each["template"]["spec"].update(named(*names))
        return
    replicas = max(tasks[0].get("maxReplicas", 0), tasks[0]["replicas"])
    spec = tasks[0]["template"]["spec"]
    limits = spec["containers"][0]["resources"].get("limits", {})
    gpus = sum(map(int, limits.values()))
    if len(tasks) > 1 or gpus * replicas > _MAX_GPUS or objects.host_ports(spec):
        return
    if replicas == 1 and chance.random() < 0.8:
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


def _most_attached(store: Store) -> int | None:
    """Return how many volumes each node attaches; None without a limit."""
    found = next(iter(store.collection(CSI_NODES).objects.values()), None)
    return None if found is None else int(found["spec"]["drivers"][0]["allocatable"]["count"])


def for_one_pod(store: Store) -> list[str]:
    """Return the claims that one pod at a time can use."""
    claims = store.collection(CLAIMS).objects.items()
    return [key[1] for key, found in claims if _ONCE in found["spec"]["accessModes"]]


def too_many(store: Store, node: str, wanted: set[str]) -> str:
    """Return in words that ``node`` cannot have the volumes of these claims; empty if it can."""
    claims = store.collection(CLAIMS).objects.items()
    there = sorted(key[1] for key, found in claims if key[1] in wanted and _is_made(found))
    limits = store.collection(CSI_NODES).objects.get(("", node))
    if limits is None or len(there) <= limits["spec"]["drivers"][0]["allocatable"]["count"]:
        return ""
    return f"{', '.join(there)} on {node}"


def against(
    store: Store,
    pod: Object,
    node: Object,
    others: Iterable[Object],
    here: Iterable[Object],
) -> str:
    """Return the words of the filter that refuses ``node`` for the volumes of ``pod``.

    ``others`` are the specs of pods that are bound, or about to be, in its namespace, and ``here``
    of those on the node.
    """
    used = {name for spec in others for name in names(spec)}
    for name in names(pod["spec"]):
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
        elif not _is_made(found) and _free(store, found, node) is None:
            return "node(s) didn't find available persistent volumes to bind"
    limits = store.collection(CSI_NODES).objects.get(("", node["metadata"]["name"]))
    if limits is not None:
        (driver,) = limits["spec"]["drivers"]
        there = {name for spec in here for name in _attached(store, pod, spec)}
        new = set(_attached(store, pod, pod["spec"])) - there
        if new and len(there | new) > driver["allocatable"]["count"]:
            return "node(s) exceed max volume count"
    return ""


def _attached(store: Store, pod: Object, spec: Object) -> Iterable[str]:
    """Yield the claims of ``spec`` whose volumes are the driver's; each has one of its own."""
    claims = store.collection(CLAIMS).objects
    for name in names(spec):
        found = claims.get((pod["metadata"]["namespace"], name))
        if found is not None and _is_made(found):
            yield name


def _is_made(found: Object) -> bool:
    """Return whether the volume of a claim is made by the driver, for whatever node."""
    return bool(found["spec"]["storageClassName"] == "made")


def bind(store: Store, pod: Object, node_name: str) -> None:
    """Bind the claims of ``pod`` that are not yet, to volumes of its node.

    Raises:
        Refusal: the node has gone, or its volumes are taken.
    """
    for name in names(pod["spec"]):
        key = (pod["metadata"]["namespace"], name)
        found = store.get(CLAIMS, key)
        if found["spec"].get("volumeName"):
            continue
        if _is_made(found):
            made = volume(f"made-for-{name}", "made", modes=(_MANY,), driver=_DRIVER)
            _bind(store, key, found, store.create(VOLUMES, ("", f"made-for-{name}"), made))
            continue
        free = _free(store, found, store.get("/api/v1/nodes", ("", node_name)))
        if free is None:
            raise ApiRefusal(409, "Conflict", "the volume was taken")
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


def names(spec: Object) -> list[str]:
    """Return the claims that a pod of this spec names."""
    claims = (each.get("persistentVolumeClaim") for each in spec.get("volumes", ()))
    return [each["claimName"] for each in claims if each]
