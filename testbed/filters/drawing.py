"""Random small clusters and pods, as an API server holds them, with all that filters look at.

The same seed draws the same case. Every tried pod has a feature that it is about, so that each
filter plugin often decides, and now and then others beside it.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from testbed.scenario.manifests import GPU, Manifest

T = TypeVar("T")

NAMESPACE: Final = "team"
CREATED: Final = "2026-01-01T00:00:00Z"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
RACK: Final = "example.com/rack"
EXTENDED: Final = "example.com/accelerator"
"""A resource that only devices of a DeviceClass offer."""
CSI: Final = "csi.example.com"
DRA: Final = "dra.example.com"
_APPS: Final = ("web", "db", "train")
_TIERS: Final = ("front", "back")
_DISKS: Final = ("ssd", "hdd")
_TAINTS: Final = (
    ("dedicated", "train"),
    ("dedicated", "web"),
    ("spot", ""),
    ("example.com/drain", "true"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster and the pods to try on it, each on its own, on every node."""

    seed: int
    objects: tuple[Manifest, ...]
    tried: tuple[Manifest, ...]

    def of(self, kind: str) -> list[Manifest]:
        return [made for made in self.objects if made["kind"] == kind]


def case_of(seed: int) -> Case:
    """Return the case of ``seed``."""
    return _Drawing(random.Random(seed)).case(seed)  # noqa: S311  # no secret


@dataclass(frozen=True, slots=True)
class DrawnGang:
    """A gang of one or two tasks: replicas, and the pod that each is a copy of, by task name."""

    name: str
    tasks: dict[str, tuple[int, Manifest]]


@dataclass(frozen=True, slots=True)
class Gangs:
    """A cluster, and gangs that come to it one after the other."""

    seed: int
    objects: tuple[Manifest, ...]
    gangs: tuple[DrawnGang, ...]


def gangs_of(seed: int, volumes: bool = False) -> Gangs:
    """Return the gangs of ``seed``, whose pods ask for nothing that a controller must prepare.

    With ``volumes`` many of them name claims, which are bound.
    """
    return _Drawing(random.Random(seed)).gangs(seed, volumes)  # noqa: S311  # no secret


def an_object(
    kind: str, name: str, version: str = "v1", namespace: str = "", **content: Any
) -> Manifest:
    """Return an object with the metadata that the API server adds."""
    meta: Manifest = {
        "name": name,
        "uid": f"uid-{kind.lower()}-{name}",
        "resourceVersion": "1",
        "creationTimestamp": CREATED,
        **content.pop("metadata", {}),
    }
    if namespace:
        meta["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": meta, **content}


@dataclass
class _Drawing:
    """One case in the making."""

    random: random.Random
    nodes: list[Manifest] = field(default_factory=list)
    pods: list[Manifest] = field(default_factory=list)
    others: list[Manifest] = field(default_factory=list)
    tried: list[Manifest] = field(default_factory=list)

    # --- chance ---

    def chance(self, likelihood: float) -> bool:
        return self.random.random() < likelihood

    def one(self, values: Sequence[T]) -> T:
        return self.random.choice(values)

    def some(self, values: Sequence[T], least: int = 0, most: int | None = None) -> list[T]:
        count = self.random.randint(least, len(values) if most is None else most)
        return self.random.sample(values, count)

    # --- the case ---

    def case(self, seed: int) -> Case:
        for number in range(self.random.randint(3, 6)):
            self.nodes.append(self.node(f"n{number}"))
        for name in (NAMESPACE, "other"):
            made = an_object("Namespace", name, metadata={"labels": {"team": name}})
            self.others.append({**made, "status": {"phase": "Active"}})
        self.devices()
        for number in range(self.random.randint(2, 8)):
            self.resident(f"r{number}")
        for number in range(4):
            self.try_one(f"p{number}")
        return Case(seed, (*self.nodes, *self.others, *self.pods), tuple(self.tried))

    def gangs(self, seed: int, volumes: bool) -> Gangs:
        for number in range(self.random.randint(3, 5)):
            self.nodes.append(self.node(f"n{number}", unready=0))
        for number in range(self.random.randint(0, 4)):
            self.resident(f"r{number}")
        if volumes:
            self.common_claims()
        made = []
        for number in range(6):
            roles = ("worker", "ps") if self.chance(0.3) else ("worker",)
            tasks = {role: (self.random.randint(1, 4), self.member(role)) for role in roles}
            if volumes and self.chance(0.7):
                self.name_claims(tasks)
            made.append(DrawnGang(f"g{number}", tasks))
        return Gangs(seed, (*self.nodes, *self.others, *self.pods), tuple(made))

    def member(self, name: str) -> Manifest:
        made = self.pod(name)
        about = self.some(_FEATURES_OF_GANGS, 1, 2 if self.chance(0.2) else 1)
        for feature in _FEATURES_OF_GANGS:
            if feature in about:
                feature(self, made)
        return made

    def common_claims(self) -> None:
        """Claims that gangs share or compete for, on nodes that attach few volumes."""
        self.limits()
        for number in range(3):
            self.persistent_volume(f"pv-all-{number}", "any", f"all-{number}", "ReadWriteMany")
            self.claim(f"all-{number}", "any", f"pv-all-{number}", "ReadWriteMany")
        where = self.place() if self.chance(0.5) else None
        self.persistent_volume("pv-alone", "local", "alone", "ReadWriteOncePod", where)
        self.claim("alone", "local", "pv-alone", "ReadWriteOncePod")
        users = [each for each in self.pods if each["metadata"]["namespace"] == NAMESPACE]
        for user in users:
            if self.chance(0.3):
                self.volume(user, f"all-{self.random.randint(0, 2)}")

    def name_claims(self, tasks: dict[str, tuple[int, Manifest]]) -> None:
        """Have pods of a gang name some of the claims, one of them the one for one pod."""
        for role, (_, pod) in tasks.items():
            for number in self.some(range(3), 0, 2):
                self.volume(pod, f"all-{number}")
            if role == "ps" or self.chance(0.15):
                tasks[role] = (1, pod)
                if self.chance(0.6) and "alone" not in str(tasks.values()):
                    self.volume(pod, "alone")

    # --- nodes ---

    def node(self, name: str, unready: float = 0.06) -> Manifest:
        labels = {
            HOSTNAME: name,
            "kubernetes.io/os": "linux",
            "disk": self.one(_DISKS),
            "cores": self.one(("4", "16", "064", "3.5", "many", "")),
        }
        if self.chance(0.85):
            labels[ZONE] = self.one("abc")
        if self.chance(0.8):
            labels[RACK] = self.one(("r1", "r2"))
        if self.chance(0.3):
            labels["gone"] = "soon"
        taints = [
            {"key": key, "value": value, "effect": self.one(_EFFECTS)}
            for key, value in self.some(_TAINTS, 0, 2)
            if self.chance(0.15)
        ]
        spec: Manifest = {}
        if self.chance(0.12):
            spec["unschedulable"] = True
            if self.chance(0.7):  # a moment later, by the controller of nodes
                taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        is_ready = not self.chance(unready)
        if not is_ready:
            taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
        if taints:
            # The API server refuses two taints of one key and effect.
            spec["taints"] = list({(t["key"], t["effect"]): t for t in taints}.values())
        amounts: Manifest = {
            "cpu": self.one(("4", "7900m", "16", "32")),
            "memory": self.one(("16Gi", "16029800Ki", "32e9", "64Gi")),
            "pods": self.one(("2", "110", "110", "110", "110")),
        }
        if self.chance(0.7):
            amounts[GPU] = self.one(("1", "2", "4", "8"))
        if self.chance(0.6):
            amounts["ephemeral-storage"] = self.one(("10Gi", "100G"))
        if self.chance(0.3):
            amounts["hugepages-2Mi"] = self.one(("0", "512Mi"))
        status: Manifest = {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}],
        }
        if self.chance(0.5):
            status["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
        return an_object("Node", name, metadata={"labels": labels}, spec=spec, status=status)

    @property
    def node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.nodes]

    def nodes_with(self, key: str, value: str) -> list[str]:
        return [
            node["metadata"]["name"]
            for node in self.nodes
            if node["metadata"]["labels"].get(key) == value
        ]

    # --- pods ---

    def pod(self, name: str, namespace: str = NAMESPACE) -> Manifest:
        labels = {"app": self.one(_APPS), "tier": self.one(_TIERS)}
        if self.chance(0.5):
            labels["version"] = self.one("12")
        made = an_object("Pod", name, namespace=namespace, metadata={"labels": labels})
        spec = {"containers": [self.container("main")], "restartPolicy": "Never"}
        return {**made, "spec": spec}

    def container(self, name: str, rare: float = 1.0) -> Manifest:
        """Return a container that asks for a little, in all the ways of writing it.

        ``rare`` is how likely devices and storage are, as a part of the usual.
        """
        asked: Manifest = {}
        if self.chance(0.85):
            asked["cpu"] = self.one(("100m", "0.5", "250m", "1", "1.5", "0", "2e-1", 1))
        if self.chance(0.7):
            asked["memory"] = self.one(("64Mi", "0.5Gi", "1e9", "1500M", "1Gi", "123456789"))
        if self.chance(0.1 * rare):
            asked["ephemeral-storage"] = self.one(("1Gi", "20G"))
        limits: Manifest = {}
        if self.chance(0.2 * rare):
            limits[GPU] = asked[GPU] = self.one(("1", "2", 1))
        if self.chance(0.2):  # what has only a limit requests that limit
            limits["cpu"] = "2"
        resources: Manifest = {}
        if asked and not (limits and self.chance(0.3)):
            resources["requests"] = asked
        if limits:
            resources["limits"] = limits
        return {"name": name, "image": "trainer", "resources": resources}

    def resident(self, name: str) -> None:
        made = self.pod(name, self.one((NAMESPACE, NAMESPACE, NAMESPACE, "other")))
        spec = made["spec"]
        spec["containers"] = [self.container("main", rare=0.3)]
        made["status"] = {"phase": "Running"}
        node = self.one(self.node_names)
        if self.chance(0.5):
            self.ports(made)
        if self.chance(0.06):
            self.anti_affinity(made)
        if self.chance(0.1):
            self.sidecars(made)
        if self.chance(0.1):
            self.pod_level(made)
        if self.chance(0.15):
            self.resize(made)
        if self.chance(0.1):
            spec["overhead"] = {"cpu": "250m", "memory": "120Mi"}
        if self.chance(0.1):
            made["metadata"]["deletionTimestamp"] = CREATED
            made["metadata"]["deletionGracePeriodSeconds"] = 30
        if self.chance(0.1):
            owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "agent"}
            made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        spec["nodeName"] = node
        self.pods.append(made)

    def try_one(self, name: str) -> None:
        made = self.pod(name)
        about = self.one((*_FEATURES, *_OFTEN))
        for feature in _FEATURES:  # in this order: resources of the pod cover its containers'
            if self.chance(0.02) or feature is about:
                feature(self, made)
        self.tried.append(made)

    # --- features: resources ---

    def heavy(self, pod: Manifest) -> None:
        """Ask for about what a node has left."""
        amounts = {"cpu": self.one(("3", "7", "7.9", "15")), "memory": self.one(("2Gi", "7Gi"))}
        resources: Manifest = {"requests": dict(self.some(list(amounts.items()), 1))}
        if self.chance(0.4):
            name = self.one((GPU, "hugepages-2Mi", "example.com/none"))
            amount = "256Mi" if name.startswith("huge") else self.one(("1", "2", "4"))
            resources["limits"] = {name: amount}
            if name.startswith("huge"):  # the API server wants memory or CPU beside them
                resources["requests"]["memory"] = "1Gi"
        pod["spec"]["containers"][0]["resources"] = resources

    def sidecars(self, pod: Manifest) -> None:
        """Add init containers, some of which stay."""
        made = []
        for number in range(self.random.randint(1, 3)):
            container = self.container(f"init-{number}", rare=0.5)
            if self.chance(0.5):
                container["restartPolicy"] = "Always"
            if self.chance(0.4):
                container["resources"] = {"requests": {"cpu": self.one(("1", "3.5", "7"))}}
            made.append(container)
        pod["spec"]["initContainers"] = made

    def pod_level(self, pod: Manifest) -> None:
        """State resources of the whole pod, which must cover those of its containers."""
        given: Manifest = {}
        if self.chance(0.8):
            given["requests"] = {"cpu": self.one(("6", "9"))}
            if self.chance(0.5):
                given["requests"]["memory"] = self.one(("12Gi", "16Gi"))
        if not given or self.chance(0.4):
            given["limits"] = {"cpu": "9", "memory": "20Gi"}
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            container["resources"] = {"requests": {"cpu": "250m"}} if self.chance(0.7) else {}
        pod["spec"]["resources"] = given

    def overhead(self, pod: Manifest) -> None:
        pod["spec"]["overhead"] = {"cpu": self.one(("250m", "3", "7")), "memory": "120Mi"}

    def resize(self, pod: Manifest) -> None:
        """Let the kubelet not have followed yet: what it has allocated is not what is asked."""
        spec, status = pod["spec"], pod["status"]
        there = {"cpu": self.one(("50m", "3", "6")), "memory": self.one(("64Mi", "9Gi"))}
        if self.chance(0.3):
            there |= spec["containers"][0]["resources"].get("requests", {})
        kept: Manifest = {"name": "main", "image": "trainer", "imageID": "trainer"}
        kept |= {"ready": True, "restartCount": 0, "allocatedResources": there}
        if self.chance(0.7):
            actual = {**there, "cpu": self.one(("50m", "2", "5"))} if self.chance(0.3) else there
            kept["resources"] = {"requests": actual}
        status["containerStatuses"] = [kept]
        if self.chance(0.3):
            status["allocatedResources"] = {**there, "cpu": "4"}
            status["resources"] = {"requests": there}
        if self.chance(0.7):
            reason = self.one(("Deferred", "Infeasible"))
            pending = {"type": "PodResizePending", "status": "True", "reason": reason}
            status["conditions"] = [pending]

    # --- features: nodes by label, name and taint ---

    def selector(self, pod: Manifest) -> None:
        pairs = (("disk", "ssd"), (ZONE, "a"), (RACK, "r1"), ("cores", ""), ("none", "x"))
        pod["spec"]["nodeSelector"] = dict(self.some(pairs, 1, 2))

    def node_affinity(self, pod: Manifest) -> None:
        terms = [self.node_term() for _ in range(self.random.randint(1, 3))]
        affinity = pod["spec"].setdefault("affinity", {})
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        affinity["nodeAffinity"] = required

    def node_term(self) -> Manifest:
        term: Manifest = {}
        if self.chance(0.85):
            count = self.random.randint(1, 2)
            term["matchExpressions"] = [self.node_expression() for _ in range(count)]
        if self.chance(0.25):
            operator, name = self.one(("In", "NotIn")), self.one([*self.node_names, "nobody"])
            found = {"key": "metadata.name", "operator": operator, "values": [name]}
            term["matchFields"] = [found]
        return term

    def node_expression(self) -> Manifest:
        key = self.one(("disk", ZONE, RACK, "gone", "cores", "none"))
        operator = self.one(("In", "NotIn", "Exists", "DoesNotExist"))
        if key == "cores" or self.chance(0.2):
            operator = self.one(("Gt", "Lt"))
        made: Manifest = {"key": key, "operator": operator}
        if operator in ("Gt", "Lt"):
            made["values"] = [self.one(("5", "0", "16", "063", "4x"))]
        elif operator in ("In", "NotIn"):
            made["values"] = self.some(("ssd", "a", "b", "r1", "soon", ""), 1, 3)
        return made

    def tolerations(self, pod: Manifest) -> None:
        made = []
        for _ in range(self.random.randint(1, 3)):
            key, value = self.one(_TAINTS)
            toleration = self.one(
                (
                    {"key": key, "operator": "Exists"},
                    {"key": key, "operator": "Equal", "value": value},
                    {"key": key, "value": value},
                    {"key": key, "value": "else"},
                    {"operator": "Exists"},
                    {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
                )
            )
            if self.chance(0.5):
                toleration = {**toleration, "effect": self.one(_EFFECTS)}
            made.append(toleration)
        pod["spec"]["tolerations"] = made

    # --- features: other pods ---

    def ports(self, pod: Manifest) -> None:
        container = pod["spec"]["containers"][0]
        made = []
        for _ in range(self.random.randint(1, 2)):
            number = self.one((7000, 7001))
            port: Manifest = {"containerPort": number, "hostPort": number}
            if self.chance(0.4):
                port["hostIP"] = self.one(("127.0.0.1", "10.0.0.1", "0.0.0.0"))  # noqa: S104
            if self.chance(0.2):
                port["protocol"] = "UDP"
            made.append(port)
        # The API server refuses a port twice.
        by_key = {(p["hostPort"], p.get("protocol"), p.get("hostIP")): p for p in made}
        container["ports"] = list(by_key.values())
        if self.chance(0.2):
            pod["spec"]["hostNetwork"] = True

    def affinity(self, pod: Manifest) -> None:
        self.pod_terms(pod, "podAffinity", 2)

    def anti_affinity(self, pod: Manifest) -> None:
        self.pod_terms(pod, "podAntiAffinity", 2)

    def pod_terms(self, pod: Manifest, kind: str, most: int) -> None:
        terms = [self.pod_term() for _ in range(self.random.randint(1, most))]
        affinity = pod["spec"].setdefault("affinity", {})
        affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}

    def pod_term(self) -> Manifest:
        term: Manifest = {"topologyKey": self.one((HOSTNAME, HOSTNAME, ZONE, RACK, "none"))}
        if self.chance(0.9):
            term["labelSelector"] = self.label_selector()
        if self.chance(0.2):
            term["namespaces"] = self.some((NAMESPACE, "other"), 1)
        elif self.chance(0.2):
            found = {"matchLabels": {"team": self.one((NAMESPACE, "other", "nobody"))}}
            term["namespaceSelector"] = self.one((found, {}))
        if "labelSelector" in term and self.chance(0.15):
            term[self.one(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
        return term

    def label_selector(self) -> Manifest:
        if self.chance(0.6):
            return {"matchLabels": {"app": self.one(_APPS)}}
        operator = self.one(("In", "NotIn", "Exists", "DoesNotExist"))
        found: Manifest = {"key": self.one(("app", "tier")), "operator": operator}
        if operator in ("In", "NotIn"):
            found["values"] = self.some((*_APPS, *_TIERS), 1, 3)
        return {"matchExpressions": [found]}

    def spread(self, pod: Manifest) -> None:
        made: dict[tuple[str, str], Manifest] = {}
        for _ in range(self.random.randint(1, 2)):
            constraint: Manifest = {
                "maxSkew": self.one((1, 1, 2)),
                "topologyKey": self.one((HOSTNAME, ZONE, ZONE, RACK)),
                "whenUnsatisfiable": "DoNotSchedule" if self.chance(0.9) else "ScheduleAnyway",
            }
            if self.chance(0.85):
                constraint["labelSelector"] = self.label_selector()
                if self.chance(0.2):
                    constraint["matchLabelKeys"] = ["version"]
            if constraint["whenUnsatisfiable"] == "DoNotSchedule" and self.chance(0.3):
                constraint["minDomains"] = self.one((1, 2, 3, 4))
            for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
                if self.chance(0.3):
                    constraint[policy] = self.one(("Honor", "Ignore"))
            made[constraint["topologyKey"], constraint["whenUnsatisfiable"]] = constraint
        pod["spec"]["topologySpreadConstraints"] = list(made.values())
        if self.chance(0.3):  # what nodeAffinityPolicy is about
            self.one((_Drawing.selector, _Drawing.node_affinity))(self, pod)
        if self.chance(0.5):
            self.twins(pod)

    def twins(self, pod: Manifest) -> None:
        """Put pods with the labels of this one on most nodes, so that no domain is empty."""
        for node in self.node_names:
            for _ in range(self.one((0, 1, 1, 2))):
                made = self.pod(f"t{len(self.pods)}")
                made["metadata"]["labels"] = dict(pod["metadata"]["labels"])
                made["spec"]["containers"][0]["resources"] = {}
                made["spec"]["nodeName"] = node
                self.pods.append({**made, "status": {"phase": "Running"}})

    # --- features: volumes ---

    def volume(self, pod: Manifest, claim: str) -> None:
        volumes = pod["spec"].setdefault("volumes", [])
        volumes.append({"name": claim, "persistentVolumeClaim": {"claimName": claim}})

    def storage_class(self, name: str, mode: str, **fields: Any) -> None:
        made = an_object("StorageClass", name, "storage.k8s.io/v1", provisioner=CSI, **fields)
        self.others.append({**made, "reclaimPolicy": "Delete", "volumeBindingMode": mode})

    def claim(
        self, name: str, class_name: str, volume: str = "", mode: str = "ReadWriteOnce"
    ) -> None:
        spec: Manifest = {
            "accessModes": [mode],
            "resources": {"requests": {"storage": "10Gi"}},
            "storageClassName": class_name,
            "volumeMode": "Filesystem",
        }
        made = an_object("PersistentVolumeClaim", name, namespace=NAMESPACE, spec=spec)
        made["status"] = {"phase": "Pending"}
        if volume:
            spec["volumeName"] = volume
            bound = {"pv.kubernetes.io/bind-completed": "yes"}
            made["metadata"]["annotations"] = bound
            made["status"] = {"phase": "Bound"}
        self.others.append(made)

    def persistent_volume(
        self,
        name: str,
        class_name: str,
        claim: str = "",
        mode: str = "ReadWriteOnce",
        where: tuple[str, list[str]] | None = None,
        **metadata: Any,
    ) -> None:
        spec: Manifest = {
            "capacity": {"storage": self.one(("10Gi", "20Gi"))},
            "accessModes": [mode],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": class_name,
            "volumeMode": "Filesystem",
            "csi": {"driver": CSI, "volumeHandle": f"handle-{name}"},
        }
        if claim:
            uid = f"uid-persistentvolumeclaim-{claim}"
            spec["claimRef"] = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": NAMESPACE,
                "name": claim,
                "uid": uid,
            }
        if where is not None:
            found = {"key": where[0], "operator": "In", "values": where[1]}
            term = {"matchExpressions": [found]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        made = an_object("PersistentVolume", name, metadata=metadata, spec=spec)
        self.others.append({**made, "status": {"phase": "Bound" if claim else "Available"}})

    def place(self) -> tuple[str, list[str]]:
        if self.chance(0.5):
            return ZONE, self.some("abc", 1, 2)
        return HOSTNAME, self.some(self.node_names, 1, 2)

    def bound_volume(self, pod: Manifest) -> None:
        name = f"bound-{pod['metadata']['name']}"
        where = self.place() if self.chance(0.9) else None
        self.persistent_volume(f"pv-{name}", "local", name, where=where)
        self.claim(name, "local", f"pv-{name}")
        self.volume(pod, name)

    def late_volume(self, pod: Manifest) -> None:
        """A claim that is bound when its first pod is, to a volume there is or to a new one."""
        name = f"late-{pod['metadata']['name']}"
        fields: Manifest = {}
        if self.chance(0.6):
            allowed = [{"key": ZONE, "values": self.some("abc", 1, 2)}]
            fields["allowedTopologies"] = [{"matchLabelExpressions": allowed}]
        self.storage_class(name, "WaitForFirstConsumer", **fields)
        if self.chance(0.3):
            self.others[-1]["provisioner"] = "kubernetes.io/no-provisioner"
        elif self.chance(0.5):
            self.capacities(name)
        if self.chance(0.5):
            self.persistent_volume(f"pv-{name}", name, where=self.place())
        self.claim(name, name)
        self.volume(pod, name)

    def capacities(self, class_name: str) -> None:
        """Let the driver say where it has room: in some zones, for volumes up to a size."""
        driver, version = f"{CSI}-{class_name}", "storage.k8s.io/v1"
        self.others[-1]["provisioner"] = driver
        spec = {"storageCapacity": True, "attachRequired": True}
        self.others.append(an_object("CSIDriver", driver, version, spec=spec))
        for zone in self.some("abc", 0, 2):
            content: Manifest = {
                "storageClassName": class_name,
                "capacity": self.one(("5Gi", "10Gi", "100Gi")),
                "nodeTopology": {"matchLabels": {ZONE: zone}},
            }
            if self.chance(0.3):
                content["maximumVolumeSize"] = self.one(("5Gi", "20Gi"))
            name = f"{class_name}-{zone}"
            made = an_object("CSIStorageCapacity", name, version, NAMESPACE, **content)
            self.others.append(made)

    def local_volume(self, pod: Manifest) -> None:
        """A claim for one of the disks that some nodes have."""
        name = f"disk-{pod['metadata']['name']}"
        self.storage_class(name, "WaitForFirstConsumer")
        self.others[-1]["provisioner"] = "kubernetes.io/no-provisioner"
        for node in self.node_names:
            for number in range(self.one((0, 0, 1, 2))):
                claim = f"other-{node}-{number}" if self.chance(0.3) else ""
                volume = f"pv-{name}-{node}-{number}"
                self.persistent_volume(volume, name, claim, where=(HOSTNAME, [node]))
                spec = self.others[-1]["spec"]
                del spec["csi"]
                spec["local"] = {"path": f"/disks/{number}"}
                if self.chance(0.2):
                    spec["capacity"] = {"storage": "5Gi"}
        self.claim(name, name)
        self.volume(pod, name)

    def shared_volume(self, pod: Manifest) -> None:
        """A claim that others use too, on nodes that can attach few volumes."""
        self.limits()
        name = f"shared-{pod['metadata']['name']}"
        self.persistent_volume(f"pv-{name}", "any", name, "ReadWriteMany")
        self.claim(name, "any", f"pv-{name}", "ReadWriteMany")
        users = [each for each in self.pods if each["metadata"]["namespace"] == NAMESPACE]
        for user in (pod, *self.some(users, 0, min(2, len(users)))):
            self.volume(user, name)

    def lost_volume(self, pod: Manifest) -> None:
        """A claim that is not there, or that nothing binds before the pod is scheduled."""
        name = f"lost-{pod['metadata']['name']}"
        if self.chance(0.5):
            self.storage_class(name, "Immediate")
            self.claim(name, name)
        self.volume(pod, name)

    def zoned_volume(self, pod: Manifest) -> None:
        """A volume of the time before node affinity, which names its zone in a label."""
        name = f"zoned-{pod['metadata']['name']}"
        labels = {ZONE: self.one(("a", "b", "a__b", "c"))}
        self.persistent_volume(f"pv-{name}", "old", name, labels=labels)
        self.claim(name, "old", f"pv-{name}")
        self.volume(pod, name)

    def exclusive_volume(self, pod: Manifest) -> None:
        """A claim for one pod alone, which mostly has one already."""
        name, mode = f"alone-{pod['metadata']['name']}", "ReadWriteOncePod"
        self.persistent_volume(f"pv-{name}", "any", name, mode)
        self.claim(name, "any", f"pv-{name}", mode)
        self.volume(pod, name)
        users = [each for each in self.pods if each["metadata"]["namespace"] == NAMESPACE]
        if users and self.chance(0.8):
            self.volume(self.one(users), name)

    def limits(self) -> None:
        """Let most nodes attach few volumes of a driver."""
        known = {each["metadata"]["name"] for each in self.others if each["kind"] == "CSINode"}
        for node in self.node_names:
            if node not in known:
                driver: Manifest = {"name": CSI, "nodeID": node}
                if self.chance(0.8):
                    driver["allocatable"] = {"count": self.one((0, 1, 2))}
                made = an_object("CSINode", node, "storage.k8s.io/v1")
                self.others.append({**made, "spec": {"drivers": [driver]}})

    def attached_volumes(self, pod: Manifest) -> None:
        """Volumes of a driver that attaches few to a node."""
        self.limits()
        if self.chance(0.3):
            name, node = f"va-{pod['metadata']['name']}", self.one(self.node_names)
            self.persistent_volume(f"pv-{name}", "any")
            source = {"persistentVolumeName": f"pv-{name}"}
            spec = {"attacher": CSI, "nodeName": node, "source": source}
            made = an_object("VolumeAttachment", name, "storage.k8s.io/v1", spec=spec)
            self.others.append({**made, "status": {"attached": True}})
        users = [each for each in self.pods if each["metadata"]["namespace"] == NAMESPACE]
        for number, user in enumerate([pod, *self.some(users, 0, min(3, len(users)))]):
            name = f"attached-{pod['metadata']['name']}-{number}"
            self.persistent_volume(f"pv-{name}", "any", name)
            self.claim(name, "any", f"pv-{name}")
            self.volume(user, name)

    # --- features: devices ---

    def devices(self) -> None:
        """Publish the devices of some nodes, and the classes that claims name."""
        version = "resource.k8s.io/v1"
        mine = {"cel": {"expression": f'device.driver == "{DRA}"'}}
        models = [
            {"cel": {"expression": f'device.attributes["{DRA}"].model == "{model}"'}}
            for model in ("a100", "h200")
        ]
        plain, extended = [mine, models[0]], [mine, models[1]]
        if self.chance(0.2):  # some devices are then of both classes
            plain, extended = [mine], [mine, {"cel": {"expression": self.expression()}}]
        elif self.chance(0.3):  # all are of one class, whatever they are
            plain, extended = [mine], [*models]
        self.others.append(an_object("DeviceClass", "gpu", version, spec={"selectors": plain}))
        spec = {"selectors": extended, "extendedResourceName": EXTENDED}
        self.others.append(an_object("DeviceClass", "extended", version, spec=spec))
        for node in self.node_names:
            if not self.chance(0.85):
                continue
            devices = [self.device(number) for number in range(self.random.randint(2, 4))]
            if self.chance(0.6):  # as most nodes are: all devices alike but for their number
                devices = [
                    {
                        **devices[0],
                        "name": each["name"],
                        "attributes": {
                            **devices[0]["attributes"],
                            "index": each["attributes"]["index"],
                        },
                    }
                    for each in devices
                ]
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            content: Manifest = {"driver": DRA, "nodeName": node, "pool": pool, "devices": devices}
            made = an_object("ResourceSlice", f"{node}-gpus", version, spec=content)
            self.others.append(made)
            for device in devices:
                if self.chance(0.2):
                    self.taken_device(node, str(device["name"]))

    def device(self, number: int) -> Manifest:
        return {
            "name": f"gpu-{number}",
            "attributes": {
                "model": {"string": self.one(("a100", "h200"))},
                "driverVersion": {"version": self.one(("1.9.0", "1.10.0"))},
                "index": {"int": number},
                "linked": {"bool": self.chance(0.5)},
            },
            "capacity": {"memory": {"value": self.one(("40Gi", "80Gi"))}},
        }

    def expression(self) -> str:
        """Return what a claim may ask of a device, in CEL."""
        own, capacity = f'device.attributes["{DRA}"]', f'device.capacity["{DRA}"]'
        return self.one(
            (
                f'{own}.model == "a100"',
                f'{own}.model in ["h200", "b200"] || {own}.linked',
                f'{own}.model.startsWith("h")',
                f"{own}.index < 1",
                f"{own}.index >= 0",
                f'{capacity}.memory.compareTo(quantity("40Gi")) == 0',
                f'{capacity}.memory.compareTo(quantity("64Gi")) > 0',
                f'{own}.driverVersion.isGreaterThan(semver("1.9.5"))',
                f'"none" in {own} && {own}.none == "x"',
            )
        )

    def taken_device(self, node: str, device: str) -> Manifest:
        """Add a claim to which a device of the node is allocated already."""
        result = {"request": "gpus", "driver": DRA, "pool": node, "device": device}
        name = {"key": "metadata.name", "operator": "In", "values": [node]}
        where = {"nodeSelectorTerms": [{"matchFields": [name]}]}
        made = self.device_claim(f"taken-{node}-{device}", {"deviceClassName": "gpu"})
        made["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": where}}
        return made

    def device_claim(self, name: str, asked: Manifest, **metadata: Any) -> Manifest:
        exactly = {"allocationMode": "ExactCount", "count": 1, **asked}
        spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
        version = "resource.k8s.io/v1"
        made = an_object("ResourceClaim", name, version, NAMESPACE, metadata=metadata, spec=spec)
        self.others.append(made)
        return made

    def devices_shared(self, pod: Manifest) -> None:
        """A claim by name, which other pods may use as well."""
        name, taken = f"shared-{pod['metadata']['name']}", self.claims_taken()
        if taken and self.chance(0.5):
            name = self.one(taken)
        else:
            self.device_claim(name, {"deviceClassName": "gpu"})
        pod["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": name}]
        pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]

    def claims_taken(self) -> list[str]:
        names = [
            made["metadata"]["name"] for made in self.others if made["kind"] == "ResourceClaim"
        ]
        return [name for name in names if name.startswith("taken-")]

    def devices_selected(self, pod: Manifest) -> None:
        """A claim with selectors, which most nodes pass with all of their devices or with none."""
        if "resourceClaims" not in pod["spec"]:
            self.devices_claimed(pod, selected=0.95)

    def devices_claimed(self, pod: Manifest, selected: float = 0.1) -> None:
        """A claim made of a template, as the controller of claims leaves it."""
        name = pod["metadata"]["name"]
        asked: Manifest = {
            "deviceClassName": "gpu" if self.chance(0.95) else "none",
            "count": self.one((1, 1, 1, 2)),
        }
        if self.chance(selected):
            count = self.one((1, 1, 2))
            asked["selectors"] = [{"cel": {"expression": self.expression()}} for _ in range(count)]
        elif self.chance(0.1):
            asked = {"deviceClassName": "gpu", "allocationMode": "All", "count": 0}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
        claim = self.device_claim(
            f"{name}-gpus", asked, ownerReferences=[{**owner, "controller": True}]
        )
        template = an_object(
            "ResourceClaimTemplate", f"gpus-{name}", "resource.k8s.io/v1", NAMESPACE
        )
        self.others.append({**template, "spec": {"spec": claim["spec"]}})
        pod["spec"]["resourceClaims"] = [
            {"name": "gpus", "resourceClaimTemplateName": f"gpus-{name}"}
        ]
        pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
        statuses = [{"name": "gpus", "resourceClaimName": f"{name}-gpus"}]
        pod.setdefault("status", {})["resourceClaimStatuses"] = statuses

    def devices_as_resource(self, pod: Manifest) -> None:
        """An extended resource that no node lists and a DeviceClass stands for."""
        resources = pod["spec"]["containers"][0]["resources"]
        resources.setdefault("limits", {})[EXTENDED] = self.one(("1", "1", "2", "4"))

    # --- features: the rest ---

    def gated(self, pod: Manifest) -> None:
        pod["spec"]["schedulingGates"] = [{"name": "example.com/budget"}]

    def new_feature(self, pod: Manifest) -> None:
        """Need what only some nodes declare."""
        codes = {"operator": "In", "values": [42]}
        rule = {"action": "RestartAllContainers", "exitCodes": codes}
        pod["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}

    def plain(self, pod: Manifest) -> None:
        """Nothing but requests, labels and what stands on the node."""


_EFFECTS: Final = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_FEATURES_OF_GANGS: Final[tuple[Callable[[_Drawing, Manifest], None], ...]] = (
    _Drawing.plain,
    _Drawing.heavy,
    _Drawing.sidecars,
    _Drawing.pod_level,
    _Drawing.selector,
    _Drawing.node_affinity,
    _Drawing.tolerations,
    _Drawing.ports,
    _Drawing.affinity,
    _Drawing.anti_affinity,
    _Drawing.spread,
)
_FEATURES: Final = (
    *_FEATURES_OF_GANGS,
    _Drawing.overhead,
    _Drawing.bound_volume,
    _Drawing.late_volume,
    _Drawing.local_volume,
    _Drawing.shared_volume,
    _Drawing.lost_volume,
    _Drawing.zoned_volume,
    _Drawing.exclusive_volume,
    _Drawing.attached_volumes,
    _Drawing.devices_claimed,
    _Drawing.devices_selected,
    _Drawing.devices_shared,
    _Drawing.devices_as_resource,
    _Drawing.gated,
    _Drawing.new_feature,
)
# Rules of which each field, and each pair of fields, is to decide; and pods that most nodes take.
_OFTEN: Final = (*(_Drawing.spread,) * 4, *(_Drawing.plain,) * 2)
