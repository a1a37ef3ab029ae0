"""Roles and sizes of a Volcano Job's tasks.

Volcano's tasks have names, Bireme's have roles: what a task is to the training. A distributed
framework's plugin says which task is which; else the name does. Volcano starts a Job with any
``minAvailable`` of its pods, whatever its tasks' own minima say once it is below their sum
(pkg/scheduler/api/job_info.go); here the tasks that may start with fewer replicas say so.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bireme.kube.api.training_job import Role
from bireme.migration.errors import ConversionError
from bireme.migration.notes import Notes

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
