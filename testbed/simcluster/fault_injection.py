"""Fault injection: faults by name, drawn at seeded moments, and the calm afterwards."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from testbed.simcluster.cluster import SimulatedCluster
from testbed.simcluster.objects import NODES as NODE_PATH
from testbed.simcluster.processes import OperatorProcess, Process
from testbed.simcluster.tenants import NODES, Tenants

Injection = Callable[[], Coroutine[Any, Any, None]]
_SHARES: Final = {
    "conflicts": ("conflicts", 0.2, 0.9),
    "errors": ("errors", 0.1, 0.8),
    "answers_lost": ("late_errors", 0.1, 0.7),
    "slow": ("slow", 0.1, 0.8),
}
"""Fault to the field of :class:`NetworkConditions` and the bounds of its value."""


class FaultInjector:
    def __init__(self, cluster: SimulatedCluster, tenants: Tenants) -> None:
        self._cluster = cluster
        self._tenants = tenants
        self._server = cluster.server
        self._conditions = cluster.conditions
        self._chance = cluster.chance("storms")
        # In order, unlike a set: what they do when they are cancelled is part of the story.
        self._tasks: dict[asyncio.Task[None], None] = {}

    def all(self) -> dict[str, Injection]:
        """Return every fault by its name; a fault ends by itself."""
        own = {
            name.removeprefix("inject_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("inject_")
        }
        shares = {fault: partial(self._share, *rest) for fault, rest in _SHARES.items()}
        tenants = self._tenants
        edits = {
            "job-deleted": tenants.delete_job,
            "objects-annotated": tenants.annotate,
            "job-suspended": tenants.suspend,
            "pod-deleted": tenants.kill_pod,
            "pod-failed": tenants.fail_pod,
            "queue-edited": tenants.edit_queue,
        }
        at_once = {name: _at_once(edit) for name, edit in edits.items()}
        return {**own, **shares, **at_once, "name-taken": tenants.take_name}

    async def run(self, seconds: float) -> None:
        """Inject one fault after another, several at a time, for ``seconds``; then calm."""
        loop, faults = self._cluster.loop, self.all()
        names = self._chance.sample(sorted(faults), self._chance.randint(3, len(faults)))
        end, pause = loop.time() + seconds, self._chance.uniform(1.5, 8.0)
        for unkind in self._cluster.unkind:
            self._keep(unkind.run())
        while loop.time() < end:
            await asyncio.sleep(self._chance.expovariate(1 / pause))
            name = self._chance.choice(names)
            self._cluster.tell(f"fault: {name}")
            self._keep(faults[name]())
        await self._calm()

    def _keep(self, fault: Coroutine[Any, Any, None]) -> None:
        """Start what the calm ends."""
        task = self._cluster.loop.create_task(fault)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _calm(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._conditions.clear()
        for process in self._cluster.processes:
            self._cluster.loop.resume(process.name)
        self._cluster.extender.is_reachable = True
        # Watches that were made deaf stay so: they have to be opened anew.
        self._server.cut()
        for unkind in self._cluster.unkind:
            unkind.clear()
        for name in list(self._cluster.kubelets.lost):
            self._cluster.kubelets.recover(name)
        for index in range(NODES):
            self._cluster.add_node(f"n{index}")
            self._cordon(f"n{index}", False)
        self._tenants.resume_all()
        self._tenants.open_queue()
        self._cluster.calm_seconds = self._cluster.loop.time()
        self._cluster.tell("calm")

    async def _for_a_while(self, most_seconds: float = 30.0) -> None:
        await asyncio.sleep(self._chance.uniform(0.1, most_seconds))

    def _any_process(self) -> Process:
        return self._chance.choice(self._cluster.processes)

    # --- watches ---------------------------------------------------------------------------

    def _any_resource(self) -> str | None:
        open_ = sorted({stream.resource for stream in self._server.streams})
        return self._chance.choice([*open_, None])

    async def inject_watch_closed(self) -> None:
        """Watches of one resource, or all, are cut."""
        self._server.cut(self._any_resource())

    async def inject_history_gone(self) -> None:
        """The API server forgets history: 410."""
        self._server.forget()
        self._server.cut(self._chance.choice((None, self._any_resource())))

    async def inject_watch_lag(self) -> None:
        """One reader is far behind, every kind of object by another time."""
        name = self._chance.choice((*(p.name for p in self._cluster.processes), "scheduler"))
        self._conditions.lag_seconds[name] = self._chance.uniform(0.2, 15.0)
        await self._for_a_while()
        self._conditions.lag_seconds.pop(name, None)

    async def inject_events_twice(self) -> None:
        """The last line of every watch is sent again."""
        for stream in self._server.streams:
            if stream.last:
                stream.put(stream.last)

    async def inject_events_lost(self) -> None:
        """Watches stay open and silent; then they are cut, perhaps with history gone."""
        resource = self._any_resource()
        deaf = [s for s in self._server.streams if resource in (None, s.resource)]
        for stream in deaf:
            stream.is_deaf = True
        await self._for_a_while(60.0)
        if self._chance.random() < 0.5:
            self._server.forget()
        for stream in deaf:
            stream.cut()

    # --- requests --------------------------------------------------------------------------

    async def _share(self, name: str, least: float, most: float) -> None:
        setattr(self._conditions, name, self._chance.uniform(least, most))
        await self._for_a_while()
        setattr(self._conditions, name, 0.0)

    async def inject_api_down(self) -> None:
        self._conditions.is_down = True
        self._server.cut()
        await self._for_a_while(60.0)
        self._conditions.is_down = False

    # --- processes -------------------------------------------------------------------------

    async def inject_killed(self) -> None:
        """A process dies, in the middle of whatever it does."""
        process = self._any_process()
        self._cluster.tell(f"{process.name} is killed")
        await process.kill()

    async def inject_leader_killed(self) -> None:
        for operator in self._cluster.operators:
            if operator.term is not None:
                await operator.kill()

    async def inject_paused(self) -> None:
        """A process stands still, and then goes on as if nothing had been."""
        process = self._any_process()
        self._cluster.tell(f"{process.name} is paused")
        self._cluster.loop.pause(process.name)
        await self._for_a_while(60.0)
        self._cluster.loop.resume(process.name)
        self._cluster.tell(f"{process.name} goes on")

    async def inject_leader_killed_at_a_write(self) -> None:
        """The leader dies just before one of its next writes leaves, or just after."""
        if (leader := await self._trapped()) is not None:
            await leader.kill()

    async def inject_leader_paused_at_a_write(self) -> None:
        """The leader stands still there for longer than its lease lasts, and then goes on."""
        if (leader := await self._trapped()) is not None:
            await asyncio.sleep(self._chance.uniform(15.0, 40.0))
            self._cluster.loop.resume(leader.name)

    async def _trapped(self) -> OperatorProcess | None:
        """Pause the leader at one of its next writes about gangs; None if it writes nothing."""
        leaders = [operator for operator in self._cluster.operators if operator.term is not None]
        if not leaders:
            return None
        leader, left, hit = leaders[0], self._chance.randint(1, 8), asyncio.Event()

        def trap(path: str) -> bool:
            nonlocal left
            # Leases and events are written most often, and a crash at those proves little.
            left -= any(kind in path for kind in ("/pods", "/podgroups", "/trainingjobs"))
            if left == 0 and not hit.is_set():
                self._cluster.tell(f"{leader.name} stops at a write to {path}")
                self._cluster.loop.pause(leader.name)
                hit.set()
                return True
            return False

        leader.plug.trap = trap
        try:
            async with asyncio.timeout(60.0):
                await hit.wait()
        except TimeoutError:
            return None
        finally:
            leader.plug.trap = None
        return leader

    async def inject_extender_unreachable(self) -> None:
        """The scheduler cannot reach the extender, and goes on without it."""
        self._cluster.extender.is_reachable = False
        await self._for_a_while()
        self._cluster.extender.is_reachable = True

    async def inject_scheduler_restarted(self) -> None:
        self._cluster.scheduler.stop()
        try:
            await self._for_a_while(20.0)
        finally:
            self._cluster.scheduler.stop()
            self._cluster.scheduler.start()

    # --- nodes -----------------------------------------------------------------------------

    async def inject_node_lost(self) -> None:
        """A node falls silent, for a moment or for long."""
        name = f"n{self._chance.randrange(NODES)}"
        self._cluster.kubelets.lose(name)
        await self._for_a_while(self._chance.choice((5.0, 120.0)))
        self._cluster.kubelets.recover(name, rebooted=self._cluster.node_faults.has_rebooted())

    async def inject_node_deleted(self) -> None:
        """A node is deleted; perhaps it comes back."""
        name = f"n{self._chance.randrange(NODES)}"
        if ("", name) in self._cluster.store.collection(NODE_PATH).objects:
            self._cluster.store.delete(NODE_PATH, ("", name), {})
        await self._for_a_while(60.0)
        self._cluster.add_node(name)

    async def inject_node_added(self) -> None:
        """The cluster has one more node, and loses it again."""
        self._cluster.add_node("n9")
        await self._for_a_while(90.0)
        if ("", "n9") in self._cluster.store.collection(NODE_PATH).objects:
            self._cluster.store.delete(NODE_PATH, ("", "n9"), {})

    async def inject_node_cordoned(self) -> None:
        name = f"n{self._chance.randrange(NODES)}"
        self._cordon(name, True)
        await self._for_a_while(60.0)
        self._cordon(name, False)

    def _cordon(self, name: str, is_cordoned: bool) -> None:
        node = self._cluster.store.collection(NODE_PATH).objects.get(("", name))
        if node is not None:
            spec = {**node["spec"], "unschedulable": is_cordoned}
            self._cluster.store.update(NODE_PATH, ("", name), {**node, "spec": spec})


def _at_once(edit: Callable[[], None]) -> Injection:
    async def strike() -> None:
        edit()

    return strike
