"""Time until a user or the next gang knows: verdicts on a full cluster, and freed capacity.

The rival's figures are for the same number of plain pods: the first condition on one pod that does
not fit, and the last bind of pods that waited in the stock scheduler's queue.
"""

from benchmarks.report import Pairs, Result, at_most
from benchmarks.timings.arena import JOBS, PODS, Arena, arena
from benchmarks.timings.cases import Run
from benchmarks.timings.workloads import GANG_LABEL

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
            await place.submit(side, ["holder"], nodes, 8)
            await place.have_bound(nodes, _TIMEOUT_SECONDS)
            await place.rest()
            for number in range(tries):
                name = f"late-{number}"
                if side == "stock":
                    pairs.add(side, {_WAITS: await _stock_verdict(place, name)})
                    continue
                waits = await _bireme_verdict(place, f"{name}-waits", 4, "WaitingForCapacity")
                never = await _bireme_verdict(place, f"{name}-never", nodes + 1, "NeverFits")
                pairs.add(side, {_WAITS: waits, _NEVER: never})
            await place.clear()
            run.say(f"{side}: {tries} verdicts")
    rows = (pairs.row(_WAITS, "s", at_most(0.1)), pairs.row(_NEVER, "s", at_most(0.1)))
    note = (
        "Stock: create to the Unschedulable condition of one plain pod; it has no verdict on a "
        "gang, and none that says never."
    )
    return Result(baseline="stock scheduler", rows=rows, notes=(note,))


async def _bireme_verdict(place: Arena, gang: str, replicas: int, expected: str) -> float:
    reasons = place.observer.reasons
    await place.submit("bireme", [gang], replicas, 8)
    await place.observer.until(f"a verdict on {gang}", lambda: gang in reasons, _TIMEOUT_SECONDS)
    at, reason = reasons[gang]
    if reason != expected:
        raise ValueError(f"the verdict on {gang} is {reason}, expected {expected}")
    seconds = at - place.submitted[gang]
    await place.delete(f"{JOBS}/{gang}")
    await place.rest()
    return seconds


async def _stock_verdict(place: Arena, name: str) -> float:
    pod, unschedulable = f"{name}-worker-0", place.observer.unschedulable
    await place.submit("stock", [name], 1, 8)
    await place.observer.until("a verdict", lambda: pod in unschedulable, _TIMEOUT_SECONDS)
    await place.delete(f"{PODS}/{pod}", grace_seconds=0)
    await place.rest()
    return unschedulable[pod] - place.submitted[pod]


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
    rows = (pairs.row(_DELETED, "s", at_most(0.5)), pairs.row(_COMPLETES, "s", at_most(0.5)))
    note = f"{nodes} nodes; both gangs are {nodes} pods of 8 GPUs. Stock: plain pods, no gangs."
    return Result(baseline="stock scheduler", rows=rows, notes=(note,))


async def _freed(place: Arena, side: str, nodes: int, duration: str) -> float:
    seen, is_bireme = place.observer, side == "bireme"
    await place.submit(side, ["holder"], nodes, 8, duration)
    await place.have_bound(nodes, _TIMEOUT_SECONDS)
    await place.submit(side, ["next"], nodes, 8)
    if not duration:
        waiting = seen.reasons if is_bireme else seen.unschedulable
        await seen.until(
            "the next gang to wait",
            lambda: any(name.startswith("next") for name in waiting),
            _TIMEOUT_SECONDS,
        )
        await place.rest()
        if is_bireme:
            await place.delete(f"{JOBS}/holder")
        else:
            await place.delete(PODS, selector=f"{GANG_LABEL}=holder")
    await place.have_bound(2 * nodes, _TIMEOUT_SECONDS)
    last_end = max(at for name, at in seen.ended.items() if name.startswith("holder-"))
    return max(at for name, at in seen.bound.items() if name.startswith("next-")) - last_end
