"""The gangs and pods that live in a random world, each told by hand and by manifests at once."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st

from bireme.core.gangs import Gang, Task
from bireme.core.reasons import Reason
from bireme.kube import allocations, names, plans, quantities, training_jobs, wire
from bireme.kube.allocations import AssumedPlan
from bireme.kube.plans import Member, PlanFacts
from bireme.kube.training_jobs import JobFacts
from tests.support.objects import encoding, facts, strategies
from tests.support.objects.facts import served, through_the_wire
from tests.support.objects.foreign_inhabitants import foreign_group
from tests.support.objects.held import Held
from tests.support.objects.worlds import CLASSES, NOW, World, job_manifest
from tests.support.scenario.manifests import Manifest, pod_group

Inhabitant = Callable[[st.DrawFn, World, int], None]
STYLES = st.integers(0, encoding.STYLES - 1)
MEMBER_STATES = ("missing", "pending", "bound", "elsewhere", "Succeeded", "Failed")
CLASS_NAMES = (None, None, "low", "low", "high", "high", "missing")
FATES = ("", "", "", "", "suspended", "leaving", "Failed", "again", "gone")
"""Why a job gives its places up; mostly it does not."""
PLANNED_NODES = st.sampled_from(("n0", "n1", "n2", "gone"))


def job_facts(manifest: Manifest) -> JobFacts:
    """A TrainingJob manifest as the operator reads it; for making its pods only."""
    return training_jobs.from_manifest(through_the_wire(manifest, wire.CustomObject))


# --- TrainingJobs -----------------------------------------------------------------------------


def waiting_job(draw: st.DrawFn, world: World, index: int) -> None:
    """A job without a plan: fresh, interrupted, with pods left over or an empty PodGroup."""
    gang = draw(strategies.gangs(f"job{index}", world.settings.topology_levels))
    phase = draw(st.sampled_from(("", "Pending", "Restarting")))
    class_name = draw(st.sampled_from(CLASS_NAMES))
    status = {"phase": phase} if phase else {}
    waited = draw(st.sampled_from((0, 30)))
    manifest = job_manifest(gang, draw(STYLES), class_name, status, waited)
    world.add_object("job", manifest)
    if draw(st.booleans()):
        world.add_object("group", own_group(gang, None))
    has_leftovers = draw(st.sampled_from((False, False, False, True)))
    left = _leftovers(draw, world, manifest) if has_leftovers else 0
    world.waiting.append(
        replace(
            gang,
            priority=CLASSES.get(class_name or "", 0),
            interrupted=phase == "Restarting",
            fault=_fault(class_name, left),
        )
    )


def _fault(class_name: str | None, left: int) -> tuple[Reason, str] | None:
    if class_name == "missing":
        return (
            Reason.PRIORITY_CLASS_NOT_FOUND,
            "PriorityClass 'missing' does not exist; create it or change spec.priorityClassName",
        )
    return (Reason.STOPPING, f"{left} pods of the last start are still ending") if left else None


def _leftovers(draw: st.DrawFn, world: World, manifest: Manifest) -> int:
    job = job_facts(manifest)
    plan = facts.a_plan(job, ("n0", "n1"))
    left = plan.members[: draw(st.integers(1, 2))]
    for member in left:
        phase = draw(st.sampled_from(("Running", "Succeeded")))
        stamp = quantities.format_timestamp(NOW)
        pod = facts.pod_manifest(job, plan, member, phase, deletionTimestamp=stamp)
        world.add_object("member", pod)
        if phase == "Running":
            world.add_usage(member.node, plan.requests[member.task])
    return len(left)


def own_group(gang: Gang, plan: PlanFacts | None) -> Manifest:
    kind = {"apiVersion": names.API_VERSION, "kind": "TrainingJob"}
    owner = {**kind, "name": gang.name, "uid": gang.uid}
    group = served(
        pod_group(gang.name, 1, queue=gang.queue),
        f"{gang.name}-group",
        namespace=gang.namespace,
        ownerReferences=[owner],
    )
    return {**group, "status": {} if plan is None else {"plan": plans.to_manifest(plan)}}


def planned_job(draw: st.DrawFn, world: World, index: int) -> None:
    """A job that holds places: promised, planned or running, its pods in any state."""
    gang = draw(strategies.gangs(f"job{index}", world.settings.topology_levels, most=3))
    fate, class_name = draw(st.sampled_from(FATES)), draw(st.sampled_from(CLASS_NAMES))
    waited = draw(st.sampled_from((0, 30)))
    manifest = job_manifest(gang, draw(STYLES), class_name, _status_of(draw, fate), waited)
    job = job_facts(manifest)
    planned = NOW - draw(st.sampled_from((0, 10, 10_000)))
    where = draw(st.lists(PLANNED_NODES, min_size=1, max_size=4))
    plan = facts.a_plan(job, where, attempt=0, planned=planned)
    if fate != "gone":
        world.add_object("job", _struck(manifest, fate))
    is_written = _publish(draw, world, gang, plan)
    world.add_demand(gang.queue, ())
    held = Held(_holder(gang, class_name, fate), planned, is_leaving=bool(fate))
    if is_written or fate != "gone":
        world.held.append(held)
    states = draw(st.sampled_from((MEMBER_STATES, ("bound", "bound", "elsewhere"))))
    drawn = [(m, own_member(draw, world, job, plan, m, states, held)) for m in plan.members]
    is_steady = job.phase == "Running" and {state for _, state in drawn} <= {"bound", "elsewhere"}
    if not is_steady or not held.nodes <= {node.name for node in world.nodes}:
        held.gang = replace(held.gang, is_elastic=False)
    if draw(st.booleans()):
        _impostor(world, job, plan, [m for m, state in drawn if state == "missing"])


def _status_of(draw: st.DrawFn, fate: str) -> dict[str, Any]:
    if fate == "Failed":
        return {"phase": "Failed"}
    if fate == "again":
        return {"phase": "Restarting", "attempt": 1}
    return {"phase": draw(st.sampled_from(("Starting", "Running")))}


def _struck(manifest: Manifest, fate: str) -> Manifest:
    """``manifest`` of a job that its user stops, if that is its fate."""
    if fate == "suspended":
        manifest["spec"].setdefault("runPolicy", {})["suspend"] = True
    if fate == "leaving":
        manifest["metadata"]["deletionTimestamp"] = quantities.format_timestamp(NOW)
    return manifest


def _publish(draw: st.DrawFn, world: World, gang: Gang, plan: PlanFacts) -> bool:
    """Promise or write ``plan``, or both; whether there is a PodGroup then."""
    if draw(st.booleans()):
        world.add_object("group", own_group(gang, plan))
        return True
    world.reserved[gang.key] = AssumedPlan(gang.queue, gang.uid, plan)
    is_written = draw(st.booleans())
    if is_written:
        world.add_object("group", own_group(gang, draw(st.sampled_from((None, plan)))))
    return is_written


def _holder(gang: Gang, class_name: str | None, fate: str) -> Gang:
    """The gang as it would wait now, or what its plan alone tells once the job is gone."""
    if fate != "gone":
        priority = CLASSES.get(class_name or "", 0)
        is_running = fate != "Failed"
        is_again = fate == "again"
        return replace(gang, priority=priority, interrupted=is_again, is_preemptible=is_running)
    tasks = tuple(
        Task(t.name, t.replicas, t.request, t.role, priority=t.role.default_priority)
        for t in gang.tasks
    )
    return Gang(
        gang.uid,
        gang.name,
        gang.namespace,
        gang.queue,
        tasks,
        arrived=NOW,
        user=gang.user,
        is_preemptible=False,
    )


def own_member(
    draw: st.DrawFn,
    world: World,
    job: JobFacts,
    plan: PlanFacts,
    member: Member,
    states: Sequence[str],
    held: Held,
) -> str:
    """One replica in a state that is drawn from ``states`` and returned."""
    request = plan.requests[member.task]
    state = draw(st.sampled_from(states))
    node = {"missing": member.node, "pending": "", "elsewhere": "n3"}.get(state, member.node)
    if state != "missing":
        phase = state if state in ("Succeeded", "Failed") else "Pending"
        world.add_object("member", facts.pod_manifest(job, plan, member, phase, node=node))
    if member == plan.members[0]:
        held.anchor = node or member.node
    if state != "Succeeded":  # what failed keeps its room until the gang starts again, or ends
        world.add_usage(node or member.node, request)
        world.add_demand(job.gang(0).queue, request)
        held.add_place(member.task, node or member.node)
    return state


def _impostor(world: World, job: JobFacts, plan: PlanFacts, missing: Sequence[Member]) -> None:
    """A bound pod of a stranger with the gang's labels, under a replica's name if one is free."""
    pod = facts.pod_manifest(job, plan, plan.members[0], node="n0", uid="impostor")
    owners = [{"kind": "TrainingJob", "name": job.key[1], "uid": "somebody"}]
    name = f"impostor-of-{job.key[1]}"
    if missing:
        name = allocations.pod_name(job.key[1], missing[0].task, missing[0].index)
    pod["metadata"] |= {"name": name, "ownerReferences": owners}
    world.add_object("member", pod)
    world.add_usage("n0", plan.requests[plan.members[0].task])


def idle_job(draw: st.DrawFn, world: World, index: int) -> None:
    """A job that wants nothing: finished, suspended or going away."""
    gang = draw(strategies.gangs(f"job{index}", world.settings.topology_levels))
    why = draw(st.sampled_from(("Succeeded", "Failed", "suspended", "leaving")))
    status = {"phase": why} if why in training_jobs.FINISHED else {}
    manifest = job_manifest(gang, draw(STYLES), None, status)
    if why == "suspended":
        manifest["spec"].setdefault("runPolicy", {})["suspend"] = True
    if why == "leaving":
        manifest["metadata"]["deletionTimestamp"] = quantities.format_timestamp(NOW)
    world.add_object("job", manifest)


# --- strangers --------------------------------------------------------------------------------


def stranger(draw: st.DrawFn, world: World, index: int) -> None:
    """A pod that is nobody's member, bound or not, perhaps ended."""
    request = draw(strategies.requests())
    spec = encoding.pod_spec(request, draw(strategies.constraints()), draw(STYLES))
    node = draw(st.sampled_from(("", "n0", "n1", "gone")))
    phase = draw(st.sampled_from(("Running", "Failed")))
    if node:
        spec["nodeName"] = node
    pod = served({"metadata": {"name": f"stranger{index}"}, "spec": spec}, f"s{index}")
    world.add_object("other_pod", {**pod, "status": {"phase": phase}})
    if phase == "Running":
        world.add_usage(node, request)


KINDS: Final[tuple[Inhabitant, ...]] = (
    waiting_job,
    waiting_job,
    waiting_job,
    planned_job,
    foreign_group,
    stranger,
    idle_job,
)
