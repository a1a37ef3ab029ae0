"""Small questions about stored objects that the models of the cluster ask again and again."""

from typing import Any

from testbed.fakeapi.store import Object

PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
SERVICES = "/api/v1/services"
JOBS = "/apis/bireme.dev/v1alpha1/trainingjobs"
GROUPS = "/apis/bireme.dev/v1alpha1/podgroups"
QUEUES = "/apis/bireme.dev/v1alpha1/queues"
POLICIES = "/apis/bireme.dev/v1alpha1/schedulingpolicies"
SCALERS = "/apis/bireme.dev/v1alpha1/nodepoolscalers"
NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
BATCH_JOBS = "/apis/batch/v1/jobs"
NAME_TAKER = "takes-a-name"
ENDED = ("Succeeded", "Failed")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def phase(obj: Object) -> str:
    return str((obj.get("status") or {}).get("phase") or "Pending")


def uid(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def node_of(pod: Object) -> str:
    return str(pod["spec"].get("nodeName") or "")


def is_leaving(obj: Object) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def is_name_taker(group: Object) -> bool:
    """Return whether a user created a PodGroup for a while only to take the name of a job."""
    return NAME_TAKER in group["metadata"].get("labels", {})


def is_gated(pod: Object) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def lingers(obj: Object) -> bool:
    """Pods on a node end before they go, as long as they have not ended yet."""
    return obj["kind"] == "Pod" and bool(node_of(obj)) and phase(obj) not in ENDED


def is_ready(node: Object) -> bool:
    conditions = node["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def pin_of(pod: Object) -> str:
    """Return the node that a pod is pinned to; empty for none."""
    fields = (each for term in _node_terms(pod) for each in term.get("matchFields") or ())
    return next((str(each["values"][0]) for each in fields), "")


def may_be_on(pod: Object, node: Object) -> bool:
    """Return whether the pod's required node affinity allows ``node``; no terms allow any."""
    terms = _node_terms(pod)
    return not terms or any(_matches(term, node["metadata"]) for term in terms)


def _node_terms(pod: Object) -> list[Object]:
    affinity: dict[str, Any] = pod["spec"].get("affinity") or {}
    required = (affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return list(required.get("nodeSelectorTerms") or ())


def _matches(term: Object, of_node: Object) -> bool:
    """Return whether a node is one of those named, which is all that gangs here ask for."""
    named = [(of_node["name"], each) for each in term.get("matchFields") or ()]
    labels = of_node.get("labels") or {}
    named += [(labels.get(each["key"]), each) for each in term.get("matchExpressions") or ()]
    return all(value in each["values"] for value, each in named)


def host_ports(spec: Object) -> set[tuple[str, int]]:
    """Return protocol and number of every host port; the simulation knows no addresses."""
    ports = (port for container in spec["containers"] for port in container.get("ports", ()))
    return {(port.get("protocol", "TCP"), port["hostPort"]) for port in ports if "hostPort" in port}


def tolerates(pod: Object, taint: Object) -> bool:
    """Return whether one of a pod's tolerations is for this taint."""
    for each in pod["spec"].get("tolerations", ()):
        is_equal = each.get("operator") == "Exists" or each.get("value", "") == taint["value"]
        for_key = each.get("key", "") in ("", taint["key"])
        if is_equal and for_key and each.get("effect", "") in ("", taint["effect"]):
            return True
    return False


def label(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("labels") or {}).get(f"bireme.dev/{name}", ""))
