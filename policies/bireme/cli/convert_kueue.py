"""Kueue's ClusterQueues, Cohorts, priority classes and Jobs as Bireme's.

Versions v1beta1 and v1beta2 of ``kueue.x-k8s.io`` are read (``apis/kueue`` of Kueue 0.19). A
ClusterQueue is a Queue, and so is a cohort, as parent of its members. The nominal quota is what a
queue is guaranteed, and with the borrowing limit its limit. A cohort has the sum over its members,
because in Kueue they can use no more together. Jobs that wait in a LocalQueue get a PodGroup.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from bireme.cli.arguments import Json
from bireme.cli.conversion import (
    ConversionError,
    Notes,
    join_pod_group,
    manifest,
    metadata,
)
from bireme.kube import names
from bireme.kube.quantities import QuantityError, format_quantity, parse_quantity

GROUP: Final = "kueue.x-k8s.io"
_QUEUE_KEY: Final = f"{GROUP}/queue-name"
_PRIORITY_KEY: Final = f"{GROUP}/priority-class"
_MIN_PARALLELISM_KEY: Final = f"{GROUP}/job-min-parallelism"
_PLACING_KEYS: Final = (f"{GROUP}/podset-", f"{GROUP}/workload-allowed-resource-flavors")
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""Label that the API server sets on every namespace."""
_MAX_NAME: Final = 63
_MAX_WEIGHT: Final = 1000
_MAX_PRIORITY: Final = 1_000_000_000
"""Kubernetes keeps higher values for its own classes."""

_PARENT_FIELDS: Final = {
    "ClusterQueue": ("cohortName", "cohort"),
    "Cohort": ("parentName", "parent"),
}
"""By kind: names in v1beta2 and in older versions."""
_NO_QUEUE_COUNTERPART: Final = {
    "flavorFungibility": "queues have no flavors; a job chooses its nodes by nodeSelector",
    "admissionChecks": "no other controller is asked before a start",
    "admissionChecksStrategy": "no other controller is asked before a start",
    "admissionScope": "the past use of a queue does not order its jobs",
    "concurrentAdmissionPolicy": "queues have no flavors; a job chooses its nodes by nodeSelector",
}
_NO_LOCAL_COUNTERPART: Final = {
    "stopPolicy": "close the Queue instead (spec.state: Closed)",
    "fairSharing": "namespaces that share a queue have no weights; give each a queue of its own",
    "wallTimePolicy": "hours of use are not limited",
}
_REFUSED: Final = {
    "AdmissionCheck": "no other controller is asked before a start",
    "ProvisioningRequestConfig": "a NodePoolScaler asks for nodes",
    "MultiKueueConfig": "Bireme schedules one cluster",
    "MultiKueueCluster": "Bireme schedules one cluster",
    "Workload": "Kueue makes it for a job; convert the job",
}


@dataclass(frozen=True, slots=True)
class _Quota:
    """Amounts by resource, in the units of ``parse_quantity``.

    ``borrowing`` and ``max`` lack the resources of which any amount may be borrowed.
    """

    nominal: Mapping[str, int]
    borrowing: Mapping[str, int]

    @property
    def max(self) -> dict[str, int]:
        return {name: self.nominal[name] + extra for name, extra in self.borrowing.items()}


def _quota(document: Json) -> _Quota:
    """Return the quota of a ClusterQueue or Cohort, summed over its flavors."""
    nominal: Counter[str] = Counter()
    borrowing: Counter[str] = Counter()
    unlimited: set[str] = set()
    for group in _spec(document).get("resourceGroups") or ():
        for resource in (entry for flavor in group["flavors"] for entry in flavor["resources"]):
            name = resource["name"]
            nominal[name] += _amount(document, name, resource["nominalQuota"])
            if (limit := resource.get("borrowingLimit")) is None:
                unlimited.add(name)
            else:
                borrowing[name] += _amount(document, name, limit)
    return _Quota(nominal, {n: borrowing[n] for n in borrowing if n not in unlimited})


def _amount(document: Json, resource: str, text: str | int) -> int:
    try:
        return parse_quantity(resource, text, rounding="down")
    except QuantityError as error:
        raise ConversionError(
            f"{document['kind']} {document['metadata']['name']}: spec.resourceGroups: {error}"
        ) from error


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: format_quantity(name, amount) for name, amount in amounts.items()}


def _spec(document: Json) -> Json:
    spec: Json = document.get("spec") or {}
    return spec


def _cohort(document: Json) -> str | None:
    """Return the cohort that a ClusterQueue is in, or the parent of a Cohort."""
    spec = _spec(document)
    return next((spec[name] for name in _PARENT_FIELDS[document["kind"]] if spec.get(name)), None)


@dataclass(slots=True)
class KueueObjects:
    """Kueue's objects of one input, which is converted as a whole."""

    cluster_queues: dict[str, Json] = field(default_factory=dict)
    cohorts: dict[str, Json] = field(default_factory=dict)
    """Also those without an object of their own, with a spec that has nothing."""
    local_queues: dict[tuple[str, str], str] = field(default_factory=dict)
    """ClusterQueue by namespace and name."""
    _without_object: dict[int, str] = field(default_factory=dict)
    """Cohorts that exist by name alone, by the ``id`` of the first document that names each."""
    _subjects: dict[str, str] = field(default_factory=dict)
    """Kind and name in Kueue, by the name of the Queue."""

    @classmethod
    def of(cls, documents: Iterable[Json]) -> "KueueObjects":
        """Read the objects of Kueue among ``documents``."""
        objects = cls()
        own = [d for d in documents if is_kueues(d) and isinstance(d.get("metadata"), dict)]
        for document in own:
            name = document["metadata"].get("name", "")
            if document["kind"] == "ClusterQueue":
                objects.cluster_queues[name] = document
            elif document["kind"] == "Cohort":
                objects.cohorts[name] = document
            elif document["kind"] == "LocalQueue":
                key = (document["metadata"].get("namespace") or "default", name)
                objects.local_queues[key] = _spec(document).get("clusterQueue") or ""
        for document in own:
            if document["kind"] in ("ClusterQueue", "Cohort"):
                name = _cohort(document)
                if name and name not in objects.cohorts:
                    objects.cohorts[name] = {"kind": "Cohort", "metadata": {"name": name}}
                    objects._without_object[id(document)] = name
        return objects

    def convert(self, document: Json, notes: Notes) -> list[Json]:
        """Return the manifests that stand for one of Kueue's objects."""
        match document["kind"]:
            case "ClusterQueue":
                return [*self._parents(document, notes), self._cluster_queue(document, notes)]
            case "Cohort":
                return [*self._parents(document, notes), self._cohort_queue(document, notes)]
            case "LocalQueue":
                self._local_queue(document, notes)
                return []
            case "WorkloadPriorityClass":
                return [_priority_class(document, notes)]
            case "ResourceFlavor":
                _flavor(document, notes)
                return []
            case "Topology":
                levels = ", ".join(
                    level["nodeLabel"] for level in reversed(_spec(document)["levels"])
                )
                notes.to_do("spec.levels", f"set the operator's setting topologyLevels: {levels}")
                return []
            case kind:
                notes.to_do("kind", f"left out: {_REFUSED.get(kind, 'Bireme has no such object')}")
                return []

    def job(self, document: Json, notes: Notes) -> list[Json]:
        """Return a Job that waits in a LocalQueue, after the PodGroup that it joins."""
        about = document["metadata"]
        is_job = document["kind"] == "Job" and document["apiVersion"].startswith("batch/")
        if not is_job or not about.get("name"):
            reason = "has no name" if is_job else "is no Job"
            notes.to_do(
                f"metadata.labels[{_QUEUE_KEY}]",
                f"unchanged, as it {reason}: create a PodGroup for each run, and give the pods its"
                f" label {names.POD_GROUP_LABEL}, the gate {names.PLAN_GATE} and schedulerName"
                f" {names.SCHEDULER_NAME}",
            )
            return [document]
        result = copy.deepcopy(document)
        labels, spec = result["metadata"]["labels"], result["spec"]
        body: Json = {
            "minMember": _members(result),
            "queue": self._queue_of(result, labels[_QUEUE_KEY], notes),
        }
        template = spec["template"]
        priority = labels.get(_PRIORITY_KEY) or template["spec"].get("priorityClassName")
        if priority:
            body["priorityClassName"] = priority
        if spec.pop("suspend", False):
            notes.changed("spec.suspend", "left out: the pods wait at their gate")
        join_pod_group(template, about["name"])
        for holder in (result["metadata"], template["metadata"]):
            _strip(holder, notes)
        notes.changed(
            f"metadata.labels[{_QUEUE_KEY}]",
            f"PodGroup {about['name']} names the queue; {body['minMember']} pods start together",
        )
        group = {key: about[key] for key in ("name", "namespace") if about.get(key)}
        return [manifest("PodGroup", group, body), result]

    # --- queues -----------------------------------------------------------------------------

    def _parents(self, document: Json, notes: Notes) -> Iterator[Json]:
        """Yield the queue of a cohort that only exists by name and is named here first."""
        if name := self._without_object.get(id(document)):
            yield self._cohort_queue(self.cohorts[name], notes)

    def _cluster_queue(self, document: Json, notes: Notes) -> Json:
        spec, quota = _spec(document), _quota(document)
        body: Json = {}
        limits = quota.nominal
        if cohort := _cohort(document):
            body["parent"] = self._name_of_cohort(cohort)
            limits = quota.max
        _weigh(document, body, notes)
        if quota.nominal:
            body["guaranteed"] = _texts(quota.nominal)
            notes.changed(
                "spec.resourceGroups",
                "quotas of all flavors add up; other resources are unlimited, while Kueue refuses"
                " jobs that ask for them",
            )
        else:
            body["state"] = "Closed"
            notes.changed("spec.resourceGroups", "without a quota nothing starts in it: Closed")
        if limits:
            body["limit"] = _texts(limits)
        self._select(document, body, notes)
        if (stop := spec.get("stopPolicy") or "None") != "None":
            body["state"] = "Closed"
            if stop == "HoldAndDrain":
                notes.changed("spec.stopPolicy", "running gangs of a Closed queue continue")
        _note_preemption(spec, bool(cohort), notes)
        if spec.get("queueingStrategy") == "StrictFIFO":
            notes.lost(
                "spec.queueingStrategy",
                "a gang that fits may start before one that does not, if it delays no gang",
            )
        _note_lending(spec, notes)
        notes.lost_of(spec, _NO_QUEUE_COUNTERPART)
        return self._queue(document, _queue_name(document["metadata"]["name"]), body, notes)

    def _cohort_queue(self, document: Json, notes: Notes) -> Json:
        name, spec = document["metadata"]["name"], _spec(document)
        total = self._total(name)
        body: Json = {}
        limits: Mapping[str, int] = total
        if parent := _cohort(document):
            body["parent"] = self._name_of_cohort(parent)
            extra = _quota(document).borrowing
            limits = {n: amount + extra[n] for n, amount in total.items() if n in extra}
        _weigh(document, body, notes)
        if total:
            body["guaranteed"] = _texts(total)
            if limits:
                body["limit"] = _texts(limits)
            notes.changed(
                "spec.resourceGroups" if is_kueues(document) else "spec.cohortName",
                f"the quotas of cohort {name} are the sums over its members in this input; add"
                " those of members elsewhere",
            )
        _note_lending(spec, notes)
        return self._queue(document, self._name_of_cohort(name), body, notes)

    def _queue(self, document: Json, name: str, body: Json, notes: Notes) -> Json:
        """Return the Queue called ``name``, which no other object of the input may be called."""
        stated = document["metadata"]["name"]
        subject = f"{document['kind']} {stated}"
        if (other := self._subjects.setdefault(name, subject)) != subject:
            raise ConversionError(f"{other} and {subject} would both be Queue {name}; rename one")
        if len(name) > _MAX_NAME:
            raise ConversionError(
                f"{subject}: metadata.name has {len(name)} characters, and a Queue's name at most"
                f" {_MAX_NAME}; rename it"
            )
        if name != stated:
            notes.changed("metadata.name", f"{subject} is the Queue {name}")
        return manifest("Queue", metadata(document) | {"name": name}, body)

    def _total(self, cohort: str, above: Sequence[str] = ()) -> Counter[str]:
        """Return the quota of a cohort: its own, and that of all members."""
        if cohort in above:
            raise ConversionError(
                f"Cohort {cohort}: spec.parentName: {' -> '.join((*above, cohort))} is a cycle;"
                " remove one parent"
            )
        total = Counter(_quota(self.cohorts[cohort]).nominal)
        for document in self.cluster_queues.values():
            if _cohort(document) == cohort:
                total.update(_quota(document).nominal)
        for name, document in self.cohorts.items():
            if _cohort(document) == cohort:
                total.update(self._total(name, (*above, cohort)))
        return total

    def _name_of_cohort(self, name: str) -> str:
        """Return the name of a cohort's queue, which must differ from that of a ClusterQueue."""
        return _queue_name(f"{name}-cohort" if name in self.cluster_queues else name)

    def _select(self, document: Json, body: Json, notes: Notes) -> None:
        """Set the selector of namespaces: those that Kueue's selects, if they have a LocalQueue."""
        selector: Json | None = _spec(document).get("namespaceSelector")
        if selector is None:
            nowhere = {"key": _NAMESPACE_NAME, "operator": "DoesNotExist"}
            body["namespaceSelector"] = {"matchExpressions": [nowhere]}
            notes.to_do("spec.namespaceSelector", "selects no namespace, as in Kueue; name some")
            return
        name = document["metadata"]["name"]
        namespaces = sorted({key[0] for key, to in self.local_queues.items() if to == name})
        if not namespaces:
            if selector:
                body["namespaceSelector"] = selector
            return
        expression: Json = {"key": _NAMESPACE_NAME, "operator": "In", "values": namespaces}
        expressions = [*(selector.get("matchExpressions") or ()), expression]
        body["namespaceSelector"] = {**selector, "matchExpressions": expressions}
        notes.changed(
            "spec.namespaceSelector",
            f"only namespaces with a LocalQueue of this input: {', '.join(namespaces)}",
        )

    # --- LocalQueues ------------------------------------------------------------------------

    def _local_queue(self, document: Json, notes: Notes) -> None:
        about = document["metadata"]
        namespace = about.get("namespace") or "default"
        queue = _queue_name(_spec(document)["clusterQueue"])
        notes.to_do(
            "spec.clusterQueue",
            f"jobs of namespace {namespace} name Queue {queue} instead of {about['name']}",
        )
        if about["name"] == "default":
            label = f"{names.DEFAULT_QUEUE_LABEL}={queue}"
            notes.to_do(
                "metadata.name",
                f"for jobs that name none: kubectl label namespace {namespace} {label}",
            )
        notes.lost_of(_spec(document), _NO_LOCAL_COUNTERPART)

    def _queue_of(self, job: Json, local_queue: str, notes: Notes) -> str:
        namespace = job["metadata"].get("namespace") or "default"
        if queue := self.local_queues.get((namespace, local_queue)):
            return _queue_name(queue)
        notes.to_do(
            f"metadata.labels[{_QUEUE_KEY}]",
            f"LocalQueue {namespace}/{local_queue} is not in this input: name its ClusterQueue in"
            " spec.queue of the PodGroup",
        )
        return _queue_name(local_queue)


def is_kueues(document: Json) -> bool:
    """Return whether the document is of Kueue's own API group."""
    return str(document.get("apiVersion", "")).partition("/")[0] == GROUP


def is_queued(document: Json) -> bool:
    """Return whether the document waits in a LocalQueue, by its label."""
    about = document.get("metadata")
    labels = about.get("labels") if isinstance(about, dict) else None
    return isinstance(labels, dict) and bool(labels.get(_QUEUE_KEY))


def _queue_name(name: str) -> str:
    """Return a name without dots, which a Queue's name may not have."""
    return name.replace(".", "-")


def _weigh(document: Json, body: Json, notes: Notes) -> None:
    stated = (_spec(document).get("fairSharing") or {}).get("weight")
    if stated is None:
        return
    try:
        thousandths = parse_quantity("cpu", stated)
    except QuantityError as error:
        raise ConversionError(
            f"{document['kind']} {document['metadata']['name']}: spec.fairSharing.weight is"
            f" {stated!r}; write a number such as 2"
        ) from error
    body["weight"] = max(1, min(_MAX_WEIGHT, round(thousandths / 1000)))
    if body["weight"] * 1000 != thousandths:
        notes.changed("spec.fairSharing.weight", f"{stated} is no whole number from 1 to 1000")


def _note_preemption(spec: Json, has_cohort: bool, notes: Notes) -> None:
    preemption = spec.get("preemption") or {}
    if has_cohort and preemption.get("reclaimWithinCohort", "Never") != "Any":
        notes.changed(
            "spec.preemption.reclaimWithinCohort",
            "a queue takes its guarantee back from queues with more than theirs, of any priority",
        )
    if preemption.get("withinClusterQueue", "Never") == "Never":
        notes.changed(
            "spec.preemption.withinClusterQueue",
            "a gang stops gangs of lower priority classes, but for a PriorityClass with"
            " preemptionPolicy: Never",
        )
    if (preemption.get("borrowWithinCohort") or {}).get("policy", "Never") != "Never":
        notes.changed(
            "spec.preemption.borrowWithinCohort",
            "a gang of a higher class stops lower ones of any queue, without a threshold",
        )


def _note_lending(spec: Json, notes: Notes) -> None:
    groups = spec.get("resourceGroups") or ()
    quotas = (q for group in groups for flavor in group["flavors"] for q in flavor["resources"])
    if any(quota.get("lendingLimit") is not None for quota in quotas):
        notes.lost(
            "spec.resourceGroups[].flavors[].resources[].lendingLimit",
            "all that is idle is lent, and comes back when the queue needs it",
        )


def _priority_class(document: Json, notes: Notes) -> Json:
    value = min(document["value"], _MAX_PRIORITY)
    notes.changed(
        "kind",
        "a PriorityClass: jobs name it in spec.priorityClassName, PodGroups too; pods that name it"
        " have this priority at kube-scheduler as well",
    )
    if value != document["value"]:
        notes.changed("value", f"{document['value']} is above {_MAX_PRIORITY}, the maximum")
    result: Json = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata(document),
        "value": value,
    }
    if document.get("description"):
        result["description"] = document["description"]
    return result


def _flavor(document: Json, notes: Notes) -> None:
    spec = _spec(document)
    if labels := spec.get("nodeLabels"):
        chosen = ", ".join(f"{key}: {value}" for key, value in labels.items())
        notes.to_do("spec.nodeLabels", f"give jobs that need such nodes nodeSelector {chosen}")
    if tolerations := spec.get("tolerations"):
        keys = ", ".join(str(entry.get("key", "all taints")) for entry in tolerations)
        notes.to_do("spec.tolerations", f"give jobs that need such nodes tolerations for {keys}")
    if spec.get("topologyName"):
        notes.changed("spec.topologyName", "topology is one setting for all nodes: topologyLevels")


def _members(job: Json) -> int:
    """Return how many pods of a Job start together."""
    spec = job["spec"]
    parallelism = spec.get("parallelism", 1)
    stated = (job["metadata"].get("annotations") or {}).get(_MIN_PARALLELISM_KEY)
    members = int(stated) if stated is not None else parallelism
    return max(1, min(members, spec.get("completions") or members))


def _strip(holder: Json, notes: Notes) -> None:
    """Remove Kueue's labels and annotations; note those that place pods."""
    for key in ("labels", "annotations"):
        entries: dict[str, Any] = holder.get(key) or {}
        for name in [name for name in entries if name.startswith(f"{GROUP}/")]:
            if name.startswith(_PLACING_KEYS):
                notes.lost(
                    f"{key}[{name}]",
                    "gangs are placed in the smallest topology domain that holds them, by the"
                    " operator's topology levels; a gang that fits no single domain is spread",
                )
            del entries[name]
        if key in holder and not entries:
            del holder[key]
