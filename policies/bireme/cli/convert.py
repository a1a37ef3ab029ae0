"""``bireme migrate convert``: Volcano's and Kueue's kinds as Bireme's.

Manifests go to standard output and remarks to standard error, so that the result can be piped to
``kubectl apply``; other kinds pass unchanged. Nothing is dropped silently: every field that has
another meaning here, or none, leaves a :class:`~bireme.cli.conversion.Note` that names the object,
the field and the remedy. The result is checked against Bireme's models.

Bireme needs no ``policies`` for restarts: its operator restarts the whole gang when a replica fails
or is lost, ``backoffLimit`` times.
"""

import argparse
import copy
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import pydantic
import yaml

from bireme.cli import convert_kueue, convert_queues, manifest_files
from bireme.cli.arguments import Json, naming
from bireme.cli.conversion import (
    ConversionError,
    Note,
    Notes,
    copy_fields,
    join_pod_group,
    manifest,
    metadata,
)
from bireme.kube import names
from bireme.kube.api.base import ApiModel
from bireme.kube.api.pod_group import PodGroup
from bireme.kube.api.queues import QueueResource
from bireme.kube.api.training_job import Role, TrainingJob
from bireme.tables import align_columns

ROLES: Final[tuple[Role, ...]] = get_args(Role)
_MODELS: Final[Mapping[str, type[ApiModel]]] = {
    "TrainingJob": TrainingJob,
    "PodGroup": PodGroup,
    "Queue": QueueResource,
}
_REFUSED: Final = {
    "CronJob": "use a CronJob of Kubernetes that creates a TrainingJob",
    "JobFlow": "use a workflow engine that creates TrainingJobs",
    "JobTemplate": "convert the Job it holds",
}


# --- roles and sizes of a Job's tasks -------------------------------------------------------------
#
# Volcano's tasks have names; Bireme's have roles in the training. A distributed framework's plugin
# gives the role of each task, or else the name does.

RENDEZVOUS: Final = {"pytorch": "torch", "tensorflow": "tensorflow"}
"""Volcano's plugins whose environment Bireme sets, and the rendezvous for each."""

_PLUGIN_ROLES: Final[Mapping[str, Mapping[str, Role]]] = {
    "pytorch": {"master": "master", "worker": "worker"},
    "tensorflow": {"ps": "ps", "worker": "worker", "chief": "chief", "evaluator": "evaluator"},
}
"""Roles by argument of each plugin; the argument is also the default name of the task."""

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
_LEADERS: Final = ("master", "chief")


def _roles(
    tasks: Sequence[Json],
    plugins: Mapping[str, Any],
    stated_roles: Mapping[str, Role],
    notes: Notes,
) -> dict[str, Role]:
    """Return each task's role: from ``stated_roles``, else by plugin, else by the task's name."""
    roles: dict[str, Role] = {}
    by_plugin = _by_plugin(plugins)
    for task in tasks:
        name = task["name"]
        role = stated_roles.get(name) or by_plugin.get(name) or _ROLES_BY_NAME.get(name, "worker")
        # Only a single replica can lead a TrainingJob.
        roles[name] = "worker" if role in _LEADERS and task["replicas"] != 1 else role
    if not RENDEZVOUS.keys() & plugins.keys():
        _assign_serving_roles(tasks, roles, stated_roles, notes)
    leaders = [name for name, role in roles.items() if role in _LEADERS]
    for name in leaders[1:]:  # nor can more than one task lead it
        roles[name] = "worker"
    if "worker" not in roles.values() and not leaders:
        raise ConversionError(
            f"{notes.subject}: its tasks are all {', '.join(sorted(set(roles.values())))}, so "
            f"none trains; name a task that trains: --role {next(iter(roles))}=worker"
        )
    return roles


def _by_plugin(plugins: Mapping[str, Any]) -> dict[str, Role]:
    """Return roles by task name, from plugin arguments such as ``--worker=NAME``."""
    roles: dict[str, Role] = {}
    for plugin, arguments in _PLUGIN_ROLES.items():
        if plugin in plugins:
            pairs = (word for word in plugins[plugin] or () if "=" in word)
            task_names = dict(word.lstrip("-").split("=", 1) for word in pairs)
            roles |= {task_names.get(part, part): role for part, role in arguments.items()}
    return roles


def _assign_serving_roles(
    tasks: Sequence[Json], roles: dict[str, Role], stated_roles: Mapping[str, Role], notes: Notes
) -> None:
    """Set role ps, in ``roles``, for workers, if other tasks end the Job."""
    ending = {task["name"] for task in tasks if any(map(_completes, task.get("policies") or ()))}
    workers = {name for name, role in roles.items() if role == "worker"}
    serving = workers - ending - stated_roles.keys()
    if not ending or not serving:
        return
    roles |= dict.fromkeys(ending - stated_roles.keys(), "worker") | dict.fromkeys(serving, "ps")
    notes.changed(
        "spec.tasks[].policies",
        f"the job ends with {', '.join(sorted(ending))}; {', '.join(sorted(serving))} became role"
        " ps, whose replicas serve until the others have ended",
    )


def _completes(policy: Json) -> bool:
    return policy.get("action") == "CompleteJob" and "TaskCompleted" in _events(policy)


def _minima(tasks: Sequence[Json], min_available: int | None, notes: Notes) -> dict[str, int]:
    """Return minReplicas by task name, for a gang that starts with ``min_available`` replicas."""
    total = sum(task["replicas"] for task in tasks)
    if (min_available or 0) > total:
        raise ConversionError(
            f"{notes.subject}: spec.minAvailable is {min_available}, its tasks have {total}"
            " replicas; lower it"
        )
    minima = {task["name"]: _min_available(task) for task in tasks}
    # Volcano starts a Job with any ``minAvailable`` pods where that is below the sum of its tasks'
    # minima (pkg/scheduler/api/job_info.go).
    spare = sum(minima.values()) - (min_available or sum(minima.values()))
    for task in sorted(tasks, key=lambda task: -task["replicas"]):
        reduction = max(0, min(spare, minima[task["name"]] - 1))
        minima[task["name"]] -= reduction
        spare -= reduction
    if spare > 0:
        notes.changed(
            "spec.minAvailable",
            f"a gang has at least one replica of each task, so it starts with {len(tasks)} of"
            f" them and not with {min_available}",
        )
    if any(minima[task["name"]] < task["replicas"] for task in tasks):
        listed = ", ".join(f"{name} {size}" for name, size in minima.items())
        notes.changed(
            "spec.minAvailable",
            f"starts with {sum(minima.values())} of {total} replicas if not all have room "
            f"({listed}), and keeps that size unless it is an elastic torch job",
        )
    return minima


def _min_available(task: Json) -> int:
    """Return ``minAvailable`` of a task: by default all its replicas, and at least one."""
    minimum: int | None = task.get("minAvailable")
    return int(task["replicas"]) if minimum is None else max(1, minimum)


# --- pod templates without Volcano's plugins ------------------------------------------------------
#
# Scripts written for Volcano read their index from ``VC_TASK_INDEX`` and the others' addresses from
# files under ``/etc/volcano``. Here the index is a label of every pod, and the addresses are known
# before the pods exist.

_INDEX: Final = re.compile(r"\bV[CK]_TASK_INDEX\b")
_HOSTS: Final = re.compile(r"/etc/volcano\b|\bVC_[A-Z0-9_]+_(HOSTS|NUM)\b")
_GROUP_KEYS: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_QUEUE_KEY: Final = "scheduling.volcano.sh/queue-name"


def _containers(spec: Json) -> Iterator[Json]:
    for kind in ("initContainers", "containers"):
        yield from spec.get(kind) or ()


def _reads(pattern: re.Pattern[str], spec: Json) -> bool:
    """Return whether a script in a container of the pod ``spec`` has a match of ``pattern``."""
    for container in _containers(spec):
        values = [variable.get("value") for variable in container.get("env") or ()]
        parts = (*(container.get("command") or ()), *(container.get("args") or ()), *values)
        if pattern.search("\n".join(str(part) for part in parts if part is not None)):
            return True
    return False


def _template(task: Json, notes: Notes) -> Json:
    """Return the pod template of a task without the fields that only Volcano reads."""
    template: Json = copy.deepcopy(task.get("template") or {})
    metadata = {
        key: value
        for key, value in (template.get("metadata") or {}).items()
        if key in ("labels", "annotations") and value
    }
    spec: Json = template.get("spec") or {}
    path = f"spec.tasks[{task['name']}].template.spec"
    spec.pop("schedulerName", None)
    if "priorityClassName" in spec:
        notes.changed(
            f"{path}.priorityClassName",
            f"{spec.pop('priorityClassName')!r} left out: all pods of a job have the job's class"
            " (spec.priorityClassName), and tasks are placed by their priority",
        )
    if _reads(_INDEX, spec):
        for container in _containers(spec):
            _set_index(container)
    return {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}


def _set_index(container: Json) -> None:
    """Add the variables of the task index, read from the pod's label."""
    key = {"fieldRef": {"fieldPath": f"metadata.labels['{names.INDEX_LABEL}']"}}
    variables = container.setdefault("env", [])
    defined_names = {variable.get("name") for variable in variables}
    for name in ("VC_TASK_INDEX", "VK_TASK_INDEX"):
        if name not in defined_names:
            # Inserted first: a variable may refer only to earlier ones.
            variables.insert(0, {"name": name, "valueFrom": copy.deepcopy(key)})


def _mount(spec: Json, volume: Json, path: str) -> None:
    """Add ``volume`` to a pod ``spec``, in every container at ``path``."""
    spec.setdefault("volumes", []).append(volume)
    for container in _containers(spec):
        mounts = container.setdefault("volumeMounts", [])
        mounts.append({"name": volume["name"], "mountPath": path})


def _join_pod_group(document: Json, notes: Notes) -> Json:
    """Return a workload of another kind whose pods join the PodGroup that an annotation names."""
    result = copy.deepcopy(document)  # the input stays unchanged
    is_pod = result.get("kind") == "Pod"
    pod: Any = result if is_pod else (result.get("spec") or {}).get("template")
    if not isinstance(pod, dict) or (pod.get("spec") or {}).get("schedulerName") != "volcano":
        return result
    path = "spec" if is_pod else "spec.template"
    metadata = pod.setdefault("metadata", {})
    annotations = metadata.get("annotations") or {}
    group = next((annotations.pop(key) for key in _GROUP_KEYS if key in annotations), None)
    if group is None:
        del pod["spec"]["schedulerName"]
        notes.changed(
            f"{path}.schedulerName",
            "left to the default scheduler: pods without a PodGroup are no gang. For one, create a"
            f" PodGroup and give them its label {names.POD_GROUP_LABEL}, the gate"
            f" {names.PLAN_GATE} and schedulerName {names.SCHEDULER_NAME}",
        )
    else:
        join_pod_group(pod, group)
        notes.changed(path, f"joins PodGroup {group} by its label and a scheduling gate")
    if _QUEUE_KEY in annotations:
        notes.changed(
            f"{path}.metadata.annotations[{_QUEUE_KEY}]",
            f"left out: the PodGroup names the queue (spec.queue: {annotations.pop(_QUEUE_KEY)})",
        )
    return result


_RETRIES: Final = 3
"""Volcano's default of ``maxRetry``, which its webhook fills in."""

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
    "minSuccess": "the job succeeds when all training replicas have succeeded",
    "networkTopology": "gangs are placed in the smallest topology domain that holds them, by the "
    "operator's topology levels; a gang that fits no single domain is spread",
}
_NO_TASK_COUNTERPART: Final = {
    "topologyPolicy": "Bireme ignores NUMA nodes; the kubelet's topology manager still applies",
    "partitionPolicy": "the gang is placed as one; create several jobs for separate parts",
    "maxRetry": "the gang is restarted as a whole, spec.runPolicy.backoffLimit times",
}


def _job(job: Json, stated_roles: Mapping[str, Role], notes: Notes) -> list[Json]:
    """Return the TrainingJob, after the objects that it needs; ``stated_roles`` is by task name."""
    spec: Json = job.get("spec") or {}
    tasks = _tasks(spec, notes)
    plugins: Mapping[str, Any] = spec.get("plugins") or {}
    role = _roles(tasks, plugins, stated_roles, notes)
    minima = _minima(tasks, spec.get("minAvailable") or None, notes)
    job_tasks = [_task(task, role[task["name"]], minima[task["name"]], notes) for task in tasks]
    _order(tasks, job_tasks, notes)
    companions = _volumes(job, spec, job_tasks, notes)
    rendezvous = next((RENDEZVOUS[name] for name in RENDEZVOUS if name in plugins), "none")
    if any(_reads(_HOSTS, task["template"]["spec"]) for task in job_tasks):
        companions.append(_host_files(job, job_tasks, notes))
        if rendezvous == "none":
            rendezvous = "tensorflow"
            notes.changed(
                "spec.plugins.svc",
                "rendezvous tensorflow, which gives every replica a name in DNS (and TF_CONFIG, "
                "which does no harm)",
            )
    for name in plugins:
        if name not in _CONVERTED_PLUGINS:
            instead = _INSTEAD_OF_PLUGINS.get(name, "is unknown; check what it adds to pods")
            notes.to_do(f"spec.plugins.{name}", instead)
    body: Json = {
        "queue": names.DEFAULT_QUEUE,
        **copy_fields(spec, "queue", "priorityClassName", estimatedDuration="runningEstimate"),
    }
    if rendezvous != "none":
        body["rendezvous"] = rendezvous
    policy = {**_run_policy(spec, tasks, notes), **_success_policy(spec, tasks, role, notes)}
    body |= {"runPolicy": policy, "tasks": job_tasks}
    notes.lost_of(spec, _NO_COUNTERPART)
    return [*companions, manifest("TrainingJob", metadata(job), body)]


def _tasks(spec: Json, notes: Notes) -> list[Json]:
    """Return the tasks with name and replicas, which Volcano's webhook fills in by default."""
    tasks = spec.get("tasks")
    if not tasks:
        raise ConversionError(f"{notes.subject}: spec.tasks is empty; a job needs at least one")
    filled = [
        {**task, "name": task.get("name") or f"default{index}", "replicas": task.get("replicas", 1)}
        for index, task in enumerate(tasks)
    ]
    task_names: set[str] = set()
    for task in filled:
        if task["name"] in task_names:
            raise ConversionError(
                f"{notes.subject}: two tasks are called {task['name']!r}; rename one"
            )
        task_names.add(task["name"])
    return filled


def _task(task: Json, role: Role, min_replicas: int, notes: Notes) -> Json:
    path = f"spec.tasks[{task['name']}]"
    result: Json = {"name": task["name"], "role": role, "replicas": task["replicas"]}
    if min_replicas < task["replicas"]:
        result["minReplicas"] = min_replicas
    for key, instead in _NO_TASK_COUNTERPART.items():
        if task.get(key) not in (None, "", "none"):
            notes.lost(f"{path}.{key}", instead)
    result["template"] = _template(task, notes)
    return result


def _order(tasks: Sequence[Json], job_tasks: Sequence[Json], notes: Notes) -> None:
    """Raise the priority of tasks in ``job_tasks`` that others depend on."""
    dependencies = {t["name"]: (t.get("dependsOn") or {}).get("name") or [] for t in tasks}
    if not any(dependencies.values()):
        return
    for task in job_tasks:
        task["priority"] = 100 - 10 * _depth(task["name"], dependencies)
    notes.to_do(
        "spec.tasks[].dependsOn",
        "all replicas start together; pods of tasks that others depend on are created first, by "
        "priority; let the others wait in their command or an init container",
    )


def _depth(
    name: str, dependencies: Mapping[str, Sequence[str]], visited: frozenset[str] = frozenset()
) -> int:
    """Return the length of the longest chain of dependencies of ``name``; a cycle ends it."""
    prerequisites = [task for task in dependencies.get(name, ()) if task not in visited]
    return max(
        (1 + _depth(task, dependencies, visited | {name}) for task in prerequisites), default=0
    )


def _volumes(job: Json, spec: Json, job_tasks: Sequence[Json], notes: Notes) -> list[Json]:
    """Mount the Job's volumes in every template; return the claims that Volcano would make."""
    claims: list[Json] = []
    for index, volume in enumerate(spec.get("volumes") or ()):
        name = f"volume-{index}"
        claim = volume.get("volumeClaimName")
        if not claim:
            claim = f"{job['metadata']['name']}-{name}"
            claims.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {**metadata(job), "name": claim},
                    "spec": volume.get("volumeClaim") or {},
                }
            )
            notes.changed(
                f"spec.volumes[{index}]",
                f"PersistentVolumeClaim {claim} is created here and outlives the job",
            )
        for task in job_tasks:
            mounted = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
            _mount(task["template"]["spec"], mounted, volume.get("mountPath") or "/")
    return claims


def _host_files(job: Json, job_tasks: Sequence[Json], notes: Notes) -> Json:
    """Return the ConfigMap of addresses that Volcano's plugin ``svc`` makes, and mount it."""
    about = metadata(job)
    namespace, config_map = about.get("namespace", "default"), f"{about['name']}-hosts"
    if "namespace" not in about:
        notes.changed("metadata.namespace", "the host names are written for namespace default")
    files: dict[str, str] = {}
    variables: list[Json] = []
    for task in job_tasks:
        name, word = task["name"], task["name"].upper().replace("-", "_")
        hosts = [
            f"{about['name']}-{name}-{index}.{about['name']}.{namespace}.svc"
            for index in range(task["replicas"])
        ]
        files[f"{name}.host"] = "\n".join(hosts) + "\n"
        variables.append({"name": f"VC_{word}_HOSTS", "value": ",".join(hosts)})
        variables.append({"name": f"VC_{word}_NUM", "value": str(len(hosts))})
    for task in job_tasks:
        spec = task["template"]["spec"]
        _mount(spec, {"name": "hosts", "configMap": {"name": config_map}}, "/etc/volcano")
        for container in _containers(spec):
            # Inserted first: the container's own variables may refer to them.
            container["env"] = [*copy.deepcopy(variables), *(container.get("env") or ())]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**about, "name": config_map},
        "data": files,
    }


def _run_policy(spec: Json, tasks: Sequence[Json], notes: Notes) -> Json:
    # A TrainingJob allows at most 100.
    policy: Json = {"backoffLimit": min(spec.get("maxRetry") or _RETRIES, 100)}
    if spec.get("ttlSecondsAfterFinished") is not None:
        policy["ttlSecondsAfterFinished"] = spec["ttlSecondsAfterFinished"]
    if any(
        stated.get("action") in _STOPPING and _events(stated) & {"PodFailed", "*"}
        for stated in spec.get("policies") or ()
    ):
        policy["backoffLimit"] = 0
        notes.changed(
            "spec.policies", "the job ends with the first failure (runPolicy.backoffLimit: 0)"
        )
    for path, owner in (("spec", spec), *((f"spec.tasks[{t['name']}]", t) for t in tasks)):
        for number, stated in enumerate(owner.get("policies") or ()):
            if difference := _policy_difference(stated):
                notes.lost(f"{path}.policies[{number}]", difference)
    return policy


def _success_policy(
    spec: Json, tasks: Sequence[Json], roles: Mapping[str, Role], notes: Notes
) -> Json:
    """Return ``successPolicy`` if, in Volcano, the end of the leader does not end the Job."""
    leader = next((task for task in tasks if roles[task["name"]] in _LEADERS), None)
    if leader is None:
        return {}
    if any(map(_completes, (*(spec.get("policies") or ()), *(leader.get("policies") or ())))):
        return {}
    notes.changed(
        "spec.policies",
        "the job ends when all training replicas end (runPolicy.successPolicy: AllReplicas); "
        f"without that field the leader {leader['name']} decides",
    )
    return {"successPolicy": "AllReplicas"}


def _events(policy: Json) -> set[str]:
    return {event for event in (policy.get("event"), *(policy.get("events") or ())) if event}


def _policy_difference(policy: Json) -> str:
    """Return how a policy differs from Bireme's own behaviour; empty if it does not."""
    action, events = policy.get("action"), _events(policy)
    if policy.get("exitCode") is not None:
        return "exit codes are not distinguished: every failure restarts the gang"
    if policy.get("timeout"):
        return f"{action} follows at once, without a timeout of {policy['timeout']}"
    if action == "CompleteJob" and events == {"TaskCompleted"}:
        return ""
    if action == "RestartJob" and events and events <= _RESTARTING:
        return ""
    if action in _STOPPING and "PodFailed" in events:
        return ""
    listed = ", ".join(sorted(events)) or "an event"
    return (
        f"{action} after {listed}: the gang is restarted as a whole when a replica fails or is lost"
    )


# --- any manifest ---------------------------------------------------------------------------------


def convert(
    documents: Sequence[Json], stated_roles: Mapping[str, Role]
) -> tuple[list[Json], tuple[Note, ...]]:
    """Return all documents in Bireme's form, in their order, and the notes about them.

    ``stated_roles``, by task name, take precedence over guesses.
    """
    manifests: list[Json] = []
    remarks: list[Note] = []
    queues = {_name(d) for d in documents if d["kind"] == "Queue"}
    kueue = convert_kueue.KueueObjects.of(documents)
    for document in documents:
        notes = Notes(f"{document['kind']} {_name(document)}")
        try:
            if convert_kueue.is_kueues(document):
                results = kueue.convert(document, notes)
            elif convert_kueue.is_queued(document):
                results = kueue.job(document, notes)
            else:
                results = _convert_one(document, stated_roles, queues, notes)
        # Input may have any form: a missing field shows only where it is used.
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConversionError(
                f"{notes.subject}: does not have the form of its API: {error!r}"
            ) from error
        for result in results:
            _check(result, notes)
        queues |= {_name(result) for result in results if result["kind"] == "Queue"}
        manifests += results
        remarks += notes.notes
    return manifests, tuple(remarks)


def _convert_one(
    document: Json, stated_roles: Mapping[str, Role], known_names: set[str], notes: Notes
) -> list[Json]:
    group, kind = str(document.get("apiVersion", "")).partition("/")[0], document["kind"]
    if not group.endswith("volcano.sh"):
        return [_join_pod_group(document, notes)]
    if kind == "Job":
        return _job(document, stated_roles, notes)
    if kind == "PodGroup":
        return convert_queues.pod_group(document, notes)
    if kind == "Queue":
        return convert_queues.queues(document, known_names, notes)
    notes.to_do("kind", f"left out: {_REFUSED.get(kind, 'Bireme has no such object')}")
    return []


def _name(document: Json) -> str:
    about = document.get("metadata")
    about = about if isinstance(about, dict) else {}
    name = about.get("name") or about.get("generateName") or "(without a name)"
    return f"{about['namespace']}/{name}" if about.get("namespace") else str(name)


def _check(result: Json, notes: Notes) -> None:
    # Other groups have kinds of these names too, and pass unchanged.
    model = _MODELS.get(result["kind"])
    if model is None or not str(result.get("apiVersion", "")).startswith("bireme.dev/"):
        return
    try:
        model.model_validate(result)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ConversionError(
            f"{notes.subject}: as a {result['kind']} its {path} would be {first['input']!r}:"
            f" {first['msg']}; change it before converting"
        ) from error


# --- the command ----------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("manifest", nargs="+", metavar="MANIFEST", help="YAML files; - for standard input")
    add(
        "--role",
        type=_role,
        action="append",
        default=[],
        metavar="TASK=ROLE",
        help=f"role of a task whose name does not show it: {', '.join(ROLES)}",
    )


def run(options: argparse.Namespace) -> int:
    documents = []
    for name in options.manifest:
        with naming("MANIFEST"):
            documents += manifest_files.read(name)
    manifests, notes = convert(documents, dict(options.role))
    text = yaml.safe_dump_all(manifests, sort_keys=False, allow_unicode=True, width=100)
    sys.stdout.write(text)
    if notes:
        rows = [[note.effect.value, note.subject, note.field, note.text] for note in notes]
        sys.stderr.write("\n".join(align_columns(rows, flush_left=4)) + "\n")
    return 0


def _role(text: str) -> tuple[str, Role]:
    task, _, role = text.partition("=")
    for valid_role in ROLES:
        if task and role == valid_role:
            return task, valid_role
    raise argparse.ArgumentTypeError(
        f"{text!r} is no TASK=ROLE with a role of {', '.join(ROLES)}, such as launcher=master"
    )
