"""Cache of the pods that wait at Bireme's scheduling gate."""

from bireme.core.gangs import Key, Task
from bireme.kube import pod_groups, pod_rules, pods, wire
from bireme.kube.pods import PodFacts
from bireme.kube.volume_objects import NO_CLAIMS, PodClaims


class GatedPods:
    """Members of gangs with Bireme's scheduling gate, and the demands of their specs.

    Attributes:
        manifests: The pods as raw objects.
        other_gates: Foreign scheduling gates, where there are any. Such a pod is not planned.
        tasks: The pods as tasks of one replica, without those that cannot be read.
        errors: Error message of every pod that cannot be planned.
        claims: Claims of volumes and devices, where there are any.
        scheduler_rules: Demands that only kube-scheduler checks, where there are any.
    """

    def __init__(self) -> None:
        self.manifests: dict[Key, wire.V1Pod] = {}
        self.other_gates: dict[Key, tuple[str, ...]] = {}
        self.tasks: dict[Key, Task] = {}
        self.errors: dict[Key, str] = {}
        self.claims: dict[Key, PodClaims] = {}
        self.scheduler_rules: dict[Key, tuple[str, ...]] = {}

    def put(self, key: Key, pod: wire.V1Pod, facts: PodFacts, claims: PodClaims) -> None:
        """Store a gated pod in place of an earlier version, which must be forgotten first."""
        self.manifests[key] = pod
        try:
            self.tasks[key] = pod_groups.member_task(pod, facts)
        except ValueError as error:  # such as a selector operator of a later Kubernetes
            self.errors[key] = f"pod {key[1]}: {error}"
        if gates := pods.other_gates(pod.spec):
            self.other_gates[key] = gates
        if rules := pod_rules.demands_for_scheduler(pod.spec):
            self.scheduler_rules[key] = rules
        if claims != NO_CLAIMS:
            self.claims[key] = claims

    def forget(self, key: Key) -> None:
        """Forget a pod that is released or gone."""
        self.manifests.pop(key, None)
        self.other_gates.pop(key, None)
        self.tasks.pop(key, None)
        self.errors.pop(key, None)
        self.claims.pop(key, None)
        self.scheduler_rules.pop(key, None)
