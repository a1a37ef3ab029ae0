"""What Bireme promises around any policy, judged by the four turns of the demo's story.

Each judgement reads the API server's history alone: plans, pods, and what the objects said at the
time. Late is what comes more than ``GRACE_SECONDS`` after it was promised: the estimates that a
promise rests on do not know how slow a busy machine creates and binds pods.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from tests.support.history.observed import planned_nodes
from tests.support.history.records import Record
from tools.demo.evidence import Evidence, Promise, plan_of, status_of, verdict
from tools.demo.moments import admission
from tools.demo.workload import NAMESPACE, Manifest, Workload

GRACE_SECONDS: Final = 5.0
_RESERVED: Final = re.compile(r"kept for it: (?:\d+ nodes|node) .+, expected free at ([^\s;]+)")


def _told(evidence: Evidence, name: str) -> Record | None:
    """Return the revision of a waiting job that first has a start: the promise that counts."""
    return evidence.first("TrainingJob", name, lambda job: "estimatedStart" in status_of(job))


def reservation(evidence: Evidence, workload: Workload) -> Promise:
    """The blocked gang says when and where it will start, and starts by then."""
    name = workload.named("reserved")
    text = f"a blocked gang says when and where it starts, and starts by then ({GRACE_SECONDS:g} s)"
    told, start = _told(evidence, name), evidence.start(name)
    if told is None or start is None:
        return Promise(text, False, f"{name} was told nothing, or did not start")
    status = status_of(told.manifest)
    earliest = status["estimatedStart"]["earliest"]
    promised, wrong = evidence.seconds_of(earliest), []
    said = _RESERVED.search(status["message"])
    if said is None or said[1] != earliest:
        wrong.append(f"{name} does not say the same in words: {status['message']}")
    if not told.seconds < start.seconds:
        wrong.append(
            f"{name} was told at {told.seconds:.1f} s, it started at {start.seconds:.1f} s"
        )
    if start.seconds > promised + GRACE_SECONDS:
        wrong.append(f"{name} started {start.seconds - promised:.1f} s after the promised time")
    waited = start.seconds - told.seconds
    detail = f"{name} was promised {promised - told.seconds:.1f} s, and waited {waited:.1f} s"
    return verdict(text, wrong, detail)


def backfill(evidence: Evidence, workload: Workload) -> Promise:
    """Until the blocked gang starts, only what ends before starts, and both sides say so."""
    text = "a short gang passes the blocked one and has ended when that starts; long ones wait"
    name, short, long = (workload.named(part) for part in ("reserved", "short", "long"))
    told, start = _told(evidence, name), evidence.start(name)
    passed = evidence.start(short)
    if told is None or start is None or passed is None:
        return Promise(text, False, f"{name} or {short} did not start, or {name} was told nothing")
    wrong = list(_in_the_way(evidence, told, start))
    if not told.seconds < passed.seconds < start.seconds:
        wrong.append(f"{short} did not start between the reservation and the start of {name}")
    ahead = f"ahead of {NAMESPACE}/{name} without delaying it"
    if evidence.first("TrainingJob", short, lambda j: ahead in admission(status_of(j))) is None:
        wrong.append(f"{short} does not say that it passed {name}")
    held = evidence.first("TrainingJob", long, lambda j: _is_held_for(j, name))
    if held is None or not held.seconds < start.seconds:
        wrong.append(f"{long} was not told that it waits for the places of {name}")
    detail = f"{short} ran {start.seconds - passed.seconds:.1f} s before {name} started, {long} not"
    return verdict(text, wrong, detail)


def _in_the_way(evidence: Evidence, told: Record, start: Record) -> Iterator[str]:
    """Yield gangs that started while places were kept and held nodes when these were due."""
    world = evidence.before(start)
    for name, starts in evidence.starts().items():
        began = [r for r in starts if told.revision < r.revision < start.revision]
        if began and any(pod.holds_node for pod in world.members((NAMESPACE, name))):
            yield f"{name} started in between, and held nodes when {start.key[1]} started"


def _is_held_for(job: Manifest, name: str) -> bool:
    status = status_of(job)
    message = str(status.get("message"))
    kept = f"places kept for {NAMESPACE}/{name} from" in message
    return status.get("reason") == "WaitingBehind" and kept and "estimatedDuration" in message


def resize(evidence: Evidence, workload: Workload) -> Promise:
    """The elastic job grows and gives back within one plan, without a restart."""
    name = workload.named("elastic")
    text = (
        "an elastic job grows into idle GPUs and gives back, in one plan, without its rank 0 moving"
    )
    plans = [plan for r in evidence.of("PodGroup", name) if (plan := plan_of(r.manifest))]
    if not plans:
        return Promise(text, False, f"{name} did not start")
    sizes = [len(planned_nodes(plan)) for plan in plans]
    sizes = [n for n, before in zip(sizes, [0, *sizes[:-1]], strict=True) if n != before]
    wrong = [*_out_of_range(evidence, name, sizes), *_moved(evidence, name, plans)]
    wrong += _untold(evidence, name, sizes)
    status = evidence.last_status(name)
    if (status.get("phase"), status.get("attempt")) != ("Succeeded", 0):
        wrong.append(f"it ended as {status.get('phase')}, attempt {status.get('attempt')}")
    steps = ", ".join(map(str, sizes))
    return verdict(text, wrong, f"{name} had {steps} replicas, one after the other")


def _out_of_range(evidence: Evidence, name: str, sizes: list[int]) -> Iterator[str]:
    (task,) = evidence.of("TrainingJob", name)[0].manifest["spec"]["tasks"]
    least, most = task["minReplicas"], task["maxReplicas"]
    if not all(least <= size <= most for size in sizes):
        yield f"{name} had {sizes} replicas, it may have {least} to {most}"


def _moved(evidence: Evidence, name: str, plans: list[Manifest]) -> Iterator[str]:
    """Yield what would make a resize a restart: another plan, or another replica 0."""
    if len({(p["epoch"], p["attempt"], p["plannedTime"]) for p in plans}) > 1:
        yield f"{name} had more than one plan"
    first = {planned_nodes(plan).get(("worker", "0")) for plan in plans}
    pods = {
        (r.manifest["metadata"]["uid"], node)
        for r in evidence.of("Pod", f"{name}-worker-0")
        if (node := r.manifest["spec"].get("nodeName"))
    }
    if len(first) != 1 or {node for _, node in pods} != first or len(pods) != 1:
        yield f"replica 0 of {name} was planned on {first} and seen as {sorted(pods)}"


def _untold(evidence: Evidence, name: str, sizes: list[int]) -> Iterator[str]:
    """Yield growth and shrinking that did not happen, or that no event explains."""
    pairs = list(pairwise(sizes))
    grown, shrunk = evidence.events(name, "Grown"), evidence.events(name, "Shrunk")
    if not any(a < b for a, b in pairs) or not any(a > b for a, b in pairs):
        yield f"{name} had {sizes} replicas: it did not both grow and shrink"
    if not any("into idle capacity" in r.manifest["message"] for r in grown):
        yield f"no event says that {name} grew"
    for record in shrunk:
        words, _, other = record.manifest["message"].rpartition(f"{NAMESPACE}/")
        start = evidence.start(other) if words == "shrunk to make room for " else None
        if start is None or start.seconds > record.seconds + GRACE_SECONDS:
            yield f"{record.manifest['message']!r}, but {other} did not start then"
    if not shrunk:
        yield f"no event says that {name} shrank"
