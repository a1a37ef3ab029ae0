"""Gangs of pods that wait for another scheduler: the input of Observe.

Pods of one group of Volcano, coscheduling or Kueue are one gang. So are the pods of one controller,
except controllers of services. Any other pod is a gang of its own if it requests devices. Pods with
a scheduling gate do not wait for a scheduler yet.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from bireme.core.accelerators import DEFAULT, Kind
from bireme.core.gangs import Gang, Key
from bireme.kube import names, pod_groups, pod_rules, pods, quantities, wire
from bireme.kube.integrations import INTEGRATIONS
from bireme.kube.pods import PodFacts
from bireme.kube.tenancy import Tenancy, queue_of, queue_source

PENDING: Final = {
    "labelSelector": f"!{names.POD_GROUP_LABEL}",
    "fieldSelector": "spec.nodeName=,status.phase=Pending",
}
"""Selects the pending pods of other schedulers."""
_GROUP_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/pod-group-name")
_SERVICES: Final = frozenset(each.kind for each in INTEGRATIONS if each.is_service)


class Annotations(wire.PodAnnotations, frozen=True):
    """The annotation of Volcano that names the group of a pod."""

    group: str | None = msgspec.field(name="scheduling.k8s.io/group-name", default=None)


class PendingMeta(wire.PodMeta, frozen=True):
    annotations: Annotations | None = None


class PendingPod(wire.V1Pod, frozen=True):
    """A pod with the metadata that identifies its gang."""

    metadata: PendingMeta


class _Member(NamedTuple):
    pod: PendingPod
    facts: PodFacts
    gang: str
    """Stable uid of its gang, which is not the uid of an object."""


class ObservedPods:
    """Pods that wait for another scheduler; ``on_change`` is called after every change."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._members: dict[Key, _Member] = {}
        self._removed: dict[Key, str] = {}

    def put(self, key: Key, pod: PendingPod) -> None:
        gang = gang_of(pod)
        if not gang:
            self.delete(key)
            return
        facts = pods.from_manifest(pod)
        previous = self._members.get(key)
        if previous is None or (previous.facts, previous.pod.spec) != (facts, pod.spec):
            self._members[key] = _Member(pod, facts, gang)
            self._on_change()

    def delete(self, key: Key) -> None:
        """Forget a pod that was bound, or is gone."""
        member = self._members.pop(key, None)
        if member is not None:
            self._removed[key] = member.gang
            self._on_change()

    def take_removed(self) -> dict[Key, str]:
        """Return the pods that were removed since the last call, with the uid of their gang."""
        removed, self._removed = self._removed, {}
        return removed

    def gang_uids(self, node_of: Callable[[Key], str]) -> tuple[set[str], set[str]]:
        """Return the uids of all gangs, and of gangs with a pod that is bound by ``node_of``."""
        everything = {member.gang for member in self._members.values()}
        return everything, {m.gang for key, m in self._members.items() if node_of(key)}

    def gangs(
        self,
        tenancy: Tenancy,
        estimate: Callable[[Key, Iterable[PodFacts]], float | None],
        node_of: Callable[[Key], str],
    ) -> list[Gang]:
        """Return the gangs of pods that are unbound by ``node_of``: its watch may be ahead.

        ``estimate`` gives the run time of pods in seconds, or None.
        """
        members: dict[str, list[_Member]] = {}
        for key in sorted(self._members):
            if not node_of(key):
                member = self._members[key]
                members.setdefault(member.gang, []).append(member)
        return [
            _gang(uid, gang_members, tenancy, estimate) for uid, gang_members in members.items()
        ]


def gang_of(pod: PendingPod) -> str:
    """Return the uid of the gang of ``pod``; empty if Bireme would not plan it."""
    meta, spec = pod.metadata, pod.spec
    if spec.scheduling_gates or meta.deletion_timestamp is not None or pods.never_leaves(pod):
        return ""
    labels = meta.labels or {}
    named = (meta.annotations.group if meta.annotations is not None else None) or next(
        (labels[name] for name in _GROUP_LABELS if labels.get(name)), ""
    )
    if named:
        return f"{meta.namespace}/{named}"
    owners = meta.owner_references or ()
    if len(owners) == 1 and owners[0].kind not in _SERVICES:
        return f"{meta.namespace}/{owners[0].name}/{owners[0].uid}"
    # An unknown resource may be an accelerator that a setting adds.
    resources = (name for name, _ in pods.request_of_pod(pod))
    asks_devices = any(DEFAULT.kind(name) is not Kind.OTHER for name in resources)
    return f"{meta.namespace}/{meta.name}/{meta.uid}" if asks_devices else ""


def _gang(
    uid: str,
    members: list[_Member],
    tenancy: Tenancy,
    estimate: Callable[[Key, Iterable[PodFacts]], float | None],
) -> Gang:
    namespace, name = uid.split("/")[:2]
    pairs = [(m.facts, pod_groups.member_task(m.pod, m.facts)) for m in members]
    default_queue = tenancy.default_queue(namespace)
    creation_times = (
        quantities.parse_timestamp(m.pod.metadata.creation_timestamp) for m in members
    )
    learned = estimate((namespace, name), [m.facts for m in members])
    scheduler_reasons = dict.fromkeys(
        r for m in members for r in pod_rules.demands_for_scheduler(m.pod.spec)
    )
    return Gang(
        uid=uid,
        name=name,
        namespace=namespace,
        queue=queue_of(None, default_queue),
        queue_source=queue_source(namespace, default_queue),
        tasks=pod_groups.tasks_of_pods(pairs, {}, None),
        arrived=max(created or 0.0 for created in creation_times),
        priority=max(m.pod.spec.priority or 0 for m in members),
        kind="Pods",
        min_available=len(members),
        user=namespace,
        estimated_seconds=learned,
        is_learned_estimate=learned is not None,
        left_to_scheduler="; ".join(scheduler_reasons),
    )
