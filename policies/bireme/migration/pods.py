"""What Volcano's plugins gave to pods, and the pod templates that must do without.

Scripts written for Volcano read their index from ``VC_TASK_INDEX`` and the others' addresses from
files under ``/etc/volcano``. Both can be had here: the index is a label of every pod, and the
addresses are known before the pods are.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from bireme.kube import names
from bireme.migration.notes import Notes
from bireme.migration.tasks import Json

HOSTS_FOLDER: Final = "/etc/volcano"
_INDEX: Final = re.compile(r"\bV[CK]_TASK_INDEX\b")
_HOSTS: Final = re.compile(r"/etc/volcano\b|\bVC_[A-Z0-9_]+_(HOSTS|NUM)\b")
_GROUP_KEYS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_QUEUE_KEY: Final = "scheduling.volcano.sh/queue-name"


def containers(spec: Json) -> Iterator[Json]:
    """All containers of a pod spec, those that only run first included."""
    for kind in ("initContainers", "containers"):
        yield from spec.get(kind) or ()


def text_of(container: Json) -> str:
    """Everything of a container that a script may be written in."""
    values = [variable.get("value") for variable in container.get("env") or ()]
    parts = (*(container.get("command") or ()), *(container.get("args") or ()), *values)
    return "\n".join(str(part) for part in parts if part is not None)


def reads_index(spec: Json) -> bool:
    """Whether a script asks for its index."""
    return any(_INDEX.search(text_of(container)) for container in containers(spec))


def reads_hosts(spec: Json) -> bool:
    """Whether a script asks for the addresses of the others."""
    return any(_HOSTS.search(text_of(container)) for container in containers(spec))


def template(task: Json, notes: Notes) -> Json:
    """The pod template of a task without what only Volcano reads."""
    given: Json = copy.deepcopy(task.get("template") or {})
    metadata = {
        key: value
        for key, value in (given.get("metadata") or {}).items()
        if key in ("labels", "annotations") and value
    }
    spec: Json = given.get("spec") or {}
    at = f"spec.tasks[{task['name']}].template.spec"
    spec.pop("schedulerName", None)
    if "priorityClassName" in spec:
        notes.changed(
            f"{at}.priorityClassName",
            f"{spec.pop('priorityClassName')!r} left out: all pods of a job have the job's class"
            " (spec.priorityClassName), and tasks are placed by their priority",
        )
    if reads_index(spec):
        for container in containers(spec):
            _set_index(container)
    return {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}


def _set_index(container: Json) -> None:
    """The index from the label that every pod of a TrainingJob has."""
    field = {"fieldRef": {"fieldPath": f"metadata.labels['{names.INDEX_LABEL}']"}}
    own = container.setdefault("env", [])
    known = {variable.get("name") for variable in own}
    for name in ("VC_TASK_INDEX", "VK_TASK_INDEX"):
        if name not in known:
            own.insert(0, {"name": name, "valueFrom": copy.deepcopy(field)})


def mount(spec: Json, volume: Json, path: str) -> None:
    """``volume`` in every container at ``path``."""
    spec.setdefault("volumes", []).append(volume)
    for container in containers(spec):
        own = container.setdefault("volumeMounts", [])
        own.append({"name": volume["name"], "mountPath": path})


def hosts(job: str, namespace: str, replicas: Mapping[str, int]) -> dict[str, list[str]]:
    """The addresses of every task's replicas, under the job's headless Service."""
    return {
        task: [f"{job}-{task}-{index}.{job}.{namespace}.svc" for index in range(count)]
        for task, count in replicas.items()
    }


def add_hosts(specs: Iterable[Json], addresses: Mapping[str, list[str]], config_map: str) -> None:
    """Files and variables with the addresses, as Volcano's plugin ``svc`` has them."""
    variables = []
    for task, listed in addresses.items():
        word = task.upper().replace("-", "_")
        variables.append({"name": f"VC_{word}_HOSTS", "value": ",".join(listed)})
        variables.append({"name": f"VC_{word}_NUM", "value": str(len(listed))})
    for spec in specs:
        mount(spec, {"name": "hosts", "configMap": {"name": config_map}}, HOSTS_FOLDER)
        for container in containers(spec):
            container["env"] = [*copy.deepcopy(variables), *(container.get("env") or ())]


def joined(document: Json, notes: Notes) -> Json:
    """A workload of another kind: its pods join the PodGroup that their annotation names."""
    result = copy.deepcopy(document)
    is_pod = result.get("kind") == "Pod"
    pod: Any = result if is_pod else (result.get("spec") or {}).get("template")
    if not isinstance(pod, dict) or (pod.get("spec") or {}).get("schedulerName") != "volcano":
        return result
    at = "spec" if is_pod else "spec.template"
    metadata = pod.setdefault("metadata", {})
    annotations = metadata.get("annotations") or {}
    group = next((annotations.pop(key) for key in _GROUP_KEYS if key in annotations), None)
    if group is None:
        del pod["spec"]["schedulerName"]
        notes.changed(
            f"{at}.schedulerName",
            "left to the default scheduler: pods without a PodGroup are no gang. For one, create a"
            f" PodGroup and give them its label {names.POD_GROUP_LABEL}, the gate"
            f" {names.PLAN_GATE} and schedulerName {names.SCHEDULER_NAME}",
        )
    else:
        metadata["labels"] = {**(metadata.get("labels") or {}), names.POD_GROUP_LABEL: group}
        pod["spec"]["schedulerName"] = names.SCHEDULER_NAME
        gates = pod["spec"].setdefault("schedulingGates", [])
        gates.append({"name": names.PLAN_GATE})
        notes.changed(at, f"joins PodGroup {group} by its label and a scheduling gate")
    if _QUEUE_KEY in annotations:
        notes.changed(
            f"{at}.metadata.annotations[{_QUEUE_KEY}]",
            f"left out: the PodGroup names the queue (spec.queue: {annotations.pop(_QUEUE_KEY)})",
        )
    return result
