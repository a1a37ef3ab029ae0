"""What is wrong with a manifest before it is sent, and what its author may not have meant.

Errors are what the API server or the operator would refuse. Hints are allowed and seldom meant:
a template that chooses its node, a job that could go ahead of others if it said how long it runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pydantic

from bireme.kube import names
from bireme.kube.api.model import Model
from bireme.kube.api.pod_group import PodGroup
from bireme.kube.api.training_job import TrainingJob
from bireme.kube.conditions import cleaned

Json = dict[str, Any]

MODELS: Final[dict[str, type[Model]]] = {"TrainingJob": TrainingJob, "PodGroup": PodGroup}
_OVERRULED: Final = {
    "nodeName": "the operator chooses the node",
    "priorityClassName": "all pods have the job's class (spec.priorityClassName)",
    "schedulingGates": "pods are created when they may start",
}


@dataclass(slots=True)
class Findings:
    """What was found about one manifest, each with its field."""

    errors: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)


def lint(manifest: Json) -> Findings:
    """What the manifest alone tells."""
    found = Findings()
    if stranger := _no_kind_of_ours(manifest):
        found.errors.append(stranger)
        return found
    try:
        MODELS[manifest["kind"]].model_validate(manifest)
    except pydantic.ValidationError as error:
        found.errors += [_told(problem) for problem in error.errors()]
        return found
    if manifest["kind"] == "TrainingJob":
        found.hints += _hints(manifest.get("spec") or {})
    return found


def lint_queue(manifest: Json, queues: list[Json]) -> Iterator[str]:
    """What is wrong between the gang and its queue."""
    spec = manifest.get("spec") or {}
    name = spec.get("queue") or names.DEFAULT_QUEUE
    queue = next((q for q in queues if q["metadata"]["name"] == name), None)
    if queue is None:
        known = ", ".join(sorted(q["metadata"]["name"] for q in queues)[:5]) or "none exist"
        yield f"spec.queue: there is no queue {name!r}; name one of: {known}"
    elif (queue.get("spec") or {}).get("state") == "Closed":
        yield f"spec.queue: queue {name!r} is closed and admits nothing; name another one"


def _no_kind_of_ours(manifest: Json) -> str:
    kind, version = manifest["kind"], manifest.get("apiVersion", "")
    if kind not in MODELS or not str(version).startswith(f"{names.GROUP}/"):
        known = " and ".join(MODELS)
        return f"kind: {cleaned(f'{version} {kind}')} is none of {known}; use kubectl apply for it"
    about = manifest.get("metadata") or {}
    if not about.get("name") and not about.get("generateName"):
        return "metadata.name: is missing; give the job a name"
    return ""


def _told(problem: Any) -> str:
    path = ".".join(str(part) for part in problem["loc"]) or "the manifest"
    given = "" if problem["type"] == "missing" else f", not {cleaned(ascii(problem['input']))[:80]}"
    said = problem["msg"].removeprefix("Value error, ")
    return f"{path}: {said[:1].lower()}{said[1:]}{given}"


def _hints(spec: Json) -> Iterator[str]:
    if not spec.get("estimatedDuration"):
        yield (
            "spec.estimatedDuration: unknown, so the job starts ahead of a larger one that waits"
            " only once runs like it are known"
        )
    for task in spec.get("tasks") or ():
        at = f"spec.tasks[{task['name']}].template.spec"
        pod = task["template"]["spec"]
        for name, instead in _OVERRULED.items():
            if pod.get(name):
                yield f"{at}.{name}: has no effect: {instead}"
        if pod.get("schedulerName") not in (None, names.SCHEDULER_NAME):
            yield f"{at}.schedulerName: has no effect: pods are placed by {names.SCHEDULER_NAME}"
        if pod.get("restartPolicy") == "Always":
            yield f"{at}.restartPolicy: Always never ends; the job would not either"
        for container in pod.get("containers") or ():
            if not _asks(container):
                yield (
                    f"{at}.containers[{container['name']}].resources: asks for nothing, so any"
                    " node looks large enough"
                )


def _asks(container: Json) -> bool:
    resources = container.get("resources") or {}
    return bool(resources.get("requests") or resources.get("limits"))
