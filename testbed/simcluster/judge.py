"""Faults of a simulated run: its history, its end, and the programs themselves.

:mod:`testbed.history` judges every revision; here is whether everything that can run has run
in the end, whether anything is left over, and whether a program met what it did not expect.
"""

from collections.abc import Iterator
from typing import Final

from bireme.kube.api.plan import expand
from bireme.kube.client import NotLeader
from bireme_operator.lifecycle import EVICTING_SECONDS
from testbed.fakeapi.store import Key, Object
from testbed.history.observed import ObservedCluster, planned_nodes
from testbed.history.observer import Violation, check, miscounted, partial, restless
from testbed.model.rules import most_evictions
from testbed.simcluster import objects, volumes
from testbed.simcluster.autoscaler import MAX_NODES, is_grown
from testbed.simcluster.cluster import SCHEDULING, SimulatedCluster
from testbed.simcluster.objects import BUDGETS, GROUPS, JOBS, PODS, POLICIES, SCALERS
from testbed.simcluster.refusals import held_in_vain
from testbed.simcluster.tenants import HOPELESS, UNPULLABLE
from testbed.simcluster.world import World

GRACE_SECONDS = 60.0
"""Longest time a gang may be halfway, as is promised."""
CALM_SECONDS = 900.0
"""Within this time after the last fault, everything that can run has run and nothing is left."""
_UNKIND_CALM_SECONDS = 1800.0
"""The same where jobs run for minutes, or starts have failed: pauses after them double."""

REST_SECONDS = 30.0
"""Within this time after the last fault every gang is where it would be without."""

PROMISES: Final = {
    "over-eviction-budget": "no job is stopped for others more often than its budget",
    "lost-though-ended": "no replica that is recorded as ended counts as lost",
    "lost-though-ready": "no node counts as lost whose kubelet works",
    "failed-unjustly": "no job fails for what nodes or others did to its pods",
    "claim-twice": "no two plans have a claim that one pod may use",
    "attached-too-many": "no plan has more volumes on a node than it attaches",
    "pool-above-max": "no node pool asks for more than its max",
    "pool-below-needed": "no node pool gives up nodes that gangs are on",
    "late-to-rest": "after the last fault no gang is halfway for long",
    "job-stuck": "in the end every job that can run has ended",
    "hopeless-silent": "a job that never fits is told why",
    "places-kept": "a job that cannot start gives its places back",
    "plan-left-over": "in the end nothing has a plan",
    "held-in-vain": "a gang that the scheduler passes over alone pauses before it takes places",
    "policy-silent": "in the end every policy and scaler is told about its spec",
    "pod-left-over": "in the end no pod of a gang runs or waits",
    "leak": "an idle leader holds nothing",
    "died": "no process ends by itself",
    "error": "no process logs an error",
    "unhandled": "no exception is nobody's",
}
"""What is judged here, beside the invariants of the history."""

_BY_EVICTION: Final = ("Preempted", "NodeMaintenance", "FasterGpus")
"""Reasons of stops that ask budgets."""
_SEEN_BY_ALL_SECONDS = 60.0
"""What has been so for this time every operator has seen, whatever became of its watches."""
_ROUNDED_SECONDS = 0.01
"""Records are of a moment that is rounded."""
CACHE_SECONDS = 20.0
"""Longest time in which a scheduler does not know what another one has bound."""


def calm_seconds(world: World) -> float:
    return CALM_SECONDS if world == World() else _UNKIND_CALM_SECONDS


def unfinished(cluster: SimulatedCluster) -> list[str]:
    jobs = cluster.store.collection(JOBS).objects.items()
    found = [
        f"job-stuck: {key[1]}: {_said(job)}"
        for key, job in jobs
        if objects.phase(job) not in objects.ENDED and key[1] not in (HOPELESS, UNPULLABLE)
    ]
    found += [
        f"hopeless-silent: {key[1]}: {_said(job)}"
        for key, job in jobs
        if key[1] == HOPELESS and not (job.get("status") or {}).get("reason")
    ]
    found += [
        f"places-kept: {key[1]} did not give them back: {_said(job)}"
        for key, job in jobs
        if key[1] == UNPULLABLE and objects.phase(job) not in objects.ENDED
        if not (job.get("status") or {}).get("startFailures")
    ]
    for resource in (JOBS, GROUPS):
        for key, owner in cluster.store.collection(resource).objects.items():
            if "plan" in (owner.get("status") or {}) and key[1] != UNPULLABLE:
                found.append(f"plan-left-over: {key[1]}: phase {objects.phase(owner)}")
    for resource in (POLICIES, SCALERS):
        for key, each in cluster.store.collection(resource).objects.items():
            told = (each.get("status") or {}).get("observedGeneration")
            if told != each["metadata"]["generation"]:
                found.append(f"policy-silent: {each['kind']} {key[1]} says nothing of its spec")
    for key, pod in cluster.store.collection(PODS).objects.items():
        is_over = objects.phase(pod) in objects.ENDED
        if not is_over and objects.label(pod, "pod-group") not in ("", UNPULLABLE):
            found.append(f"pod-left-over: {key[1]}: {objects.phase(pod)} on {objects.node_of(pod)}")
    return found


def _said(job: Object) -> str:
    status = job.get("status") or {}
    words = (status.get(name) for name in ("phase", "reason", "message"))
    return ", ".join(str(word) for word in words)


def violations(cluster: SimulatedCluster) -> list[str]:
    """Return all violations, in the order of importance."""
    found = check(
        cluster.records,
        grace_seconds=GRACE_SECONDS,
        removed=cluster.removed,
        not_counted=cluster.standstills.seconds,
        clocks_agree=_clocks_agree(cluster),
    )
    return [
        *(str(one) for one in found if not _is_excused(cluster, one)),
        *_over_budget(cluster),
        *_failed_unjustly(cluster),
        *held_in_vain(cluster.records, cluster.silences.past),
        *_lost_though_ended(cluster),
        *_lost_though_ready(cluster),
        *_claimed_twice(cluster),
        *_pool(cluster),
        *_late_to_rest(cluster),
        *unfinished(cluster),
        *wrong_at_the_end(cluster),
        *held_in_memory(cluster),
        *_troubles(cluster),
    ]


def _clocks_agree(cluster: SimulatedCluster) -> bool:
    """Return whether all operators had the same time, to the second that statuses keep."""
    ahead = [clock.ahead_seconds for operator in cluster.operators for clock in operator.clocks]
    return max(ahead) - min(ahead) < 1.0


def _is_excused(cluster: SimulatedCluster, found: Violation) -> bool:
    """Return whether others brought it about: users, who may delete anything, or schedulers."""
    namespace, _, name = found.subject.partition("/")
    gang = (namespace, name)
    if found.invariant == "replica-twice":
        return gang in cluster.disturbed
    if found.invariant == "off-plan":
        if (namespace, found.message.partition(" ")[0]) in cluster.endings.orphans:
            return found.message.endswith(("without a plan", "its plan says None"))
        is_without = found.message.endswith("without a plan")
        return is_without and gang in cluster.disturbed | cluster.removed
    if found.invariant == "gang-partial":
        return _is_kept_by_budget(cluster, gang, found.seconds)
    if found.invariant == "node-overcommitted":
        # Two schedulers choose at one time; the kubelet rejects the pod that comes second.
        node, longest = found.subject.removeprefix("node "), CACHE_SECONDS
        return any(
            at == node and -_ROUNDED_SECONDS <= found.seconds - bound <= longest
            for bound, at in cluster.rivals.bound
        )
    return False


def _is_kept_by_budget(cluster: SimulatedCluster, gang: Key, seconds: float) -> bool:
    """Return whether its users' budget kept pods of a stopped gang, for as long as it may.

    A budget can allow fewer evictions than it did when they were begun. What is left after that
    time is deleted.
    """
    if gang not in cluster.store.collection(BUDGETS).objects:
        return False
    own = [record for record in cluster.records if record.key == gang]
    jobs = [record for record in own if record.kind == "TrainingJob"]
    at_that_time = [record for record in jobs if record.seconds <= seconds]
    # However long that lasts is the matter of half-stopped, which excuses nothing.
    was_stopped = (
        bool(at_that_time) and at_that_time[-1].manifest["status"]["reason"] in _BY_EVICTION
    )
    # The pods ended before their last seconds on the nodes.
    end = seconds + EVICTING_SECONDS + GRACE_SECONDS
    return was_stopped and any(
        seconds < record.seconds <= end and "plan" not in record.manifest.get("status", {})
        for record in jobs
    )


def _over_budget(cluster: SimulatedCluster) -> Iterator[str]:
    for record in cluster.records:
        if record.kind == "TrainingJob":
            status = record.manifest.get("status") or {}
            # What gives back places that it was lent is no shield against later stops.
            stopped = int(status.get("preemptions") or 0) - int(status.get("yields") or 0)
            ran = float(status.get("runSeconds") or 0)
            if stopped > most_evictions(SCHEDULING, ran):
                yield f"over-eviction-budget: {record.key[1]} was preempted {stopped} times"
                return


def _lost_though_ended(cluster: SimulatedCluster) -> Iterator[str]:
    """No gang starts again for a replica that a status write had noticed to have ended well."""
    recorded: dict[Key, set[str]] = {}
    for record in cluster.records:
        if record.kind != "TrainingJob":
            continue
        status = record.manifest.get("status") or {}
        message = str(status.get("message") or "")
        if status.get("reason") == "PodLost":
            for replica in recorded.get(record.key, ()):
                if message.startswith(replica):
                    yield f"lost-though-ended: {record.key[1]}: {message} ({record.seconds:.2f} s)"
                    return
        parts = (status.get("plan") or {}).get("endedReplicas") or ()
        recorded[record.key] = {
            f"replica {index} of {part['task']} "
            for part in parts
            for index in expand(part["indices"])
        }


def _lost_though_ready(cluster: SimulatedCluster) -> Iterator[str]:
    """No gang starts again for a silent node that has been ready for long, as all could see."""
    ready_since: dict[str, float] = {}
    for record in cluster.records:
        if record.kind == "Node" and record.change != "DELETED":
            if objects.is_ready(record.manifest):
                ready_since.setdefault(record.key[1], record.seconds)
            else:
                ready_since.pop(record.key[1], None)
        status = record.manifest.get("status") or {}
        if record.kind != "TrainingJob" or status.get("reason") != "NodeLost":
            continue
        message = str(status.get("message") or "")
        node = message.partition(" on node ")[2].partition(":")[0]
        seconds = record.seconds - ready_since.get(node, record.seconds)
        if "has not been ready" in message and seconds > _SEEN_BY_ALL_SECONDS:
            yield f"lost-though-ready: {record.key[1]}: {message} ({record.seconds:.2f} s)"
            return


def _failed_unjustly(cluster: SimulatedCluster) -> Iterator[str]:
    """No job fails for what nodes and others did to its pods, whatever reason it gives."""
    own: dict[str, set[str]] = {}
    for record in cluster.records:
        if record.kind == "Pod" and _failed_itself(record.manifest):
            owners = record.manifest["metadata"].get("ownerReferences") or ({"uid": ""},)
            own.setdefault(owners[0]["uid"], set()).add(objects.label(record.manifest, "plan"))
        if record.kind == "TrainingJob":
            status, uid = record.manifest.get("status") or {}, objects.uid(record.manifest)
            limit = int(record.manifest["spec"].get("runPolicy", {}).get("backoffLimit", 3))
            failures = len(own.get(uid, ()))
            reason = status.get("reason")
            is_own = reason == "BackoffLimitExceeded" and failures > limit
            if status.get("phase") == "Failed" and not (is_own or reason == "DeadlineExceeded"):
                words = f"{reason} after {failures} failures of its own: {status.get('message')}"
                yield f"failed-unjustly: {record.key[1]} {words} ({record.seconds:.2f} s)"
                return


def _failed_itself(pod: Object) -> bool:
    """Return whether a container of a pod ended badly that nobody had ended."""
    status = pod.get("status") or {}
    if objects.phase(pod) != "Failed" or objects.is_leaving(pod):
        return False
    if any(each["type"] == "DisruptionTarget" for each in status.get("conditions", ())):
        return False
    ended = (each["state"].get("terminated") for each in status.get("containerStatuses", ()))
    return any(each and each["exitCode"] for each in ended)


def _claimed_twice(cluster: SimulatedCluster) -> Iterator[str]:
    """No two plans have one claim for one pod, nor attach more to a node than it takes."""
    if not cluster.world.jobs_have_volumes:
        return
    world = ObservedCluster()
    alone = volumes.for_one_pod(cluster.store)
    for record in cluster.records:
        world.apply(record)
        if record.kind != "TrainingJob" or world.plan(record.key) == _plan_of(world.before):
            continue
        users: dict[str, set[str]] = {}
        there: dict[str, set[str]] = {}
        for gang in world.objects["TrainingJob"]:
            for name, node in _planned_claims(world, gang):
                users.setdefault(name, set()).add(gang[1])
                there.setdefault(node, set()).add(name)
        for name in alone:
            if len(users.get(name, ())) > 1:
                which = ", ".join(sorted(users[name]))
                yield f"claim-twice: {name} is in the plans of {which} ({record.seconds:.2f} s)"
                return
        for node, wanted in there.items():
            if words := volumes.too_many(cluster.store, node, wanted):
                yield f"attached-too-many: {words} ({record.seconds:.2f} s)"
                return


def _plan_of(job: Object | None) -> Object | None:
    plan: Object | None = ((job or {}).get("status") or {}).get("plan")
    return plan


def _planned_claims(world: ObservedCluster, gang: Key) -> Iterator[tuple[str, str]]:
    """Yield claims and nodes of the pinned members of a gang that have not ended."""
    job, plan = world.job(gang), world.plan(gang)
    if job is None or plan is None or plan["mode"] != "Pinned":
        return
    tasks = job["spec"]["tasks"]
    named = {task["name"]: volumes.names(task["template"]["spec"]) for task in tasks}
    number = f"{plan['epoch']}.{plan['attempt']}"
    pods = [pod for pod in world.members(gang) if pod.plan == number]
    ended = {pod.replica for pod in pods if pod.phase in objects.ENDED}
    # Of an attempt that is being stopped no pod is made any more: those that are gone left room.
    is_stopping = job["status"].get("attempt", 0) > plan["attempt"]
    there = {pod.replica for pod in pods}
    for member, node in planned_nodes(plan).items():
        if member not in ended and (member in there or not is_stopping):
            yield from ((name, node) for name in named[member[0]])


def _pool(cluster: SimulatedCluster) -> Iterator[str]:
    """A node pool never asks for more than its max, nor for fewer nodes than gangs are on."""
    world, before = ObservedCluster(), 0
    for record in cluster.records:
        world.apply(record)
        if record.kind != "NodePool":
            continue
        replicas = int(record.manifest["spec"]["replicas"])
        nodes = {key[1] for key, node in world.objects.get("Node", {}).items() if is_grown(node)}
        used = {pod.node for pod in world.pods.values() if pod.holds_node and pod.gang[1]} & nodes
        if replicas > MAX_NODES:
            yield f"pool-above-max: {replicas} nodes ({record.seconds:.2f} s)"
        # Nodes may be taken into use after a shrink: only the shrink itself can be wrong.
        if len(used) > replicas < before:
            yield f"pool-below-needed: {replicas} nodes, {sorted(used)} in use ({record.seconds} s)"
        before = replicas


def _late_to_rest(cluster: SimulatedCluster) -> Iterator[str]:
    """After the last fault no gang is halfway for longer than is promised.

    Halfway is a gang that has not ended, does not run whole, and does not wait, hold nothing and
    say why. In unkind worlds kubelets and images take longer than that by themselves.
    """
    if cluster.world != World():
        return
    world, since = ObservedCluster(), dict[Key, float]()
    looked = cluster.calm_seconds
    for record in cluster.records:
        # Before it is changed: it may have been at rest from the last record until now.
        if record.seconds >= looked:
            looked = record.seconds + 1.0  # each look costs as much as the cluster is large
            found = {gang: what for _, gang, what in restless(world) if not isinstance(gang, str)}
            since = {gang: since.get(gang, record.seconds) for gang in found}
            for gang, began in since.items():
                if record.seconds - began > REST_SECONDS:
                    yield f"late-to-rest: {gang[1]} since {began:.0f} s: {found[gang]}"
                    return
        world.apply(record)


def wrong_at_the_end(cluster: SimulatedCluster) -> Iterator[str]:
    world = ObservedCluster()
    for record in cluster.records:
        world.apply(record)
    for gang in world.gangs:
        if gang[1] == UNPULLABLE:
            continue  # it may be about to start once more
        if wrong := partial(world, gang):
            yield f"gang-partial: {gang[1]}: {wrong} at the end"
    for invariant, subject, message in miscounted(world):
        yield f"{invariant}: {subject}: {message} at the end"


def held_in_memory(cluster: SimulatedCluster) -> Iterator[str]:
    """Yield what an idle leader should not hold on to."""
    for operator in cluster.operators:
        if operator.term is None:
            continue
        term = operator.term
        held = {
            "busy gangs": term.work.busy,
            "reports under way": term.reports._writing,
            "victims": term.preemptions._stopping,
            "slots": term.slots.limit - term.slots._free,
        }
        yield from (f"leak: {operator.name} holds {what}: {x}" for what, x in held.items() if x)


def _troubles(cluster: SimulatedCluster) -> Iterator[str]:
    for process in cluster.processes:
        for fault in process.faults:
            if not _is_deposition(fault):
                yield f"died: {process.name}: {fault!r}"
    # Leadership that ends is what the faults are for: no error of the program.
    expected = "the term ended", "the lease was lost"
    for line in cluster.errors:
        if not any(word in line for word in expected):
            yield f"error: {line}"
    yield from (f"unhandled: {fault}" for fault in cluster.loop.faults)


def _is_deposition(fault: BaseException) -> bool:
    """Return whether a term ended because it may not go on."""
    if isinstance(fault, BaseExceptionGroup):
        return all(map(_is_deposition, fault.exceptions))
    return isinstance(fault, NotLeader)
