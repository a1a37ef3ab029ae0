"""Time until a person or the next gang knows: verdicts on a full cluster, and freed capacity.

The rival's figures are for the same number of plain pods: the first condition on one pod that does
not fit, and the last bind of pods that waited in the stock scheduler's queue.
"""

from collections.abc import Callable

from benchmarks.report import Pairs, Result, at_most
from benchmarks.timings.arena import JOBS, PODS, Arena, arena
from benchmarks.timings.cases import Run
from benchmarks.timings.workloads import GANG_LABEL, plain_pods, training_job
from tests.support.scenario.manifests import Manifest

_TIMEOUT_SECONDS = 120.0
_WAITS = "create to WaitingForCapacity"
_NEVER = "create to NeverFits"
_DELETED = "holder deleted: its last pod gone to the next gang's last bind"
_COMPLETES = "holder completes: its last pod done to the next gang's last bind"


async def measure_verdict(run: Run) -> Result:
    nodes, tries = run.pick(500, 20), run.pick(7, 2)
    pairs = Pairs()
    async with arena(nodes, run.workdir) as place:
        for side in ("stock", "bireme"):
            await place.prepare(side)
            await _fill(place, side, "holder", nodes)
            await place.rest()
            for number in range(tries):
                name = f"late-{number}"
                if side == "bireme":
                    pairs.add(side, await _bireme_verdicts(place, nodes, name))
                else:
                    pairs.add(side, {_WAITS: await _stock_verdict(place, name)})
            await place.clear()
            run.say(f"{side}: {tries} verdicts")
    rows = (pairs.row(_WAITS, "s", at_most(0.3)), pairs.row(_NEVER, "s", at_most(0.3)))
    note = (
        "Stock: create to the Unschedulable condition of one plain pod; it has no verdict on a "
        "gang, and none that says never."
    )
    return Result(baseline="stock scheduler", rows=rows, notes=(note,))


async def _bireme_verdicts(place: Arena, nodes: int, name: str) -> dict[str, float]:
    found = {}
    for what, reason, replicas in (
        (_WAITS, "WaitingForCapacity", 4),
        (_NEVER, "NeverFits", nodes + 1),
    ):
        gang, said = f"{name}-{replicas}", place.observer.said
        await place.create(JOBS, [training_job(gang, replicas, 8)])
        await place.observer.until(f"a verdict on {gang}", lambda: gang in said, _TIMEOUT_SECONDS)  # noqa: B023  # awaited within the turn
        if said[gang][1] != reason:
            raise ValueError(f"{gang} was told {said[gang][1]}, expected {reason}")
        found[what] = said[gang][0] - place.submitted[gang]
        await place.delete(f"{JOBS}/{gang}")
        await place.rest()
    return found


async def _stock_verdict(place: Arena, name: str) -> float:
    (pod,) = plain_pods(name, 1, 8)
    told, pod_name = place.observer.unschedulable, pod["metadata"]["name"]
    await place.create(PODS, [pod])
    await place.observer.until("a verdict", lambda: pod_name in told, _TIMEOUT_SECONDS)
    await place.delete(f"{PODS}/{pod_name}", grace_seconds=0)
    await place.rest()
    return told[pod_name] - place.submitted[pod_name]


async def measure_freed(run: Run) -> Result:
    """Measure a gang that takes the whole cluster and ends; the next one needs all of it."""
    nodes, tries = run.pick(64, 8), run.pick(5, 1)
    pairs = Pairs()
    async with arena(nodes, run.workdir) as place:
        for side in ("stock", "bireme"):
            await place.prepare(side)
            for number in range(tries):
                for what, duration in ((_DELETED, ""), (_COMPLETES, "4s")):
                    seconds = await _freed(place, side, nodes, duration)
                    pairs.add(side, {what: seconds})
                    run.say(f"{side} {number + 1}/{tries}: {what} {seconds:.2f} s")
                    await place.clear()
    rows = (pairs.row(_DELETED, "s", at_most(1.0)), pairs.row(_COMPLETES, "s", at_most(1.0)))
    note = f"{nodes} nodes; both gangs are {nodes} pods of 8 GPUs. Stock: plain pods, no gangs."
    return Result(baseline="stock scheduler", rows=rows, notes=(note,))


async def _freed(place: Arena, side: str, nodes: int, duration: str) -> float:
    bound, ended = place.observer.bound, place.observer.ended
    await _fill(place, side, "holder", nodes, duration)
    path, manifests = _gang(side, "next", nodes)
    await place.create(path, manifests)
    if not duration:
        await place.observer.until("the next gang to wait", _waits(place, side), _TIMEOUT_SECONDS)
        await place.rest()
        await _delete_holder(place, side)
    await place.observer.until("both", lambda: len(bound) == 2 * nodes, _TIMEOUT_SECONDS)
    last_end = max(at for name, at in ended.items() if name.startswith("holder-"))
    return max(at for name, at in bound.items() if name.startswith("next-")) - last_end


async def _delete_holder(place: Arena, side: str) -> None:
    if side == "bireme":
        await place.delete(f"{JOBS}/holder")
    else:
        await place.delete(PODS, selector=f"{GANG_LABEL}=holder")


def _waits(place: Arena, side: str) -> Callable[[], bool]:
    seen = place.observer.said if side == "bireme" else place.observer.unschedulable
    return lambda: any(name.startswith("next") for name in seen)


async def _fill(place: Arena, side: str, gang: str, nodes: int, duration: str = "") -> None:
    path, manifests = _gang(side, gang, nodes, duration)
    await place.create(path, manifests)
    bound = place.observer.bound
    await place.observer.until("a full cluster", lambda: len(bound) == nodes, _TIMEOUT_SECONDS)


def _gang(side: str, name: str, nodes: int, duration: str = "") -> tuple[str, list[Manifest]]:
    if side == "bireme":
        return JOBS, [training_job(name, nodes, 8, duration=duration)]
    return PODS, plain_pods(name, nodes, 8, duration=duration)
