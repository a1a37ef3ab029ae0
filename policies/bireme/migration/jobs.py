"""A Volcano Job to a TrainingJob.

What Volcano's controller does after events (``policies``) the operator does by itself: the gang
is restarted as a whole when a replica fails or is lost, ``backoffLimit`` times.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bireme.kube import names
from bireme.kube.api.training_job import Role
from bireme.migration import pods
from bireme.migration.errors import ConversionError
from bireme.migration.notes import Notes
from bireme.migration.tasks import RENDEZVOUS, Json, minima, roles

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
    for field, instead in _NO_COUNTERPART.items():
        if spec.get(field):
            notes.lost(f"spec.{field}", instead)
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
    for field, instead in _NO_TASK_COUNTERPART.items():
        if task.get(field) not in (None, "", "none"):
            notes.lost(f"{at}.{field}", instead)
    made["template"] = pods.template(task, notes)
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
    """How many tasks in a row ``name`` depends on; what is circular ends the row."""
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
            pods.mount(task["template"]["spec"], mounted, volume.get("mountPath") or "/")
    return claims


def _wants_hosts(made: Sequence[Json]) -> bool:
    return any(pods.reads_hosts(task["template"]["spec"]) for task in made)


def _host_files(job: Json, made: Sequence[Json], notes: Notes) -> Json:
    """The ConfigMap that Volcano's plugin ``svc`` would have made."""
    about = metadata(job)
    name = f"{about['name']}-hosts"
    addresses = pods.hosts(
        about["name"], about.get("namespace", "default"), {t["name"]: t["replicas"] for t in made}
    )
    pods.add_hosts([task["template"]["spec"] for task in made], addresses, name)
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
