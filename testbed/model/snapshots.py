"""Convert dictionaries of the model into snapshots of the core, and decisions into moves."""

from dataclasses import replace
from typing import TypeAlias

from bireme.core.decision import Action, Admit, Decision, Hold, Preempt, Vacate
from bireme.core.gangs import Gang, Role, Task
from bireme.core.nodes import Node, NodeTable
from bireme.core.placement import Placement
from bireme.core.pod_constraints import Taint
from bireme.core.queues import Queue
from bireme.core.resources import add
from bireme.core.running import RunningGang
from bireme.core.settings import SchedulingSettings
from bireme.core.snapshot import ClusterSnapshot
from bireme.testing import GPU, a_gang, a_node, a_running, a_snapshot, a_task, with_running
from testbed.model.cluster import Places, Thing, Things

Move: TypeAlias = Thing
"""A decision about one job: ``do`` is start, hold, stop or resize; ``job`` its name."""


def node_of(name: str, node: Thing) -> Node:
    gpus, cpu = node["offers"]["gpu"], node["offers"]["cpu"]
    health = {"is_ready": node["ready"], "is_cordoned": node["cordoned"]}
    soft_taints = (Taint("old", "", "PreferNoSchedule"),) if node["avoided"] else ()
    return a_node(name, gpus, cpu_millis=cpu, soft_taints=soft_taints, **health)


def queue_of(name: str, queue: Thing) -> Queue:
    return Queue(
        name,
        limit={} if queue["limit"] is None else {GPU: queue["limit"]},
        user_priority=queue["priority"],
        wait_bound_seconds=queue["bound"],
        parent=queue["parent"],
        weight=queue["weight"],
        guaranteed={GPU: queue["guaranteed"]} if queue["guaranteed"] else {},
    )


def snapshot_of(
    things: Things, table: NodeTable, now: float, settings: SchedulingSettings
) -> ClusterSnapshot:
    """Return the snapshot of ``things``, with their nodes as ``table``."""
    jobs = things["job"]
    waiting = (gang_of(name, job) for name, job in jobs.items() if job["phase"] == "waiting")
    queues = [queue_of(name, queue) for name, queue in things["queue"].items()]
    bare = a_snapshot([], *waiting, queues=queues, now=now, settings=settings)
    bare = replace(bare, nodes=table, used=table.allocatable * 0)
    usage: dict[str, dict[str, int]] = {}
    running = []
    for name, job in jobs.items():
        if not job["places"]:
            continue
        for task in _tasks(job["planned"]):
            count = sum(job["places"].get(task.name, {}).values())
            asked = {what: amount * count for what, amount in task.request}
            usage[job["queue"]] = add(usage.get(job["queue"], {}), asked)
        if (held := running_of(name, job, table)) is not None:
            running.append(held)
    return replace(with_running(bare, *running), queue_usage=usage)


def _tasks(tasks: Thing) -> tuple[Task, ...]:
    return tuple(
        a_task(
            task["replicas"],
            task["asks"]["gpu"],
            name=name,
            role=Role(name),
            cpu_millis=task["asks"]["cpu"],
            min_replicas=task["least"],
            max_replicas=task["most"],
        )
        for name, task in tasks.items()
    )


def gang_of(name: str, job: Thing) -> Gang:
    return a_gang(
        name,
        *_tasks(job["tasks"]),
        queue=job["queue"],
        arrived=job["queued"] - job["waited"],
        priority=job["priority"],
        interrupted=job["interrupted"],
        displaced=job["displaced"],
        estimated_seconds=job["estimate"],
        attained_seconds=job["ran"],
        is_elastic=job["elastic"],
        evictions=job["evictions"],
        yields=job["returned"],
        is_resumable=job["resumable"],
        is_preemptible=job["preemptible"],
    )


def running_of(name: str, job: Thing, table: NodeTable) -> RunningGang | None:
    """Return a job as it runs, on the nodes that are known; None when it is on none."""
    places = {task: _known(spread, table) for task, spread in job["places"].items()}
    places = {task: spread for task, spread in places.items() if spread}
    if not places:
        return None
    # It keeps what was planned for it, though its spec may have changed.
    arrived = job["started"] - job["waited"]
    gang = replace(gang_of(name, job), tasks=_tasks(job["planned"]), arrived=arrived)
    is_steady = places == job["places"] and job["tasks"] == job["planned"]
    return a_running(
        replace(gang, is_elastic=gang.is_elastic and is_steady),
        table,
        places,
        started=job["started"],
        resized=job["resized"],
        is_leaving=job["phase"] == "leaving",
        anchor=job["anchor"] if job["anchor"] in table.row else "",
        is_opportunistic=job["yields"],
    )


def _known(spread: dict[str, int], table: NodeTable) -> dict[str, int]:
    return {node: count for node, count in spread.items() if node in table.row}


def moves_of(decision: Decision, table: NodeTable) -> list[Move]:
    return [
        move | {"overdue": True} if move["job"] in decision.overdue else move
        for move in (_move(action, table) for action in decision.actions)
    ]


def _move(action: Action, table: NodeTable) -> Move:
    move: Move
    if isinstance(action, Admit):
        passed = action.passed.uid if action.passed else ""
        places = places_of(action.placement, table)
        move = {"do": "start", "job": action.gang.uid, "places": places, "passed": passed}
        return {**move, "yields": action.is_opportunistic}
    if isinstance(action, Preempt):
        return {"do": "stop", "job": action.gang.uid, "for": action.beneficiary.uid}
    if isinstance(action, Hold):
        move = {"do": "hold", "job": action.gang.uid, "why": action.reason.value}
        move["position"] = action.position
        if action.reservation is not None:
            kept = action.reservation
            move["kept"] = places_of(kept.placement, table)
            move |= {"kept_from": kept.start, "closed": kept.is_closed}
        return move
    if isinstance(action, Vacate):
        return {"do": "vacate", "job": action.gang.uid}
    places = places_of(action.placement, table)
    return {"do": "resize", "job": action.gang.uid, "places": places, "why": action.reason.value}


def places_of(placement: Placement, table: NodeTable) -> Places:
    return {
        part.task: {table.names[row]: int(n) for row, n in zip(part.rows, part.counts, strict=True)}
        for part in placement.tasks
    }
