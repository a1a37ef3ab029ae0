"""Random clusters that are full of running gangs, some of which must make room or change size.

The worlds of :mod:`tests.support.objects.strategies` hold anything, and so they rarely hold what
leads to a
preemption, a resize or a reservation. These are plain: two nodes, workers of two GPUs each, jobs
of low classes that have run for long, and jobs of higher ones that wait.
"""

from dataclasses import replace

from hypothesis import strategies as st

from bireme.core.gangs import Gang, Task
from bireme.core.queues import Queue
from bireme.core.resources import request_of
from bireme.core.settings import SchedulingSettings
from bireme.testing import a_node
from tests.support.objects import facts, inhabitants
from tests.support.objects.held import Held
from tests.support.objects.worlds import CLASSES, NOW, World, job_manifest
from tools.controlplane.nodes import GPU

QUEUES = (Queue("free", {}, 50, 86_400), Queue("small", {GPU: 12}, 90, 86_400))
NODES = ("n0", "n1")
REQUEST = request_of({"pods": 1, "cpu": 1000, GPU: 2})


@st.composite
def _gangs(draw: st.DrawFn, name: str) -> Gang:
    replicas, is_elastic = draw(st.integers(1, 4)), draw(st.booleans())
    most = replicas + draw(st.integers(0, 2)) if is_elastic else 0
    worker = Task("worker", replicas, REQUEST, min_replicas=int(is_elastic), max_replicas=most)
    return Gang(
        uid=f"{name}-uid",
        name=name,
        namespace="default",
        queue=draw(st.sampled_from(("free", "free", "small"))),
        tasks=(worker,),
        arrived=NOW - draw(st.sampled_from((0, 10, 1000))),
        user="default",
        estimated_seconds=draw(st.sampled_from((None, 12_000, 20_000))),
        is_elastic=is_elastic and worker.minimum < worker.maximum,
    )


def _run(draw: st.DrawFn, world: World, gang: Gang) -> None:
    """``gang`` runs on both nodes, all its pods bound; now and then it is being stopped."""
    class_name = draw(st.sampled_from((None, "low")))
    attempt = draw(st.sampled_from((0, 0, 0, 0, 1)))
    status = {"phase": "Restarting" if attempt else "Running", "attempt": attempt}
    manifest = job_manifest(gang, 0, class_name, status)
    job = inhabitants.job_facts(manifest)
    planned = NOW - draw(st.sampled_from((10, 10_000)))
    where = draw(st.permutations(NODES))
    plan = facts.a_plan(job, where, attempt=0, planned=planned)
    world.add_object("job", manifest)
    world.add_object("group", inhabitants.own_group(gang, plan))
    holder = replace(
        gang,
        priority=CLASSES.get(class_name or "", 0),
        interrupted=bool(attempt),
        is_elastic=gang.is_elastic and not attempt,
    )
    held = Held(holder, planned, is_leaving=bool(attempt))
    world.held.append(held)
    for member in plan.members:
        inhabitants.own_member(draw, world, job, plan, member, ("bound",), held)


@st.composite
def contests(draw: st.DrawFn) -> World:
    """Two nodes of eight GPUs, running gangs as far as there is room, and some that wait."""
    nodes = tuple(a_node(name) for name in NODES)
    orderer = draw(st.sampled_from(("combined-priority", "combined-priority", "fifo")))
    world = World(nodes, SchedulingSettings(orderer=orderer), QUEUES)
    free = dict.fromkeys(NODES, 4)
    for index in range(draw(st.integers(1, 5))):
        gang = draw(_gangs(f"run{index}"))
        each = (gang.replicas + 1) // 2
        if each <= min(free.values()):
            _run(draw, world, gang)
            free = {name: room - each for name, room in free.items()}
    for index in range(draw(st.integers(1, 3))):
        gang = draw(_gangs(f"wait{index}"))
        class_name = draw(st.sampled_from((None, "high", "high")))
        world.add_object("job", job_manifest(gang, 0, class_name, {}))
        world.waiting.append(replace(gang, priority=CLASSES.get(class_name or "", 0)))
    return world
