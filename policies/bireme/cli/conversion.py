"""Volcano's Jobs, PodGroups and Queues as Bireme's kinds.

Nothing is dropped silently: every field that has another meaning here, or none, leaves a
:class:`Note` for people that names the object, the field and the remedy.

The operator does by itself what Volcano's controller does after events (``policies``): it restarts
the gang as a whole when a replica fails or is lost, ``backoffLimit`` times.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from bireme.core.errors import BiremeError
from bireme.kube import names
from bireme.kube.api.training_job import Role

# --- notes -------------------------------------------------------------------------------------


class Effect(StrEnum):
    """The fate of a field."""

    CHANGED = "changed"
    """Said otherwise, or with another meaning."""
    LOST = "lost"
    """Bireme has nothing like it."""
    TO_DO = "to do"
    """It does not run before somebody did this."""


@dataclass(frozen=True, slots=True)
class Note:
    """One remark about one field of one object."""

    subject: str
    field: str
    effect: Effect
    text: str


@dataclass(slots=True)
class Notes:
    """The notes about one object, in the order of its fields."""

    subject: str
    notes: list[Note] = field(default_factory=list)

    def changed(self, path: str, text: str) -> None:
        """``path`` has another form."""
        self._add(path, Effect.CHANGED, text)

    def lost(self, path: str, text: str) -> None:
        """``path`` has no counterpart."""
        self._add(path, Effect.LOST, text)

    def to_do(self, path: str, text: str) -> None:
        """``path`` needs a person's decision."""
        self._add(path, Effect.TO_DO, text)

    def _add(self, path: str, effect: Effect, text: str) -> None:
        self.notes.append(Note(self.subject, path, effect, text))


class ConversionError(BiremeError):
    """A manifest cannot be converted; the message names the object, the field and the remedy."""


# --- roles and sizes of a Job's tasks ------------------------------------------------------------
#
# Volcano's tasks have names, Bireme's have roles: what a task is to the training. A distributed
# framework's plugin says which task is which; else the name does. Volcano starts a Job with any
# ``minAvailable`` of its pods, whatever its tasks' own minima say once it is below their sum
# (pkg/scheduler/api/job_info.go); here the tasks that may start with fewer replicas say so.

Json = dict[str, Any]

RENDEZVOUS: Final = {"pytorch": "torch", "tensorflow": "tensorflow"}
"""Volcano's plugins whose environment Bireme sets by itself."""

_PLUGIN_ROLES: Final[Mapping[str, Mapping[str, Role]]] = {
    "pytorch": {"master": "master", "worker": "worker"},
    "tensorflow": {"ps": "ps", "worker": "worker", "chief": "chief", "evaluator": "evaluator"},
}
"""The arguments that name tasks, each by its default name, and their roles."""

_ROLES_BY_NAME: Final[Mapping[str, Role]] = {
    "ps": "ps",
    "pserver": "ps",
    "parameter-server": "ps",
    "server": "ps",
    "chief": "chief",
    "master": "master",
    "launcher": "master",
    "evaluator": "evaluator",
}
ROLES: Final[tuple[Role, ...]] = ("master", "chief", "worker", "ps", "evaluator")


def roles(
    tasks: Sequence[Json], plugins: Mapping[str, Any], given: Mapping[str, Role], notes: Notes
) -> dict[str, Role]:
    """The role of every task by name: as ``given``, as a plugin says, or as its name does."""
    found: dict[str, Role] = {}
    by_plugin = _by_plugin(plugins)
    for task in tasks:
        name = task["name"]
        role = given.get(name) or by_plugin.get(name) or _ROLES_BY_NAME.get(name, "worker")
        if role in ("master", "chief") and task["replicas"] != 1:
            role = "worker"
        found[name] = role
    _end_with(tasks, found, frozenset(given), plugins, notes)
    leaders = [name for name, role in found.items() if role in ("master", "chief")]
    for name in leaders[1:]:
        found[name] = "worker"
    if "worker" not in found.values() and not leaders:
        raise ConversionError(
            f"{notes.subject}: its tasks are all {', '.join(sorted(set(found.values())))}, and"
            f" none trains; name one that does: --role {next(iter(found))}=worker"
        )
    return found


def _by_plugin(plugins: Mapping[str, Any]) -> dict[str, Role]:
    """Task names to roles, as the arguments ``--worker=NAME`` and the like say."""
    found: dict[str, Role] = {}
    for plugin, arguments in _PLUGIN_ROLES.items():
        if plugin in plugins:
            said = dict(
                word.lstrip("-").split("=", 1) for word in plugins[plugin] or () if "=" in word
            )
            found |= {said.get(part, part): role for part, role in arguments.items()}
    return found


def _end_with(
    tasks: Sequence[Json],
    found: dict[str, Role],
    given: frozenset[str],
    plugins: Mapping[str, Any],
    notes: Notes,
) -> None:
    """A Job that ends with one of its tasks: the others serve it, as parameter servers do."""
    ending = {task["name"] for task in tasks if _completes(task)}
    serving = {
        name for name, role in found.items() if role == "worker" and name not in ending | given
    }
    if not ending or not serving or set(RENDEZVOUS) & set(plugins):
        return
    for name in ending - given:
        found[name] = "worker"
    for name in serving:
        found[name] = "ps"
    notes.changed(
        "spec.tasks[].policies",
        f"the job ends with {', '.join(sorted(ending))}; {', '.join(sorted(serving))} became role"
        " ps, whose replicas serve until the others have ended",
    )


def _completes(task: Json) -> bool:
    return any(
        policy.get("action") == "CompleteJob"
        and "TaskCompleted" in (policy.get("event"), *(policy.get("events") or ()))
        for policy in task.get("policies") or ()
    )


def minima(tasks: Sequence[Json], min_available: int | None, notes: Notes) -> dict[str, int]:
    """The fewest replicas of every task, for a gang that starts with ``min_available`` of them."""
    total = sum(task["replicas"] for task in tasks)
    if (min_available or 0) > total:
        raise ConversionError(
            f"{notes.subject}: spec.minAvailable is {min_available}, its tasks have {total}"
            " replicas; lower it"
        )
    fewest = {task["name"]: _least(task) for task in tasks}
    spare = sum(fewest.values()) - (min_available or sum(fewest.values()))
    for task in sorted(tasks, key=lambda task: -task["replicas"]):
        taken = max(0, min(spare, fewest[task["name"]] - 1))
        fewest[task["name"]] -= taken
        spare -= taken
    if spare > 0:
        notes.changed(
            "spec.minAvailable",
            f"a gang has at least one replica of each task, so it starts with {len(tasks)} of"
            f" them and not with {min_available}",
        )
    if any(fewest[task["name"]] < task["replicas"] for task in tasks):
        notes.changed(
            "spec.minAvailable",
            f"starts with {sum(fewest.values())} of {total} replicas"
            f" where not all find room ({_listed(fewest)}), and stays at the size it starts"
            " with unless it is an elastic torch job",
        )
    return fewest


def _least(task: Json) -> int:
    """``minAvailable`` of a task, all its replicas by default, and at least one."""
    least: int | None = task.get("minAvailable")
    return int(task["replicas"]) if least is None else max(1, least)


def _listed(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


# --- pod templates without Volcano's plugins -----------------------------------------------------
#
# Scripts written for Volcano read their index from ``VC_TASK_INDEX`` and the others' addresses from
# files under ``/etc/volcano``. Both can be had here: the index is a label of every pod, and the
# addresses are known before the pods are.

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
    """Return True if a script reads its task index."""
    return any(_INDEX.search(text_of(container)) for container in containers(spec))


def reads_hosts(spec: Json) -> bool:
    """Return True if a script reads the addresses of other tasks."""
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
    key = {"fieldRef": {"fieldPath": f"metadata.labels['{names.INDEX_LABEL}']"}}
    own = container.setdefault("env", [])
    known = {variable.get("name") for variable in own}
    for name in ("VC_TASK_INDEX", "VK_TASK_INDEX"):
        if name not in known:
            own.insert(0, {"name": name, "valueFrom": copy.deepcopy(key)})


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


_RETRIES: Final = 3
"""Volcano's ``maxRetry`` where a Job does not say (its webhook fills it in)."""

_RESTARTING: Final = frozenset({"PodEvicted", "PodFailed"})
_STOPPING: Final = frozenset({"AbortJob", "TerminateJob"})
_CONVERTED_PLUGINS: Final = frozenset({*RENDEZVOUS, "env", "svc"})
_INSTEAD_OF_PLUGINS: Final = {
    "ssh": "give the pods a Secret with keys of their own, mounted where ssh looks for them",
    "mpi": "write the host list and the SSH keys into the template, or use an MPI operator whose"
    " pods join a PodGroup",
    "ray": "use KubeRay, whose pods join a PodGroup, or start head and workers in the template",
    "hcclrank": "write the rank table in the template",
}
_NO_COUNTERPART: Final = {
    "minSuccess": "the job has succeeded when all replicas have that train",
    "networkTopology": "gangs are placed in the smallest topology domain that holds them, by the"
    " operator's topology levels, and never refused for being spread",
}
_NO_TASK_COUNTERPART: Final = {
    "topologyPolicy": "NUMA nodes are not looked at; the kubelet's topology manager still holds",
    "partitionPolicy": "the gang is placed as one; make several jobs for parts that are apart",
    "maxRetry": "the gang is restarted as a whole, spec.runPolicy.backoffLimit times",
}


def converted(job: Json, given: Mapping[str, Role], notes: Notes) -> list[Json]:
    """The TrainingJob, after what it needs besides.

    ``given`` are roles by task name that win over guesses. Raises ConversionError for a Job that
    has no tasks.
    """
    spec: Json = job.get("spec") or {}
    tasks = _tasks(spec, notes)
    plugins: Mapping[str, Any] = spec.get("plugins") or {}
    role = roles(tasks, plugins, given, notes)
    fewest = minima(tasks, spec.get("minAvailable") or None, notes)
    made = [_task(task, role[task["name"]], fewest[task["name"]], notes) for task in tasks]
    _order(tasks, made, notes)
    beside = _volumes(job, spec, made, notes)
    rendezvous = next((RENDEZVOUS[name] for name in RENDEZVOUS if name in plugins), "none")
    if _wants_hosts(made):
        beside.append(_host_files(job, made, notes))
        if rendezvous == "none":
            rendezvous = "tensorflow"
            notes.changed(
                "spec.plugins.svc",
                "rendezvous tensorflow, which gives every replica its name in DNS (and TF_CONFIG,"
                " which is not in the way)",
            )
    _plugin_notes(plugins, notes)
    body: Json = {"queue": spec.get("queue") or names.DEFAULT_QUEUE}
    if spec.get("priorityClassName"):
        body["priorityClassName"] = spec["priorityClassName"]
    if rendezvous != "none":
        body["rendezvous"] = rendezvous
    if spec.get("runningEstimate"):
        body["estimatedDuration"] = spec["runningEstimate"]
    body |= {"runPolicy": _run_policy(spec, tasks, notes), "tasks": made}
    for key, instead in _NO_COUNTERPART.items():
        if spec.get(key):
            notes.lost(f"spec.{key}", instead)
    head = {"apiVersion": names.API_VERSION, "kind": "TrainingJob"}
    return [*beside, {**head, "metadata": metadata(job), "spec": body}]


def metadata(document: Json) -> Json:
    """Name, namespace, labels and annotations without Volcano's own."""
    given = document.get("metadata") or {}
    kept: Json = {key: given[key] for key in ("name", "namespace") if given.get(key)}
    for key in ("labels", "annotations"):
        own = {k: v for k, v in (given.get(key) or {}).items() if "volcano.sh/" not in k}
        if own:
            kept[key] = own
    return kept


def _tasks(spec: Json, notes: Notes) -> list[Json]:
    """The tasks, with a name and a number of replicas each, as Volcano's webhook fills them in."""
    tasks = spec.get("tasks")
    if not tasks:
        raise ConversionError(f"{notes.subject}: spec.tasks is empty; a job needs at least one")
    filled = [
        {**task, "name": task.get("name") or f"default{at}", "replicas": task.get("replicas", 1)}
        for at, task in enumerate(tasks)
    ]
    seen: set[str] = set()
    for task in filled:
        if task["name"] in seen:
            raise ConversionError(
                f"{notes.subject}: two tasks are called {task['name']!r}; rename one"
            )
        seen.add(task["name"])
    return filled


def _task(task: Json, role: Role, fewest: int, notes: Notes) -> Json:
    at = f"spec.tasks[{task['name']}]"
    made: Json = {"name": task["name"], "role": role, "replicas": task["replicas"]}
    if fewest < task["replicas"]:
        made["minReplicas"] = fewest
    for key, instead in _NO_TASK_COUNTERPART.items():
        if task.get(key) not in (None, "", "none"):
            notes.lost(f"{at}.{key}", instead)
    made["template"] = template(task, notes)
    return made


def _order(tasks: Sequence[Json], made: Sequence[Json], notes: Notes) -> None:
    """Tasks that others depend on are placed and created before them."""
    before = {t["name"]: (t.get("dependsOn") or {}).get("name") or [] for t in tasks}
    if not any(before.values()):
        return
    for task in made:
        task["priority"] = 100 - 10 * _depth(task["name"], before)
    notes.to_do(
        "spec.tasks[].dependsOn",
        "all replicas start together; those that others depend on are created first, by priority:"
        " let the others wait for them in their own command or an init container",
    )


def _depth(
    name: str, before: Mapping[str, Sequence[str]], seen: frozenset[str] = frozenset()
) -> int:
    """Return the length of the chain of dependencies of ``name``; a circle ends the chain."""
    above = [task for task in before.get(name, ()) if task not in seen]
    return max((1 + _depth(task, before, seen | {name}) for task in above), default=0)


def _volumes(job: Json, spec: Json, made: Sequence[Json], notes: Notes) -> list[Json]:
    """Volumes of the Job into every template; claims that Volcano would have made, as objects."""
    claims: list[Json] = []
    for at, volume in enumerate(spec.get("volumes") or ()):
        name = f"volume-{at}"
        claim = volume.get("volumeClaimName")
        if not claim:
            claim = f"{job['metadata']['name']}-{name}"
            about = {**metadata(job), "name": claim}
            claims.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": about,
                    "spec": volume.get("volumeClaim") or {},
                }
            )
            notes.changed(
                f"spec.volumes[{at}]",
                f"PersistentVolumeClaim {claim} is made here; it outlives the job",
            )
        for task in made:
            mounted = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            mount(task["template"]["spec"], mounted, volume.get("mountPath") or "/")
    return claims


def _wants_hosts(made: Sequence[Json]) -> bool:
    return any(reads_hosts(task["template"]["spec"]) for task in made)


def _host_files(job: Json, made: Sequence[Json], notes: Notes) -> Json:
    """The ConfigMap that Volcano's plugin ``svc`` would have made."""
    about = metadata(job)
    name = f"{about['name']}-hosts"
    addresses = hosts(
        about["name"], about.get("namespace", "default"), {t["name"]: t["replicas"] for t in made}
    )
    add_hosts([task["template"]["spec"] for task in made], addresses, name)
    if "namespace" not in about:
        notes.changed("metadata.namespace", "the host names are written for namespace default")
    data = {f"{task}.host": "\n".join(listed) + "\n" for task, listed in addresses.items()}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**about, "name": name},
        "data": data,
    }


def _plugin_notes(plugins: Mapping[str, Any], notes: Notes) -> None:
    for name in plugins:
        instead = _INSTEAD_OF_PLUGINS.get(name, "is not known; see what it gave to the pods")
        if name not in _CONVERTED_PLUGINS:
            notes.to_do(f"spec.plugins.{name}", instead)


def _run_policy(spec: Json, tasks: Sequence[Json], notes: Notes) -> Json:
    policy: Json = {"backoffLimit": min(spec.get("maxRetry") or _RETRIES, 100)}
    if spec.get("ttlSecondsAfterFinished") is not None:
        policy["ttlSecondsAfterFinished"] = spec["ttlSecondsAfterFinished"]
    if _stops_at_failure(spec):
        policy["backoffLimit"] = 0
        notes.changed(
            "spec.policies", "the job ends with the first failure (runPolicy.backoffLimit: 0)"
        )
    for at, owner in (("spec", spec), *((f"spec.tasks[{t['name']}]", t) for t in tasks)):
        for number, stated in enumerate(owner.get("policies") or ()):
            if why := _unkept(stated):
                notes.lost(f"{at}.policies[{number}]", why)
    return policy


def _events(policy: Json) -> set[str]:
    return {event for event in (policy.get("event"), *(policy.get("events") or ())) if event}


def _stops_at_failure(spec: Json) -> bool:
    return any(
        policy.get("action") in _STOPPING and _events(policy) & {"PodFailed", "*"}
        for policy in spec.get("policies") or ()
    )


def _unkept(policy: Json) -> str:
    """Why a policy is not what Bireme does by itself; empty for one that is."""
    action, events = policy.get("action"), _events(policy)
    if policy.get("exitCode") is not None:
        return "exit codes are not told apart: every failure restarts the gang"
    if policy.get("timeout"):
        return f"{action} follows at once, without a timeout of {policy['timeout']}"
    if action == "CompleteJob" and events == {"TaskCompleted"}:
        return ""
    if action == "RestartJob" and events and events <= _RESTARTING:
        return ""
    if action in _STOPPING and "PodFailed" in events:
        return ""
    said = ", ".join(sorted(events)) or "an event"
    return (
        f"{action} after {said}: the gang is restarted as a whole when a replica fails or is lost"
    )


# --- PodGroups and Queues ------------------------------------------------------------------------
#
# ``deserved`` is what a queue may take back from others, and so is Bireme's ``guaranteed``;
# Volcano's ``guarantee`` besides keeps resources idle for it, which nothing does here. The
# hierarchy in annotations (``root/eng/prod`` with weights ``1/2/8``) becomes queues with parents.

_HIERARCHY: Final = "volcano.sh/hierarchy"
_WEIGHTS: Final = "volcano.sh/hierarchy-weights"
_MOST_WEIGHT: Final = 1000
_NO_QUEUE_COUNTERPART: Final = {
    "priority": "queues share by weight; the order of jobs is theirs (userPriority counts in it)",
    "affinity": "queues own no nodes; give the pods a nodeSelector",
    "extendClusters": "one cluster is scheduled",
    "dequeueStrategy": "a gang that fits starts before one that does not, where it delays nobody",
    "type": "has no meaning here",
}


def pod_group(document: Json, notes: Notes) -> list[Json]:
    """The PodGroup of the same name."""
    spec: Json = document.get("spec") or {}
    body: Json = {"minMember": max(1, spec.get("minMember") or 1)}
    for key in ("minTaskMember", "priorityClassName", "minResources", "queue"):
        if spec.get(key):
            body[key] = spec[key]
    for key in ("networkTopology", "subGroupPolicy"):
        if spec.get(key):
            notes.lost(f"spec.{key}", "the gang is placed as one, as close together as it fits")
    head = {"apiVersion": names.API_VERSION, "kind": "PodGroup"}
    return [{**head, "metadata": metadata(document), "spec": body}]


def queues(document: Json, known: Iterable[str], notes: Notes) -> list[Json]:
    """The queue, after those above it that only its annotations name and ``known`` lacks."""
    spec: Json = document.get("spec") or {}
    about = metadata(document)
    body: Json = {}
    above = _hierarchy(document, body, set(known), notes)
    if "weight" not in body and spec.get("weight"):
        body["weight"] = _weight(spec["weight"], notes)
    if spec.get("parent") and spec["parent"] != "root":
        body["parent"] = spec["parent"]
    if spec.get("capability"):
        body["limit"] = spec["capability"]
    _guaranteed(spec, body, notes)
    if spec.get("reclaimable") is False:
        notes.lost(
            "spec.reclaimable",
            "what a queue holds beyond its guaranteed can be taken back; raise guaranteed",
        )
    for key, instead in _NO_QUEUE_COUNTERPART.items():
        if spec.get(key):
            notes.lost(f"spec.{key}", instead)
    return [*above, _queue(about, body)]


def _queue(about: Json, body: Json) -> Json:
    return {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": about, "spec": body}


def _guaranteed(spec: Json, body: Json, notes: Notes) -> None:
    reserved = (spec.get("guarantee") or {}).get("resource")
    if spec.get("deserved"):
        body["guaranteed"] = spec["deserved"]
    if reserved:
        body.setdefault("guaranteed", reserved)
        notes.changed(
            "spec.guarantee",
            "is not kept idle: others may use it, and give it back when the queue asks",
        )


def _weight(weight: int, notes: Notes) -> int:
    if weight > _MOST_WEIGHT:
        notes.changed("spec.weight", f"{weight} is above the most, {_MOST_WEIGHT}")
    return min(weight, _MOST_WEIGHT)


def _hierarchy(document: Json, body: Json, known: set[str], notes: Notes) -> list[Json]:
    """Queues for the levels between the root and this one; sets its own parent and weight."""
    annotations: dict[str, Any] = (document.get("metadata") or {}).get("annotations") or {}
    levels = [part for part in annotations.get(_HIERARCHY, "").split("/") if part][1:]
    if not levels:
        return []
    weights = [int(part) for part in annotations.get(_WEIGHTS, "").split("/") if part.isdigit()][1:]
    weights += [1] * (len(levels) - len(weights))
    body["weight"] = _weight(weights[len(levels) - 1], notes)
    above: list[Json] = []
    for depth in range(1, len(levels)):
        name = "-".join(levels[:depth])
        queue: Json = {"weight": _weight(weights[depth - 1], notes)}
        if depth > 1:
            queue["parent"] = "-".join(levels[: depth - 1])
        if name not in known:
            above.append(_queue({"name": name}, queue))
        body["parent"] = name
    notes.changed(f"metadata.annotations[{_HIERARCHY}]", "parents and weights are fields here")
    return above
