"""Volumes on nodes: the slots that nodes offer to claims, and those that are used."""

from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import Final

from bireme.core.nodes import HOSTNAME_LABEL, Node
from bireme.core.resources import ATTACHABLE, Request, add, request_of
from bireme.kube.volume_objects import (
    LOCAL_VOLUMES,
    PodClaims,
    Volume,
)
from bireme.kube.volumes import Attached, Volumes, local_place

_UNLIMITED: Final = 2**31


def offers(volumes: Volumes, nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
    """Return the resources of each node for claims: node to resource to amount."""
    limited = volumes.drivers_with_limit()
    local = _local(volumes)
    if not (limited or local):
        return {}
    offers: dict[str, dict[str, int]] = {}
    for node in nodes:
        node_limits = volumes.limits.get(node.name, {})
        offer = {}
        for driver in limited:
            limit = node_limits.get(driver, -1)
            offer[ATTACHABLE + driver] = _UNLIMITED if limit < 0 else limit
        host = node.labels.get(HOSTNAME_LABEL, "")
        for (volume_host, name), local_volumes in local.items():
            if volume_host == host:
                offer[LOCAL_VOLUMES + name] = len(local_volumes)
        if offer:
            offers[node.name] = offer
    return offers


def usage(
    volumes: Volumes, nodes: Iterable[Node], planned: Set[Attached] = frozenset()
) -> Iterator[tuple[str, Request]]:
    """Yield (node, request) of attached volumes and of local volumes in use.

    ``planned`` are volumes that planned pods attach in addition to their requests.
    """
    used: dict[str, Counter[str]] = {}
    limited = volumes.drivers_with_limit()
    in_use = {(node, *one) for one, some in _nodes_with(volumes).items() for node in some}
    # kube-scheduler counts an attached volume without a pod in addition to the volume of the
    # new pod, even if both are the same.
    for node, driver, _ in (*in_use, *(planned - in_use)):
        used.setdefault(node, Counter())[ATTACHABLE + driver] += 1
    counted = in_use
    for node, driver, name in volumes.attached.values():
        volume = volumes.volumes.get(name)
        handle = volume.handle if volume is not None and volume.handle else name
        if driver in limited and (node, driver, handle) not in counted:
            counted.add((node, driver, handle))
            used.setdefault(node, Counter())[ATTACHABLE + driver] += 1
    local = _local(volumes)
    hosts = {n.labels.get(HOSTNAME_LABEL, ""): n.name for n in nodes} if local else {}
    for (host, name), some in local.items():
        number = sum(not volume.is_available or volume.claim is not None for volume in some)
        if number and host in hosts:
            used.setdefault(hosts[host], Counter())[LOCAL_VOLUMES + name] += number
    for node, amounts in used.items():
        yield node, request_of(amounts)


def nodes_with(volumes: Volumes, volume: tuple[str, str]) -> Set[str]:
    """Return the nodes on which a pod uses ``volume``, which is as in a PodKind."""
    return _nodes_with(volumes).get((volume[0].removeprefix(ATTACHABLE), volume[1]), frozenset())


def _nodes_with(volumes: Volumes) -> dict[tuple[str, str], set[str]]:
    """Return the nodes on which pods use each volume of a limited driver."""
    cached: dict[tuple[str, str], set[str]] | None = volumes.memo.get("nodes")
    if cached is None:
        cached = volumes.memo["nodes"] = {}
        limited = volumes.drivers_with_limit()
        for pod in volumes.pods.values() if limited else ():
            for key in pod.claims if pod.node else ():
                volume = volumes.handle(key)
                if volume[0] in limited:
                    cached.setdefault(volume, set()).add(pod.node)
    return cached


def attachments_of(
    volumes: Volumes, namespace: str, used: PodClaims, request: Request
) -> Iterator[tuple[str, str]]:
    """Yield driver and handle of volumes that a planned pod attaches without a request."""
    limited, amounts = volumes.drivers_with_limit(), dict(request)
    handles_by_driver: dict[str, list[str]] = {}
    for name in used.claims if limited else ():
        driver, handle = volumes.handle((namespace, name))
        if driver in limited:
            handles_by_driver.setdefault(driver, []).append(handle)
    for spec in (spec for _, spec in used.templates) if handles_by_driver else ():
        storage_class = volumes.classes.get(spec.storage_class)
        if storage_class is not None and storage_class.provisioner in handles_by_driver:
            amounts = add(amounts, {ATTACHABLE + storage_class.provisioner: -1})
    for driver, handles in handles_by_driver.items():
        if amounts.get(ATTACHABLE + driver, 0) < len(handles):
            yield from ((driver, handle) for handle in handles)


def _local(volumes: Volumes) -> dict[tuple[str, str], list[Volume]]:
    """Return the static local volumes by host name and storage class."""
    by_host: dict[tuple[str, str], list[Volume]] = {}
    for volume in volumes.volumes.values():
        if local_place(volume) is not None and not volumes.is_provisioned(
            volume.spec.storage_class
        ):
            by_host.setdefault((volume.host, volume.spec.storage_class), []).append(volume)
    return by_host
