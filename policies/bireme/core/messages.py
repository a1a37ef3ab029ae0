"""Messages: why a gang waits or starts, in numbers and plain words.

Two answers are kept apart: the gang does not fit *now*, and it does not fit an empty cluster
either. An empty cluster has only the pods that never leave it.

Messages appear in the status of gangs, which only users of their namespace may read. So a message
never names gangs of other namespaces.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from bireme.core.accelerators import GPU_UNITS, in_units
from bireme.core.decision import Reservation
from bireme.core.gangs import Gang, Key, Task
from bireme.core.gpus import GPU, GPU_MODEL_LABEL
from bireme.core.nodes import GrowablePool, NodeTable, closures, feasible, meets, once_started
from bireme.core.placement import CLUSTER_LEVEL, FreeCapacity, Placement
from bireme.core.pod_rules import attracts, shape_alone
from bireme.core.policy import Placer, Ranked
from bireme.core.quotas import Quota
from bireme.core.resources import CPU, MEMORY, NODE_ONLY, PODS, Amounts, add, is_device
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import clock_time, duration
from bireme.core.turns import OverLimitGang

_UNUSED: Final = "capacity of unused nodes"
"""Key of a memo."""


def behind(lacking: str, jobs_ahead: int) -> str:
    """Return the text of :func:`lacking` with the number of jobs ahead."""
    return f"{lacking}; {jobs_ahead} ahead"


def lacking(gang: Gang, capacity: FreeCapacity) -> str:
    """Return requested, free and missing amounts of a gang that does not fit now."""
    resource = dominant_resource(gang, capacity.nodes)
    # Free room on nodes that the gang may not use would make the numbers contradict each other.
    usable = np.zeros(len(capacity.nodes), dtype=np.bool_)
    for task in gang.tasks:
        usable |= feasible(task.constraints, capacity.nodes)
    column = capacity.nodes.axis.column(resource)
    free = 0 if column is None else int(np.maximum(capacity.free[usable, column], 0).sum())
    request = gang.demand.get(resource, 0)
    return (
        f"asks {quantity(resource, request)} as {composition(gang)}; "
        f"{quantity(resource, free)} free on nodes it may use; "
        f"{_missing(gang, capacity, request, free, resource)}"
    )


def _missing(gang: Gang, capacity: FreeCapacity, request: int, free: int, resource: str) -> str:
    if request > free:
        return f"{quantity(resource, request - free)} missing" + _demanding(gang)
    short = []
    for task in gang.tasks:
        fits = int(np.minimum(capacity.replicas(task), task.replicas).sum())
        if fits < task.replicas:
            lack = _lacks_beside_devices(task, capacity)
            short.append(f"{task.replicas - fits} of {task.replicas} {task.name}{lack}")
    if short:
        return "no room left for " + ", ".join(short) + _demanding(gang)
    return "its replicas do not fit together" + _demanding(gang)


def _demanding(gang: Gang) -> str:
    """Return the constraints beside its template that exclude nodes, as the end of a message."""
    sources = dict.fromkeys(d.source for task in gang.tasks for d in task.constraints.demands)
    text = f"; this counts only nodes that can provide {' and '.join(sources)}" if sources else ""
    rules = _rules(gang)
    return f"{text}; other pods can conflict with its {rules}" if rules else text


def _rules(gang: Gang) -> str:
    names = (word for task in gang.tasks if task.pod is not None for word in task.pod.words)
    return ", ".join(dict.fromkeys(names))


def _rules_note(gang: Gang) -> str:
    """Return the rules between pods that ``gang`` has, as a part of a message."""
    rules = _rules(gang)
    return f", with its {rules}" if rules else ""


def _lacks_beside_devices(task: Task, capacity: FreeCapacity) -> str:
    """Return the node-only resource that a replica of ``task`` lacks, if any."""
    for name, amount in task.request:
        if name.startswith(NODE_ONLY):
            rest = tuple(pair for pair in task.request if pair[0] != name)
            without = replace(task, request=rest)
            if int(capacity.replicas(without).sum()) >= task.replicas:
                return f", each of which needs {quantity(name, amount)}"
    return ""


def never_fits(
    gang: Gang, nodes: NodeTable, placer: Placer, cluster: str = "the empty cluster"
) -> str | None:
    """Return why the gang would not fit an empty cluster, with the largest that would, or None.

    ``cluster`` is the name of ``nodes`` in the message.
    """
    gang = alone(gang)
    # The answer depends on nodes alone, so it outlives the cycle.
    key = ("never_fits", shape_alone(gang), getattr(placer, "name", type(placer).__qualname__))
    if key not in nodes.memo:
        nodes.remember(key, _never_fits(gang, idle_capacity(nodes), placer, cluster))
    cached = nodes.memo[key]
    return cached if isinstance(cached, str) else None


def fits_later(gang: Gang, nodes: NodeTable, placer: Placer) -> str | None:
    """Return which nodes a gang waits for that would fit once all have started; else None."""
    table = once_started(nodes)
    if table is None or never_fits(gang, table, placer) is not None:
        return None
    return f"fits only with nodes that have not started yet{_closure_note(gang.tasks, nodes)}"


def alone(gang: Gang) -> Gang:
    """Return ``gang`` without affinity to pods of other gangs: such pods may still come."""
    own_pods = [task.pod for task in gang.tasks if task.pod is not None]
    if not any(kind.near for kind in own_pods):
        return gang
    tasks = tuple(
        replace(task, pod=replace(kind, near=()))
        if (kind := task.pod) is not None and not any(attracts(other, kind) for other in own_pods)
        else task
        for task in gang.tasks
    )
    return replace(gang, tasks=tasks)


def idle_capacity(nodes: NodeTable) -> FreeCapacity:
    """Return the capacity of nodes that run only the pods that never leave them."""
    cached = nodes.memo.get(_UNUSED)
    if isinstance(cached, FreeCapacity):
        return cached
    nodes.remember(_UNUSED, capacity := FreeCapacity(nodes, nodes.fixed))
    return capacity


def _never_fits(gang: Gang, empty: FreeCapacity, placer: Placer, cluster: str) -> str | None:
    if not len(empty.nodes):
        return "the cluster has no nodes"
    if _fits_alone(gang, empty) or placer.place(gang, empty) is not None:
        return None
    for task in gang.tasks:
        if not empty.replicas(task).any():
            return _replica_too_large(task, empty)
    # The widest task is the one whose replicas people can lower.
    largest_task = max(gang.tasks, key=lambda task: (task.replicas, task.name))
    sizes = {task.name: task.replicas for task in gang.tasks}

    def fits(replicas: int) -> bool:
        trial = gang.with_sizes(sizes | {largest_task.name: replicas})
        return placer.place(trial, empty) is not None

    max_replicas = _largest(fits, largest_task.replicas)
    if not max_replicas:
        together = f"asks {composition(gang)}; {cluster} cannot hold them together"
        return together + _rules_note(gang) + _closure_note(gang.tasks, empty.nodes)
    return (
        f"asks {largest_task.replicas} {largest_task.name} replicas; {cluster} holds "
        f"at most {max_replicas} beside the job's other tasks{_rules_note(gang)}"
        f"{_closure_note(gang.tasks, empty.nodes)}; lower replicas to {max_replicas} or add nodes"
    )


def _closure_note(tasks: Iterable[Task], nodes: NodeTable) -> str:
    """Return the taints and states that exclude nodes which tasks select, as part of a message.

    The text is mostly empty.
    """
    counts: dict[str, int] = {}
    for task in tasks:
        for word, number in closures(task.constraints, nodes).items():
            counts[word] = max(number, counts.get(word, 0))
    parts = (f"{number} {_nodes(number)}, {word}" for word, number in sorted(counts.items()))
    return f" (closed to it: {'; '.join(parts)})" if counts else ""


def _fits_alone(gang: Gang, empty: FreeCapacity) -> bool:
    """Return whether ``gang`` has one task, all of whose replicas have room."""
    # Without rules, only capacity keeps replicas of one task apart or together.
    task = gang.tasks[0]
    is_simple = len(gang.tasks) == 1 and not gang.has_rules
    return is_simple and int(empty.replicas(task).sum()) >= task.replicas


def _largest(fits: Callable[[int], bool], ceiling: int) -> int:
    """Return the largest size below ``ceiling`` that fits, by bisection; 0 when none does."""
    low, high = 0, ceiling
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _replica_too_large(task: Task, empty: FreeCapacity) -> str:
    nodes = empty.nodes
    allowed = feasible(task.constraints, nodes)
    if not allowed.any():
        plain = feasible(replace(task.constraints, demands=()), nodes)
        for demand in task.constraints.demands:
            if plain.any() and not (plain & meets(demand, nodes)).any():
                return f"no node that task {task.name} may use can provide its {demand.source}"
            plain = plain & meets(demand, nodes)
        return (
            f"no node matches the node selector, affinity and tolerations of task {task.name} "
            f"and is ready{_closure_note([task], nodes)}; change the template or the nodes"
        )
    volumes = Counter(name for name, _ in task.pod.volumes) if task.pod is not None else {}
    for name, amount in (*task.request, *volumes.items()):
        column = nodes.axis.column(name)
        largest = 0 if column is None else int(nodes.allocatable[allowed, column].max())
        if amount > largest:
            return (
                f"one {task.name} replica asks {quantity(name, amount)}; the largest node it may "
                f"use offers {quantity(name, largest)}; lower the request to at most that"
            )
    return (
        f"one {task.name} replica asks for more of several resources than any one node offers "
        f"together; lower the request"
    )


def dominant_resource(gang: Gang, nodes: NodeTable) -> str:
    """Return the resource in which people count the gang.

    That is its most requested accelerator, else another device, else cores, else memory.
    """
    # Sorted: of two devices with equal requests, the message must always name the same one.
    devices = sorted(name for name in gang.demand if is_device(name))
    if devices:
        is_accelerator = nodes.accelerators.is_accelerator
        return max(devices, key=lambda name: (is_accelerator(name), gang.demand[name]))
    return next((name for name in (CPU, MEMORY) if gang.demand.get(name)), PODS)


def composition(gang: Gang) -> str:
    """Format the tasks of a gang: ``4 worker + 1 ps``."""
    return " + ".join(f"{task.replicas} {task.name}" for task in gang.tasks)


def quantity(resource: str, amount: int) -> str:
    """Format an amount with its unit."""
    if resource == CPU:
        return f"{amount / 1000:g} cpu"
    if resource == MEMORY:
        return f"{amount / 2**30:.4g}Gi memory"
    if resource == GPU_UNITS:
        return f"{in_units(amount):g} {resource}"
    return f"{amount} {resource.removeprefix(NODE_ONLY)}"


def admission(
    gang: Gang,
    whole: Gang,
    placement: Placement,
    passed_gang: Gang | None,
    is_opportunistic: bool = False,
) -> str:
    """Return where a gang was planned, at which part of its size, and which gang it passed."""
    message = f"{composition(gang)} planned {where(placement)}"
    if gang.replicas < whole.replicas:
        message += f", {gang.replicas} of {whole.replicas} replicas"
    if passed_gang is not None:
        message += f", {ahead_of(passed_gang, whole, is_opportunistic)}"
    return message + scheduler_note(gang)


def queue_of(gang: Gang) -> str:
    """Name the queue of ``gang``, and its source where that is not the gang's own spec."""
    source = f", which {gang.queue_source} names," if gang.queue_source else ""
    return f"queue {gang.queue!r}{source}"


def no_queue(gang: Gang, snapshot: ClusterSnapshot) -> str:
    """Return that the queue of ``gang`` does not exist, with the remedies."""
    names = ", ".join(sorted(snapshot.queues)[:5]) or "none exist"
    remedy = ", correct the label, or" if gang.queue_source else " or"
    return f"{queue_of(gang)} does not exist; create it{remedy} set spec.queue to one of: {names}"


LEFT_TO_SCHEDULER: Final = "; kube-scheduler chooses the nodes because of "
"""The beginning of the end of a message, see :func:`scheduler_note`."""


def scheduler_note(gang: Gang) -> str:
    """Return the decisions left to kube-scheduler, as the end of a message; mostly empty."""
    pods = gang.left_to_scheduler
    return f"{LEFT_TO_SCHEDULER}{pods}" if pods else ""


def runtime_cap_note(gang: Gang, snapshot: ClusterSnapshot) -> str:
    """Return that a cap shortens its minimum run time, as the end of a message; mostly empty."""
    request, cap = gang.min_runtime_seconds, snapshot.max_min_runtime_seconds(gang)
    if request is None or request <= cap:
        return ""
    return f"; maxMinRuntimeSeconds limits its minRuntimeSeconds {request:g} to {cap}"


def ahead_of(passed_gang: Gang, gang: Gang, is_opportunistic: bool = False) -> str:
    """Return which gang ``gang`` passes by its start."""
    if is_opportunistic:
        return f"in places reserved for {_label(passed_gang, gang)}; stops when that gang fits"
    message = f"ahead of {_label(passed_gang, gang)} without delaying it"
    return f"{message}; {runtime_estimate(gang)}" if gang.is_learned_estimate else message


def runtime_estimate(gang: Gang) -> str:
    """Return the learned estimate of a gang, with its meaning."""
    return (
        f"expected to run at most {duration(gang.estimated_seconds or 0.0)}, like 90 % of "
        "similar runs"
    )


def where(placement: Placement) -> str:
    """Format a placement."""
    nodes = len(placement.node_rows())
    if placement.level == CLUSTER_LEVEL:
        return f"on {nodes} nodes across the cluster"
    kind = placement.level.rsplit("/", 1)[-1]
    if kind == "hostname":
        return f"on node {placement.domain}"
    return f"on {nodes} nodes of {kind} {placement.domain}"


def over_limit(queue: str, excess: Mapping[str, tuple[int, int, int]]) -> str:
    """Return the queue limits that the gang would exceed: resource -> (asked, used, limit)."""
    parts = [
        f"asks {quantity(name, request)}, {quantity(name, used)} of {quantity(name, limit)} in use"
        for name, (request, used, limit) in excess.items()
    ]
    return f"queue {queue!r}: {'; '.join(parts)}"


def above_limit(queue: str, whose: str, beyond: Mapping[str, tuple[int, int]]) -> str:
    """Return that ``queue``, or its ancestor ``whose``, holds more than its limit.

    ``beyond`` is resource -> (used, limit).
    """
    uses = "; ".join(
        f"uses {quantity(name, used)} of limit {quantity(name, limit)}"
        for name, (used, limit) in beyond.items()
    )
    who = "" if whose == queue else f"queue {whose!r} above it "
    return f"{who}{uses}: no gang starts until it uses less, and running gangs continue"


def beyond_limit(queue: str, excess: Mapping[str, tuple[int, int, int]]) -> str:
    """Return the limits that the gang alone would exceed."""
    parts = [
        f"{quantity(name, request)}, its limit is {quantity(name, limit)}"
        for name, (request, _, limit) in excess.items()
    ]
    return f"asks for more than queue {queue!r} may ever hold: " + "; ".join(parts)


def over_quota(quota: Quota, excess: Mapping[str, tuple[int, int, int]]) -> str:
    """Return the quota that the gang would exceed: resource -> (asked, used, hard)."""
    parts = [
        f"asks {_of_quota(name, demand)}, {_of_quota(name, used)} of {_of_quota(name, hard)} in use"
        for name, (demand, used, hard) in excess.items()
    ]
    return f"ResourceQuota {quota.name!r} of namespace {quota.namespace}: {'; '.join(parts)}"


def beyond_quota(quota: Quota, excess: Mapping[str, tuple[int, int, int]]) -> str:
    """Return the quota that the gang alone would exceed."""
    parts = [
        f"{_of_quota(name, request)}, which allows {_of_quota(name, hard)}"
        for name, (request, _, hard) in excess.items()
    ]
    return (
        f"asks for more than ResourceQuota {quota.name!r} of namespace {quota.namespace} ever "
        "allows: " + "; ".join(parts)
    )


def _of_quota(name: str, amount: int) -> str:
    if name.startswith("limits."):
        return f"{quantity(name.removeprefix('limits.'), amount)} of limits"
    return quantity(name.removeprefix("requests."), amount)


def claim_in_use(claim: Key, user: Gang | None) -> str:
    """Return the single-pod claim that blocks the gang, and the gang whose pod uses it."""
    who = f"{user.namespace}/{user.name}" if user is not None else "a pod outside any gang"
    return f'persistentvolumeclaim "{claim[1]}" has access mode ReadWriteOncePod and {who} uses it'


def beyond_all_nodes(demand: Amounts, snapshot: ClusterSnapshot) -> str | None:
    """Return the demand beyond all nodes that may ever exist, or None."""
    total = snapshot.total
    for pool in snapshot.growable:
        total = add(total, pool.template.allocatable, pool.room + pool.coming)
    parts = [
        f"{quantity(name, amount)}, all nodes together offer {quantity(name, total.get(name, 0))}"
        for name, amount in demand.items()
        if amount > total.get(name, 0)
    ]
    return f"asks for more than the cluster may ever offer: {'; '.join(parts)}" if parts else None


def reservation_note(reservation: Reservation, snapshot: ClusterSnapshot) -> str:
    """Return the places reserved for a blocked gang, and the time from which it should have
    them.
    """
    places = where(reservation.placement).removeprefix("on ")
    if reservation.start <= snapshot.now:
        return f"; kept for it: {places}, free when the gangs there end"
    return f"; kept for it: {places}, expected free at {clock_time(reservation.start)}"


def may_preempt_from(moment: float) -> str:
    """Return the time from which a waiting gang may preempt more gangs than now."""
    return f"; may preempt more gangs from {clock_time(moment)} on"


def would_delay(
    gang: Gang, blocked: Gang, reservation: Reservation | None, now: float, jobs_ahead: int
) -> str:
    """Return why ``gang``, which would fit now, must wait for the reservation."""
    message = f"fits now, but would take places kept for {_label(blocked, gang)}"
    if reservation is None or reservation.is_closed:
        return f"{message}; {jobs_ahead} ahead"
    if reservation.start <= now:  # the start moves with the clock, and no run ends before it
        message += ", which become free at an unknown time"
    else:
        message += f" from {clock_time(reservation.start)} on"
        if gang.is_learned_estimate:
            message += f"; {runtime_estimate(gang)}"
        message += "; it may start with a spec.estimatedDuration that ends before then"
    return f"{message}; {jobs_ahead} ahead"


def places_for_returns(gang: Gang, returns: Sequence[Gang]) -> str:
    """Return the gangs for which places are kept until their pods have ended, for ``gang``."""
    names = list(dict.fromkeys(_label(other, gang) for other in returns))
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return (
        f"; places are kept for {' and '.join(names[:2])}{more} until the stopped pods have ended"
    )


def would_pass_limit(gang: Gang, blocked: Gang, jobs_ahead: int) -> str:
    """Return why a gang that would fit now waits: its queue's limit is kept for ``blocked``."""
    return (
        f"fits now, but the rest of the limit of its queue is kept for {_label(blocked, gang)}; "
        f"{jobs_ahead} ahead"
    )


def behind_barrier(gang: Gang, barrier: Gang, jobs_ahead: int) -> str:
    """Return the overdue gang for which a queue keeps its free capacity."""
    name = _label(barrier, gang)
    return f"held back for {name}, which has waited past its wait bound; {jobs_ahead} ahead"


def beyond_line(beyond: OverLimitGang, settings: SchedulingSettings) -> str:
    """Return the number of a gang in its namespace, and the limit that it exceeds."""
    limits = f"at most {settings.namespace_pending_limit} of one namespace"
    if beyond.are_shapes_many:
        limits = f"the cost of their different shapes is at most {settings.namespace_shape_limit}"
    return (
        f"number {beyond.place} of the waiting gangs of its namespace; a cycle considers the "
        f"first {beyond.length}: {limits}"
    )


def maintenance_move(done: str, names: Sequence[str], nodes: NodeTable) -> str:
    """Return that a gang stops or shrinks for the maintenance of the nodes ``names``."""
    ends = max(nodes.windows[name].ends for name in names)
    return f"{done} for the maintenance of {_name_nodes(names)} until {clock_time(ends)}"


def faster_gpus(running: RunningGang, placement: Placement, snapshot: ClusterSnapshot) -> str:
    """Return that ``running`` stops to start again at ``placement``, and the gain."""
    nodes, lasted = snapshot.nodes, running.elapsed_seconds(snapshot.now)
    old, new = (_gpus_of(places, running, nodes) for places in (running.placement, placement))
    return (
        f"stopped after {duration(lasted)} to start again on {new[0]}, {new[1] / old[1]:.2g} "
        f"times as fast as {old[0]}: no gang waits for those GPUs, and the restart saves time "
        "even without a checkpoint if the gang runs for as long again"
    )


def _gpus_of(placement: Placement, running: RunningGang, nodes: NodeTable) -> tuple[str, float]:
    """Return the slowest GPU model at ``placement``, and its speed."""
    asking = {task.name for task in running.gang.tasks if dict(task.request).get(GPU)}
    rows = np.concatenate([task.rows for task in placement.tasks if task.task in asking])
    slowest = rows[int(nodes.gpu_speeds[rows].argmin())]
    model = nodes.nodes[slowest].labels.get(GPU_MODEL_LABEL, "GPUs without a model's label")
    return model, float(nodes.gpu_speeds[slowest])


def maintenance_ahead(gang: Gang, names: Sequence[str], snapshot: ClusterSnapshot) -> str:
    """Return the nodes that their maintenance closes to ``gang``, and the remedy."""
    windows = [snapshot.nodes.windows[name] for name in names]
    first, last = min(w.begins for w in windows), max(w.ends for w in windows)
    when = f"from {clock_time(first)} to {clock_time(last)}"
    text = f"may not use {_name_nodes(names)} because of maintenance {when}"
    if max(w.begins for w in windows) <= snapshot.now:
        return text
    is_stated = gang.estimated_seconds is not None and not gang.is_learned_estimate
    remedy = "a shorter" if is_stated else "a"
    return f"{text}; it may start there with {remedy} spec.estimatedDuration that ends before then"


def _name_nodes(names: Sequence[str]) -> str:
    """Name nodes, but at most three."""
    if len(names) == 1:
        return f"node {names[0]}"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"nodes {', '.join(names[:3])}{more}"


def making_room(gang: Gang, done: str, beneficiary: Gang, reason: str = "") -> str:
    """Return for which gang ``gang`` was ``done``, that is, "stopped" or "shrunk", and why."""
    return f"{done} to make room for {_label(beneficiary, gang)}" + (
        f", {reason}" if reason else ""
    )


def claim(
    beneficiary: Ranked,
    victim: Ranked,
    is_opportunistic: bool = False,
    may_by_rank: bool = True,
) -> str:
    """Return the claim by which ``beneficiary`` may stop ``victim``; empty if the policy has none.

    Without ``may_by_rank``, its place in the order alone is no claim.
    """
    more, less = beneficiary.preemption_priority, victim.preemption_priority
    if more is None or less is None or more <= less or not may_by_rank:
        if is_opportunistic:
            return "for which its places were reserved"
        return "whose queue reclaims its guarantee"
    try:
        other = {factor.name: factor for factor in victim.factors}
        # Compare values: the service factor may have different weights in the two gangs.
        claims = [
            factor.claim
            for factor in beneficiary.factors
            if factor.claim and factor.weight * (factor.value - other[factor.name].value) > 0
        ]
    except Exception:  # noqa: BLE001  # a policy that cannot explain its order may still decide
        return ""
    return claims[0] if claims else ""


def budget_overridden(
    budget: str, beneficiary: Gang, is_opportunistic: bool, settings: SchedulingSettings
) -> str:
    """Return why ``budget``, a phrase, does not protect the victim, as the end of a message.

    ``is_opportunistic`` is true if the victim started in reserved places.
    """
    threshold = settings.budget_override_priority
    if beneficiary.priority >= threshold:
        return f"; {budget}, which does not protect it against priorities of {threshold} or more"
    if is_opportunistic:
        return f"; {budget}, which does not protect it in places reserved for others"
    return f"; {budget}, which does not protect it against a queue that reclaims its guarantee"


def growth(added: Gang) -> str:
    """Return the replicas that were added to a running gang."""
    return f"grown by {composition(added)} into idle capacity"


def waiting_for_preemption(gang: Gang, victims: Sequence[RunningGang]) -> str:
    """Return the gangs for whose places a gang waits."""
    own_names = [_label(v.gang, gang) for v in victims if v.gang.namespace == gang.namespace]
    other_count = len(victims) - len(own_names)
    names = own_names[:3] + (["..."] if len(own_names) > 3 else [])
    if other_count:
        names.append(f"{other_count} of other namespaces")
    stopping = f": {', '.join(names)}" if names else ""
    return f"{composition(gang)} start when the gangs that make room have stopped{stopping}"


def _label(other: Gang, reader: Gang) -> str:
    """Return the name of ``other`` in the message of ``reader``."""
    if other.namespace != reader.namespace:
        return "a job of another namespace"
    return f"{other.namespace}/{other.name}"


def scaling_up(nodes: Mapping[str, int], late_pools: Iterable[GrowablePool], now: float) -> str:
    """Return how many nodes of which pools a gang waits for, and which pools are late."""
    parts = [f"{number} more {_nodes(number)} of pool {pool}" for pool, number in nodes.items()]
    message = f"waits for {' and '.join(parts)}"
    for pool in late_pools:
        ago = duration(now - (pool.asked_at or now))
        message += f"; {pool.coming} {_nodes(pool.coming)} of pool {pool.name} "
        message += f"requested {ago} ago, none has joined"
    return message


def _nodes(number: int) -> str:
    return "node" if number == 1 else "nodes"
