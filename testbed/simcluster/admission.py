"""Admission in a simulated cluster: what administrators have the API server do to pods.

Dry runs see only part of it: a webhook may refuse them, and changes may come later than the plans.
"""

from typing import Any

from bireme_lab.embedded.api.errors import ApiRefusal
from testbed.fakeapi.store import Change, Object
from testbed.simcluster import objects
from testbed.simcluster.cluster import SimulatedCluster
from testbed.simcluster.objects import PODS

QUOTAS = "/api/v1/resourcequotas"
MAX_PODS = 9
"""Pods of a quota: more than the largest job has, beside two PodGroups of three."""
_LAG_SECONDS = (0.0, 5.0)
"""Until the quota controller has seen that a pod is gone."""


class Admission:
    """Rules drawn for one cluster; most clusters have few."""

    def __init__(self, cluster: SimulatedCluster, namespace: str, seconds: float) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._chance = drawn = cluster.chance("admission")
        self._begins = drawn.choice((0.0, drawn.uniform(0, seconds)))
        self.changes = drawn.choice(("", "", "default request", "sidecar", "growth"))
        self._knows_dry_runs = drawn.random() < 0.7
        self.has_quota = drawn.random() < 0.3
        self._grown = 0

    def start(self) -> None:
        """Have the API server keep the rules from now on."""
        store = self._cluster.store
        store.admission.setdefault("Pod", []).append(self._change)
        if self.has_quota:
            spec = {"hard": {"pods": str(MAX_PODS)}}
            quota = {"metadata": {"name": "few"}, "spec": spec, "status": self._status(0)}
            self._cluster.put(QUOTAS, quota, self._namespace)
            store.admission["Pod"].append(self._charge)
            store.collection(PODS).subscribers.append(self._changed)

    # --- changes of pods -------------------------------------------------------------------

    def _change(self, pod: Object, is_dry_run: bool) -> None:
        is_early = self._cluster.loop.time() < self._begins
        if not self.changes or is_early or pod["metadata"]["namespace"] != self._namespace:
            return
        if is_dry_run and not self._knows_dry_runs:
            words = 'admission webhook "pods.example.com" does not support dry run'
            raise ApiRefusal(400, "BadRequest", words)
        spec: dict[str, Any] = pod["spec"]
        match self.changes:
            case "default request":
                for container in spec["containers"]:
                    requests = container.setdefault("resources", {}).setdefault("requests", {})
                    requests.setdefault("memory", "1Gi")
            case "sidecar":
                proxy: Object = {"name": "proxy", "image": "proxy", "restartPolicy": "Always"}
                proxy["resources"] = {"requests": {"cpu": "2"}}
                spec["initContainers"] = [*spec.get("initContainers", ()), proxy]
            case "growth":
                # Each pod asks a little more than the one before, for a while.
                self._grown = min(self._grown + 1, 4)
                spec["overhead"] = {"memory": f"{self._grown}Mi"}

    # --- the quota -------------------------------------------------------------------------

    def _charge(self, pod: Object, is_dry_run: bool) -> None:
        if pod["metadata"]["namespace"] != self._namespace:
            return
        quota = self._quota()
        used = int(quota["status"]["used"]["pods"])
        if used >= MAX_PODS:
            name = pod["metadata"]["name"]
            words = (
                f'pods "{name}" is forbidden: exceeded quota: few, requested: pods=1, '
                f"used: pods={used}, limited: pods={MAX_PODS}"
            )
            raise ApiRefusal(403, "Forbidden", words)
        if not is_dry_run:
            self._set(used + 1)

    def _changed(self, change: Change) -> None:
        if change.after is None or objects.phase(change.after) in objects.ENDED:
            lag = self._chance.uniform(*_LAG_SECONDS)
            self._cluster.loop.call_later(lag, self._count)

    def _count(self) -> None:
        pods = self._cluster.store.collection(PODS).objects.items()
        here = [pod for (namespace, _), pod in pods if namespace == self._namespace]
        self._set(sum(objects.phase(pod) not in objects.ENDED for pod in here))

    def _quota(self) -> Object:
        return self._cluster.store.get(QUOTAS, (self._namespace, "few"))

    def _set(self, used: int) -> None:
        body = {"status": self._status(used)}
        self._cluster.store.update(QUOTAS, (self._namespace, "few"), body, "status")

    def _status(self, used: int) -> Object:
        return {"hard": {"pods": str(MAX_PODS)}, "used": {"pods": str(used)}}
