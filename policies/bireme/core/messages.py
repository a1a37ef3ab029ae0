"""Messages: why a gang waits or starts, in numbers and plain words.

Two answers are kept apart: the gang does not fit *now*, and it would not fit an empty cluster
either, that is, one without all pods but those that never leave.

Messages stand in the status of gangs, which only users of their namespace may read: gangs of other
namespaces are never named.
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
from bireme.core.nodes import GrowablePool, NodeTable, closed, feasible, meets, started
from bireme.core.placement import CLUSTER_LEVEL, FreeCapacity, Placement
from bireme.core.pod_rules import attracts, shape_alone
from bireme.core.policy import Placer, Ranked
from bireme.core.quotas import Quota
from bireme.core.resources import CPU, MEMORY, NODE_ONLY, PODS, Amounts, add, is_device
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.core.times import clock_time, duration
from bireme.core.turns import Beyond

_UNUSED: Final = "capacity of unused nodes"
"""Key of a memo."""


def behind(lacking: str, ahead: int) -> str:
    """Return what :func:`lacking` says, with the number of jobs ahead."""
    return f"{lacking}; {ahead} ahead"


def lacking(gang: Gang, capacity: FreeCapacity) -> str:
    """Return asked, free and missing, for a gang that does not fit now."""
    resource = dominant_resource(gang, capacity.nodes)
    # Free room on nodes that the gang may not use would make the numbers contradict each other.
    usable = np.zeros(len(capacity.nodes), dtype=np.bool_)
    for task in gang.tasks:
        usable |= feasible(task.constraints, capacity.nodes)
    column = capacity.nodes.axis.column(resource)
    free = 0 if column is None else int(np.maximum(capacity.free[usable, column], 0).sum())
    asked = gang.demand.get(resource, 0)
    return (
        f"asks {formatted(resource, asked)} as {composition(gang)}; "
        f"{formatted(resource, free)} free on nodes it may use; "
        f"{_missing(gang, capacity, asked, free, resource)}"
    )


def _missing(gang: Gang, capacity: FreeCapacity, asked: int, free: int, resource: str) -> str:
    if asked > free:
        return f"{formatted(resource, asked - free)} missing" + _demanding(gang)
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
    """Return what narrows the nodes of ``gang`` beside its template, as the end of a message."""
    sources = dict.fromkeys(d.source for task in gang.tasks for d in task.constraints.demands)
    text = f"; only nodes that can have {' and '.join(sources)} count" if sources else ""
    rules = _rules(gang)
    return f"{text}; other pods can be in the way of its {rules}" if rules else text


def _rules(gang: Gang) -> str:
    words = (word for task in gang.tasks if task.pod is not None for word in task.pod.words)
    return ", ".join(dict.fromkeys(words))


def _ruled(gang: Gang) -> str:
    """Return which rules over pods the pods of ``gang`` have, as a part of a message."""
    rules = _rules(gang)
    return f", with its {rules}" if rules else ""


def _lacks_beside_devices(task: Task, capacity: FreeCapacity) -> str:
    """Return which of the things that queues do not count a replica of ``task`` lacks, if any."""
    for name, amount in task.request:
        if name.startswith(NODE_ONLY):
            others = tuple(pair for pair in task.request if pair[0] != name)
            without = replace(task, request=others)
            if int(capacity.replicas(without).sum()) >= task.replicas:
                return f", each of which needs {formatted(name, amount)}"
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
        nodes.remember(key, _never_fits(gang, unused(nodes), placer, cluster))
    known = nodes.memo[key]
    return known if isinstance(known, str) else None


def fits_later(gang: Gang, nodes: NodeTable, placer: Placer) -> str | None:
    """Return which nodes a gang waits for that would fit once all have started; else None."""
    table = started(nodes)
    if table is None or never_fits(gang, table, placer) is not None:
        return None
    return f"fits only with nodes that have not started yet{_closed(gang.tasks, nodes)}"


def alone(gang: Gang) -> Gang:
    """Return ``gang`` without the affinity to pods that are none of its own: they may come."""
    own = [task.pod for task in gang.tasks if task.pod is not None]
    if not any(kind.near for kind in own):
        return gang
    tasks = tuple(
        replace(task, pod=replace(kind, near=()))
        if (kind := task.pod) is not None and not any(attracts(other, kind) for other in own)
        else task
        for task in gang.tasks
    )
    return replace(gang, tasks=tasks)


def unused(nodes: NodeTable) -> FreeCapacity:
    """Return the capacity of nodes on which nothing runs but what never leaves them."""
    known = nodes.memo.get(_UNUSED)
    if isinstance(known, FreeCapacity):
        return known
    nodes.remember(_UNUSED, unused := FreeCapacity(nodes, nodes.fixed))
    return unused


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
    others = {task.name: task.replicas for task in gang.tasks}

    def fits(replicas: int) -> bool:
        trial = gang.resized(others | {largest_task.name: replicas})
        return placer.place(trial, empty) is not None

    most = _largest(fits, largest_task.replicas)
    if not most:
        together = f"asks {composition(gang)}; {cluster} cannot hold them together"
        return together + _ruled(gang) + _closed(gang.tasks, empty.nodes)
    return (
        f"asks {largest_task.replicas} {largest_task.name} replicas; {cluster} holds "
        f"at most {most} beside the job's other tasks{_ruled(gang)}"
        f"{_closed(gang.tasks, empty.nodes)}; lower replicas to {most} or add nodes"
    )


def _closed(tasks: Iterable[Task], nodes: NodeTable) -> str:
    """Return which taints and states keep tasks off nodes that they select, as part of a message.

    Mostly empty.
    """
    found: dict[str, int] = {}
    for task in tasks:
        for word, number in closed(task.constraints, nodes).items():
            found[word] = max(number, found.get(word, 0))
    parts = (f"{number} {_nodes(number)}, {word}" for word, number in sorted(found.items()))
    return f" (closed to it: {'; '.join(parts)})" if found else ""


def _fits_alone(gang: Gang, empty: FreeCapacity) -> bool:
    """Return whether ``gang`` has one task, all of whose replicas have room."""
    # Without rules nothing but room keeps replicas of one task apart or together.
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
                return f"no node that task {task.name} may use can have its {demand.source}"
            plain = plain & meets(demand, nodes)
        return (
            f"no node matches the node selector, affinity and tolerations of task {task.name} "
            f"and is ready{_closed([task], nodes)}; change the template or the nodes"
        )
    volumes = Counter(name for name, _ in task.pod.volumes) if task.pod is not None else {}
    for name, amount in (*task.request, *volumes.items()):
        column = nodes.axis.column(name)
        most = 0 if column is None else int(nodes.allocatable[allowed, column].max())
        if amount > most:
            return (
                f"one {task.name} replica asks {formatted(name, amount)}; the largest node it may "
                f"use offers {formatted(name, most)}; lower the request to at most that"
            )
    return (
        f"one {task.name} replica asks for more of several resources than any one node offers "
        f"together; lower the request"
    )


def dominant_resource(gang: Gang, nodes: NodeTable) -> str:
    """Return the resource people count the gang in.

    That is the accelerator that it asks most of, else another device, else cores, memory.
    """
    # Sorted: of two devices asked equally, the message must name the same one each time.
    devices = sorted(name for name in gang.demand if is_device(name))
    if devices:
        known = nodes.accelerators.is_accelerator
        return max(devices, key=lambda name: (known(name), gang.demand[name]))
    return next((name for name in (CPU, MEMORY) if gang.demand.get(name)), PODS)


def composition(gang: Gang) -> str:
    """Format the tasks of a gang: ``4 worker + 1 ps``."""
    return " + ".join(f"{task.replicas} {task.name}" for task in gang.tasks)


def formatted(resource: str, amount: int) -> str:
    """Format an amount with its unit."""
    if resource == CPU:
        return f"{amount / 1000:g} cpu"
    if resource == MEMORY:
        return f"{amount / 2**30:.4g}Gi memory"
    if resource == GPU_UNITS:
        return f"{in_units(amount):g} {resource}"
    return f"{amount} {resource.removeprefix(NODE_ONLY)}"


def admitted(
    gang: Gang,
    whole: Gang,
    placement: Placement,
    passed: Gang | None,
    is_opportunistic: bool = False,
) -> str:
    """Return where a gang was planned, at which part of its size, and which gang it passed."""
    message = f"{composition(gang)} planned {where(placement)}"
    if gang.replicas < whole.replicas:
        message += f", {gang.replicas} of {whole.replicas} replicas"
    if passed is not None:
        message += f", {ahead_of(passed, whole, is_opportunistic)}"
    return message + left_to_scheduler(gang)


def queue_of(gang: Gang) -> str:
    """Name the queue of ``gang``, and what names it where not its own spec does."""
    source = f", which {gang.queue_source} names," if gang.queue_source else ""
    return f"queue {gang.queue!r}{source}"


def no_queue(gang: Gang, snapshot: ClusterSnapshot) -> str:
    """Return that the queue of ``gang`` does not exist, with the remedies."""
    known = ", ".join(sorted(snapshot.queues)[:5]) or "none exist"
    remedy = ", correct the label, or" if gang.queue_source else " or"
    return f"{queue_of(gang)} does not exist; create it{remedy} set spec.queue to one of: {known}"


LEFT_TO_SCHEDULER: Final = "; nodes are left to kube-scheduler, for "
"""The beginning of the end of a message, see :func:`left_to_scheduler`."""


def left_to_scheduler(gang: Gang) -> str:
    """Return what kube-scheduler decides about ``gang``, as the end of a message; mostly empty."""
    words = gang.left_to_scheduler
    return f"{LEFT_TO_SCHEDULER}{words}" if words else ""


def capped_runtime(gang: Gang, snapshot: ClusterSnapshot) -> str:
    """Return that less than its minimum run time counts, as the end of a message; mostly empty."""
    asked, most = gang.min_runtime_seconds, snapshot.max_min_runtime_seconds(gang)
    if asked is None or asked <= most:
        return ""
    return f"; of its minRuntimeSeconds {asked:g} only maxMinRuntimeSeconds {most} count"


def ahead_of(passed: Gang, gang: Gang, is_opportunistic: bool = False) -> str:
    """Return which gang ``gang`` is started before."""
    if is_opportunistic:
        return f"in places reserved for {_named(passed, gang)}; stops once that fits"
    message = f"ahead of {_named(passed, gang)} without delaying it"
    return f"{message}; {expected(gang)}" if gang.is_learned_estimate else message


def expected(gang: Gang) -> str:
    """Return the learned estimate of a gang, with its meaning."""
    return f"expected to run {duration(gang.estimated_seconds or 0.0)}, as nine in ten of like runs"


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
    """Return which limits of a queue are in the way: resource -> (asked, used, limit)."""
    parts = [
        f"asks {formatted(name, asked)}, {formatted(name, used)} of {formatted(name, limit)} in use"
        for name, (asked, used, limit) in excess.items()
    ]
    return f"queue {queue!r}: {'; '.join(parts)}"


def overused(queue: str, whose: str, beyond: Mapping[str, tuple[int, int]]) -> str:
    """Return that ``queue``, or the one of the name ``whose`` above it, holds more than its limit.

    ``beyond`` is resource -> (used, limit).
    """
    uses = "; ".join(
        f"uses {formatted(name, used)} of limit {formatted(name, limit)}"
        for name, (used, limit) in beyond.items()
    )
    who = "" if whose == queue else f"queue {whose!r} above it "
    return f"{who}{uses}: nothing starts until that is less, and what runs goes on"


def beyond_limit(queue: str, excess: Mapping[str, tuple[int, int, int]]) -> str:
    """Return which limits the gang alone would pass."""
    parts = [
        f"{formatted(name, asked)}, its limit is {formatted(name, limit)}"
        for name, (asked, _, limit) in excess.items()
    ]
    return f"asks more than queue {queue!r} may ever hold: " + "; ".join(parts)


def over_quota(quota: Quota, excess: Mapping[str, tuple[int, int, int]]) -> str:
    """Return which quota of the namespace is in the way: resource -> (asked, used, hard)."""
    parts = [
        f"asks {_of_quota(name, asked)}, {_of_quota(name, used)} of {_of_quota(name, hard)} in use"
        for name, (asked, used, hard) in excess.items()
    ]
    return f"ResourceQuota {quota.name!r} of namespace {quota.namespace}: {'; '.join(parts)}"


def beyond_quota(quota: Quota, excess: Mapping[str, tuple[int, int, int]]) -> str:
    """Return which quota the gang alone would pass."""
    parts = [
        f"{_of_quota(name, asked)}, which allows {_of_quota(name, hard)}"
        for name, (asked, _, hard) in excess.items()
    ]
    return (
        f"asks more than ResourceQuota {quota.name!r} of namespace {quota.namespace} ever allows: "
        + "; ".join(parts)
    )


def _of_quota(name: str, amount: int) -> str:
    if name.startswith("limits."):
        return f"{formatted(name.removeprefix('limits.'), amount)} of limits"
    return formatted(name.removeprefix("requests."), amount)


def claim_in_use(claim: Key, user: Gang | None) -> str:
    """Return which claim for one pod alone is in the way, and whose pod uses it."""
    who = f"{user.namespace}/{user.name}" if user is not None else "a pod of no gang"
    return f'persistentvolumeclaim "{claim[1]}" has access mode ReadWriteOncePod and {who} uses it'


def beyond_all_nodes(asked: Amounts, snapshot: ClusterSnapshot) -> str | None:
    """Return what is asked beyond all nodes there may ever be, or None."""
    total = snapshot.total
    for pool in snapshot.growable:
        total = add(total, pool.template.allocatable, pool.room + pool.coming)
    parts = [
        f"{formatted(name, amount)}, all nodes together offer {formatted(name, total.get(name, 0))}"
        for name, amount in asked.items()
        if amount > total.get(name, 0)
    ]
    return f"asks more than the cluster may ever offer: {'; '.join(parts)}" if parts else None


def reserved(reservation: Reservation, snapshot: ClusterSnapshot) -> str:
    """Return which places are kept for a blocked gang, and from when on it should have them."""
    places = where(reservation.placement).removeprefix("on ")
    if reservation.start <= snapshot.now:
        return f"; kept for it: {places}, as soon as what runs there ends"
    return f"; kept for it: {places}, expected free at {clock_time(reservation.start)}"


def may_preempt_from(moment: float) -> str:
    """Return from when on a gang that waits may preempt more others than now."""
    return f"; may preempt more gangs from {clock_time(moment)} on"


def would_delay(
    gang: Gang, blocked: Gang, reservation: Reservation | None, now: float, ahead: int
) -> str:
    """Return why ``gang``, which would fit now, must wait for the reservation."""
    message = f"fits now, but would take places kept for {_named(blocked, gang)}"
    if reservation is None or reservation.is_closed:
        return f"{message}; {ahead} ahead"
    if reservation.start <= now:  # the start moves with the clock, and no run ends before it
        message += " as soon as what runs there ends, which is not known"
    else:
        message += f" from {clock_time(reservation.start)} on"
        if gang.is_learned_estimate:
            message += f"; {expected(gang)}"
        message += "; a spec.estimatedDuration that ends before lets it start"
    return f"{message}; {ahead} ahead"


def kept_for_returns(gang: Gang, returns: Sequence[Gang]) -> str:
    """Return for which gangs places are kept until their pods have ended, as ``gang`` reads it."""
    names = list(dict.fromkeys(_named(each, gang) for each in returns))
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return (
        f"; places are kept for {' and '.join(names[:2])}{more} until the stopped pods have ended"
    )


def would_pass_limit(gang: Gang, blocked: Gang, ahead: int) -> str:
    """Return why a gang that would fit now waits: its queue's limit is kept for ``blocked``."""
    return (
        f"fits now, but what its queue may still hold is kept for {_named(blocked, gang)}; "
        f"{ahead} ahead"
    )


def held_back(gang: Gang, barrier: Gang, ahead: int) -> str:
    """Return which overdue gang a queue keeps its room for."""
    return f"held back for {_named(barrier, gang)}, which has waited past its bound; {ahead} ahead"


def beyond_line(beyond: Beyond, settings: SchedulingSettings) -> str:
    """Return at which number of its namespace's line a gang stands, and what limits the line."""
    why = f"namespacePendingLimit is {settings.namespace_pending_limit}"
    if beyond.are_shapes_many:
        limit = settings.namespace_shape_limit
        why = f"their shapes differ so much that they use up namespaceShapeLimit, {limit}"
    length = f"{beyond.length} {'is' if beyond.length == 1 else 'are'} looked at in a cycle"
    return f"number {beyond.place} in the line of its namespace, of which {length}: {why}"


def moved(done: str, names: Sequence[str], nodes: NodeTable) -> str:
    """Return that a gang stops or shrinks for the maintenance of the nodes ``names``."""
    ends = max(nodes.windows[name].ends for name in names)
    return f"{done} for the maintenance of {_named_nodes(names)} until {clock_time(ends)}"


def faster_gpus(running: RunningGang, placement: Placement, snapshot: ClusterSnapshot) -> str:
    """Return that ``running`` stops to start again at ``placement``, and what it gains."""
    nodes, lasted = snapshot.nodes, running.elapsed_seconds(snapshot.now)
    before, after = (_gpus_of(each, running, nodes) for each in (running.placement, placement))
    return (
        f"stopped after {duration(lasted)} to start again on {after[0]}, "
        f"{after[1] / before[1]:.2g} times as fast as {before[0]}: no gang waits for them, and the "
        "restart pays even if no checkpoint was saved, should it run for as long again"
    )


def _gpus_of(placement: Placement, running: RunningGang, nodes: NodeTable) -> tuple[str, float]:
    """Return the slowest model of GPU at ``placement``, and its speed."""
    asking = {task.name for task in running.gang.tasks if dict(task.request).get(GPU)}
    rows = np.concatenate([task.rows for task in placement.tasks if task.task in asking])
    slowest = rows[int(nodes.gpu_speeds[rows].argmin())]
    model = nodes.nodes[slowest].labels.get(GPU_MODEL_LABEL, "GPUs without a model's label")
    return model, float(nodes.gpu_speeds[slowest])


def maintenance_ahead(gang: Gang, names: Sequence[str], snapshot: ClusterSnapshot) -> str:
    """Return which nodes ``gang`` is kept off for their maintenance, and what helps."""
    windows = [snapshot.nodes.windows[name] for name in names]
    first, last = min(w.begins for w in windows), max(w.ends for w in windows)
    when = f"from {clock_time(first)} to {clock_time(last)}"
    words = f"kept off {_named_nodes(names)} for maintenance {when}"
    if max(w.begins for w in windows) <= snapshot.now:
        return words
    known = gang.estimated_seconds is not None and not gang.is_learned_estimate
    remedy = "a shorter" if known else "a"
    return f"{words}; {remedy} spec.estimatedDuration that ends before lets it start there"


def _named_nodes(names: Sequence[str]) -> str:
    """Name nodes, the first three of many."""
    if len(names) == 1:
        return f"node {names[0]}"
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"nodes {', '.join(names[:3])}{more}"


def making_room(gang: Gang, done: str, beneficiary: Gang, why: str = "") -> str:
    """Return for which gang ``gang`` was ``done``, that is, "stopped" or "shrunk", and why."""
    return f"{done} to make room for {_named(beneficiary, gang)}" + (f", {why}" if why else "")


def claim(
    beneficiary: Ranked,
    victim: Ranked,
    is_opportunistic: bool = False,
    may_by_rank: bool = True,
) -> str:
    """Return by what ``beneficiary`` may stop ``victim``; empty if the policy does not say.

    Without ``may_by_rank`` its place in the order alone stops nobody.
    """
    more, less = beneficiary.preemption_priority, victim.preemption_priority
    if more is None or less is None or more <= less or not may_by_rank:
        if is_opportunistic:
            return "which its places are reserved for"
        return "whose queue takes back its guarantee"
    try:
        other = {each.name: each for each in victim.factors}
        # By values: of two gangs a factor of the service may weigh more in the one.
        claims = [
            each.claim
            for each in beneficiary.factors
            if each.claim and each.weight * (each.value - other[each.name].value) > 0
        ]
    except Exception:  # noqa: BLE001  # a policy that cannot explain its order may still decide
        return ""
    return claims[0] if claims else ""


def budget_overridden(
    budget: str, beneficiary: Gang, is_opportunistic: bool, settings: SchedulingSettings
) -> str:
    """Return why what ``budget`` says, in words, does not hold, as the end of a message.

    ``is_opportunistic`` tells whether the victim started in reserved places.
    """
    least = settings.budget_override_priority
    if beneficiary.priority >= least:
        return f"; {budget}, which does not hold against priorities from {least} on"
    if is_opportunistic:
        return f"; {budget}, which does not hold in places that are reserved for others"
    return f"; {budget}, which does not hold against a queue that takes back its guarantee"


def grown(added: Gang) -> str:
    """Return which replicas were added to a running gang."""
    return f"grown by {composition(added)} into idle capacity"


def waiting_for_preemption(gang: Gang, victims: Sequence[RunningGang]) -> str:
    """Return which gangs' places a gang is waiting for."""
    own = [_named(v.gang, gang) for v in victims if v.gang.namespace == gang.namespace]
    others = len(victims) - len(own)
    names = own[:3] + (["..."] if len(own) > 3 else [])
    if others:
        names.append(f"{others} of other namespaces")
    stopping = f": {', '.join(names)}" if names else ""
    return f"{composition(gang)} start once those have left that make room for it{stopping}"


def _named(other: Gang, reader: Gang) -> str:
    """Return the name of ``other`` in the message of ``reader``."""
    if other.namespace != reader.namespace:
        return "a job of another namespace"
    return f"{other.namespace}/{other.name}"


def scaling_up(nodes: Mapping[str, int], late: Iterable[GrowablePool], now: float) -> str:
    """Return how many nodes of which pools a gang waits for, and which pools are late."""
    parts = [f"{number} more {_nodes(number)} of pool {pool}" for pool, number in nodes.items()]
    message = f"waits for {' and '.join(parts)}"
    for pool in late:
        ago = duration(now - (pool.asked_at or now))
        message += f"; {pool.coming} {_nodes(pool.coming)} of pool {pool.name} "
        message += f"asked for {ago} ago, none has come"
    return message


def _nodes(number: int) -> str:
    return "node" if number == 1 else "nodes"
