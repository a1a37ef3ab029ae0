"""A cluster as plain dictionaries, whatever the program knows of it.

Things have the version of their last change, as an API server keeps them. A write names the version
it is based on and is refused where that is not the latest (409). A start is two things: the write
of a plan, and the binding of its replicas, which the cluster refuses where a node is gone, closed
or full.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Thing: TypeAlias = dict[str, Any]
"""A node, a queue or a job; the keys are those that ``a_node``, ``a_queue``, ``a_job`` write."""
Things: TypeAlias = dict[str, dict[str, Thing]]
"""By kind and name."""
Places: TypeAlias = dict[str, dict[str, int]]
"""Replicas by task and node."""
KINDS = ("node", "queue", "job")


def a_node(gpus: int, cpu_millis: int = 96_000) -> Thing:
    offers = {"gpu": gpus, "cpu": cpu_millis}
    return {"offers": offers, "ready": True, "cordoned": False, "avoided": False}


def a_queue(**given: Any) -> Thing:
    plain = {"parent": "", "limit": None, "guaranteed": 0, "weight": None, "priority": 50}
    return {**plain, "bound": None, **given}


def a_task(replicas: int, gpus: int = 1, cpu_millis: int = 1000, **given: Any) -> Thing:
    asks = {"gpu": gpus, "cpu": cpu_millis}
    return {"replicas": replicas, "least": replicas, "most": replicas, "asks": asks, **given}


def a_job(now: float, tasks: Thing, **given: Any) -> Thing:
    job = {"tasks": tasks, "queue": "open", "priority": 0, "elastic": False, "estimate": None}
    history = {"queued": now, "waited": 0.0, "ran": 0.0, "evictions": 0, "interrupted": False}
    state = {"phase": "waiting", "displaced": False, "deleted": False, "yields": False}
    # Gangs that cannot resume, and those that nobody may stop, are kinds of their own.
    consent = {"resumable": True, "preemptible": True, "returned": 0}
    return {**job, **history, **state, **consent, "places": {}, **given}


@dataclass
class ModelCluster:
    """Cluster state, and every change there was.

    Attributes:
        now: The clocks of the program, POSIX seconds; it may jump.
        log: By kind, every change as (name, version, new state; None when it is gone).
    """

    now: float = 1000.0
    revision: int = 0
    things: Things = field(default_factory=lambda: {kind: {} for kind in KINDS})
    log: dict[str, list[tuple[str, int, Thing | None]]] = field(
        default_factory=lambda: {kind: [] for kind in KINDS}
    )

    def put(self, kind: str, name: str, thing: Thing) -> None:
        self.revision += 1
        thing["version"] = self.revision
        self.things[kind][name] = thing
        self.log[kind].append((name, self.revision, copy.deepcopy(thing)))

    def change(self, kind: str, name: str, **changes: Any) -> None:
        self.put(kind, name, {**self.things[kind][name], **changes})

    def remove(self, kind: str, name: str) -> None:
        self.revision += 1
        del self.things[kind][name]
        self.log[kind].append((name, self.revision, None))

    def jobs(self, *phases: str) -> list[str]:
        return sorted(n for n, job in self.things["job"].items() if job["phase"] in phases)

    # --- what the program writes ------------------------------------------------------------

    def is_latest(self, name: str, version: int) -> bool:
        return name in self.things["job"] and self.things["job"][name]["version"] == version

    def start(
        self, name: str, version: int, places: Places, now: float, *, yields: bool = False
    ) -> str:
        """Plan a job and bind it: ``ok``, ``conflict``, or ``unbound`` when it waits again.

        One that ``yields`` starts in places reserved for another.
        """
        if not self.is_latest(name, version):
            return "conflict"
        job = self.things["job"][name]
        times = {"waited": job["waited"] + max(0.0, now - job["queued"]), "started": now}
        planned = {"planned": job["tasks"], "places": places, "resized": float("-inf")}
        # Replica 0 of the first task by name: there the others find each other.
        anchor = min(places.items())[1]
        fresh = {"phase": "running", "displaced": False, "anchor": min(anchor), "yields": yields}
        self.change("job", name, **times, **planned, **fresh)
        if not self._may_bind(name, places):
            self.requeue(name, interrupted=True)
            return "unbound"
        return "ok"

    def resize(self, name: str, version: int, places: Places, now: float) -> str:
        """Change the places of a running job, as :meth:`start` does; unbound, it keeps its own."""
        if not self.is_latest(name, version):
            return "conflict"
        before = self.things["job"][name]["places"]
        self.change("job", name, places=places, resized=now)
        if not self._may_bind(name, added(before, places)):
            self.change("job", name, places=before)
            return "unbound"
        return "ok"

    def stop(self, name: str, version: int) -> str:
        """Stop a running job; it holds its places until it has left."""
        if not self.is_latest(name, version):
            return "conflict"
        job = self.things["job"][name]
        counts = {"evictions": job["evictions"] + 1, "returned": job["returned"] + job["yields"]}
        self.change("job", name, phase="leaving", **counts)
        return "ok"

    # --- what the cluster does --------------------------------------------------------------

    def leave(self, name: str) -> None:
        if self.things["job"][name]["deleted"]:
            self.remove("job", name)
        else:
            self.requeue(name, interrupted=True)

    def requeue(self, name: str, **why: Any) -> None:
        """Let a job wait again; the time it ran is no wait."""
        job = self.things["job"][name]
        ran = job["ran"] + max(0.0, self.now - job["started"])
        self.change("job", name, phase="waiting", places={}, queued=self.now, ran=ran, **why)

    def lose(self, node: str) -> None:
        """Requeue the jobs on a lost node, or remove those that were leaving for good."""
        for name in self.jobs("running", "leaving"):
            job = self.things["job"][name]
            if any(node in spread for spread in job["places"].values()):
                if job["deleted"]:
                    self.remove("job", name)
                else:
                    self.requeue(name, interrupted=True, displaced=True)

    def _may_bind(self, name: str, places: Places) -> bool:
        """Return whether all nodes of ``places`` are open and offer all that they now hold."""
        jobs = self.things["job"]
        nodes, used = self.things["node"], used_by((j, j["places"]) for j in jobs.values())
        return all(
            node in nodes
            and is_open(nodes[node])
            # A pod that asks for nothing binds even where others hold too much.
            and (not amount or used[node, what] <= nodes[node]["offers"].get(what, 0))
            for node, what, amount in asked(jobs[name], places)
        )


def is_open(node: Thing) -> bool:
    return bool(node["ready"]) and not node["cordoned"]


def added(before: Places, after: Places) -> Places:
    """Return the nodes on which a task has more replicas than before."""
    more = {
        task: {n: count for n, count in spread.items() if count > before.get(task, {}).get(n, 0)}
        for task, spread in after.items()
    }
    return {task: spread for task, spread in more.items() if spread}


def used_by(held: Iterable[tuple[Thing, Places]]) -> Counter[tuple[str, str]]:
    """Return what jobs use on their places, by node and resource."""
    used: Counter[tuple[str, str]] = Counter()
    for job, places in held:
        for node, what, amount in asked(job, places):
            used[node, what] += amount
    return used


def asked(job: Thing, places: Places) -> Iterator[tuple[str, str, int]]:
    """Yield the use of ``job`` on ``places``, as (node, resource, amount)."""
    tasks = job["tasks" if job["phase"] == "waiting" else "planned"]
    for task, spread in places.items():
        for node, count in spread.items():
            for what, amount in tasks[task]["asks"].items():
                yield node, what, count * amount
